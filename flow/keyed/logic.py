"""The contract between the engines and the logic that holds the state of a key.

A *logic* is an object that lives for one key of one step. The engine builds a logic when the key's
first value arrives, or from a snapshot when the flow resumes. It passes the key's values to the
logic in order, and takes a snapshot when an epoch ends. Laws that hold in every engine:

- For one key, calls are sequential, and values come in source order.
- In an epoch the order of calls is: `on_changed` if the step's settings differ from those that the
  state was written with, `on_notify` if the key was due, the values, `on_notify` if the key became
  due meanwhile, `on_epoch_end` if one of these was called and the logic was not discarded, and
  `on_end` if the input has ended. The engine calls `notify_at` and `snapshot` whenever it stores
  the logic. In a batch run each slice of the input is an epoch.
- A logic restored from the last snapshot behaves as the logic that made the snapshot.
- The only time is that of the `Moment`: a logic never reads the machine's clock.

A step whose time depends on all keys of its stream can have a `Progress`, which is measured over
all keys.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

import pyarrow as pa

from flow.columns.arrays import Ints
from flow.errors import FlowError
from flow.instants import NEVER, Moment, datetime_us

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")


class Keep(Enum):
    """Decision to keep a key's logic after a call, or to discard it with its state."""

    KEEP = "keep"
    DISCARD = "discard"


KEEP, DISCARD = Keep.KEEP, Keep.DISCARD


LATE_PORT = "late"
"""The name of the stream of late values, of a step that has one."""


@runtime_checkable
class Late(Protocol):
    """Item of a late stream of a windowing operator; see `flow_windowing.LateValue`."""

    value: Any
    timestamp: datetime
    watermark: datetime | None
    late_by: timedelta
    windows: Sequence[Any]
    reason: Any


COUNTED = -1
"""The port on which a logic of a step with several ports emits a `Counted`."""


class Counted(NamedTuple):
    """A count of a step, emitted as ``(COUNTED, Counted("gap"))``; it is an item of no stream.

    Attributes:
        what: name of the counter; the engine has further counters, such as ``in`` and ``out``.
        amount: the number to add to the counter.
        note: a description of one of the values, logged after the step's name; a run logs only a
            few notes.
        late_by_us: for late values, their lateness in µs, 0 otherwise. The engine does not add late
            values to the counter `what`, as items of the late stream are counted already; a run
            reports the wait that would have been enough.
        source: for late values, the number of their source partition; -1 if unknown.
    """

    what: str
    amount: int = 1
    note: str = ""
    late_by_us: int = 0
    source: int = -1


class RejectedValue(FlowError, ValueError):
    """An error that names the value at fault, raised by a logic; the engine adds step and key.

    Attributes:
        value: the value.
        problem: a description of the problem with the value.
    """

    def __init__(self, value: object, problem: str) -> None:
        self.value = value
        self.problem = problem
        super().__init__(problem)


class FailedCall(FlowError):
    """An error that names the user's function that raised; ``__cause__`` is its exception.

    Attributes:
        what: the function's name or role, in the terms of its author.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} raised")


class KeyLogic(ABC, Generic[W, S]):
    """Base of the kinds of logic.

    Attributes:
        detaches: True if emitted items never change with the state. Otherwise the engine copies
            dicts, lists, sets, tuples and attributes of the logic in each emitted item.
    """

    detaches: ClassVar[bool] = False

    def on_notify(self, moment: Moment) -> tuple[Iterable[W], Keep]:  # noqa: ARG002
        """Handle the key's timer, once the time that `notify_at` returned is reached."""
        return (), KEEP

    def on_changed(self, before: str, moment: Moment) -> Iterable[W]:  # noqa: ARG002
        """Handle changed settings of the step, as the first call of the epoch.

        The engine calls it for every key that has state, see
        `flow.keyed.step.Capabilities.settings`, and calls `notify_at` again afterwards.

        Args:
            before: the settings that the state was written with; empty if unknown.
            moment: the epoch's system time.

        Returns:
            The values to emit.
        """
        return ()

    def on_epoch_end(self, moment: Moment) -> Iterable[W]:  # noqa: ARG002
        """Handle the end of an epoch in which the logic was called and not discarded.

        The call comes after the timers of the epoch, and before the snapshot.

        Returns:
            The values to emit.
        """
        return ()

    def on_end(self, moment: Moment) -> tuple[Iterable[W], Keep]:  # noqa: ARG002
        """Handle the end of the input, in a flow that is drained."""
        return (), KEEP

    def notify_at(self) -> datetime | None:
        """Return the system time at which to call `on_notify`; ``None`` for never."""
        return None

    def notify_at_us(self) -> int:
        """Return the due time of `notify_at` in µs, or `NEVER`; override one of the two methods."""
        at = self.notify_at()
        return NEVER if at is None else datetime_us(at)

    def watermark_us(self, moment: Moment) -> int | None:  # noqa: ARG002
        """Return the key's watermark for reports, in µs; ``None`` without one.

        Args:
            moment: the moment after the epoch's values.
        """
        return None

    def hold_us(self, ports: Collection[int]) -> int:  # noqa: ARG002
        """Return the least timestamp that a result of the key's state may still have, in µs.

        Called for a step in event time whose results other steps in event time read.

        Args:
            ports: the numbers of the streams that these steps read, without late values.
        """
        return NEVER

    @abstractmethod
    def snapshot(self) -> S:
        """Return a copy of the state, which later calls of the logic must not change.

        The engine pickles the copy, and passes it to the step's builder to restore the logic.
        """


class StatefulBatchLogic(KeyLogic[W, S], Generic[V, W, S]):
    """A logic that receives a key's values of one epoch in one call."""

    @abstractmethod
    def on_batch(self, values: list[V], moment: Moment) -> tuple[Iterable[W], Keep]:
        """Process all of the key's values in the epoch: one or more, in order.

        Returns:
            The values to emit, and `KEEP` or `DISCARD` for this logic.
        """


class StatefulLogic(KeyLogic[W, S], Generic[V, W, S]):
    """A logic that receives a key's values in one call each."""

    @abstractmethod
    def on_item(self, value: V, moment: Moment) -> tuple[Iterable[W], Keep]:
        """Process one value; values come in order.

        Returns:
            The values to emit, and `KEEP` or `DISCARD` for this logic.
        """


class OneToOneLogic(KeyLogic[Any, Any]):
    """A logic that receives a key's values in one call, and emits exactly one value for each."""

    @abstractmethod
    def on_run(self, values: list[Any], moment: Moment) -> tuple[list[Any], Keep]:
        """Process a key's values of one epoch, and return a list of equal length."""


class Progress(ABC):
    """The measure of stream progress, which all keys of a step share.

    A measure is configuration: frozen, and pickled with the flow. A step's builder declares it
    (`flow.operators.Capabilities`). The progress of a *source partition* is the greatest
    measure of its values. The progress of the stream is the least progress of the partitions that
    have sent a value, and never decreases. In a step with a measure

    - the logic receives each value as a `StampedValue`;
    - `Moment.progress_us` in `on_notify` is the stream's progress before the epoch's values if the
      key was due before them, and after all of them otherwise, as in all other calls;
    - `notify_at_us` is in the units of `measure`: the logic is called once the stream's progress
      reaches that time, through a value of any key or through system time.
    """

    @property
    @abstractmethod
    def advances(self) -> bool:
        """True if stream progress also advances with system time.

        The time in which the flow does not run does not count.
        """

    @abstractmethod
    def measure(self, value: Any, moment: Moment) -> int | None:
        """Return the progress of one value.

        The engine calls it once for each value, in another process than the key's logic, so the
        result must depend on the arguments alone. It must not raise: the logic decides about values
        that cannot be measured.

        Args:
            value: the value, without its side.
            moment: the epoch's system time; for rows of a data frame, Spark's current time.

        Returns:
            Microseconds, such as the timestamp less the wait; ``None`` for a value without
            progress.
        """

    def measure_all(
        self,
        values: pa.RecordBatch | Sequence[Any],  # noqa: ARG002
        moment: Moment,  # noqa: ARG002
    ) -> Ints | None:
        """Return the progress of each of several values, which may be the rows of a table.

        Returns:
            int64 µs, shape (values,), `NO_PROGRESS` for values without progress; ``None`` if the
            engine must call `measure` for each value, a row as a dict.
        """
        return None


class BoundedValue(NamedTuple):
    """A value with watermark bounds, for a step whose watermarks source partitions may hold.

    Attributes:
        value: the value; ``(side, value)`` if the step reads several streams.
        others_us: the greatest watermark that the other source partitions allow, in µs.
        own_us: the progress of the value's own source partition including this value, in µs.
        source: the number of that partition in the epoch; -1 for a value without a partition.
    """

    value: Any
    others_us: int
    own_us: int
    source: int = -1


class StampedValue(NamedTuple):
    """A value with the progress of its stream, for a step that measures progress.

    Attributes:
        value: the value; ``(side, value)`` if the step reads several streams.
        progress_us: the stream's progress including this value, in µs.
    """

    value: Any
    progress_us: int


CONSTANTS = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), Decimal, Fraction, UUID),
        *(datetime, date, time, timedelta),
    }
)
"""Types whose values never change."""


def detach(item: Any, *states: Any) -> Any:
    """Return an item, or a copy of it whose parts later values do not change.

    A function may return its state, or a part of it, in an item, and change the state with the next
    value. Items are sent at the end of an epoch. Without a copy such an item would change until
    then, and the output would depend on the boundaries of epochs. Dicts, lists, sets, tuples and
    the types of `collections` are copied, with those inside them, and the state itself; other
    objects inside an item are not.

    Args:
        item: the item to emit.
        states: the state, which later values may change. A caller skips the call for a state whose
            type is in `CONSTANTS`.

    >>> seen = [1]
    >>> item = detach({"user": "a", "pages": [seen]}, seen)
    >>> seen.append(2)
    >>> item
    {'user': 'a', 'pages': [[1]]}
    """
    kind = type(item)
    if kind in CONSTANTS:
        return item
    for state in states:
        if item is state:
            return copy.deepcopy(item)
    if kind not in _CONTAINERS:
        return copy.deepcopy(item) if kind in _COLLECTIONS else item
    if CONSTANTS.issuperset(map(type, item.values() if kind is dict else item)):
        return item if kind is tuple else item.copy()
    if kind is dict:
        return {name: detach(part, *states) for name, part in item.items()}
    return kind([detach(part, *states) for part in item])


_CONTAINERS = frozenset({dict, list, set, tuple})
_COLLECTIONS = frozenset({bytearray, Counter, OrderedDict, defaultdict, deque})


def detach_items(logic: object, items: Iterable[Any]) -> list[Any]:
    """Return emitted items, without parts of the attributes of the logic, see `detach`."""
    return [detach(item, *getattr(logic, "__dict__", {}).values()) for item in items]
