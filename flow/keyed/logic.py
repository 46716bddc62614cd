"""The contract between the engines and what keeps state per key.

A *logic* is an object that lives for one key of one step. The engine builds it when the key's first
value arrives, or from a snapshot when the flow goes on after a stop, hands it the key's values in
order, and asks it for a snapshot when an epoch ends. Laws that hold in every engine:

- For one key, calls come one at a time, values in source order.
- In an epoch the calls are: `on_changed` if the step is set otherwise than when the logic was put
  aside, `on_notify` if it was due, the values, `on_notify` if it has become
  due meanwhile, `on_epoch_end` if one of these was called and the logic is kept, and `on_end` if
  the input has ended. `notify_at` and `snapshot` are called whenever the engine puts the logic
  aside. In a batch run each slice of the input is an epoch.
- A logic built from the last snapshot behaves as the one that made it would have.
- Time is what the `Moment` says: a logic never asks the machine's clock.

Where a key's own values do not say how far its stream has come, a step can have a `Progress`, which
is measured over all keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from typing_extensions import override

from flow.dataflow import Operator
from flow.errors import FlowError
from flow.instants import NEVER, Moment, datetime_us

if TYPE_CHECKING:
    import pyarrow as pa

    from flow.keyed.shard_logic import Ints, ShardLogicBuilder

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")


class Keep(Enum):
    """Whether a key's logic is kept after a call, or discarded with its state."""

    KEEP = "keep"
    DISCARD = "discard"


KEEP, DISCARD = Keep.KEEP, Keep.DISCARD


COUNTED = -1
"""The port on which a logic of a step with several ports emits a `Counted`."""


class Counted(NamedTuple):
    """Something to count, which goes to no stream; emitted as ``(COUNTED, Counted("gap"))``.

    Attributes:
        what: what it is counted as, beside ``in``, ``out`` and the like.
        amount: how much is counted.
        note: an example in words, logged after the step's name; few of them are shown.
        late_by_us: for late values, by how much they were late: they are not counted as `what`,
            their stream does that, and a run says which wait they needed.
        source: for late values, the number of the source partition that they came from; -1 where
            that is not known.
    """

    what: str
    amount: int = 1
    note: str = ""
    late_by_us: int = 0
    source: int = -1


class RejectedValue(FlowError, ValueError):
    """Raised by a logic to say which value is at fault; the engine adds the step and the key.

    Attributes:
        value: the value.
        problem: what is wrong with it.
    """

    def __init__(self, value: object, problem: str) -> None:
        self.value = value
        self.problem = problem
        super().__init__(problem)


class FailedCall(FlowError):
    """Raised by a logic to say which of the functions given to it raised; its cause is what.

    Attributes:
        what: the function, as who wrote it knows it.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} raised")


class _Logic(ABC, Generic[W, S]):
    """Base of the kinds of logic.

    Attributes:
        detaches: whether what it emits never changes with its state. Else an item that is an
            attribute of the logic, or a tuple that holds one, is copied as it is emitted.
    """

    detaches: ClassVar[bool] = False

    def on_notify(self, moment: Moment) -> tuple[Iterable[W], Keep]:  # noqa: ARG002
        """Called when the time asked for by `notify_at` has come."""
        return (), KEEP

    def on_changed(self, before: str, moment: Moment) -> Iterable[W]:  # noqa: ARG002
        """Called first in the epoch that finds the step's `Stateful.settings` changed.

        It is called for every key that has state; `notify_at` is asked again after it.

        Args:
            before: what the settings were; empty when that is not known.
            moment: the epoch's system time.

        Returns:
            The values to emit.
        """
        return ()

    def on_epoch_end(self, moment: Moment) -> Iterable[W]:  # noqa: ARG002
        """Called last in each epoch in which the logic was called, and was kept.

        It comes after a notification that became due meanwhile, and before the snapshot.

        Returns:
            The values to emit.
        """
        return ()

    def on_end(self, moment: Moment) -> tuple[Iterable[W], Keep]:  # noqa: ARG002
        """Called when the input has ended and the flow is drained."""
        return (), KEEP

    def notify_at(self) -> datetime | None:
        """The system time at which to call `on_notify`; ``None`` for never."""
        return None

    def notify_at_us(self) -> int:
        """`notify_at` as microseconds, `NEVER` for never; override one of the two."""
        at = self.notify_at()
        return NEVER if at is None else datetime_us(at)

    @abstractmethod
    def snapshot(self) -> S:
        """Return a copy of the state, which must not change when the logic goes on.

        What is returned is pickled, and given to the step's builder when the logic is needed again.
        """


class StatefulBatchLogic(_Logic[W, S], Generic[V, W, S]):
    """A logic that takes a key's values of one epoch together."""

    @abstractmethod
    def on_batch(self, values: list[V], moment: Moment) -> tuple[Iterable[W], Keep]:
        """Called with all of the key's values in the epoch, in order, at least one.

        Returns:
            The values to emit, and whether to keep this logic.
        """


class StatefulLogic(_Logic[W, S], Generic[V, W, S]):
    """A logic that takes a key's values one by one."""

    @abstractmethod
    def on_item(self, value: V, moment: Moment) -> tuple[Iterable[W], Keep]:
        """Called with each value in order.

        Returns:
            The values to emit, and whether to keep this logic.
        """


Builder = Callable[[Any], _Logic[Any, Any]]


class OneToOneLogic(_Logic[Any, Any]):
    """A logic that emits exactly one value for each, and takes a run of them in one call."""

    @abstractmethod
    def on_run(self, values: list[Any], moment: Moment) -> tuple[list[Any], Keep]:
        """Called with a key's values of one epoch; returns as many."""


class Progress(ABC):
    """How to measure how far a stream has come, for all keys of a step together.

    It is configuration: frozen, and pickled with the flow. A step has one if its builder has an
    attribute `progress` that holds one. Each *source partition* of the step's input comes as far as
    the greatest of its values says, and the stream as far as the least of the partitions that have
    spoken; it never goes back. Then

    - each value reaches its logic as a `Stamped` one;
    - `Moment.progress_us` says in `on_notify` how far the stream had come: before the epoch's
      values where it was due before them, after all of them otherwise, as in all other calls;
    - what `notify_at_us` answers is in the units of `measure`: the logic is called once the
      stream has come so far, whichever key's value, or the time that passed, has moved it.
    """

    @property
    @abstractmethod
    def advances(self) -> bool:
        """Whether the stream also comes further by the system time that passes.

        The time in which the flow does not run does not count.
        """

    @abstractmethod
    def measure(self, value: Any, moment: Moment) -> int | None:
        """Say how far the stream has come with this value.

        Called once for each value, away from its key's logic, so it must depend on nothing else.
        It must not raise: what cannot be measured is the logic's to judge.

        Args:
            value: the value, without the side that it comes from.
            moment: the epoch's system time; where Spark reads a data frame itself, Spark's.

        Returns:
            Microseconds, such as a timestamp less how long to wait for those before it; ``None``
            when the value says nothing.
        """

    def measure_rows(self, rows: pa.RecordBatch, moment: Moment) -> Ints | None:  # noqa: ARG002
        """Say it of each row of a table, which `measure` would be given as a dict.

        Returns:
            Microseconds, `NO_PROGRESS` for rows that say nothing; ``None`` when they are to be
            measured one by one.
        """
        return None


class Bounded(NamedTuple):
    """A value as it reaches the logic of a step whose watermarks other partitions may hold.

    Attributes:
        value: the value; ``(side, value)`` where the step reads several streams.
        others_us: the greatest watermark that other source partitions let the step go by.
        own_us: the progress of the value's own source partition, this value counted.
        source: the number of that partition in the epoch; -1 where it has none.
    """

    value: Any
    others_us: int
    own_us: int
    source: int = -1


_HELD = -(1 << 61)
_HELD_SPAN = 1 << 60


def held_until(watermark_us: int) -> int:
    """Return what `notify_at_us` answers for a key that is due, but whose watermark is held.

    The logic is called once the bound of the step's watermarks reaches `watermark_us`.
    """
    return _HELD + max(-_HELD_SPAN + 1, min(watermark_us, _HELD_SPAN - 1))


def held_at_us(due_us: int) -> int | None:
    """Return the watermark that a due time made by `held_until` waits for; ``None`` for another."""
    waits = abs(due_us - _HELD) < _HELD_SPAN
    return due_us - _HELD if waits else None


class Stamped(NamedTuple):
    """A value as it reaches the logic of a step that measures progress.

    Attributes:
        value: the value; ``(side, value)`` where the step reads several streams.
        progress_us: how far the stream had come once this value was counted.
    """

    value: Any
    progress_us: int


@dataclass(frozen=True)
class Stateful(Operator):
    """A keyed step: a builder makes the logic of each key.

    With `sides` greater than one the step reads that many streams and each value reaches the logic
    as ``(side, value)``. `emits` names the streams it makes; with more than one, what the logic
    emits is ``(port index, value)``, or ``(COUNTED, Counted(...))``.
    """

    builder: Builder
    kind: str = "stateful"
    sides: int = 1
    emits: tuple[str, ...] = ("down",)

    @property
    def progress(self) -> Progress | None:
        """How to measure how far the step's input has come, if that is to be known."""
        found = getattr(self.builder, "progress", None)
        return found if isinstance(found, Progress) else None

    @property
    def holds(self) -> Progress | None:
        """The measure by which source partitions that are behind hold the step's watermarks.

        A builder offers it as its attribute ``holds``. Where the step's sources have several
        partitions, each value reaches its logic as a `Bounded` one.
        """
        found = getattr(self.builder, "holds", None)
        return found if isinstance(found, Progress) else None

    @property
    def follows_inputs(self) -> bool:
        """True if the step's logics go by `Moment.inputs_us`, and are due by it.

        A builder says so by its attribute ``follows_inputs``.
        """
        return bool(getattr(self.builder, "follows_inputs", False))

    @property
    def shard_logic(self) -> ShardLogicBuilder | None:
        """What runs the step over many keys at once, if it can; see `flow.keyed.shard_logic`."""
        found = getattr(self.builder, "shard_logic", None)
        return found if callable(found) else None

    @property
    def settings(self) -> str:
        """What the step is set to, as far as it decides when its keys are due; empty for nothing.

        It is kept with the state. Where it has changed when a flow goes on, every key is looked at
        once. A builder offers it as its attribute ``settings``.
        """
        found = getattr(self.builder, "settings", "")
        return found if isinstance(found, str) else ""

    def fields_needed(self, wanted: frozenset[int]) -> frozenset[str] | None:
        """Which fields of records the step needs; ``None`` for all of them.

        A builder says so in a method of this name.

        Args:
            wanted: which of the streams that it makes anybody reads, by number.
        """
        ask = getattr(self.builder, "fields_needed", None)
        return ask(wanted) if callable(ask) else None

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return self.emits
