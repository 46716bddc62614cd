"""A run of the flow that follows files, in a process that a compaction of its log kills.

``python -m tests.support.followed_child HOME WHEN``: ``before`` anything is removed that the
summary replaces, or ``after`` a file of it is.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from flow.engine.checkpoint.storage import Storage
from tests.support.followed_files import compact_at_once, count_lines


def main() -> None:
    """Run the flow until the compaction kills the process."""
    home, when = Path(sys.argv[1]), sys.argv[2]
    write_bytes, remove = Storage.write_bytes, Storage.remove
    summaries: list[str] = []

    def writes(self: Storage, name: str, data: bytes) -> None:
        write_bytes(self, name, data)
        if name.endswith(".summary"):
            summaries.append(name)
            if when == "before":
                os.kill(os.getpid(), signal.SIGKILL)

    def removes(self: Storage, name: str) -> None:
        remove(self, name)
        if summaries and name.endswith((".page.json", ".summary")):
            os.kill(os.getpid(), signal.SIGKILL)

    compact_at_once(lambda module, name, value: setattr(module, name, value))
    patched: Any = Storage
    patched.write_bytes, patched.remove = writes, removes
    count_lines(home)


if __name__ == "__main__":
    main()
