"""Text on standard output, whatever it can encode, until its reader ends."""

from __future__ import annotations

import os
import sys

from flow.errors import SinkError


def print_text(text: str) -> None:
    """Print text at once; a character that standard output cannot encode becomes an escape.

    Closed standard output takes nothing, as for Python's own `print`.

    Raises:
        SinkError: the program that reads standard output, such as ``head``, has ended.
    """
    if sys.stdout is None:
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(f"{text}\n".encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would flush what is left as it ends, and print a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SinkError("the program that reads standard output has ended") from None
