"""Messages of commands on standard error."""

from __future__ import annotations

import sys

from flow.errors import printable


def print_error(message: str) -> None:
    """Write an error message to standard error."""
    print_message(f"error: {message}")


def print_message(text: str) -> None:
    """Write text to standard error, without control characters."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()
