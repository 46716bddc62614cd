"""Places of files: paths and URIs, credentials in them, and errors of file systems."""
