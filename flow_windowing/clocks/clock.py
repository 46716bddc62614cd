"""Clocks: what is the timestamp of a value, and what is the watermark now?

A `Clock` is configuration; the `ClockLogic` it builds runs for one key and owns the state. Inside,
time is a whole number of microseconds since the Unix epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from typing_extensions import override

from flow.instants import NEVER, Moment
from flow.keyed.logic import Progress
from flow.wrong_names import Named
from flow_windowing.contract.metadata import LateReason

V = TypeVar("V")
S = TypeVar("S")


class Reading(NamedTuple):
    """What a clock says of a value.

    Attributes:
        timestamp_us: the value's time.
        watermark_us: the watermark once the value has been considered.
        refused: why the value may enter no window, whatever its time; ``None`` when it may.
    """

    timestamp_us: int
    watermark_us: int
    refused: LateReason | None = None


class DroppedValue(Exception):
    """Raised by a clock to leave a value out, counted but in no stream."""


class ClockLogic(ABC, Generic[V, S]):
    """A sense of time for one key.

    Laws: the watermark never goes back, and a timestamp depends on nothing but the value and the
    moment.
    """

    @abstractmethod
    def on_item(self, value: V, moment: Moment) -> Reading:
        """Called with each value, in arrival order.

        Raises:
            RejectedValue: when the value has no timestamp that can be read: the flow stops.
            DroppedValue: when it is to be left out instead.
        """

    @abstractmethod
    def watermark(self, moment: Moment) -> int:
        """The watermark now, in microseconds since the Unix epoch."""

    @abstractmethod
    def due_us(self, watermark_us: int, moment: Moment) -> int:
        """The system time at which the watermark gets to `watermark_us` if no value comes.

        In microseconds; `NEVER` when system time does not move the watermark.
        """

    def forget_us(self, moment: Moment) -> int:  # noqa: ARG002
        """The system time from which the key may be forgotten if no value comes; or `NEVER`.

        Asked when the key has no open window and nothing waits.
        """
        return NEVER

    def settle(self, moment: Moment) -> None:
        """Called once an epoch's values of the key have been considered, and what is due is done.

        Values are considered at ``moment.before``, up to which the sources have been read to their
        ends; this is the moment that the epoch itself has come to.
        """

    @abstractmethod
    def snapshot(self) -> S | None:
        """A copy of the state; ``None`` when there is nothing to remember."""


class Clock(Named, ABC, Generic[V, S]):
    """A kind of time, as configuration."""

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = {
        "wait": "use wait_for_system_duration=, how long the clock waits for values out of order",
        "delay": "use wait_for_system_duration=, how long the clock waits for values out of order",
        "max_delay": "use wait_for_system_duration=, how long the clock waits",
        "watermark_delay": "use wait_for_system_duration=, how long the clock waits",
        "max_out_of_orderness": "use wait_for_system_duration=, how long the clock waits",
        "lateness": "use wait_for_system_duration=, or grace= on the windower",
        "dt_getter": "use ts_getter=, a function of the value or the path of a field",
        "timestamp": "use ts_getter=, a function of the value or the path of a field",
        "timestamp_extractor": "use ts_getter=, a function of the value or the path of a field",
    }

    @abstractmethod
    def build(self, state: S | None) -> ClockLogic[V, S]:
        """Make the logic of one key, from a snapshot if there is one."""

    @property
    def progress(self) -> Progress | None:
        """How to measure the progress of the whole stream, for a clock that follows that.

        Its logics find it in ``moment.progress_us``, and `ClockLogic.due_us` answers in its terms.
        """
        return None

    @property
    def holds(self) -> Progress | None:
        """The measure by which source partitions that are behind hold the watermark.

        Its logics find the bound in ``moment.bound_us``. ``None`` for a clock that they do not
        hold, as system time.
        """
        return None

    @property
    def follows_inputs(self) -> bool:
        """True for a clock whose watermark advances by `Moment.inputs_us`, not by system time."""
        return False


@dataclass(frozen=True)
class SystemClock(Clock[Any, None]):
    """System time: a value's timestamp, and the watermark, is when it came. Nothing is ever late.

    >>> SystemClock()
    SystemClock()
    """

    @override
    def build(self, state: None) -> ClockLogic[Any, None]:
        return _SystemClockLogic()


class _SystemClockLogic(ClockLogic[Any, None]):
    @override
    def on_item(self, value: Any, moment: Moment) -> Reading:
        return Reading(moment.now_us, moment.now_us)

    @override
    def watermark(self, moment: Moment) -> int:
        return moment.now_us

    @override
    def due_us(self, watermark_us: int, moment: Moment) -> int:
        return watermark_us

    @override
    def snapshot(self) -> None:
        return None
