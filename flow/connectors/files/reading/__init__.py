"""Reading of files: lists of files, plans of epochs, and the sources by format."""
