"""The transcript format: a flow, its input cut into epochs, and the items that outputs receive.

A transcript is a TOML file in a folder of `tests/transcripts`, with a name that no other has.
`pytest tests/test_transcripts.py -k NAME` plays it in every engine that can play it; all must give
the outputs that it states.

    behaviour = "a list that is not full leaves after the timeout"
    flow = "collect"
    start = "2023-12-14T10:00"
    options = "timeout='10m', max_size=9"

    [[epochs]]
    in = ["a: 1", "b: 4"]

    [[epochs]]
    now = "10:10"
    in = ["a: 2"]
    out = ["a: [1]", "b: [4]"]

    [end]
    out = ["a: [2]"]

The fields of a transcript:

behaviour   the behaviour that it shows, in a sentence that no other transcript has
flow        the name of a builder, a function that builds the flow: one of
            `tests/transcripts/flows`, or a window operator of `flow_windowing`
options     the keyword arguments of the builder, in Python; an argument that the builder's
            signature names can be a field of its own: `clock = "SystemClock()"`
start       the system time at the start, from which times without a date count; 1970 by default
inputs      the names of the inputs, in the order of the builder's arguments; ["in"] by default
epochs      the epochs, in order
end         the end of input, after the last epoch
batch       the outputs of a batch, if they differ from those of all epochs and the end together
counts      the number of times that a step has counted something by the end, such as late values:
            `counts = { step.late = 1 }`
depends_on_epochs
            true if the outputs would differ with each item in an epoch of its own

The fields of an epoch; `end` has only outputs and `keys`, `batch` has only outputs:

now         the system time, if it moves
<input>     the items that the input reads: a list of lines; for several source partitions, a list
            of such lists; for a record batch, a list of tables in the place of lines
<output>    the items that the output receives in this epoch, a line each; none by default
keys        the number of keys of a step that have state after the epoch: `keys.step = 1`

The builder declares the outputs and how their items are compared: key by key, with the items of
each key in order; in source order, which a batch may mix; or in any order. It also declares the
notation of lines: see `notation`, and for window operators `window_notation`.

The driver plays transcripts with one shard and with several, over columns and key by key, as they
are and with each item in an epoch of its own; only the driver checks `keys` and `counts`. A
streaming query plays many transcripts as one flow. A batch plays those in which time stands still:
it reads all epochs at once, and no item of one input or source partition makes one of another late.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

import tests.transcripts.flows
from flow import Stream
from flow.testing import Part
from tests.support.notation import Lines, Notation, read_time

FOLDER = Path(__file__).parent.parent / "transcripts"

Step: TypeAlias = Callable[[str], str]
"""A function that completes a step's id."""

In: TypeAlias = Stream[Any]
"""The stream of an input."""

Out: TypeAlias = Mapping[str, Stream[Any]]
"""The stream of each output."""

Build: TypeAlias = Callable[..., Out]
"""A function of a `Step`, of an `In` for each input, and of keyword arguments."""

Inputs: TypeAlias = Mapping[str, Sequence[Part]]
"""The items that each input reads, a part for each source partition."""


class Order(Enum):
    """The order in which the items of an output are compared."""

    KEY = "key by key, with the items of each key in order"
    SOURCE = "source order, which a batch may mix"
    ANY = "any order"


@dataclass(frozen=True)
class Builder:
    """A builder of flows, and how transcripts of its flows are written and played.

    Attributes:
        build: the function that builds a flow.
        outputs: the order of each output.
        notation: the notation of items.
        shares_time: True if transcripts of the flows can share a query with any others of the same
            start, because epochs of the others only move the epoch in which time takes effect.
    """

    build: Build
    outputs: Mapping[str, Order]
    notation: type[Notation] = Notation
    shares_time: bool = False

    @property
    def parameters(self) -> list[str]:
        """The keyword-only parameters of the function."""
        found = inspect.signature(self.build).parameters.values()
        return [one.name for one in found if one.kind is one.KEYWORD_ONLY]


_BUILDERS: dict[str, Builder] = {}


def register(name: str, builder: Builder) -> None:
    """Register a builder."""
    if name in _BUILDERS:
        raise ValueError(f"there are two builders with the name {name!r}")
    _BUILDERS[name] = builder


def builder(*, shares_time: bool = False, **outputs: Order) -> Callable[[Build], Build]:
    """Register a function as a builder, under its own name.

    Args:
        shares_time: see `Builder`.
        **outputs: the order of each output; ``out=Order.KEY`` by default.
    """

    def decorate(build: Build) -> Build:
        made = Builder(build, outputs or {"out": Order.KEY}, shares_time=shares_time)
        register(build.__name__, made)
        return build

    return decorate


@cache
def builders() -> Mapping[str, Builder]:
    """Return the builders by name."""
    for module in pkgutil.iter_modules(tests.transcripts.flows.__path__):
        importlib.import_module(f"{tests.transcripts.flows.__name__}.{module.name}")
    return _BUILDERS


@dataclass(frozen=True)
class Epoch:
    """One epoch of a transcript, or the end of input.

    Attributes:
        now: the system time.
        inputs: the items that each input reads.
        lines: the lines of each output.
        keys: the number of keys with state after the epoch, by step.
    """

    now: datetime
    inputs: Inputs
    lines: Lines
    keys: Mapping[str, int] = field(default_factory=dict)

    @property
    def pieces(self) -> list[tuple[Inputs, list[tuple[str, int]]]]:
        """The same input, cut into one epoch for each item, in order of position.

        With each item come the inputs and source partitions that still have items.
        """
        found = [
            (position, name, Part(part.items[position : position + 1], part.partition))
            for name, parts in self.inputs.items()
            for part in parts
            for position in range(len(part.items))
        ]
        found.sort(key=lambda piece: piece[0])
        partitions = [(name, part.partition) for _, name, part in found]
        return [
            ({name: [part]}, [*dict.fromkeys(partitions[number + 1 :])])
            for number, (_, name, part) in enumerate(found)
        ]


@dataclass(frozen=True)
class Transcript:
    """A flow, its input, and its outputs, for any engine.

    Attributes:
        name: the name of the file.
        behaviour: the behaviour that the transcript shows.
        flow: the name of the builder.
        builder: the builder of the flow.
        arguments: the keyword arguments of the builder.
        start: the system time at the start.
        inputs: the names of the inputs.
        epochs: the epochs.
        end: the end of input.
        batch: all epochs and the end as one.
        counts: what steps have counted by the end, by step and name.
        depends_on_epochs: True if outputs would differ with each item in an epoch of its own.
    """

    name: str
    behaviour: str
    flow: str
    builder: Builder
    arguments: Mapping[str, Any]
    start: datetime
    inputs: tuple[str, ...]
    epochs: tuple[Epoch, ...]
    end: Epoch
    batch: Epoch
    counts: Mapping[tuple[str, str], int]
    depends_on_epochs: bool

    def __str__(self) -> str:
        return self.name

    @property
    def notation(self) -> Notation:
        """The notation of items."""
        return self.builder.notation.of(self.start, self.arguments)

    @cached_property
    def times(self) -> tuple[datetime, ...]:
        """The system time of each epoch."""
        return tuple(epoch.now for epoch in self.epochs)

    @property
    def stands_still(self) -> bool:
        """True if all epochs are at the start."""
        return set(self.times) == {self.start}


def read_transcripts() -> list[Transcript]:
    """Read all transcripts.

    Raises:
        ValueError: if one is not in the format.
    """
    return [
        parse_transcript(path.stem, path.read_text()) for path in sorted(FOLDER.glob("*/*.toml"))
    ]


def parse_transcript(name: str, text: str) -> Transcript:
    """Read a transcript.

    Raises:
        ValueError: if the transcript is not in the format.
    """
    try:
        return _Reader(tomllib.loads(text)).transcript(name)
    except (NameError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


_NEEDED = {"behaviour", "flow", "epochs"}
_FIELDS = {*_NEEDED, "start", "inputs", "options", "end", "batch", "counts", "depends_on_epochs"}


class _Reader:
    """A reader of one transcript."""

    def __init__(self, content: dict[str, Any]) -> None:
        if missing := sorted(_NEEDED - content.keys()):
            raise ValueError(f"missing: {', '.join(missing)}")
        self._content = content
        self._builder = _find_builder(content["flow"])
        _refuse_unknown(content, {*_FIELDS, *self._builder.parameters})
        self._start = read_time(content.get("start", "1970-01-01"), datetime.now(UTC))
        self._inputs = tuple(content.get("inputs", ("in",)))
        self._arguments = self._read_arguments()
        self._notation = self._builder.notation.of(self._start, self._arguments)
        tables = [*content["epochs"], content.get("end", {}), content.get("batch", {})]
        self._mentioned = {
            name for table in tables for name in self._builder.outputs if name in table
        }

    def transcript(self, name: str) -> Transcript:
        content, epochs = self._content, list[Epoch]()
        now = self._start
        for table in content["epochs"]:
            epochs.append(self._epoch(table, now, {"now", "keys", *self._inputs}))
            now = epochs[-1].now
        end = self._epoch(content.get("end", {}), now, {"keys"})
        if "batch" in content:
            batch = self._epoch(content["batch"], now, set())
        else:
            batch = Epoch(now, {}, self._lines_of_all([*epochs, end]))
        counts = content.get("counts", {})
        return Transcript(
            name,
            content["behaviour"],
            content["flow"],
            self._builder,
            self._arguments,
            self._start,
            self._inputs,
            tuple(epochs),
            end,
            batch,
            {(step, what): n for step, counted in counts.items() for what, n in counted.items()},
            content.get("depends_on_epochs", False),
        )

    def _read_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the builder, checked against its signature."""
        content, evaluate = self._content, self._builder.notation.evaluate
        arguments = {
            name: evaluate(content[name], self._start)
            for name in self._builder.parameters
            if name in content
        }
        arguments |= evaluate(f"dict({content.get('options', '')})", self._start)
        signature = inspect.signature(self._builder.build)
        signature.bind(str, *self._inputs, **arguments)
        return arguments

    def _epoch(self, table: dict[str, Any], before: datetime, fields: set[str]) -> Epoch:
        outputs = self._builder.outputs
        _refuse_unknown(table, {*outputs, *fields})
        now = read_time(table["now"], self._start) if "now" in table else before
        if now < before:
            raise ValueError(f"system time never goes back, got {table['now']}")
        lines = {name: tuple(table.get(name, ())) for name in outputs}
        lines = self._notation.completed(lines, self._mentioned)
        inputs = {name: self._parts(table[name]) for name in self._inputs if name in table}
        return Epoch(now, inputs, lines, table.get("keys", {}))

    def _lines_of_all(self, epochs: Iterable[Epoch]) -> Lines:
        return {
            name: tuple(line for epoch in epochs for line in epoch.lines[name])
            for name in self._builder.outputs
        }

    def _parts(self, items: list[Any]) -> list[Part]:
        partitions = items if items and all(isinstance(one, list) for one in items) else [items]
        return [Part(self._items(lines), number) for number, lines in enumerate(partitions)]

    def _items(self, lines: list[Any]) -> list[Any] | pa.RecordBatch:
        if lines and all(isinstance(line, dict) for line in lines):
            return pa.RecordBatch.from_pylist(lines)
        return [self._notation.item(line) for line in lines]


def _find_builder(name: str) -> Builder:
    known = builders()
    if name not in known:
        raise ValueError(f"unknown flow: {name}; known are: {', '.join(sorted(known))}")
    return known[name]


def _refuse_unknown(table: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(table.keys() - known):
        raise ValueError(f"unknown: {', '.join(unknown)}; known are: {', '.join(sorted(known))}")
