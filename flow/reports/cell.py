"""The line of progress below a notebook's cell, and an interrupt of the cell without a trace.

IPython is not imported: a program that runs in a notebook has loaded it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import uuid
from html import escape
from typing import Any

from flow.errors import printable
from flow.reports.rate_limit import RateLimit, Seconds

_INTERVAL_SECONDS = 0.25
"""The least time between two changes of a line: a notebook stores each on its way."""


class CellLine:
    """A line below the cell that runs now, overwritten in place; any thread may show a text.

    Args:
        display: IPython's function to show an object.
        clock: the clock that limits the rate of changes.
    """

    def __init__(self, display: Any, clock: Seconds = time.monotonic) -> None:
        self._display = display
        self._id = uuid.uuid4().hex
        self._limit = RateLimit(_INTERVAL_SECONDS, clock)
        self._lock = threading.Lock()
        self._shown: str | None = None
        self._latest = ""

    @classmethod
    def here(cls) -> CellLine | None:
        """Return a line below the cell that runs now; ``None`` outside a notebook."""
        return cls(sys.modules["IPython.display"].display) if in_notebook() else None

    def show(self, text: str) -> None:
        """Show a text now, or soon after the text before."""
        with self._lock:
            self._latest = text
            if self._limit.allows():
                self._push()

    def end(self) -> None:
        """Show the last text."""
        with self._lock:
            if self._latest != self._shown:
                self._push()

    def _push(self) -> None:
        text = printable(" ".join(self._latest.split()))
        html = f'<span style="font-variant-numeric: tabular-nums">{escape(text)}</span>'
        bundle = {"text/plain": text, "text/html": html}
        is_update = self._shown is not None
        self._shown = self._latest
        with contextlib.suppress(Exception):  # A closed notebook must not stop a flow.
            self._display(bundle, raw=True, display_id=self._id, update=is_update)


class CellInterrupted(KeyboardInterrupt):
    """The interrupt of a cell, which a notebook shows as one line."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in the place of a trace."""
        return [str(self)]


def in_notebook() -> bool:
    """Return True in the kernel of a notebook."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None and "IPython.display" in sys.modules
