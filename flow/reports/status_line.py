"""The status line of a terminal, overwritten in place below all other output."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TextIO, cast

from flow.errors import printable


class Line(Protocol):
    """A line that shows the latest of several texts."""

    def show(self, text: str) -> None:
        """Show a text in the place of the text before."""


class StatusLine:
    """The last line of a terminal, overwritten in place below all other output.

    Args:
        terminal: the terminal's stream.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._lock = threading.RLock()
        self._is_shown = False
        self._is_mid_line = False

    @classmethod
    def on(cls, stream: TextIO) -> StatusLine | None:
        """Return the status line of a terminal; ``None`` for a stream that cannot overwrite."""
        can_overwrite = stream.isatty() and os.environ.get("TERM") != "dumb"
        return cls(stream) if can_overwrite else None

    def show(self, text: str) -> None:
        """Show a text, unless other output is in the middle of a line."""
        with self._lock:
            if not self._is_mid_line:
                line = printable(" ".join(text.split()))
                self._write_to_terminal(f"\r\x1b[K{line[: self._width() - 1]}")
                self._is_shown = True

    def clear(self) -> None:
        """Remove the line's text."""
        with self._lock:
            if self._is_shown:
                self._write_to_terminal("\r\x1b[K")
                self._is_shown = False

    @contextlib.contextmanager
    def below_output(self) -> Iterator[None]:
        """Redirect the output of the block to lines above the status line."""
        out, err = sys.stdout, sys.stderr
        if out.isatty():
            sys.stdout = cast(TextIO, _StreamAbove(out, self))
        sys.stderr = cast(TextIO, _StreamAbove(err, self))
        try:
            yield
        finally:
            self.clear()
            sys.stdout, sys.stderr = out, err

    def write_above(self, stream: TextIO, text: str) -> int:
        """Remove the status line, and write to another stream of the same terminal."""
        with self._lock:
            self.clear()
            if text:
                self._is_mid_line = not text.endswith("\n")
            return stream.write(text)

    def _write_to_terminal(self, text: str) -> None:
        """Write text to the terminal as it is, and flush; errors of the terminal are ignored."""
        with contextlib.suppress(OSError, ValueError):  # A closed terminal must not stop a flow.
            self._terminal.write(text)
            self._terminal.flush()

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._terminal.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


class _StreamAbove:
    """A stream that removes the status line before each write."""

    def __init__(self, stream: TextIO, line: StatusLine) -> None:
        self._stream = stream
        self._line = line

    def write(self, text: str) -> int:
        return self._line.write_above(self._stream, text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
