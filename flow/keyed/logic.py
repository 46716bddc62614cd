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
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pyarrow as pa

from flow.columns.arrays import Ints
from flow.errors import FlowError
from flow.instants import NEVER, Moment, datetime_us

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


class KeyLogic(ABC, Generic[W, S]):
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
        """Called first in the epoch that finds the settings of the step changed.

        It is called for every key that has state, see `flow.keyed.step.LogicBuilder.settings`;
        `notify_at` is asked again after it.

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


class StatefulBatchLogic(KeyLogic[W, S], Generic[V, W, S]):
    """A logic that takes a key's values of one epoch together."""

    @abstractmethod
    def on_batch(self, values: list[V], moment: Moment) -> tuple[Iterable[W], Keep]:
        """Called with all of the key's values in the epoch, in order, at least one.

        Returns:
            The values to emit, and whether to keep this logic.
        """


class StatefulLogic(KeyLogic[W, S], Generic[V, W, S]):
    """A logic that takes a key's values one by one."""

    @abstractmethod
    def on_item(self, value: V, moment: Moment) -> tuple[Iterable[W], Keep]:
        """Called with each value in order.

        Returns:
            The values to emit, and whether to keep this logic.
        """


class OneToOneLogic(KeyLogic[Any, Any]):
    """A logic that emits exactly one value for each, and takes a run of them in one call."""

    @abstractmethod
    def on_run(self, values: list[Any], moment: Moment) -> tuple[list[Any], Keep]:
        """Called with a key's values of one epoch; returns as many."""


class Progress(ABC):
    """How to measure how far a stream has come, for all keys of a step together.

    It is configuration: frozen, and pickled with the flow. A step has one if its builder declares
    it (`flow.keyed.step.LogicBuilder.progress`). Each *source partition* of the step's input comes
    as far as the greatest of its values says, and the stream as far as the least of the partitions
    that have spoken; it never goes back. Then

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


class Stamped(NamedTuple):
    """A value as it reaches the logic of a step that measures progress.

    Attributes:
        value: the value; ``(side, value)`` where the step reads several streams.
        progress_us: how far the stream had come once this value was counted.
    """

    value: Any
    progress_us: int
