"""Writing of files: directories of epochs, and the sinks by format."""
