"""The live page of a run: a server in the driver's process, and the page's files."""
