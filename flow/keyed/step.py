"""A keyed step, the capabilities that its builder declares, and its lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

from typing_extensions import override

from flow.columns.chunks import KeyedRecords
from flow.columns.known_columns import StreamColumns, UnknownColumns
from flow.dataflow import Operator
from flow.instants import Moment
from flow.keyed.logic import KeyLogic, Progress
from flow.keyed.shard_logic import ShardLogicBuilder
from flow.keyed.state import BlockReader, StateCounter


@dataclass(frozen=True)
class KeyByKey:
    """The lowering of a step that runs key by key.

    Attributes:
        reason: the reason why the step does not run over columns, to be read after "because".
    """

    reason: str


class TimeColumn(NamedTuple):
    """The column by which records are late, if they lie further back than the wait.

    Attributes:
        name: the column.
        wait_us: the wait, in µs.
    """

    name: str
    wait_us: int


class Preaggregation(Protocol):
    """The aggregation of records before the shuffle, of a step for which the result is the same."""

    @property
    def time_column(self) -> TimeColumn | None:
        """The column with the timestamps, if `split` needs the front; else ``None``."""

    def split(
        self, records: KeyedRecords, front_us: int
    ) -> tuple[KeyedRecords, KeyedRecords] | None:
        """Return partial rows, and the records that are in none of them.

        A *partial row* stands for several records of a key: it has their greatest position, the
        columns `PARTIAL_TIME` and `PARTIAL_COUNT`, and what else the step's `ShardLogic` needs.

        Args:
            records: records of one source partition, in order; their keys are a dictionary, unless
                most keys differ.
            front_us: at least each timestamp before the records, advanced by the time that has
                passed since; `NEVER` if it is not known.

        Returns:
            ``None`` if partial rows are not possible, or not much fewer than the records.
        """

    def greatest_us(self, records: KeyedRecords) -> int:
        """Return the greatest timestamp, `NEVER` if it is not known."""


@dataclass(frozen=True)
class OverColumns:
    """The lowering of a step that runs all keys of a shard at once.

    Attributes:
        shard_logic: the function that returns the step's `ShardLogic`.
        fields: the fields of records that the step reads; ``None`` for all of them.
        record_ports: numbers of the streams that emit whole records. The step needs all fields
            while one of these streams has a reader.
        takes_sided_records: True if the logic of a step of several streams gets their records as
            `SidedRecords`; otherwise it gets a list of ``(side, value)``.
        preaggregation: the aggregation of records before the shuffle; ``None`` if there is none.
    """

    shard_logic: ShardLogicBuilder
    fields: frozenset[str] | None = None
    record_ports: frozenset[int] = frozenset()
    takes_sided_records: bool = False
    preaggregation: Preaggregation | None = None

    def fields_needed(self, wanted: frozenset[int]) -> frozenset[str] | None:
        """Return the fields that the step needs, ``None`` for all.

        Args:
            wanted: numbers of the streams that have a reader.
        """
        return None if self.record_ports & wanted else self.fields


Lowering: TypeAlias = "KeyByKey | OverColumns"

_REQUESTED = KeyByKey("`flow.testing.key_by_key` asks for it")
_SWITCH = ContextVar("key_by_key", default=False)


@contextmanager
def key_by_key() -> Iterator[None]:
    """Run all keyed steps key by key, to compare the two paths.

    Flows that any engine compiles inside the block always run key by key. A `TestDriver` that was
    made outside the block runs key by key for the epochs inside the block. A step that has one form
    runs in that form: joins in time and deduplication run over columns, a map with state key by
    key.
    """
    token = _SWITCH.set(True)
    try:
        yield
    finally:
        _SWITCH.reset(token)


def runs_key_by_key() -> bool:
    """Return True inside a `key_by_key` block."""
    return _SWITCH.get()


class TimedResults(NamedTuple):
    """The times of the results of a step in event time, for the steps in event time that read them.

    Attributes:
        reach_us: the greatest time before a value at which a result that the value begins may lie.
        stays_us: the least time by which a result is behind the watermark as it leaves; of results
            that leave early, behind the value at which they leave, negative for results ahead.
        leave_early: True if a result may leave before the watermark has passed it.
        rule: the settings that the hold of a key depends on besides its state, as text. If a flow
            resumes with another rule, the holds in state are determined again.
    """

    reach_us: int = 0
    stays_us: int = 0
    leave_early: bool = False
    rule: str = ""


class Capabilities(NamedTuple):
    """The capabilities of a keyed step, beyond calls of its logics with values.

    Attributes:
        progress: the measure of stream progress; ``None`` for a step whose logics receive no
            progress.
        holds: the measure by which source partitions that are behind hold the step's watermarks. If
            the step's sources have several partitions, logics get each value as `BoundedValue`.
        follows_inputs: True if the step's time is the inputs' clock, `Moment.inputs_us`, timers
            included.
        takes_holds: True if the steps in event time whose results the step reads hold its
            watermarks.
        wait_us: the wait of the step's clock for values out of order, in µs.
        settings: the settings that due times depend on, stored with the state; empty for none. If a
            flow resumes with different settings, every key of the step is called once.
        counter: the function that counts open windows and buffered values in a snapshot of a key.
            The engine calls it once for each key and epoch that changes the key's state, and stores
            the counts with the state. The step then has the gauges ``open_windows`` and
            ``buffered_values``. ``None`` for a step that has neither windows nor buffered values.
        results: the times of the step's results; ``None`` for a step that passes holds on: it has
            no event time, or emits the values that it reads at their own timestamps.
    """

    progress: Progress | None = None
    holds: Progress | None = None
    follows_inputs: bool = False
    takes_holds: bool = False
    wait_us: int = 0
    settings: str = ""
    counter: StateCounter | None = None
    results: TimedResults | None = None


class LogicBuilder:
    """A builder of key logic that also declares the capabilities of its step.

    A builder may be any function. A subclass of this class can declare `capabilities`; by default,
    it has none.

    Attributes:
        has_keyed_form: False for a step that always runs over columns, and has no key logic.
    """

    has_keyed_form: ClassVar[bool] = True

    def __call__(self, snapshot: Any) -> KeyLogic[Any, Any]:
        """Return the logic of a key, restored from a snapshot; ``None`` stands for a new key."""
        raise NotImplementedError(f"{type(self).__name__} has one form, over columns")

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the step, which the compiler of a flow reads once."""
        return Capabilities()

    def with_wait(self, wait_us: int) -> Self:
        """Return the builder of the same step with another wait; only if it takes holds."""
        raise NotImplementedError(f"{type(self).__name__} takes no holds, got {wait_us}")

    def keeps_back(self, port: int) -> bool:  # noqa: ARG002
        """Return True if items of a stream may leave in a later epoch than their values arrive."""
        return True

    def lower(self) -> Lowering:
        """Return the lowering to columns, or the reason for running key by key."""
        return KeyByKey(f"{type(self).__name__} has no columnar form")

    def columns(self, port: int, ups: Sequence[StreamColumns]) -> StreamColumns:  # noqa: ARG002
        """Return the columns of a stream of the step, or the reason why they are not known.

        Args:
            port: the number of the stream.
            ups: the columns of the streams that the step reads.
        """
        return UnknownColumns(f"{type(self).__name__} calls Python for each key")

    def snapshots_in(self, content: bytes, take: BlockReader) -> Iterable[tuple[str, Any, int]]:
        """Read a segment that the step's `ShardLogic` wrote, for a step that now runs key by key.

        Args:
            content: the segment, of the kind `flow.keyed.state.WINDOWS`.
            take: returns the blocks of given numbers and removes them from the store.

        Returns:
            Each key with its logic's snapshot and its due time.
        """
        raise NotImplementedError(f"{type(self).__name__} has no columnar form")

    def whole(self, snapshot: Any, read: BlockReader) -> Any:  # noqa: ARG002
        """Return the snapshot of a key's logic with what it has in blocks.

        Args:
            snapshot: the snapshot.
            read: returns the blocks of given numbers.
        """
        return snapshot

    def view(self, snapshot: Any, moment: Moment) -> Any:  # noqa: ARG002
        """Return the state of a key in a form for people; by default the snapshot itself.

        Args:
            snapshot: the snapshot of the key's logic.
            moment: the moment after the last epoch.
        """
        return snapshot

    def watermark(self, snapshot: Any, moment: Moment) -> datetime | None:  # noqa: ARG002
        """Return the watermark of a key; ``None`` before the first value, or without watermarks.

        Args:
            snapshot: the snapshot of the key's logic, ``None`` for a key without state.
            moment: the moment after the last epoch.
        """
        return None


_NONE = Capabilities()

_LATER_CALLS = ("on_notify", "on_epoch_end", "on_end")
"""The calls of a `KeyLogic` in which it emits without a value."""


@dataclass(frozen=True)
class Stateful(Operator):
    """A keyed step; its builder makes the logic of each key.

    With `sides` greater than one the step reads that many streams, and the logic receives each
    value as ``(side, value)``. With more than one stream in `emits`, a logic emits
    ``(port number, value)``, or ``(COUNTED, Counted(...))``.

    Attributes:
        builder: the function that returns the logic of a key.
        kind: name of the operator, for messages.
        sides: number of streams that the step reads.
        emits: names of the streams that the step makes.
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("builder",)

    builder: Callable[[Any], KeyLogic[Any, Any]]
    kind: str = "stateful"
    sides: int = 1
    emits: tuple[str, ...] = ("down",)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the builder declares; a function declares none."""
        return self.builder.capabilities if isinstance(self.builder, LogicBuilder) else _NONE

    def keeps_back(self, port: int) -> bool:
        """Return True if items of a stream may leave in a later epoch than their values arrive.

        A builder with a method `keeps_back` says so. A class of logics that handles no timer, end
        of epoch or end of input keeps nothing back. The logics of another builder are not known.
        """
        builder = self.builder
        says = getattr(builder, "keeps_back", None)
        if says is not None:
            return bool(says(port))
        if not (isinstance(builder, type) and issubclass(builder, KeyLogic)):
            return True
        return any(getattr(builder, name) is not getattr(KeyLogic, name) for name in _LATER_CALLS)

    def lower(self) -> Lowering:
        """Return the lowering to columns, or the reason for running key by key."""
        if not isinstance(self.builder, LogicBuilder):
            return KeyByKey(f"{self.kind} calls Python for each key")
        is_requested = runs_key_by_key() and self.builder.has_keyed_form
        return _REQUESTED if is_requested else self.builder.lower()

    def columns(self, port: int, ups: Sequence[StreamColumns]) -> StreamColumns:
        """Return the columns of a stream, or the reason; see `LogicBuilder.columns`."""
        if not isinstance(self.builder, LogicBuilder):
            return UnknownColumns("it calls Python for each key")
        return self.builder.columns(port, ups)

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return self.emits
