"""The transcript format: a flow, its input cut into epochs, and what each output must receive.

A transcript is data. It names a builder, which makes a small flow, and says when what is sent and
what must come out:

    Transcript(
        "a list that waited long enough leaves before what comes later",
        flow="collect",
        options={"timeout": "10s", "max_size": 3},
        epochs=[at("0s", s=[("k", 1)]), at("10s", s=[("k", 2)]), at("15s")],
        expected={"out": {"k": [[1], [2]]}},
    )

Times are counted from `Transcript.start`; an epoch may have a time and no items. Each input is one
source partition, unless its items are a list of `Part`. After the last epoch the input ends.
Expected are, for each output, a dict of the values of each key in order; or, where there are no
keys, a list in exact order, `AsRead` or `AnyOrder`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from flow import Dataflow, Stream
from flow.durations import Duration, duration_us
from flow.testing import Part

Items: TypeAlias = "Sequence[Any] | pa.RecordBatch"


@dataclass(frozen=True)
class Epoch:
    """What is sent in one epoch, and when.

    Attributes:
        time: the system time, counted from the transcript's start.
        inputs: the items of each input.
    """

    time: Duration
    inputs: Mapping[str, Items]

    @property
    def time_us(self) -> int:
        """The time in microseconds."""
        return duration_us(self.time)

    def parts(self, name: str) -> tuple[Part, ...]:
        """The items of an input, a part for each source partition."""
        items = self.inputs.get(name, ())
        if isinstance(items, pa.RecordBatch):
            return (Part(items),)
        if items and all(isinstance(item, Part) for item in items):
            return tuple(items)
        return (Part(list(items)),) if items else ()


def at(time: Duration, **inputs: Items) -> Epoch:
    """An epoch at a time, in which inputs read items."""
    return Epoch(time, inputs)


def still(**inputs: Items) -> Epoch:
    """An epoch at the start, for transcripts in which time stands still."""
    return Epoch("0s", inputs)


@dataclass(frozen=True)
class AnyOrder:
    """What an output must receive, in any order."""

    items: Sequence[Any]


@dataclass(frozen=True)
class AsRead:
    """What leaves without a keyed step having gathered it: in source order, epoch by epoch.

    A batch, which reads its slices in parallel, may mix them.
    """

    items: Sequence[Any]


Expected: TypeAlias = "dict[str, list[Any]] | list[Any] | AsRead | AnyOrder"


@dataclass(frozen=True)
class Transcript:
    """One flow, one input, one result, whatever engine runs it.

    Attributes:
        name: what it shows, as a sentence.
        flow: the name of a builder in `FLOWS`.
        epochs: what is sent, in order of time.
        expected: what each output must have received once the input has ended.
        before_end: what each output must have received when the input ends; unchecked if ``None``.
        options: what the builder is called with.
        start: the system time that epochs count from.
    """

    name: str
    flow: str
    epochs: Sequence[Epoch]
    expected: Mapping[str, Expected]
    before_end: Mapping[str, Expected] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    start: str = "2023-12-14T10:00:00Z"

    def __str__(self) -> str:
        return self.name.replace(" ", "_")

    @property
    def times(self) -> tuple[int, ...]:
        """The system times at which there are epochs, in microseconds from the start."""
        times = [epoch.time_us for epoch in self.epochs]
        if times != sorted(times):
            raise ValueError(f"{self.name}: system time never goes back, got {times}")
        return tuple(dict.fromkeys([0, *times]))


class Wiring(Protocol):
    """What a builder makes its flow with; the names it gives are its own."""

    def input(self, name: str) -> Stream[Any]:
        """Add an input."""

    def output(self, name: str, up: Stream[Any]) -> None:
        """Add an output."""

    def name(self, step_id: str) -> str:
        """A step's id in the flow."""


Builder: TypeAlias = Callable[..., None]
"""Called with a `Wiring` and a transcript's options."""

FLOWS: dict[str, Builder] = {}
"""The builders by name."""


def builder(build: Builder) -> Builder:
    """Register a builder under the name of its function."""
    if build.__name__ in FLOWS:
        raise ValueError(f"there are two builders called {build.__name__!r}")
    FLOWS[build.__name__] = build
    return build


def grouped(items: Iterable[Any]) -> dict[str, list[Any]]:
    """The values of each key, in order."""
    by_key: dict[str, list[Any]] = {}
    for key, value in items:
        by_key.setdefault(key, []).append(value)
    return by_key


def check(
    expected: Mapping[str, Expected], received: Mapping[str, list[Any]], *, mixed: bool = False
) -> None:
    """Hold what outputs received against what they must.

    Args:
        expected: what they must.
        received: what they did.
        mixed: whether slices were read in parallel.
    """
    assert received.keys() == expected.keys()
    for name, wanted in expected.items():
        if isinstance(wanted, dict):
            assert grouped(received[name]) == wanted, name
        elif isinstance(wanted, AnyOrder) or (mixed and isinstance(wanted, AsRead)):
            assert _counted(received[name]) == _counted(wanted.items), name
        else:
            in_order = wanted.items if isinstance(wanted, AsRead) else wanted
            assert received[name] == in_order, name


def _counted(items: Iterable[Any]) -> Counter[str]:
    """How often each item occurs; items need not be hashable."""
    return Counter(repr(item) for item in items)


@dataclass
class Wired:
    """A `Wiring` that adds a transcript's flow to a larger one, under a prefix."""

    flow: Dataflow
    prefix: str
    add_input: Callable[[str, str], Stream[Any]]
    add_output: Callable[[str, str, Stream[Any]], None]

    def input(self, name: str) -> Stream[Any]:
        """Add an input."""
        return self.add_input(name, self.name(name))

    def output(self, name: str, up: Stream[Any]) -> None:
        """Add an output."""
        self.add_output(name, self.name(f"to_{name}"), up)

    def name(self, step_id: str) -> str:
        """A step's id in the flow."""
        return f"{self.prefix}{step_id}"
