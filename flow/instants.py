"""Instants: whole microseconds since the Unix epoch inside, aware datetimes for users."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from flow.errors import FlowBuildError, TimestampError, shorten

Instant: TypeAlias = datetime | int | float | str
"""The types of an instant argument: an aware datetime, Unix seconds, or ISO 8601 text with an
offset."""

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
"""The unit of timestamps that are numbers: seconds, or a smaller one, since the Unix epoch."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = EPOCH.replace(tzinfo=None)
_MICRO = timedelta(microseconds=1)

MIN_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICRO
"""The least instant that a datetime can hold."""
MAX_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICRO
"""The greatest instant that a datetime can hold."""
NEVER = 2**62
"""A time after any instant: the due time of no timer, and the watermark after the end of input."""

NO_PROGRESS = -NEVER
"""A time before any instant: the progress of a stream without values."""


@dataclass(frozen=True, slots=True)
class TimeForm:
    """The form of timestamps that do not say it themselves.

    Attributes:
        unit: the unit of numbers.
        zone: the time zone of naive datetimes, and of texts without an offset; ``None`` to refuse
            both.
    """

    unit: TimeUnit = "s"
    zone: tzinfo | None = None


class OutOfRange:
    """A value of a column that no Python object holds, such as a time after the year 9999.

    It stands for the value in records that are Python objects, so that only a function or a sink
    that uses the field fails. It equals that of the same value, as an id or among distinct values.

    Attributes:
        text: the value as Arrow shows it.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutOfRange) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"OutOfRange({self.text!r})"


def from_us(micros: int) -> datetime:
    """Convert microseconds to an aware UTC datetime, clipped to the range of datetimes.

    >>> from_us(0)
    datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    return EPOCH + timedelta(microseconds=min(max(micros, MIN_US), MAX_US))


def datetime_us(value: datetime, zone: tzinfo | None = None) -> int:
    """Convert a datetime to microseconds.

    Args:
        value: the datetime.
        zone: the time zone of a naive datetime. Of a local time that occurs twice, the first is
            meant.

    Raises:
        TimestampError: if the datetime is naive and there is no zone, or the zone's clocks skip it.

    >>> from zoneinfo import ZoneInfo
    >>> from_us(datetime_us(datetime(2024, 7, 1, 12), ZoneInfo("Europe/Berlin"))).hour
    10
    """
    if value.tzinfo is None or value.utcoffset() is None:
        if zone is None:
            raise TimestampError(
                f"{value.isoformat()} is a naive datetime, which names no point in time: give it a "
                "time zone, e.g. value.replace(tzinfo=timezone.utc); for the values of an event "
                "clock write EventClock(..., timezone='Europe/Berlin')"
            )
        return _zoned_us(value, zone)
    # Not `value - EPOCH`: pendulum's datetimes would answer with an interval of floating seconds.
    return datetime.__sub__(value, EPOCH) // _MICRO


def zone_named(argument: str, name: object) -> tzinfo:
    """Return a time zone by its name in the machine's data, or else in the package ``tzdata``.

    Raises:
        FlowBuildError: when there is none; the error names the argument.
    """
    try:
        return ZoneInfo(name)  # type: ignore[arg-type]
    # The name is looked up as a path: a folder raises OSError, and a file that is not a zone
    # raises ValueError.
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise FlowBuildError(
            f"{argument} must be the name of an IANA time zone, such as 'Europe/Paris', "
            f"got {shorten(name)}"
        ) from error


def _zoned_us(value: datetime, zone: tzinfo) -> int:
    at = value.replace(tzinfo=zone, fold=0)
    if at.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != at.replace(tzinfo=None):
        skipped = at.replace(tzinfo=None).isoformat()
        raise TimestampError(f"{skipped} does not exist in {zone}, whose clocks skip it")
    return datetime_us(at)


@lru_cache(maxsize=65_536)
def offset_in_hour_us(zone: tzinfo, hour: int) -> int | None:
    """Return the offset from UTC, in microseconds, of all times in an hour of a zone's local time.

    Args:
        zone: the time zone.
        hour: the number of the hour since local 1970-01-01 00:00.

    Returns:
        ``None`` if the zone's clocks change in the hour, or skip it.
    """
    try:
        start = _LOCAL_EPOCH + timedelta(hours=hour)
        ends = (start, start + timedelta(hours=1) - _MICRO)
        offsets = {(end - _LOCAL_EPOCH) // _MICRO - _zoned_us(end, zone) for end in ends}
    except (TimestampError, OverflowError):
        return None
    return offsets.pop() if len(offsets) == 1 else None


UNIX_SECONDS = TimeForm()


def instant_us(value: object, form: TimeForm = UNIX_SECONDS) -> int:
    """Read an instant as microseconds since the Unix epoch.

    Args:
        value: a datetime, a number, or ISO 8601 text.
        form: the unit of numbers, and the time zone of datetimes and texts that have none.

    Raises:
        TimestampError: for a datetime or a text without a time zone, unless the form has one, and
            for any other value.

    >>> instant_us("1970-01-01T00:00:01Z")
    1000000
    >>> instant_us(1.5), instant_us(1.5, TimeForm("ms"))
    (1500000, 1500)
    """
    if isinstance(value, datetime):
        return datetime_us(value, form.zone)
    if isinstance(value, bool):
        raise TimestampError(f"{value!r} is not a timestamp")
    if isinstance(value, int | float):
        return _number_us(value, form.unit)
    if isinstance(value, str):
        return _text_us(value, form.zone)
    if isinstance(value, OutOfRange):
        raise TimestampError(f"{value.text} lies outside the years 1 to 9999")
    raise TimestampError(
        f"{shorten(value)} ({type(value).__name__}) is not a timestamp: "
        "give an aware datetime, Unix seconds or ISO 8601 text"
    )


UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""The microseconds of each unit that is not smaller."""

_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def _number_us(value: float, unit: TimeUnit) -> int:
    """Convert a number to microseconds: nanoseconds are rounded down, other fractions half to even.

    Raises:
        TimestampError: for a number that is not finite, or is outside the years 1 to 9999.
    """
    if value != value or value in (float("inf"), float("-inf")):
        raise TimestampError(f"{value!r} is not a timestamp")
    if unit == "ns":
        micros = int(value // 1_000)
    else:
        whole, factor = int(value // 1), UNITS_US[unit]
        micros = whole * factor + round((value - whole) * factor)
    if MIN_US <= micros <= MAX_US:
        return micros
    raise TimestampError(
        f"{value!r} lies outside the years 1 to 9999 as Unix {_UNIT_NAMES[unit]}"
        f"{_smaller_unit(value) if unit == 's' else ''}"
    )


def _text_us(value: str, zone: tzinfo | None) -> int:
    try:
        return datetime_us(datetime.fromisoformat(value), zone)
    except TimestampError:
        raise
    except ValueError as error:
        raise TimestampError(f"{shorten(value)} is not an ISO 8601 timestamp") from error


def _smaller_unit(seconds: float) -> str:
    """Return a hint at the unit of a number too great for Unix seconds; empty if none fits."""
    for unit, per_second in (("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)):
        # An instant before 1970 is hardly meant.
        if 0 <= seconds * 1_000_000 // per_second <= MAX_US:
            return (
                f": if it is a number of Unix {_UNIT_NAMES[unit]}, write EventClock(..., "
                f"unit={unit!r}), or divide it by {per_second:,}"
            )
    return ""


@dataclass(frozen=True, slots=True)
class Moment:
    """The system time of one epoch, and the only clock that a step's logic may read.

    Attributes:
        now_us: system time, microseconds since the Unix epoch; never decreases.
        downtime_us: the total time that the flow has not been running since its first epoch.
        progress_us: the stream progress, for a step that measures it.
        read_us: the running time up to which all sources of the step have been read; before
            `running_us` while a source has a backlog, `NEVER` without a backlog.
        bound_us: the upper bound of the step's watermarks that source partitions behind impose;
            `NEVER` without such partitions.
        held_since_us: the inputs' clock at which a partition began to hold the step's watermarks;
            `NEVER` without such a partition.
        judges_epoch: True if the watermarks at this moment, the start of an epoch, apply to all of
            the epoch's values, as for a step that reads the results of another.
        start: the moment at the epoch's start, if different.
        stepped_us: the part of system time that did not pass: by how much steps of the machine's
            clock during runs have moved it; negative if system time has stood still.
    """

    now_us: int
    downtime_us: int = 0
    progress_us: int = NO_PROGRESS
    read_us: int = NEVER
    bound_us: int = NEVER
    held_since_us: int = NEVER
    judges_epoch: bool = False
    start: Moment | None = None
    stepped_us: int = 0

    @property
    def now(self) -> datetime:
        """System time as an aware UTC datetime."""
        return from_us(self.now_us)

    @property
    def running_us(self) -> int:
        """The time that the flow has been running, by a monotonic clock, in microseconds.

        It starts at the system time of the first epoch.
        """
        return self.steady_us - self.downtime_us

    @property
    def steady_us(self) -> int:
        """System time without steps of the machine's clock, by which intervals are measured."""
        return self.now_us - self.stepped_us

    @property
    def inputs_us(self) -> int:
        """The inputs' clock: the running time up to which all sources of the step have been read.

        Event-time watermarks advance with the inputs' clock.
        """
        return min(self.running_us, self.read_us)

    @property
    def inputs_now_us(self) -> int:
        """The inputs' clock as system time without steps, in microseconds since the Unix epoch."""
        return self.inputs_us + self.downtime_us

    @property
    def before(self) -> Moment:
        """The moment at the epoch's start, before the epoch's values."""
        return self if self.start is None else self.start
