"""Headers and segments of the current shard in Spark's state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flow.engine.spark.local_copies import STAMP_BYTES, LocalCopies, pays
from flow.engine.spark.session.failures import NO_SPACE, RunDisks, StateLost
from flow.engine.spark.state_calls import state_calls
from flow.engine.state.header import Header
from flow.engine.state.packed import pack, unpack
from flow.engine.state.store import PROGRESS_SEGMENT


@dataclass(slots=True)
class _StepEntry:
    """Header of a step in Spark's state.

    Attributes:
        header: the header without stamp; ``None`` if the step has no state.
        stamp: stamp of the worker's copy of the segments written last; empty without a copy.
    """

    header: bytes | None
    stamp: bytes

    @classmethod
    def of(cls, content: bytes | None) -> _StepEntry:
        """Return the entry of a header in Spark's state, which a stamp may follow."""
        length = 0 if content is None else Header.length_in(content)
        if content is None or len(content) != length + STAMP_BYTES:
            return cls(content, b"")
        return cls(content[:length], content[length:])

    @property
    def segments(self) -> int:
        """Number of segments of the shard."""
        return 1 if self.header is None else Header.segments_in(self.header)


class SparkStore:
    """A `StateStore` in Spark's state; a step's name in state may differ from its id.

    The stamp of a worker's copy may follow a header, see `flow.engine.spark.local_copies`.
    A write of segments sets or removes the stamp.

    Args:
        headers: a `MapState`, step to header.
        segments: a `MapState`, step and number to packed segment.
        names: names of steps in state, by step id, where the two differ.
        folder: folder of the worker's copies; ``None`` for no copies.
        disks: disks to which Spark writes the state.
    """

    def __init__(
        self,
        headers: Any,
        segments: Any,
        names: Mapping[str, str],
        folder: Path | None = None,
        disks: RunDisks | None = None,
    ) -> None:
        self._headers = headers
        self._segments = state_calls(segments)
        self._names = names
        self._folder = folder
        self._disks = disks or RunDisks()
        self._lost: StateLost | None = None
        self.enter(0)

    def enter(self, shard: int) -> None:
        """Set the current shard, and clear the headers of the shard before."""
        self._shard = shard
        self._known: dict[str, _StepEntry] = {}

    def check(self) -> None:
        """Check that all calls have reached Spark's state.

        Raises:
            StateLost: when a call has failed, even if its caller has handled the error.
        """
        if self._lost is not None:
            raise self._lost

    def read_header(self, step_id: str) -> bytes | None:
        return self._entry(self._names.get(step_id, step_id)).header

    def write_header(self, step_id: str, content: bytes) -> None:
        name = self._names.get(step_id, step_id)
        entry = self._entry(name)
        entry.header = content
        self._update_header(name, content + entry.stamp)

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        name = self._names.get(step_id, step_id)
        segments: dict[int, Any] = dict(self._copied(name, len(numbers)))
        missing = [number for number in numbers if number not in segments]
        with self._reaching():
            values = self._segments.get((name, number) for number in missing)
        segments.update(zip(missing, values, strict=True))
        contents = (segments[number] for number in numbers)
        return [None if content is None else unpack(bytes(content)) for content in contents]

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        name = self._names.get(step_id, step_id)
        packed = {number: None if one is None else pack(one) for number, one in contents.items()}
        with self._reaching():
            self._segments.put(((name, number), one) for number, one in packed.items())
        if packed.keys() - {PROGRESS_SEGMENT}:
            self._stamp(name, packed)

    def put(self, name: str, number: int | None, content: bytes) -> None:
        """Write a segment by its name in state; a header if `number` is ``None``."""
        if number is None:
            header = _StepEntry.of(content).header
            self._known[name] = _StepEntry(header, b"")
            self._update_header(name, header)
        else:
            with self._reaching():
                self._segments.put([((name, number), pack(content))])

    def drop(self, name: str) -> None:
        """Remove the header and all segments of a name."""
        header = self._entry(name).header
        if header is None:
            return
        numbers = (PROGRESS_SEGMENT, *range(Header.decode(header, name).segments))
        with self._reaching():
            self._segments.put(((name, number), None) for number in numbers)
            self._headers.removeKey((name,))
        self._known[name] = _StepEntry(None, b"")

    def _entry(self, name: str) -> _StepEntry:
        """Return a step's entry; the first call for a shard reads the header."""
        if name not in self._known:
            with self._reaching():
                row = self._headers.getValue((name,))
            self._known[name] = _StepEntry.of(None if row is None else bytes(row[0]))
        return self._known[name]

    def _copied(self, name: str, count: int) -> dict[int, bytes]:
        """Return the segments in the worker's copy, if reading it pays for `count` segments."""
        if self._folder is None:
            return {}
        entry = self._entry(name)
        if not entry.stamp or not pays(count, entry.segments):
            return {}
        return LocalCopies(self._folder, name, self._shard).find(entry.stamp)

    def _stamp(self, name: str, packed: Mapping[int, bytes | None]) -> None:
        """Copy the written segments if that pays, and update the header's stamp."""
        entry = self._entry(name)
        before, entry.stamp = entry.stamp, b""
        if self._folder is not None:
            copies = LocalCopies(self._folder, name, self._shard)
            if pays(len(packed), entry.segments):
                entry.stamp = copies.keep(packed)
            elif before:
                copies.drop()
        if entry.stamp != before and entry.header is not None:
            self._update_header(name, entry.header + entry.stamp)

    def _update_header(self, name: str, content: bytes | None) -> None:
        with self._reaching():
            self._headers.updateValue((name,), (content,))

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Raise `StateLost` if the connection to Spark's state ends, often due to a full disk."""
        try:
            yield
        except (EOFError, ConnectionError) as error:
            full = self._disks.full()
            reason = f"{NO_SPACE}: {', '.join(full)}" if full else type(error).__name__
            self._lost = self._lost or StateLost(reason)
            raise self._lost from error
