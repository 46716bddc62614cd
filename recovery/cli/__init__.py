"""The command line of the tools: ``python -m recovery COMMAND DIR``."""

from recovery.cli.commands import main

__all__ = ["main"]
