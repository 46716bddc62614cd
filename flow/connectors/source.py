"""What a source is: the contract between the engines and everything that can be read.

A source is configuration. It does two things, in two places:

- where the flow was started, its `Planner` decides what each epoch reads, and says it as an offset
  and as *splits*, both plain JSON, which are logged before the epoch runs;
- in the workers, `Source.read` reads one split. It must give the same items each time it is asked,
  because an epoch that failed is run again from what was logged.

Most sources of one's own need only `PartitionedSource`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from typing_extensions import override

from flow.errors import SourceError, TimestampError, printable, shorten
from flow.instants import Instant, instant_us

X = TypeVar("X")

Json: TypeAlias = Any
"""Whatever `json.dumps` takes: offsets and splits are made of it."""

OnInvalid: TypeAlias = Literal["fail", "drop", "errors"]
"""What to do with something that cannot be read: stop the flow, count and leave out, or send it to
the ``errors`` stream of `op.try_input`."""

ON_INVALID = ("fail", "drop", "errors")

_PARTITIONS_SHOWN = 3
"""Partitions that the progress line names, at most."""


@dataclass(frozen=True)
class BadInput:
    """Something a source could not read.

    Attributes:
        where: where it stands, such as ``data/a.jsonl, line 3``.
        text: the text itself, cut to a sane length.
        reason: why it cannot be read.
    """

    where: str
    text: str
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.where}: {self.reason}: {self.text}")


@dataclass(frozen=True)
class Invalid:
    """A batch of what could not be read, among the batches that `Source.read` yields."""

    inputs: list[BadInput]


Batch: TypeAlias = "list[Any] | pa.RecordBatch | Invalid"
"""What `Source.read` yields: a list of objects, a record batch, or what could not be read."""


@dataclass(frozen=True)
class Split:
    """A piece of an epoch's input that one task reads.

    Attributes:
        what: JSON that tells `Source.read` what to read.
        partition: the source partition it belongs to; partitions interleave, item by item.
        order: its place among the splits of its partition in the epoch.
    """

    what: Json
    partition: int = 0
    order: int = 0


@dataclass(frozen=True)
class Slice:
    """What one epoch reads of a source.

    Attributes:
        end: the offset after it, JSON; the next slice starts there.
        splits: the pieces to read.
        advance_us: by how much system time moves before it; for tests.
        abort: whether the run must die in this epoch, as in a crash; for tests.
        behind: the source partitions of which more is known to be there than the slice reads. A
            partition of a bounded source is behind until its end.
    """

    end: Json
    splits: Sequence[Split] = ()
    advance_us: int = 0
    abort: bool = False
    behind: Collection[int] = ()


class SourceLog(Protocol):
    """A durable list that a planner may append to, kept with the flow's checkpoint.

    For what is too large for an offset, such as the files that have been seen.
    """

    def entries(self) -> list[Json]:
        """All that was ever appended, in order."""

    def append(self, entry: Json) -> None:
        """Add an entry; it is on disk when this returns."""


class MemoryLog:
    """A `SourceLog` in memory."""

    def __init__(self) -> None:
        self._entries: list[Json] = []

    def entries(self) -> list[Json]:
        """All that was ever appended, in order."""
        return list(self._entries)

    def append(self, entry: Json) -> None:
        """Add an entry."""
        self._entries.append(entry)


class Planner(ABC):
    """Decides, for one run, what each epoch reads of one source."""

    @abstractmethod
    def next(self, start: Json | None) -> Slice | None:
        """Plan the next epoch's slice.

        Args:
            start: where the slice before ended, ``None`` at the very beginning.

        Returns:
            The slice, or ``None`` when there is nothing to read now.
        """

    @abstractmethod
    def finished(self, start: Json | None) -> bool:
        """Whether nothing will come after `start` in this run."""

    def stop_at_present(self) -> None:  # noqa: B027  (most sources say "nothing now" soon enough)
        """Called before the first slice of a run that reads what there is and then ends.

        Where more comes all the time, "what there is" is what there was at this moment.
        """

    def read_until_us(self, now_us: int, behind: bool) -> int | None:
        """Return the system time up to which the source is read, once the last slice is read.

        All that had arrived at the source by that time lies in that slice or in one before. The
        watermarks of event clocks follow this time, so that nothing that waits to be read is late.

        Args:
            now_us: what the system clock showed just before the last call of `next`, in
                microseconds since the Unix epoch.
            behind: whether the last slice left something behind.

        Returns:
            Microseconds since the Unix epoch; ``None`` when the source cannot tell: its time then
            stays where it was.
        """
        return None if behind or self.in_doubt() else now_us

    def hear(self, reached_us: Mapping[int, int]) -> None:  # noqa: B027  (most sources read in order)
        """Called before `next` with how far each source partition has come in event time.

        For a source that chooses which partition to read next: the one furthest behind comes first,
        so that what is held back for the others stays small.

        Args:
            reached_us: by source partition, the greatest timestamp that it has brought to a
                windowing step less the step's wait, in microseconds since the Unix epoch; only
                partitions of which that is known.
        """

    def name_of(self, partition: int) -> str:
        """Return a name of a source partition for people, such as a file or a topic's partition."""
        return f"partition {partition}"

    def in_doubt(self) -> bool:
        """Whether `next` has just said "nothing now" without knowing, as of brokers out of reach.

        A run that ends when there is nothing more goes on asking then, until it is asked to stop.
        """
        return False

    def behind(self, start: Json | None) -> Mapping[str, int]:  # noqa: ARG002
        """How many items wait behind `start`, by source partition; empty when not known."""
        return {}

    def lag(self, start: Json | None) -> str:
        """Return how far behind the run is, in words, for the progress line; empty if not known.

        By default made of `behind`.
        """
        behind = self.behind(start)
        return behind_text(behind, _PARTITIONS_SHOWN) if behind else ""

    def close(self) -> None:  # noqa: B027  (most planners have nothing to let go of)
        """Called once when the run ends."""


class Source(ABC, Generic[X]):
    """Something to read, as configuration.

    Attributes:
        bounded: whether it ends by itself.
        on_invalid: what to do with what cannot be read.
        is_frame: whether Spark itself reads it, a data frame.
    """

    is_frame: ClassVar[bool] = False
    bounded: bool = True
    on_invalid: OnInvalid = "fail"

    @property
    def needs_streaming(self) -> bool:
        """Whether a batch run would change what the source means, as moved system time does."""
        return False

    @abstractmethod
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        """Start planning a run.

        Args:
            log: the durable list of this source.
            parallelism: how many tasks can read at once.
        """

    @abstractmethod
    def read(self, split: Split) -> Iterator[Batch]:
        """Read a split, in order, in a worker; the same items each time."""

    def identity(self) -> Json:
        """Return what the source reads, as JSON without secrets; ``None`` to have nothing compared.

        A checkpoint keeps it beside the offsets, which mean something in this input alone. A run
        that goes on with another identity asks `continues`. Offsets that name what they are
        offsets of, such as the topics of Kafka, need none.
        """
        return None

    def continues(self, before: Json) -> str | None:  # noqa: ARG002
        """Say how a run goes on from offsets of a source with another `identity`.

        Args:
            before: what `identity` returned in the run before.

        Returns:
            What is read from there on, in words; ``None`` where the offsets mean nothing here, so
            that the run is refused.
        """
        return None

    def read_fields(self, split: Split, fields: frozenset[str]) -> Iterator[Batch]:  # noqa: ARG002
        """As `read`, where nobody reads other fields of records: they may be left out."""
        return self.read(split)


class PartitionedSource(Source[X]):
    """A source of several partitions, each with offsets of its own: the base for one's own.

    A partition is *behind* while it has more than an epoch reads, and a partition of a `bounded`
    source until its end. A partition that is behind holds the watermarks of the steps it feeds, so
    that nothing on time is late while a backlog is read. A source whose `next_offset` always has
    more is always behind: its watermarks follow the timestamps of its items alone.

    In a backlog the partition furthest behind in event time is read first. An epoch leaves out a
    partition that is further ahead of it than it came forward when it was read last. All
    partitions are read while nothing is known of that: in the first epochs of a run, after an
    epoch in which the partition furthest behind stood still, and where no step uses event time.

    Example:
        >>> class Squares(PartitionedSource[int]):
        ...     def partitions(self):
        ...         return ["all"]
        ...     def first_offset(self, partition):
        ...         return 0
        ...     def next_offset(self, partition, start):
        ...         return None if start >= 6 else start + 3
        ...     def read_partition(self, partition, start, end):
        ...         yield [n * n for n in range(start, end)]
        >>> from flow.testing import run_source
        >>> run_source(Squares())
        [0, 1, 4, 9, 16, 25]
    """

    @abstractmethod
    def partitions(self) -> Sequence[str]:
        """The partitions there are now; a run that goes on asks again, new ones may appear."""

    @abstractmethod
    def first_offset(self, partition: str) -> Json:
        """Where a partition starts."""

    @abstractmethod
    def next_offset(self, partition: str, start: Json) -> Json | None:
        """Where the next epoch's piece of a partition ends.

        Returns:
            The offset; `start` itself when there is nothing new now; ``None`` when nothing will
            ever come, which a source that is not `bounded` must not return. It is called more than
            once for an epoch, also with `start` where the epoch ends, to know what is left.
        """

    @abstractmethod
    def read_partition(
        self, partition: str, start: Json, end: Json
    ) -> Iterable[Sequence[X] | pa.RecordBatch | Invalid]:
        """Read from `start` up to `end`, in batches, in a worker; the same items each time."""

    def arrived(self, partition: str, offset: Json) -> Instant | None:  # noqa: ARG002
        """Return the system time at which the last item before `offset` arrived at the source.

        Asked for the partitions that are behind, where an epoch ends. Event clocks that idle
        (``on_idle="advance"``) then advance while a backlog is read; without it they wait until
        all is read.

        Returns:
            An aware datetime, Unix seconds or ISO 8601 text: no item at or after `offset` may have
            arrived before it. ``None`` when it is not known.
        """
        return None

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _PartitionPlanner(self)

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        partition, start, end = split.what
        for batch in self.read_partition(partition, start, end):
            yield batch if isinstance(batch, (pa.RecordBatch, Invalid)) else list(batch)


class _PartitionPlanner(Planner):
    """Plans a `PartitionedSource`: the offset is a dict, partition to offset."""

    def __init__(self, source: PartitionedSource[Any]) -> None:
        self._source = source
        self._names: list[str] = []
        self._read: set[int] = set()
        self._behind: dict[str, Json] = {}
        self._reached_us: dict[int, int] = {}
        self._advance_us: dict[int, int] = {}

    @override
    def next(self, start: Json | None) -> Slice | None:
        offsets = self._known(start)
        found = {name: self._source.next_offset(name, offset) for name, offset in offsets.items()}
        ready = {
            number: name
            for number, (name, end) in enumerate(found.items())
            if end is not None and end != offsets[name]
        }
        left = {number for number, name in ready.items() if self._has_more(name, found[name])}
        chosen = self._chosen(ready, left)
        splits = [
            Split([name, offsets[name], found[name]], partition=number)
            for number, name in ready.items()
            if number in chosen
        ]
        ends = offsets | {name: found[name] for number, name in ready.items() if number in chosen}
        behind = [
            number
            for number, end in enumerate(found.values())
            if number in left
            or (number in ready and number not in chosen)
            or (number not in ready and end is not None and self._source.bounded)
        ]
        self._names, self._read = list(offsets), chosen
        self._behind = {self._names[number]: ends[self._names[number]] for number in behind}
        # With nothing to read, where a partition begins is worth an epoch: asked again, it may say
        # something else.
        return Slice(ends, splits, behind=behind) if splits or ends != (start or {}) else None

    @override
    def finished(self, start: Json | None) -> bool:
        return self._source.bounded and all(
            self._source.next_offset(partition, offset) is None
            for partition, offset in self._known(start).items()
        )

    @override
    def read_until_us(self, now_us: int, behind: bool) -> int | None:
        times_us = [now_us]
        for partition, offset in self._behind.items() if behind else ():
            arrived_us = self._arrived_us(partition, offset)
            if arrived_us is None:
                return None
            times_us.append(arrived_us)
        return min(times_us)

    @override
    def hear(self, reached_us: Mapping[int, int]) -> None:
        for number in self._read & reached_us.keys() & self._reached_us.keys():
            self._advance_us[number] = reached_us[number] - self._reached_us[number]
        self._reached_us = dict(reached_us)
        self._read = set()

    @override
    def name_of(self, partition: int) -> str:
        names = self._names
        return names[partition] if partition < len(names) else super().name_of(partition)

    def _has_more(self, partition: str, end: Json) -> bool:
        """Return True if a partition is behind once it is read up to `end`."""
        then = self._source.next_offset(partition, end)
        return then is not None and (self._source.bounded or then != end)

    def _chosen(self, ready: Collection[int], left: Collection[int]) -> set[int]:
        """Return the partitions to read: those not far ahead of the one furthest behind.

        Args:
            ready: partitions that have something to read.
            left: those of them that are behind once they are read.
        """
        known = [number for number in left if number in self._reached_us]
        last = min(known, key=self._reached_us.__getitem__, default=None)
        advance_us = 0 if last is None else self._advance_us.get(last, 0)
        if last is None or advance_us <= 0:
            return set(ready)
        most_us = self._reached_us[last] + advance_us
        return {number for number in ready if self._reached_us.get(number, most_us) <= most_us}

    def _arrived_us(self, partition: str, offset: Json) -> int | None:
        arrived = self._source.arrived(partition, offset)
        try:
            return None if arrived is None else instant_us(arrived)
        except TimestampError as error:
            raise SourceError(
                f"{type(self._source).__name__}.arrived must return a point in time or None, "
                f"for partition {partition!r}: {error}"
            ) from None

    def _known(self, start: Json | None) -> dict[str, Json]:
        offsets: dict[str, Json] = dict(start or {})
        for partition in self._source.partitions():
            if not isinstance(partition, str):
                raise SourceError(
                    f"{type(self._source).__name__}.partitions must return text, "
                    f"got {shorten(partition)}"
                )
            if partition not in offsets:
                offsets[partition] = self._source.first_offset(partition)
        return offsets


def behind_text(behind: Mapping[str, int], most: int) -> str:
    """Return how many items an input is behind, with the partitions furthest behind.

    Args:
        behind: items behind, by source partition.
        most: partitions to name, at most.

    >>> behind_text({"orders/0": 1_000, "orders/1": 0, "orders/2": 20}, 3)
    '1,020 behind (orders/0 1,000, orders/2 20)'
    """
    worst = sorted(behind.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} {count:,}" for name, count in worst if count]
    more = ["…"] if len(named) > most else []
    total = f"{sum(behind.values()):,} behind"
    return f"{total} ({', '.join(named[:most] + more)})" if named else total
