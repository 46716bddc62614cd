"""The notation of window transcripts: how times, values, windows and late values are written.

A time is one of

    12.5                            seconds from the start of the transcript's day
    10:35, 10:35:07.25              a clock time of that day
    2024-10-27, 2024-10-27T01:30    any instant; all is UTC

A window is its id, its bounds, the ids merged into it, and the timestamp of what it emits, if it
has one: ``#3 [30, 40)``, ``@10 [10, 20] merged @20``, ``#3 [30, 40) at 37``. An id that is a number
begins with ``#``; one that is a time, in microseconds, with ``@``. The brackets say which bounds
belong to the window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from flow.instants import EPOCH, datetime_us, from_us
from flow_windowing import (
    CountWindower,
    EventSlidingWindower,
    LateReason,
    LateValue,
    Retracted,
    SessionWindower,
    Windower,
    WindowMetadata,
)

_WINDOW = (
    r"(?P<id>[#@]\S+) (?P<first>[\[(])(?P<open>[^,]+), (?P<close>[^\])]+)(?P<last>[\])])"
    r"(?: merged(?P<merged>(?: [#@][^\s,]+?)+))?(?: at (?P<timestamp>[^\s,]+?))?"
)
_UNNAMED = re.sub(r"\?P<\w+>", "?:", _WINDOW)
_MISSED = re.compile(f", missed {_WINDOW}")
_LINES = {
    "down": re.compile(rf"(?P<key>\S+) {_WINDOW}: (?P<value>.+)"),
    "late": re.compile(
        r"(?P<key>\S+) (?P<time>\S+) (?P<value>\S+): (?P<reason>[a-z ]+), "
        rf"watermark (?P<watermark>[^\s,]+)(?P<missed>(?:, missed {_UNNAMED})*)"
        r"(?:, side (?P<side>\d+))?"
    ),
    "closed": re.compile(rf"(?P<key>\S+) {_WINDOW}"),
}
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Notation:
    """How one transcript writes things.

    Attributes:
        day: the day that times without a date are of.
        id_sign: how an id begins.
        brackets: which bounds belong to a window.
    """

    day: datetime
    id_sign: str
    brackets: str

    @classmethod
    def of(cls, windower: Windower[Any], day: datetime) -> Notation:
        """The notation for a kind of windows."""
        if isinstance(windower, SessionWindower | EventSlidingWindower):
            return cls(day, "@", "[]")
        if isinstance(windower, CountWindower):
            return cls(day, "#", "[]")
        return cls(day, "#", "(]" if getattr(windower, "closed", "") == "right" else "[)")

    def time(self, text: str) -> datetime:
        """Read a time."""
        return read_time(text, self.day)

    def written(self, port: str, key: str, item: Any) -> str:
        """Write what a stream has emitted, all that it says of itself."""
        match port, item:
            case "down", (window, value):
                return f"{key} {self._window(window)}: {shown(value)}"
            case "late", LateValue():
                return f"{key} {self._late(item)}"
            case _:
                return f"{key} {self._window(item)}"

    def rewritten(self, port: str, line: str) -> tuple[str, str]:
        """Read a line, and write it as `written` would what it stands for; also return its key.

        Lines are ``key window: value`` of what is emitted down, ``key window`` of what has closed,
        and of what is late ``key time value: reason, watermark time``, then ``, missed window`` for
        each window, if there are any, and in a join ``, side 0``.

        Raises:
            ValueError: when the line is none of this.
        """
        match = _LINES[port].fullmatch(line)
        if match is None:
            raise ValueError(f"{line!r} is not a line of {port!r}")
        key = match["key"]
        match port:
            case "down":
                return key, self.written(port, key, (self._read_window(match), match["value"]))
            case "late":
                return key, self.written(port, key, self._read_late(match))
            case _:
                return key, self.written(port, key, self._read_window(match))

    def _late(self, late: LateValue[Any]) -> str:
        parts = [
            f"{self._time(late.timestamp)} {shown(late.value)}: {late.reason.value}",
            f"watermark {'none' if late.watermark is None else self._time(late.watermark)}",
            f"late by {late.late_by}",
        ]
        parts += [f"missed {self._window(window)}" for window in late.windows]
        if late.side is not None:
            parts.append(f"side {late.side}")
        return ", ".join(parts)

    def _read_late(self, match: re.Match[str]) -> LateValue[str]:
        timestamp, said = self.time(match["time"]), match["watermark"]
        watermark = None if said == "none" else self.time(said)
        late_by = timedelta(0) if watermark is None else max(watermark - timestamp, timedelta(0))
        windows = tuple(map(self._read_window, _MISSED.finditer(match["missed"])))
        reason = LateReason(match["reason"].replace(" ", "_"))
        side = None if match["side"] is None else int(match["side"])
        return LateValue(match["value"], timestamp, watermark, late_by, windows, reason, side)

    def _window(self, metadata: WindowMetadata) -> str:
        first, last = self.brackets[0], self.brackets[1]
        bounds = f"{self._time(metadata.open_time)}, {self._time(metadata.close_time)}"
        text = f"{self._id(metadata.window_id)} {first}{bounds}{last}"
        if metadata.merged_ids:
            text += f" merged {' '.join(self._id(one) for one in sorted(metadata.merged_ids))}"
        if metadata.timestamp is not None:
            text += f" at {self._time(metadata.timestamp)}"
        return text

    def _read_window(self, match: re.Match[str]) -> WindowMetadata:
        if match["first"] + match["last"] != self.brackets:
            raise ValueError(f"{match.string!r}: these windows are written {self.brackets}")
        merged = (match["merged"] or "").split()
        return WindowMetadata(
            self._read_id(match["id"]),
            self.time(match["open"]),
            self.time(match["close"]),
            frozenset(self._read_id(one) for one in merged),
            self.time(match["timestamp"]) if match["timestamp"] else None,
        )

    def _id(self, number: int) -> str:
        return f"@{self._time(from_us(number))}" if self.id_sign == "@" else f"#{number}"

    def _read_id(self, text: str) -> int:
        if text[0] != self.id_sign:
            raise ValueError(f"{text!r}: ids of these windows begin with {self.id_sign}")
        return datetime_us(self.time(text[1:])) if self.id_sign == "@" else int(text[1:])

    def _time(self, time: datetime) -> str:
        since_us = datetime_us(time) - datetime_us(self.day)
        if self.day == EPOCH and abs(since_us) <= _DAY_US:
            return f"{since_us / 1_000_000:.6f}".rstrip("0").rstrip(".")
        if 0 <= since_us < _DAY_US:
            return time.time().isoformat().removesuffix(":00")
        return time.replace(tzinfo=None).isoformat()


def read_time(text: str, day: datetime) -> datetime:
    """Read a time: seconds from the start of a day, a clock time of it, or any instant.

    >>> str(read_time("10:35", datetime(2023, 12, 14, tzinfo=UTC)))
    '2023-12-14 10:35:00+00:00'
    """
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        whole, _, fraction = text.lstrip("-").partition(".")
        micros = int(whole) * 1_000_000 + int(fraction.ljust(6, "0"))
        return day + timedelta(microseconds=-micros if text[0] == "-" else micros)
    if re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", text):
        text = f"{day:%Y-%m-%d}T{text}"
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def read_item(line: str, read: Callable[[str], datetime]) -> tuple[str, dict[str, Any]]:
    """Read an item of an input: ``key time value``, and fields as ``name=value``.

    The value that flows is a dict of ``at``, ``value`` and the fields; a dot in a field's name
    makes a dict of its own. A time of ``-`` is none.

    >>> read_item("k - a paid.amount=5", datetime.fromisoformat)
    ('k', {'value': 'a', 'paid': {'amount': 5}})
    """
    key, time, *words = line.split()
    value: dict[str, Any] = {} if time == "-" else {"at": read(time)}
    for word in words:
        path, equals, text = word.rpartition("=")
        *outer, name = path.split(".") if equals else ["value"]
        inner = value
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[name] = _literal(text)
    return key, value


def _literal(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def shown(value: Any, *, inside: bool = False) -> str:
    """Write a value: one that has flowed by its name, others by what they hold.

    >>> shown([{"at": 1, "value": "a"}, {"at": 2, "value": "b"}])
    'a b'
    >>> shown({"n": 2, "all": ["a", None]})
    'n=2 all=[a -]'
    """
    match value:
        case None:
            return "-"
        case Retracted():
            return f"retracted {shown(value.value)}"
        case Mapping() if "value" in value:
            return str(value["value"])
        case tuple():
            return f"({', '.join(shown(one, inside=True) for one in value)})"
        case Mapping():
            text = " ".join(f"{name}={shown(one, inside=True)}" for name, one in value.items())
        case set() | frozenset():
            text = " ".join(sorted(shown(one, inside=True) for one in value))
        case list():
            text = " ".join(shown(one, inside=True) for one in value)
        case _:
            return str(value)
    return f"[{text}]" if inside else text
