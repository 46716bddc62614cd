"""The notation of window transcripts: how items, windows, results and late values are written.

    behaviour = "a value near two sessions merges them"
    flow = "collect_window"
    clock = "EventClock('at', '1h')"
    windower = "SessionWindower('5s')"
    options = "ordered=False"
    counts = { w.late = 0 }

    [[epochs]]
    in = ["k 10 a", "k 20 b", "k 15 c"]

    [end]
    down = ["k @10 [10, 20] merged @20: a b c"]

Python can use the names in `window_names`. The window step is called `w`. Times are as in
`notation`. An item of an input is ``key time value``, as `read_item` says; `change` is a function
that the flow applies to values before the step.

A window is its id, its bounds, the ids merged into it, and the timestamp of its results, if they
have one: ``#3 [30, 40)``, ``@10 [10, 20] merged @20``, ``#3 [30, 40) at 37``. An id that is a
number begins with ``#``; one that is a time, in microseconds, with ``@``. The brackets say which
bounds belong to the window. With a trigger, the pane follows, with its index and timing:
``#3 [30, 40) pane 0 early``, ``#3 [30, 40) pane 1 on_time last``.

The outputs are the streams of the step:

down        ``key window: value``, with a value as `shown` writes it
late        ``key time value: reason, watermark time``, then ``, missed window`` for each window
            that the value missed, and in a join ``, side 0``
closed      ``key window``; a transcript that mentions `closed` nowhere implies that a window closes
            for each line of `down`; of panes, for each that is the last one
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

import flow_windowing as win
from flow.instants import EPOCH, datetime_us, from_us
from tests.support.notation import Lines, Notation, read_time
from tests.support.window_names import NAMES

_WINDOW = (
    r"(?P<id>[#@]\S+) (?P<first>[\[(])(?P<open>[^,]+), (?P<close>[^\])]+)(?P<last>[\])])"
    r"(?: merged(?P<merged>(?: [#@][^\s,]+?)+))?(?: at (?P<timestamp>[^\s,]+))?"
)
_PANE = re.compile(r" pane (?P<index>\d+) (?P<timing>early|on_time|late)(?P<last> last)?")
_UNNAMED = re.sub(r"\?P<\w+>", "?:", _WINDOW)
_MISSED = re.compile(f", missed {_WINDOW}")
_LINES = {
    "down": re.compile(
        rf"(?P<key>\S+) {_WINDOW}(?P<pane> pane \d+ [a-z_]+(?: last)?)?: (?P<value>.*)"
    ),
    "late": re.compile(
        r"(?P<key>\S+) (?P<time>\S+) (?P<value>\S+): (?P<reason>[a-z ]+), "
        rf"watermark (?P<watermark>[^\s,]+)(?P<missed>(?:, missed {_UNNAMED})*)"
        r"(?:, side (?P<side>\d+))?"
    ),
    "closed": re.compile(rf"(?P<key>\S+) {_WINDOW}"),
}
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class WindowNotation(Notation):
    """The notation of one window transcript.

    Attributes:
        id_sign: the sign with which window ids begin.
        brackets: the brackets around a window's bounds.
    """

    id_sign: str
    brackets: str
    names: ClassVar[Mapping[str, Any]] = NAMES

    @classmethod
    def of(cls, start: datetime, arguments: Mapping[str, Any]) -> Self:
        """Return the notation for a windower, or for an interval join without one."""
        windower = arguments.get("windower")
        if windower is None or isinstance(windower, win.SessionWindower | win.EventSlidingWindower):
            return cls(start, "@", "[]")
        if isinstance(windower, win.CountWindower):
            return cls(start, "#", "[]")
        return cls(start, "#", "(]" if getattr(windower, "closed", "") == "right" else "[)")

    def item(self, line: str) -> tuple[str, dict[str, Any]]:
        """Read an item of an input."""
        return read_item(line, self._read_time)

    def written(self, output: str, item: Any) -> tuple[str, str]:
        """Return the key of an item that an output received, and the item's line."""
        key, emitted = item
        match output, emitted:
            case "down", (window, value):
                text = f"{self._window(window)}: {shown(value)}"
            case "late", win.LateValue():
                text = self._late(emitted)
            case _:
                text = self._window(emitted)
        return key, f"{key} {text}"

    def rewritten(self, output: str, line: str) -> tuple[str, str]:
        """Read a line of an output; return what `written` returns for the line's item.

        Raises:
            ValueError: if the line is not in this notation.
        """
        match = _LINES[output].fullmatch(line)
        if match is None:
            raise ValueError(f"{line!r} is not a line of {output!r}")
        match output:
            case "down":
                window = replace(self._read_window(match), pane=_read_pane(match["pane"]))
                emitted: Any = window, match["value"]
            case "late":
                emitted = self._read_late(match)
            case _:
                emitted = self._read_window(match)
        return self.written(output, (match["key"], emitted))

    def completed(self, lines: Lines, mentioned: Set[str]) -> Lines:
        """Return the lines of an epoch, with one of `closed` for each of `down` where implied."""
        if "closed" in mentioned:
            return lines
        closing = (_closed_by(line) for line in lines["down"])
        return {**lines, "closed": tuple(line for line in closing if line is not None)}

    def _read_time(self, text: str) -> datetime:
        return read_time(text, self.start)

    def _late(self, late: win.LateValue[Any]) -> str:
        parts = [
            f"{self._time(late.timestamp)} {shown(late.value)}: {late.reason.value}",
            f"watermark {'none' if late.watermark is None else self._time(late.watermark)}",
            f"late by {late.late_by}",
        ]
        parts += [f"missed {self._window(window)}" for window in late.windows]
        if late.side is not None:
            parts.append(f"side {late.side}")
        return ", ".join(parts)

    def _read_late(self, match: re.Match[str]) -> win.LateValue[str]:
        timestamp, text = self._read_time(match["time"]), match["watermark"]
        watermark = None if text == "none" else self._read_time(text)
        late_by = timedelta(0) if watermark is None else max(watermark - timestamp, timedelta(0))
        windows = tuple(map(self._read_window, _MISSED.finditer(match["missed"])))
        reason = win.LateReason(match["reason"].replace(" ", "_"))
        side = None if match["side"] is None else int(match["side"])
        return win.LateValue(match["value"], timestamp, watermark, late_by, windows, reason, side)

    def _window(self, metadata: win.WindowMetadata) -> str:
        first, last = self.brackets[0], self.brackets[1]
        bounds = f"{self._time(metadata.open_time)}, {self._time(metadata.close_time)}"
        text = f"{self._id(metadata.window_id)} {first}{bounds}{last}"
        if metadata.merged_ids:
            text += f" merged {' '.join(self._id(one) for one in sorted(metadata.merged_ids))}"
        if metadata.timestamp is not None:
            text += f" at {self._time(metadata.timestamp)}"
        if (pane := metadata.pane) is not None:
            text += f" pane {pane.index} {pane.timing.value}{' last' * pane.is_last}"
        return text

    def _read_window(self, match: re.Match[str]) -> win.WindowMetadata:
        if match["first"] + match["last"] != self.brackets:
            raise ValueError(f"{match.string!r}: these windows are written {self.brackets}")
        merged = (match["merged"] or "").split()
        return win.WindowMetadata(
            self._read_id(match["id"]),
            self._read_time(match["open"]),
            self._read_time(match["close"]),
            frozenset(self._read_id(one) for one in merged),
            self._read_time(match["timestamp"]) if match["timestamp"] else None,
        )

    def _id(self, number: int) -> str:
        return f"@{self._time(from_us(number))}" if self.id_sign == "@" else f"#{number}"

    def _read_id(self, text: str) -> int:
        if text[0] != self.id_sign:
            raise ValueError(f"{text!r}: ids of these windows begin with {self.id_sign}")
        return datetime_us(self._read_time(text[1:])) if self.id_sign == "@" else int(text[1:])

    def _time(self, time: datetime) -> str:
        since_us = datetime_us(time) - datetime_us(self.start)
        if self.start == EPOCH and abs(since_us) <= _DAY_US:
            return f"{since_us / 1_000_000:.6f}".rstrip("0").rstrip(".")
        if 0 <= since_us < _DAY_US:
            return time.time().isoformat().removesuffix(":00")
        return time.replace(tzinfo=None).isoformat()


def _closed_by(line: str) -> str | None:
    """Return the key and window in a line of `down`; ``None`` for a pane that is not the last."""
    window, colon, _ = line.partition(": ")
    if not colon:
        raise ValueError(f"{line!r} has no ': ' between window and value")
    pane = _PANE.search(window)
    if pane is None:
        return window
    return window[: pane.start()] if pane["last"] else None


def _read_pane(text: str | None) -> win.Pane | None:
    """Read the pane in a line of `down`."""
    if text is None:
        return None
    match = _PANE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no pane")
    return win.Pane(int(match["index"]), win.PaneTiming(match["timing"]), match["last"] is not None)


def read_item(line: str, read: Callable[[str], datetime]) -> tuple[str, dict[str, Any]]:
    """Read an item of an input: ``key time value``, and fields as ``name=value``.

    The value of the item is a dict of ``at``, ``value`` and the fields; a dot in a field's name
    makes a dict within the dict. A time of ``-`` leaves out ``at``.

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
    """Write a value: a value of an input by its name, any other by its content.

    >>> shown([{"at": 1, "value": "a"}, {"at": 2, "value": "b"}])
    'a b'
    >>> shown({"n": 2, "all": ["a", None]})
    'n=2 all=[a -]'
    """
    match value:
        case None:
            return "-"
        case win.Retracted():
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
