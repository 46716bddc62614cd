"""The command line: commands, how they find a flow, and what they print."""
