"""The command line: parsers, loading of flows, and the command that runs a flow."""
