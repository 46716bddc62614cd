"""Headers and segments of the shard at hand in Spark's state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flow.engine.spark.session.disks import NO_SPACE, RunDisks
from flow.engine.spark.session.failures import StateLost
from flow.engine.spark.startup.local_copies import STAMP_BYTES, LocalCopies, pays
from flow.engine.spark.state_calls import StateCalls
from flow.engine.state.header import Header
from flow.engine.state.packed import pack, unpack
from flow.engine.state.store import PROGRESS_SEGMENT


@dataclass(slots=True)
class _Kept:
    """What Spark's state holds of a step, as far as it is known.

    Attributes:
        header: the header, without a stamp; ``None`` when there is none yet.
        stamp: what names the worker's copy of the segments that were written last; empty where
            there is none.
    """

    header: bytes | None
    stamp: bytes

    @classmethod
    def of(cls, content: bytes | None) -> _Kept:
        """What a header in Spark's state says."""
        length = 0 if content is None else Header.length_in(content)
        if content is None or len(content) != length + STAMP_BYTES:
            return cls(content, b"")
        return cls(content[:length], content[length:])

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return 1 if self.header is None else Header.segments_in(self.header)


class SparkStore:
    """A `StateStore` in Spark's state, where a step may keep its state under another name.

    A header may have the stamp of a copy behind it, see
    `flow.engine.spark.startup.local_copies`. It goes there with the segments of
    which that is a copy, and goes away with whatever is written after them.

    Args:
        headers: a `MapState`, step to header.
        segments: a `MapState`, step and number to segment, which is kept packed.
        names: the names that steps keep their state under, where these are not their ids.
        folder: where the worker may keep copies; ``None`` for nowhere.
        disks: where Spark writes the state.
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
        self._segments = StateCalls(segments)
        self._names = names
        self._folder = folder
        self._disks = disks or RunDisks()
        self._lost: StateLost | None = None
        self.enter(0)

    def enter(self, shard: int) -> None:
        """Turn to a shard, which is the one that Spark has called."""
        self._shard = shard
        self._known: dict[str, _Kept] = {}

    def check(self) -> None:
        """Make sure that all calls have reached Spark's state.

        Raises:
            StateLost: when one has not, whatever its caller has made of that.
        """
        if self._lost is not None:
            raise self._lost

    def read_header(self, step_id: str) -> bytes | None:
        return self._kept(self._names.get(step_id, step_id)).header

    def write_header(self, step_id: str, content: bytes) -> None:
        name = self._names.get(step_id, step_id)
        kept = self._kept(name)
        kept.header = content
        self._update_header(name, content + kept.stamp)

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        name = self._names.get(step_id, step_id)
        found: dict[int, Any] = dict(self._copied(name, len(numbers)))
        missing = [number for number in numbers if number not in found]
        with self._reaching():
            read = self._segments.get((name, number) for number in missing)
        found.update(zip(missing, read, strict=True))
        contents = (found[number] for number in numbers)
        return [None if one is None else unpack(bytes(one)) for one in contents]

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        name = self._names.get(step_id, step_id)
        packed = {number: None if one is None else pack(one) for number, one in contents.items()}
        with self._reaching():
            self._segments.put(((name, number), one) for number, one in packed.items())
        if packed.keys() - {PROGRESS_SEGMENT}:
            self._stamp(name, packed)

    def put(self, name: str, number: int | None, content: bytes) -> None:
        """Put a segment in place, or with no number a header, under the name it is kept by."""
        if number is None:
            header = _Kept.of(content).header
            self._known[name] = _Kept(header, b"")
            self._update_header(name, header)
        else:
            with self._reaching():
                self._segments.put([((name, number), pack(content))])

    def drop(self, name: str) -> None:
        """Remove all that is kept under a name."""
        header = self._kept(name).header
        if header is None:
            return
        numbers = (PROGRESS_SEGMENT, *range(Header.decode(header, name).segments))
        with self._reaching():
            self._segments.put(((name, number), None) for number in numbers)
            self._headers.removeKey((name,))
        self._known[name] = _Kept(None, b"")

    def _kept(self, name: str) -> _Kept:
        """What is known of a step's state, which is read when it is asked for first."""
        if name not in self._known:
            with self._reaching():
                found = self._headers.getValue((name,))
            self._known[name] = _Kept.of(None if found is None else bytes(found[0]))
        return self._known[name]

    def _copied(self, name: str, count: int) -> dict[int, bytes]:
        """What the worker has a copy of, where so many segments are worth looking."""
        if self._folder is None:
            return {}
        kept = self._kept(name)
        if not kept.stamp or not pays(count, kept.segments):
            return {}
        return LocalCopies(self._folder, name, self._shard).find(kept.stamp)

    def _stamp(self, name: str, packed: Mapping[int, bytes | None]) -> None:
        """Keep a copy of what was written, if that pays, and let the header name it, or none."""
        kept = self._kept(name)
        before, kept.stamp = kept.stamp, b""
        if self._folder is not None:
            copies = LocalCopies(self._folder, name, self._shard)
            if pays(len(packed), kept.segments):
                kept.stamp = copies.keep(packed)
            elif before:
                copies.drop()
        if kept.stamp != before and kept.header is not None:
            self._update_header(name, kept.header + kept.stamp)

    def _update_header(self, name: str, content: bytes | None) -> None:
        with self._reaching():
            self._headers.updateValue((name,), (content,))

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Explain a connection to Spark's state that has ended: often a disk is full."""
        try:
            yield
        except (EOFError, ConnectionError) as error:
            full = self._disks.full()
            why = f"{NO_SPACE}: {', '.join(full)}" if full else type(error).__name__
            self._lost = self._lost or StateLost(why)
            raise self._lost from error
