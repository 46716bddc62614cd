"""Contract between the engines and the systems that a flow reads.

A source is configuration, with a part in two places:

- On the driver, where the flow was started, its `Planner` decides what each epoch reads. It returns
  an offset and *splits*, both JSON, which are logged before the epoch runs.
- In the workers, `Source.read` reads one split. It must return the same items at every call, as an
  epoch that failed is replayed from the log.

Most sources of your own need only `PartitionedSource`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from typing_extensions import override

from flow.columns.arrow_types import RecordBatch
from flow.columns.predicate import ColumnPredicate
from flow.errors import FlowBuildError, SourceError, TimestampError, behind_text, printable, shorten
from flow.instants import Instant, Moment, instant_us

__all__ = [
    "BadInput",
    "Dataset",
    "Invalid",
    "MemoryLog",
    "PartitionedSource",
    "Planner",
    "Slice",
    "Source",
    "SourceLog",
    "Split",
    "TaskServers",
]

X = TypeVar("X")

Json: TypeAlias = Any
"""A value that `json.dumps` accepts, such as an offset or a split."""

OnInvalid: TypeAlias = Literal["fail", "drop", "errors"]
"""Action for input that cannot be read.

``"fail"`` stops the flow, ``"drop"`` counts the input and leaves it out, ``"errors"`` sends it to
the ``errors`` stream of `op.try_input`.
"""

_PARTITIONS_SHOWN = 3
"""Partitions that the progress line names, at most."""


@dataclass(frozen=True)
class BadInput:
    """Input that a source could not read.

    Attributes:
        where: position of the input, such as ``data/a.jsonl, line 3``.
        text: the input itself, shortened.
        reason: the reason why the input cannot be read.
    """

    where: str
    text: str
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.where}: {self.reason}: {self.text}")


@dataclass(frozen=True)
class Invalid:
    """Batch of inputs that could not be read, among the batches of `Source.read`."""

    inputs: list[BadInput]

    def error(self) -> SourceError:
        """Return the error of the first input, for ``on_invalid="fail"``."""
        return SourceError(
            f"{self.inputs[0]} (on_invalid='drop' leaves it out and counts it, "
            "on_invalid='errors' makes a stream of it)"
        )


Batch: TypeAlias = "list[Any] | RecordBatch | Invalid"
"""Items of `Source.read`: a list of objects, a record batch, or inputs that cannot be read."""


@dataclass(frozen=True)
class Split:
    """Part of an epoch's input that one task reads.

    Attributes:
        what: JSON that tells `Source.read` what to read.
        partition: number of the source partition; items of several partitions interleave one by
            one.
        order: position among the splits of the same partition in the epoch.
        peak_us: at least each timestamp of the records, by the column that `Source.timed_by` names,
            in µs since the Unix epoch; ``None`` if it is not known.
    """

    what: Json
    partition: int = 0
    order: int = 0
    peak_us: int | None = None


@dataclass(frozen=True)
class Slice:
    """Part of a source that one epoch reads.

    Attributes:
        end: offset after the slice, JSON; the next slice starts there.
        splits: the splits that the workers read.
        advance_us: microseconds by which system time advances before the epoch; for tests.
        abort: True to make the run die in this epoch, as in a crash; for tests.
        behind: numbers of the source partitions that are known to hold more than the slice reads. A
            partition of a bounded source is behind until its end.
        first: number of the first source partition that this or a later slice may read. Partitions
            before it are finished for good: progress of a stream follows the others, once one of
            them has sent an item.
        reached: number of partitions that the source has reached. A batch, which knows all slices,
            takes a partition that later slices read for behind, but not one that is not reached,
            such as those of the live part of `Then`. ``None`` for all partitions.
    """

    end: Json
    splits: Sequence[Split] = ()
    advance_us: int = 0
    abort: bool = False
    behind: Collection[int] = ()
    first: int = 0
    reached: int | None = None


class SourceLog(Protocol):
    """Durable list of a source, kept in the flow's checkpoint.

    For data too large for an offset, such as the list of files seen. A planner that appends for as
    long as a flow runs replaces entries by a summary, so that the log stays small.
    """

    def summary(self) -> bytes | None:
        """Return the summary of the last `compact`; ``None`` if there was none."""

    def entries(self) -> list[Any]:
        """Return all entries appended since the last `compact`, in order; each is JSON."""

    def append(self, entry: Any) -> None:
        """Add an entry, and write it to disk before returning."""

    def compact(self, summary: bytes) -> None:
        """Replace all entries, and the summary before, by a summary.

        The summary is on disk when the method returns. A process that dies during the call leaves
        either the log before the call or the summary.
        """


class MemoryLog:
    """`SourceLog` in memory."""

    def __init__(self) -> None:
        self._summary: bytes | None = None
        self._entries: list[Any] = []

    def summary(self) -> bytes | None:
        """Return the summary of the last `compact`; ``None`` if there was none."""
        return self._summary

    def entries(self) -> list[Any]:
        """Return all entries appended since the last `compact`, in order."""
        return list(self._entries)

    def append(self, entry: Any) -> None:
        """Add an entry."""
        self._entries.append(entry)

    def compact(self, summary: bytes) -> None:
        """Replace all entries, and the summary before, by a summary."""
        self._summary, self._entries = summary, []


@dataclass(frozen=True, order=True)
class Dataset:
    """The name of a data set, which programs that follow lineage compare.

    Attributes:
        namespace: the system that holds the data, without credentials, such as ``file``,
            ``s3://bucket``, ``kafka://host:9092`` or ``postgres://host:5432``.
        name: the data in this system, such as an absolute path, a topic, or
            ``database.schema.table``.

    Example:
        >>> Dataset("kafka://localhost:9092", "orders")
        Dataset(namespace='kafka://localhost:9092', name='orders')
    """

    namespace: str
    name: str


class Planner(ABC):
    """Planner of one source for one run: decides what each epoch reads."""

    @abstractmethod
    def next(self, start: Json | None) -> Slice | None:
        """Plan the next epoch's slice.

        Args:
            start: end of the previous slice; ``None`` before the first slice.

        Returns:
            The slice; ``None`` if the source has no new data now.
        """

    @abstractmethod
    def finished(self, start: Json | None) -> bool:
        """Return True if the source has no data after `start`, and will have none in this run."""

    def stop_at_present(self) -> None:  # noqa: B027  (most sources say "nothing now" soon enough)
        """Limit the run to the data that the source holds now.

        Called before the first slice of a run that ends once it has read all data. A source to
        which data is added all the time must fix its end at this call.
        """

    def release(self, oldest: Json, now_us: int) -> None:  # noqa: B027  (most logs do not grow)
        """Release data of the source's log that only earlier offsets need; called between epochs.

        A run may still continue from `oldest`, the offset of the oldest epoch that the checkpoint
        retains (`keep_epochs`) and to which `rewind` can set the checkpoint back.

        Args:
            oldest: the offset.
            now_us: system time, in microseconds since the Unix epoch.
        """

    def read_until_us(self, now: Moment, behind: bool) -> int | None:
        """Return the running time up to which the source is read after the last slice.

        All data that had arrived at the source by that time is in that slice or an earlier one.
        Event clocks follow this time, so that no value is late because it is read with a delay.

        Args:
            now: the moment just before the last call of `next`.
            behind: True if the last slice left data behind.

        Returns:
            `Moment.running_us` of this or an earlier call, or an arrival, less
            `now.now_us - now.running_us` if it is in µs since the Unix epoch; ``None`` if unknown:
            the source's time then does not change.
        """
        return None if behind or self.in_doubt() else now.running_us

    def report_progress(self, reached_us: Mapping[int, int]) -> None:
        """Receive the progress of each source partition in event time; called before `next`.

        A source that chooses the partitions to read should first read the partition that is
        furthest behind, so that steps buffer few values of other partitions.

        Args:
            reached_us: by source partition, its greatest timestamp at a windowing step less the
                step's wait, in µs since the Unix epoch; without partitions whose progress is not
                known.
        """
        self.hear(reached_us)

    def hear(self, reached_us: Mapping[int, int]) -> None:  # noqa: B027  (few choose)
        """Former name of `report_progress`, of planners that define it."""

    def name_of(self, partition: int) -> str:
        """Return the name of a source partition for messages, such as a file or ``orders/0``."""
        return f"partition {partition}"

    def in_doubt(self) -> bool:
        """Return True if the last ``None`` of `next` may be wrong, for example without brokers.

        A run that ends once it has read all data then calls `next` again, until it is stopped.
        """
        return False

    def behind(self, start: Json | None) -> Mapping[str, int]:  # noqa: ARG002
        """Return the number of items after `start`, by source partition; empty if unknown."""
        return {}

    def lag(self, start: Json | None) -> str:
        """Return the lag of the run as text for the progress line; empty if unknown.

        By default the text lists the numbers of `behind`.
        """
        behind = self.behind(start)
        return behind_text(behind, _PARTITIONS_SHOWN) if behind else ""

    def close(self) -> None:  # noqa: B027  (most planners have no resources)
        """Release the planner's resources; called once when the run ends."""


@dataclass(frozen=True)
class TaskServers:
    """Servers of which tasks, which read or write, need to reach one.

    Attributes:
        addresses: their addresses, ``host:port``.
        otherwise: the action where tasks have no network, for an error.

    Example:
        >>> TaskServers(("localhost:9092",), "open the network of the workers").addresses
        ('localhost:9092',)
    """

    addresses: Sequence[str]
    otherwise: str


class Source(ABC, Generic[X]):
    """Configuration of an input of a flow.

    Attributes:
        bounded: True if the input ends by itself.
        on_invalid: action for input that cannot be read.
        is_frame: True if Spark itself reads the source, a data frame.
    """

    is_frame: ClassVar[bool] = False
    bounded: bool = True
    on_invalid: OnInvalid = "fail"

    @property
    def needs_streaming(self) -> bool:
        """True if a batch run cannot do what the source does, such as a change of system time."""
        return False

    @property
    def task_servers(self) -> Sequence[TaskServers]:
        """Servers that tasks read from; on a cluster, a run checks first that tasks reach them."""
        return ()

    def check(self) -> None:
        """Check that a new run has something to read.

        Called once on the driver, before Spark starts. The check must be quick, and must not
        change anything.

        Raises:
            SourceError: there is nothing to read, or it cannot be read.
        """

    @abstractmethod
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        """Return the planner of a run.

        Args:
            log: durable list of this source.
            parallelism: number of tasks that can read at the same time.
        """

    @abstractmethod
    def read(self, split: Split) -> Iterator[Batch]:
        """Read a split in a worker, in order; every call must return the same items."""

    def identity(self) -> Json:
        """Return a description of the data that the source reads, as JSON without secrets.

        The checkpoint has the identity beside the offsets, which are valid for this input only. A
        run with another identity calls `continues`. Offsets that name their input, such as those of
        Kafka, need no identity: the result is then ``None``, and nothing is compared.
        """
        return None

    def datasets(self) -> Sequence[Dataset]:
        """Return the names of the data that the source reads, for lineage; none by default."""
        return ()

    def continues(self, before: Json) -> str | None:  # noqa: ARG002
        """Return how a run continues from the offsets of a source with another `identity`.

        Args:
            before: the `identity` of the previous run.

        Returns:
            A clause with the data that the run reads next; ``None`` to refuse these offsets.
        """
        return None

    def record_columns(self) -> Any:
        """Return the columns of all records as a `pyarrow.Schema`; ``None`` if not known."""
        return None

    def item_type(self) -> type | None:
        """Return the type of all items, `dict` for records; ``None`` if not known."""
        return None

    def starting_at(self, position: Any) -> Source[X]:
        """Return the source with another start, for a `Then` that takes the start from a history.

        Raises:
            FlowBuildError: the source does not start at a position.
        """
        raise FlowBuildError(
            f"{type(self).__name__} does not start at a position, got {shorten(position)}"
        )

    def keeping(self, predicate: ColumnPredicate) -> Source[X]:  # noqa: ARG002
        """Return the source for a flow that drops all records for which a predicate is not true.

        The source may leave out such records, as far as that is less work than reading them.
        """
        return self

    def timed_by(self, column: str) -> Source[X]:  # noqa: ARG002
        """Return the source for a flow that needs `Split.peak_us`, where the source knows it."""
        return self

    def read_fields(self, split: Split, fields: frozenset[str]) -> Iterator[Batch]:  # noqa: ARG002
        """Read a split like `read`; fields of records outside `fields` may be left out."""
        return self.read(split)


class PartitionedSource(Source[X]):
    """Base of your own sources: several partitions, each with an offset of its own.

    A partition is *behind* while it has more than an epoch reads; a partition of a `bounded` source
    is behind until its end. A partition that is behind holds the watermarks of the steps it feeds,
    so that a backlog makes no value late. If `next_offset` always has more, the partition is always
    behind, and watermarks follow timestamps alone.

    In a backlog the partition furthest behind in event time is read first. An epoch leaves out a
    partition whose lead exceeds the event time that the one furthest behind covered when it was
    last read. All partitions are read in the first epochs of a run, after an epoch in which the
    partition furthest behind did not advance, and where no step uses event time.

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
        """Return the names of all partitions; called before each epoch, so new ones may appear."""

    @abstractmethod
    def first_offset(self, partition: str) -> Json:
        """Return the offset at which a partition starts."""

    @abstractmethod
    def next_offset(self, partition: str, start: Json) -> Json | None:
        """Return the offset at which the next epoch stops reading a partition.

        Returns:
            The offset, exclusive; `start` itself if the partition has no new data now; ``None`` at
            the end of the partition, which only a `bounded` source may return. The method is called
            more than once for an epoch, also with the epoch's end as `start`, to find out whether
            the partition is behind.
        """

    @abstractmethod
    def read_partition(
        self, partition: str, start: Json, end: Json
    ) -> Iterable[Sequence[X] | RecordBatch | Invalid]:
        """Read a partition from `start` to `end`, exclusive, in a worker, in batches.

        Every call must return the same items.
        """

    def arrived(self, partition: str, offset: Json) -> Instant | None:  # noqa: ARG002
        """Return the system time at which the last item before `offset` arrived at the source.

        Called at the end of an epoch for each partition that is behind. With an arrival time, event
        clocks with ``on_idle="advance"`` advance while a backlog is read; without one they wait
        until all is read.

        Returns:
            An aware datetime, Unix seconds or ISO 8601 text, such that no item at or after `offset`
            arrived earlier; ``None`` if unknown.
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
    """Planner of a `PartitionedSource`; its offset maps partitions to their offsets."""

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
        # A new partition's first offset is logged even if the partition has no data, because the
        # source may return another offset at the next call.
        return Slice(ends, splits, behind=behind) if splits or ends != (start or {}) else None

    @override
    def finished(self, start: Json | None) -> bool:
        return self._source.bounded and all(
            self._source.next_offset(partition, offset) is None
            for partition, offset in self._known(start).items()
        )

    @override
    def read_until_us(self, now: Moment, behind: bool) -> int | None:
        times_us = [now.now_us]
        for partition, offset in self._behind.items() if behind else ():
            arrived_us = self._arrived_us(partition, offset)
            if arrived_us is None:
                return None
            times_us.append(arrived_us)
        return min(times_us) - (now.now_us - now.running_us)

    @override
    def report_progress(self, reached_us: Mapping[int, int]) -> None:
        for number in self._read & reached_us.keys() & self._reached_us.keys():
            self._advance_us[number] = reached_us[number] - self._reached_us[number]
        self._reached_us = dict(reached_us)
        self._read = set()

    @override
    def name_of(self, partition: int) -> str:
        names = self._names
        return names[partition] if partition < len(names) else super().name_of(partition)

    def _has_more(self, partition: str, end: Json) -> bool:
        """Return True if a partition has items after `end`."""
        then = self._source.next_offset(partition, end)
        return then is not None and (self._source.bounded or then != end)

    def _chosen(self, ready: Collection[int], left: Collection[int]) -> set[int]:
        """Return the partitions to read: the one furthest behind, and those with a small lead.

        Args:
            ready: partitions that have data to read.
            left: the partitions of `ready` that are behind even after this epoch.
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
