"""Counts of the segments of state that epochs in a test's process read and write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from flow.engine.state.store import MemoryStore


def count_segments(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a counter of segments, ``read`` and ``written``, from now to the end of the test."""
    counted = Counter[str]()
    read, write = MemoryStore.read_segments, MemoryStore.write_segments

    def counting_read(
        self: MemoryStore, step_id: str, numbers: Sequence[int]
    ) -> list[bytes | None]:
        counted.update("read" for _ in numbers)
        return read(self, step_id, numbers)

    def counting_write(
        self: MemoryStore, step_id: str, contents: Mapping[int, bytes | None]
    ) -> None:
        counted.update("written" for _ in contents)
        write(self, step_id, contents)

    monkeypatch.setattr(MemoryStore, "read_segments", counting_read)
    monkeypatch.setattr(MemoryStore, "write_segments", counting_write)
    return counted
