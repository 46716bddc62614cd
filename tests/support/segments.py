"""Segments of state: their size, and counts of those that epochs in a test's process use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

import pytest

from flow.engine.packets import shards
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


class CountingStore(MemoryStore):
    """A store that counts calls about headers, and notes segments that are read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.read: list[int] = []
        self.written: list[int] = []

    def forget(self) -> None:
        """Forget what has been counted so far."""
        self.calls.clear()
        self.read.clear()
        self.written.clear()

    def read_header(self, step_id: str) -> bytes | None:
        self.calls["read_header"] += 1
        return super().read_header(step_id)

    def write_header(self, step_id: str, content: bytes) -> None:
        self.calls["write_header"] += 1
        super().write_header(step_id, content)

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        self.read += numbers
        return super().read_segments(step_id, numbers)

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        self.written += contents
        super().write_segments(step_id, contents)


@contextmanager
def segments_of(target_bytes: int) -> Iterator[None]:
    """Aim at segments of this size."""
    with mock.patch.object(shards, "TARGET_BYTES", target_bytes):
        yield
