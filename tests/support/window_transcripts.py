"""The window transcript format: a TOML file says what comes when, and what must come of it.

    behaviour = "a value near to two sessions makes them one"
    clock = "EventClock('at', '1h')"        # Python, with the names of `window_names`
    windower = "SessionWindower('5s')"
    operator = "collect_window"
    options = "ordered=False"

    [[epochs]]
    now = "10"                              # if it is not as before
    in = ["k 10 a", "k 20 b", "k 15 c"]     # key, time, value

    [end]
    down = ["k @10 [10, 20] merged @20: a b c"]

`window_notation` says how times, items and windows are written. Each epoch, and the end of input,
says what the operator's streams `down`, `late` and `closed` emit in it, for each key in order;
nothing is said by leaving a stream out. Only where a transcript never mentions `closed`, one window
closes for each line of `down`. An epoch may also say how many `keys` have a state after it.

An epoch's input is a list of items, or a list of lists, one for each source partition. A join has
several inputs; `inputs` gives their names. `change` is a function of a value that makes what the
step reads of it. `day` is what times without a date are counted from, and when system time starts;
`counts` is what the step must have counted by the end.

A batch reads all epochs as one backlog, in which what one input or source partition reads does not
make what another reads late. Where that changes what is emitted, `batch` says it:

    [batch]
    down = ["k #0 [0, 10): a b"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow.testing import Part
from tests.support.transcript import Wiring
from tests.support.window_names import NAMES
from tests.support.window_notation import Notation, read_item, read_time

FOLDER = Path(__file__).parent.parent / "transcripts" / "windows"
PORTS = ("down", "late", "closed")
Lines = dict[str, tuple[str, ...]]
"""Of each stream, what it emits, a line each."""

_PYTHON = ("change", "clock", "windower", "operator", "options")
_NEEDED = {"behaviour", "clock", "windower", "operator", "epochs"}
_FIELDS = {*_NEEDED, "day", "inputs", "change", "options", "end", "batch", "counts"}


@dataclass(frozen=True)
class WindowEpoch:
    """What comes in one epoch, and what must come of it.

    Attributes:
        now: the system time.
        inputs: what each input reads, a part for each source partition.
        lines: what each stream must emit.
        keys: how many keys must have a state afterwards; ``None`` if that does not matter.
    """

    now: datetime
    inputs: Mapping[str, Sequence[Part]]
    lines: Lines
    keys: int | None

    @property
    def items(self) -> list[tuple[dict[str, list[Part]], list[tuple[str, int]]]]:
        """The same input with an epoch for each item, in the order in which they are applied.

        With each come the partitions of which items are still to come.
        """
        found = [
            (position, name, Part([item], part.partition))
            for name, parts in self.inputs.items()
            for part in parts
            for position, item in enumerate(part.items)
        ]
        found.sort(key=lambda one: one[0])
        partitions = [(name, part.partition) for _, name, part in found]
        return [
            ({name: [part]}, [*dict.fromkeys(partitions[number + 1 :])])
            for number, (_, name, part) in enumerate(found)
        ]


@dataclass(frozen=True)
class WindowTranscript:
    """One windowing step, its input, and what it must emit.

    Attributes:
        name: the name of its file.
        behaviour: what it shows.
        day: what times without a date are counted from.
        inputs: the names of the inputs.
        epochs: what comes in each epoch.
        end: what must come of the end of input.
        batch: what must come of all together in a batch.
        counts: what the step must have counted.
        source: the Python in it: clock, windower, operator, options and change.
    """

    name: str
    behaviour: str
    day: datetime
    inputs: tuple[str, ...]
    epochs: tuple[WindowEpoch, ...]
    end: WindowEpoch
    batch: tuple[WindowEpoch, ...]
    counts: Mapping[str, int]
    source: Mapping[str, str]

    def __str__(self) -> str:
        return self.name

    @property
    def stands_still(self) -> bool:
        """Whether all its epochs are at one system time, the start."""
        return {epoch.now for epoch in self.epochs} == {self.day}

    @property
    def emits_by_epoch(self) -> bool:
        """Whether what it emits depends on where epochs end."""
        return "emit='epoch'" in self.source["options"]

    @property
    def notation(self) -> Notation:
        """How it writes things."""
        return Notation.of(self._python("windower"), self.day)

    def wire(self, w: Wiring) -> None:
        """Add its inputs, its step, and an output for each of the step's streams."""
        streams: list[Any] = [w.input(name) for name in self.inputs]
        step, name = w.name("w"), self.source["operator"]
        clock, windower = self._python("clock"), self._python("windower")
        options = eval(f"dict({self.source['options']})", self._names())
        if name == "join_window":
            out = win.join_window(step, clock, windower, *streams, **options)
        else:
            if self.source["change"]:
                streams = [op.map_value(w.name("change"), streams[0], self._python("change"))]
            if name == "count_window":
                streams = [op.map(w.name("unkeyed"), streams[0], unkeyed)]
            out = getattr(win, name)(step, *streams, clock, windower, **options)
        for port in PORTS:
            w.output(port, getattr(out, port))

    def _python(self, what: str) -> Any:
        return eval(self.source[what], self._names())

    def _names(self) -> dict[str, Any]:
        return {**NAMES, "time": lambda text: read_time(text, self.day)}


def unkeyed(item: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """An item without its key before it, for the operator that finds the key itself."""
    return {"key": item[0], **item[1]}


def read_transcripts() -> list[WindowTranscript]:
    """All window transcripts there are."""
    return [read_transcript(path) for path in sorted(FOLDER.glob("*.toml"))]


def read_transcript(path: Path) -> WindowTranscript:
    """Read a file."""
    return parse_transcript(path.stem, path.read_text())


def parse_transcript(name: str, text: str) -> WindowTranscript:
    """Read a transcript.

    Raises:
        ValueError: when it holds what is not part of the format.
    """
    try:
        return _Reader(tomllib.loads(text)).transcript(name)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


class _Reader:
    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content
        self._check()
        self._day = read_time(content.get("day", "1970-01-01"), datetime.now(UTC))
        self._inputs = tuple(content.get("inputs", ("in",)))
        tables = [*content["epochs"], content.get("end", {}), content.get("batch", {})]
        self._says_closed = any("closed" in table for table in tables)

    def transcript(self, name: str) -> WindowTranscript:
        content = self._content
        epochs, now = list[WindowEpoch](), self._day
        for table in content["epochs"]:
            epochs.append(self._epoch(table, now, {"now", *self._inputs}))
            now = epochs[-1].now
        end = self._epoch(content.get("end", {}), now, set())
        batch = (
            (self._epoch(content["batch"], now, set()),) if "batch" in content else (*epochs, end)
        )
        return WindowTranscript(
            name,
            content["behaviour"],
            self._day,
            self._inputs,
            tuple(epochs),
            end,
            batch,
            content.get("counts", {}),
            {what: content.get(what, "") for what in _PYTHON},
        )

    def _check(self) -> None:
        _refuse_unknown(self._content, _FIELDS)
        if missing := sorted(_NEEDED - self._content.keys()):
            raise ValueError(f"missing: {', '.join(missing)}")

    def _epoch(self, table: dict[str, Any], before: datetime, fields: set[str]) -> WindowEpoch:
        _refuse_unknown(table, {*PORTS, "keys", *fields})
        now = read_time(table["now"], self._day) if "now" in table else before
        if now < before:
            raise ValueError(f"system time never goes back, got {table['now']}")
        lines: Lines = {port: tuple(table.get(port, ())) for port in PORTS}
        if not self._says_closed:
            lines["closed"] = tuple(_window_of(line) for line in lines["down"])
        inputs = {name: self._parts(table[name]) for name in self._inputs if name in table}
        return WindowEpoch(now, inputs, lines, table.get("keys"))

    def _parts(self, items: list[Any]) -> list[Part]:
        partitions: list[list[str]] = (
            [items] if all(isinstance(one, str) for one in items) else items
        )
        return [
            Part([read_item(line, self._time) for line in partition], number)
            for number, partition in enumerate(partitions)
        ]

    def _time(self, text: str) -> datetime:
        return read_time(text, self._day)


def _window_of(line: str) -> str:
    """The window in a line of `down`."""
    window, colon, _ = line.partition(": ")
    if not colon:
        raise ValueError(f"{line!r} has no ': ' between window and value")
    return window


def _refuse_unknown(table: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(table.keys() - known):
        raise ValueError(f"unknown: {', '.join(unknown)}; known are: {', '.join(sorted(known))}")
