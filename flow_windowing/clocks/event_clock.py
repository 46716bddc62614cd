"""The event clock: values carry timestamps, and the watermark follows the greatest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from typing_extensions import TypeVar, override

from flow.checks import call_text, check_choice, check_getter, given_arguments
from flow.columns.arrays import Ints
from flow.columns.record_batches import value_reader
from flow.durations import Duration, natural_us, positive_us
from flow.errors import RAISED, FlowBuildError, brief, shorten
from flow.fields import field_path
from flow.instants import (
    NEVER,
    NO_PROGRESS,
    Instant,
    Moment,
    TimeForm,
    TimeUnit,
    instant_us,
    zone_named,
)
from flow.keyed.logic import Progress
from flow.operators import RejectedValue
from flow_windowing.clocks.clock import Clock, ClockLogic, DroppedValue, Reading
from flow_windowing.clocks.timestamp_columns import read_times
from flow_windowing.rules.metadata import LateReason
from flow_windowing.rules.watermark import (
    LEAST_TAKEN,
    NO_WATERMARK,
    ONE_KEY,
    advanced,
    due_at,
    expires_at,
    floor,
    held,
)

V = TypeVar("V", default=Any)

FOREVER_US = 1 << 61
"""The greatest wait, longer than any calendar: the watermark never advances."""

OnIdle: TypeAlias = Literal["advance", "hold"]
"""The watermark without values: it advances with the inputs' clock, or does not advance."""
OnInvalid: TypeAlias = Literal["fail", "drop"]
"""The handling of a value without a timestamp: the flow stops, or the value is dropped."""
Scope: TypeAlias = Literal["key", "stream"]
"""The scope of a watermark: each key has one, or the step has one for all keys."""
Upstream: TypeAlias = Literal["hold", "ignore"]
"""The effect of steps in event time on the steps that read their results."""

ClockState: TypeAlias = tuple[int, ...]
"""The base of the watermark, and the running time at which the base was set; with `forget_after`,
also the running time of the last value; while other partitions hold the watermark, also the last
watermark that was used."""


@dataclass(frozen=True)
class EventClock(Clock[V, ClockState]):
    """Event time: each value carries its timestamp, and the watermark follows the greatest.

    The watermark is the greatest of ``timestamp - wait_for_system_duration`` so far, plus the time
    by which the inputs' clock has advanced since. The inputs' clock is the time up to which the
    step's inputs have been read: it is system time after an epoch that reads all available items,
    and does not advance in a slow epoch or a backlog. The time in which the flow does not run does
    not count.

    A source partition that is behind (it is known to have more items than the epoch reads) holds
    the watermark at the partition's own progress, its greatest timestamp less the wait. So values
    of several inputs or partitions that are read at different paces are not late.

    Args:
        ts_getter: a function of the value, or the path of a field, such as ``"details.at"``, that
            gives an aware datetime, Unix seconds or ISO 8601 text with an offset; see `unit` and
            `timezone` for others.
        wait_for_system_duration: the wait for values out of order: the delay between a value's
            timestamp and its arrival at the source, and the disorder within one source partition.
            With ``timedelta.max``, the watermark does not advance until the input ends.
        on_idle: ``"hold"``: only values and the end of input advance the watermark, and the inputs'
            clock does not. For event time that advances more slowly than system time, as in a
            simulation.
        max_ahead: the greatest time by which a timestamp may be ahead of system time. A timestamp
            further ahead does not advance the watermark, and its value goes to the late stream as
            `LateReason.TOO_FAR_AHEAD`.
        on_invalid: ``"drop"``: a value without a timestamp is dropped and counted, instead of
            stopping the flow.
        scope: ``"stream"``: one watermark for all keys of the step, the least over the source
            partitions that have sent a value or are behind, so that values of other keys close the
            windows of a silent key. By default each key has a separate watermark.
        upstream: ``"hold"``: steps in event time whose results the step reads hold its watermarks,
            so that no result is late because those of other keys came before it. ``"ignore"``: they
            do not, for a step whose time is not that of the steps before it.
        forget_after: the state of a key without an open window expires after this time past the
            wait without a value, in which the flow ran; a later value makes a new state. By
            default the state, two integers for each key, never expires.
        unit: the unit of timestamps that are numbers: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``
            since the Unix epoch. Nanoseconds are rounded down to microseconds.
        timezone: the IANA time zone of naive datetimes, and of texts without an offset, such as
            ``"Europe/Berlin"``; without one they have no timestamp. A local time that occurs
            twice, as clocks go back, is the first of the two. One that clocks skip has no
            timestamp, see `on_invalid`.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.

    >>> EventClock("at", "5m")
    EventClock(ts_getter='at', wait_for_system_duration='5m')
    >>> EventClock("at", "5m", unit="ms").timestamp_us({"at": 1_500})
    1500000
    >>> from flow.instants import from_us
    >>> berlin = EventClock("at", "5m", timezone="Europe/Berlin")
    >>> str(from_us(berlin.timestamp_us({"at": "2024-07-01T12:00:00"})))
    '2024-07-01 10:00:00+00:00'
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("ts_getter",)

    HARMLESS: ClassVar[frozenset[str]] = frozenset(
        {
            *("wait_for_system_duration", "on_idle", "max_ahead", "on_invalid"),
            *("forget_after", "upstream"),
        }
    )

    follows_inputs = True

    ts_getter: Callable[[V], Instant] | Callable[[Any], Instant] | str
    wait_for_system_duration: Duration
    on_idle: OnIdle = "advance"
    max_ahead: Duration | None = None
    on_invalid: OnInvalid = "fail"
    scope: Scope = "key"
    forget_after: Duration | None = None
    upstream: Upstream = "hold"
    unit: TimeUnit = "s"
    timezone: str | None = None

    def __post_init__(self) -> None:
        check_getter("EventClock: ts_getter", self.ts_getter, "details.at")
        check_choice("EventClock: on_idle", self.on_idle, ("advance", "hold"))
        check_choice("EventClock: on_invalid", self.on_invalid, ("fail", "drop"))
        check_choice("EventClock: scope", self.scope, ("key", "stream"))
        check_choice("EventClock: upstream", self.upstream, ("hold", "ignore"))
        check_choice("EventClock: unit", self.unit, get_args(TimeUnit))
        _ = self.wait_us, self.max_ahead_us, self.forget_after_us, self.form
        if self.scope == "stream" and self.forget_after is not None:
            raise FlowBuildError(
                "EventClock: forget_after is for keys with a watermark of their own; with "
                "scope='stream' a key without an open window keeps nothing: leave it out"
            )

    def __repr__(self) -> str:
        return call_text(self, given_arguments(self))

    @cached_property
    def form(self) -> TimeForm:
        """The unit of numbers, and the time zone of naive times."""
        name = self.timezone
        zone = None if name is None else zone_named("EventClock: timezone", name)
        return TimeForm(self.unit, zone)

    @cached_property
    @override
    def wait_us(self) -> int:
        """`wait_for_system_duration` in microseconds."""
        what = "EventClock: wait_for_system_duration"
        return min(natural_us(self.wait_for_system_duration, what), FOREVER_US)

    @cached_property
    def max_ahead_us(self) -> int:
        """`max_ahead` in microseconds; `NEVER` without a limit."""
        if self.max_ahead is None:
            return NEVER
        return natural_us(self.max_ahead, "EventClock: max_ahead")

    @cached_property
    def forget_after_us(self) -> int | None:
        """`forget_after` in microseconds."""
        if self.forget_after is None:
            return None
        # Expiry of state without advancing time would depend on the boundaries of epochs.
        return positive_us(self.forget_after, "EventClock: forget_after")

    @override
    def build(self, state: ClockState | None) -> ClockLogic[V, ClockState]:
        logic = _StreamLogic if self.scope == "stream" else _KeyLogic
        return logic(self, state)

    @property
    @override
    def progress(self) -> Progress | None:
        return _EventProgress(self) if self.scope == "stream" else None

    @property
    @override
    def holds(self) -> Progress | None:
        # A watermark that never advances needs no hold.
        return _EventProgress(self) if self.wait_us < FOREVER_US else None

    @property
    @override
    def takes_holds(self) -> bool:
        # A watermark that never advances needs no hold.
        return self.upstream == "hold" and self.wait_us < FOREVER_US

    @override
    def with_wait(self, wait_us: int) -> Self:
        wait = timedelta(microseconds=min(wait_us, FOREVER_US))
        return replace(self, wait_for_system_duration=wait)

    def timestamp_us(self, value: V) -> int:
        """Return the timestamp of a value, in microseconds since the Unix epoch.

        Raises:
            RejectedValue: when the value has no readable timestamp, and `on_invalid` is ``"fail"``.
            DroppedValue: when the value has no readable timestamp, and `on_invalid` is ``"drop"``.
        """
        getter = self.ts_getter
        try:
            if not isinstance(getter, str):
                return instant_us(getter(value), self.form)
            if isinstance(value, Mapping) and getter in value:
                return instant_us(value[getter], self.form)
            return instant_us(field_path(getter).value_in(value), self.form)
        except RAISED as error:
            what = f"ts_getter {getter!r}" if isinstance(getter, str) else "ts_getter"
            problem = f"{what} gave no timestamp: {brief(error)}"
            if self.on_invalid == "drop":
                raise DroppedValue(f"{problem}: {shorten(value)}") from error
            raise RejectedValue(value, problem) from error


class EventLogic(ClockLogic[Any, ClockState]):
    """The clock of a key in event time.

    Invariant: `_known_us` has the timestamps of values that were read ahead, by their ids.
    """

    __slots__ = ("_clock", "_known_us")

    def __init__(self, clock: EventClock[Any]) -> None:
        self._clock = clock
        self._known_us: dict[int, int] = {}

    def read_ahead(self, values: Iterable[Any]) -> list[int]:
        """Return the readable timestamps of values, in µs, before `on_item` is called with each.

        A timestamp function may be slow, so `on_item` does not call it again.
        """
        for value in values:
            try:
                self._known_us[id(value)] = self._clock.timestamp_us(value)
            except (RejectedValue, DroppedValue):  # `on_item` handles the value.
                continue
        return list(self._known_us.values())

    def _timestamp_us(self, value: Any) -> int:
        known_us = self._known_us.pop(id(value), None)
        return self._clock.timestamp_us(value) if known_us is None else known_us


class _KeyLogic(EventLogic):
    """The clock of a key with a separate watermark.

    Invariants: `_set_at_us` and `_last_value_us` are running time. `_candidate_us` is the greatest
    candidate of the current epoch's values, which may become the base at the end of the epoch.
    `_held_us` is the last watermark used while partitions held it; the base may be greater.
    `_advanced_us` is the base advanced to the moment `_advanced_at`, which all values of an epoch
    share.
    """

    __slots__ = (
        *("_advanced_at", "_advanced_us", "_base_us", "_candidate_us"),
        *("_held_us", "_last_value_us", "_set_at_us"),
    )

    def __init__(self, clock: EventClock[Any], state: ClockState | None) -> None:
        super().__init__(clock)
        self._base_us, self._set_at_us, *more = state or (NO_WATERMARK, 0)
        self._last_value_us = more[0] if more else self._set_at_us
        self._held_us = more[1] if len(more) > 1 else NO_WATERMARK
        self._candidate_us = NO_WATERMARK
        self._advanced_at: Moment | None = None
        self._advanced_us = NO_WATERMARK

    @override
    def on_item(self, value: Any, moment: Moment) -> Reading:
        clock = self._clock
        timestamp_us = self._timestamp_us(value)
        refused, candidate_us = None, timestamp_us - clock.wait_us
        if timestamp_us - moment.now_us > clock.max_ahead_us:
            refused, candidate_us = LateReason.TOO_FAR_AHEAD, NO_WATERMARK
        else:
            self._last_value_us = moment.running_us
        if moment.judges_epoch:
            watermark_us = self._bounded_us(self._passed_us(moment.inputs_us), moment)
            if moment.bound_us < NEVER:
                self._held_us = max(watermark_us, LEAST_TAKEN)
            self._candidate_us = max(self._candidate_us, candidate_us)
            return Reading(timestamp_us, watermark_us, refused)
        if moment.held_since_us >= NEVER:
            self._candidate_us = max(self._candidate_us, candidate_us)
            return Reading(timestamp_us, self._own_us(moment), refused)
        # The floor is the watermark before this value, as the value's partition may hold it.
        floor_us = self._floor_us(moment)
        self._candidate_us = max(self._candidate_us, candidate_us)
        bound_us = min(moment.bound_us, max(moment.progress_us, candidate_us))
        self._held_us = held(ONE_KEY, self._own_us(moment), bound_us, floor_us)
        return Reading(timestamp_us, self._held_us, refused)

    @override
    def watermark(self, moment: Moment) -> int:
        return self._bounded_us(self._own_us(moment), moment)

    @override
    def settle(self, moment: Moment) -> None:
        watermark_us = self.watermark(moment)
        if self._candidate_us > self._passed_us(moment.inputs_us):
            self._base_us, self._set_at_us = self._candidate_us, moment.running_us
            self._advanced_at = None
        self._candidate_us = NO_WATERMARK
        is_held = moment.bound_us < NEVER
        self._held_us = max(watermark_us, LEAST_TAKEN) if is_held else NO_WATERMARK

    @override
    def due_us(self, watermark_us: int, moment: Moment) -> int:
        advances = self._clock.on_idle == "advance"
        at_us = self.watermark(moment)
        return due_at(
            ONE_KEY, watermark_us, self._base_us, self._set_at_us, at_us, moment, advances
        )

    @override
    def forget_us(self, moment: Moment) -> int:
        after_us = self._clock.forget_after_us
        if after_us is None:
            return NEVER
        # Silence is measured from the time at which the watermark can have passed the last value.
        after_us += self._clock.wait_us
        return expires_at(ONE_KEY, self._last_value_us, after_us, moment.downtime_us)

    @override
    def snapshot(self) -> ClockState | None:
        if self._base_us == NO_WATERMARK:
            return None
        if self._held_us != NO_WATERMARK:
            return self._base_us, self._set_at_us, self._last_value_us, self._held_us
        if self._clock.forget_after_us is None:
            return self._base_us, self._set_at_us
        return self._base_us, self._set_at_us, self._last_value_us

    def _own_us(self, moment: Moment) -> int:
        """Return the watermark without the bound of other source partitions."""
        if moment is not self._advanced_at:
            self._advanced_at, self._advanced_us = moment, self._passed_us(moment.inputs_us)
        return max(self._advanced_us, self._candidate_us)

    def _bounded_us(self, own_us: int, moment: Moment) -> int:
        """Return the watermark that is used, which a hold may keep below the key's own."""
        if moment.bound_us >= NEVER:
            return own_us
        return held(ONE_KEY, own_us, moment.bound_us, self._floor_us(moment))

    def _passed_us(self, clock_us: int) -> int:
        """Return the base, advanced to the inputs' clock."""
        if self._clock.on_idle == "hold":
            return self._base_us
        return advanced(ONE_KEY, self._base_us, self._set_at_us, clock_us)

    def _floor_us(self, moment: Moment) -> int:
        """Return the watermark used so far, below which a hold does not lower it."""
        since_us = moment.held_since_us
        free_us = self._passed_us(since_us)
        return floor(ONE_KEY, self._held_us, self._set_at_us, free_us, since_us)


class _StreamLogic(EventLogic):
    """The clock of a key whose watermark is the stream progress, which the engine measures."""

    __slots__ = ()

    def __init__(self, clock: EventClock[Any], state: ClockState | None) -> None:  # noqa: ARG002
        super().__init__(clock)

    @override
    def on_item(self, value: Any, moment: Moment) -> Reading:
        clock = self._clock
        timestamp_us = self._timestamp_us(value)
        ahead = timestamp_us - moment.now_us > clock.max_ahead_us
        refused = LateReason.TOO_FAR_AHEAD if ahead else None
        return Reading(timestamp_us, moment.progress_us, refused)

    @override
    def watermark(self, moment: Moment) -> int:
        return moment.progress_us

    @override
    def due_us(self, watermark_us: int, moment: Moment) -> int:
        return watermark_us

    @override
    def snapshot(self) -> None:
        return None


@dataclass(frozen=True)
class _EventProgress(Progress):
    """The stream progress by an event clock: the greatest timestamp less the wait."""

    clock: EventClock[Any]

    @property
    @override
    def advances(self) -> bool:
        return self.clock.on_idle == "advance"

    @override
    def measure(self, value: Any, moment: Moment) -> int | None:
        try:
            timestamp_us = self.clock.timestamp_us(value)
        except (RejectedValue, DroppedValue):  # The step handles the value.
            return None
        if timestamp_us - moment.now_us > self.clock.max_ahead_us:
            return None
        return timestamp_us - self.clock.wait_us

    @override
    def measure_all(self, values: pa.RecordBatch | Sequence[Any], moment: Moment) -> Ints | None:
        read = read_times(values, self.clock.ts_getter, self.clock.form)
        if read is None:
            return None
        times, known = read
        ahead = times - moment.now_us > self.clock.max_ahead_us
        measured = np.where(known & ~ahead, times - self.clock.wait_us, NO_PROGRESS)
        for row in np.flatnonzero(~known).tolist():
            found = self.measure(value_reader(values)(row), moment)
            measured[row] = NO_PROGRESS if found is None else found
        return measured
