"""Random windowing: clocks, windowers, operators and timelines, and ways to play them.

Values are ``(seconds, number)``: a time, counted from `ORIGIN`, and a number that tells them apart.
`ORIGIN` lies twenty seconds before midnight in Paris, so that calendar windows change too.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, KeyedStream
from flow.columns.chunks import as_pairs
from flow.instants import Moment, instant_us
from flow.keyed.logic import COUNTED, DISCARD
from flow.keyed.shard_logic import ShardEpoch, ShardLogic, ShardRows
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing.aggregates.collections import IntoList
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.lowering import DriverBuilder
from flow_windowing.rules.metadata import CLOSED, DOWN, LATE

SECOND = 1_000_000
ORIGIN = datetime(2023, 10, 29, 22, 59, 40, tzinfo=UTC)
ORIGIN_US = instant_us(ORIGIN)
SPAN = 60
"""Times lie within so many seconds of `ORIGIN`."""

Value: TypeAlias = tuple[int, int]


def time_of(value: Any) -> datetime:
    """The timestamp of a value, for an `EventClock`."""
    return ORIGIN + timedelta(seconds=value[0])


def whole_seconds(least: int, most: int) -> st.SearchStrategy[str]:
    """Durations of whole seconds, as text."""
    return st.integers(least, most).map(lambda count: f"{count}s")


graces = st.none() | whole_seconds(0, 12)
aligned_to = st.just(ORIGIN) | st.integers(0, 30).map(lambda s: ORIGIN + timedelta(seconds=s))
bounds = st.sampled_from(["left", "right"])

tumbling = st.builds(win.TumblingWindower, whole_seconds(1, 25), aligned_to, bounds, graces)
sliding = st.builds(
    win.SlidingWindower, whole_seconds(1, 20), whole_seconds(1, 20), aligned_to, bounds, graces
)
sessions = st.builds(win.SessionWindower, whole_seconds(1, 8), st.booleans(), graces)
event_sliding = st.builds(
    win.EventSlidingWindower,
    whole_seconds(1, 12),
    st.booleans(),
    st.sampled_from(["1us", "1s", "3s"]),
    graces,
)
counts = st.builds(
    win.CountWindower, st.integers(1, 5), st.none() | st.integers(1, 6), st.booleans()
)
days = st.builds(win.CalendarWindower, st.just("day"), st.just("Europe/Paris"), grace=graces)

uncounted_windowers = tumbling | sliding | sessions | event_sliding | days
windowers = uncounted_windowers | counts
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "tumbling": tumbling,
    "sliding": sliding,
    "session": sessions,
    "event sliding": event_sliding,
    "count": counts,
    "calendar": days,
}
"""The windowers by name."""

event_clocks = st.builds(
    win.EventClock,
    st.just(time_of),
    whole_seconds(0, 25) | st.just(timedelta.max),
    on_idle=st.sampled_from(["advance", "hold"]),
    max_ahead=st.none() | whole_seconds(0, 40),
)
clocks = st.just(win.SystemClock()) | event_clocks


def bytes_up_to(most: int) -> st.SearchStrategy[bytes]:
    """Bytes of which any number comes as often as another.

    Lists of small things are made of bytes, which are drawn in one go: that is many times as fast.
    """
    return st.integers(0, most).flatmap(lambda count: st.binary(min_size=count, max_size=count))


def second_of(byte: int) -> int:
    """A time of a value; a few of them come often, so that there are ties."""
    return byte if byte <= SPAN else (20, 21, 30, 40)[byte % 4] if byte % 3 == 0 else byte % SPAN


def numbered(seconds: Iterable[int]) -> list[Value]:
    """Values at these times, each with its number."""
    return [(second, number) for number, second in enumerate(seconds)]


values = bytes_up_to(25).map(lambda drawn: numbered(map(second_of, drawn)))
items = values.map(lambda some: [("aab"[second % 7 % 3], (second, n)) for second, n in some])
"""Values with keys."""


@dataclass(frozen=True)
class Epoch:
    """An epoch of one key: the advance of system time before it, and its values.

    Attributes:
        moved: by how many seconds system time has moved while the flow ran.
        down: for how many seconds the flow was down.
        values: what the key receives.
    """

    moved: int = 0
    down: int = 0
    values: tuple[Any, ...] = ()


_MOVED = (0, 0, 1, 3, 10)
_DOWN = (0, 0, 0, 5, 3600)


def cut(some: list[Any], steps: bytes) -> list[Epoch]:
    """Values cut into epochs, with system time moving in between as the steps say."""
    rest, epochs = list(some), []
    for step in steps:
        size = step % 5
        epochs.append(Epoch(_MOVED[step // 5 % 5], _DOWN[step // 25 % 5], tuple(rest[:size])))
        rest = rest[size:]
    return [*epochs, Epoch(values=tuple(rest))]


timelines = st.builds(cut, values, bytes_up_to(12))
"""Epochs of one key in which system time moves, now and then while the flow is down."""


def moments(epochs: Iterable[Epoch]) -> list[Moment]:
    """The moment of each epoch, and of the end."""
    now_us, down_us = ORIGIN_US, 0
    found = []
    for epoch in [*epochs, Epoch()]:
        now_us += (epoch.moved + epoch.down) * SECOND
        down_us += epoch.down * SECOND
        found.append(Moment(now_us, down_us))
    return found


Windowed: TypeAlias = Callable[..., "win.WindowOut[Any, Any]"]


def _listing(total: list[Any], value: Any) -> list[Any]:
    total.append(value)
    return total


def _second(value: Value) -> int:
    return value[1]


class Witness(win.WindowLogic[Any, Any, list[Any]]):
    """Logic that emits all its calls, so that any difference shows."""

    def __init__(self, state: list[Any] | None) -> None:
        self.seen = list(state or ())

    def on_value(self, value: Any) -> Iterable[Any]:
        raise AssertionError("on_value_at is overridden")

    def on_value_at(self, value: Any, at: win.Arrival) -> Iterable[Any]:
        self.seen.append((value, tuple(at)))
        return [("value", value, tuple(at))]

    def on_merge(self, original: Witness) -> Iterable[Any]:
        self.seen += original.seen
        return [("merge", tuple(original.seen))]

    def on_close(self) -> Iterable[Any]:
        return [("close", tuple(self.seen))]

    def snapshot(self) -> list[Any]:
        return list(self.seen)


def _collected(into: type) -> Windowed:
    def collected(up: Any, clock: Any, windower: Any, ordered: bool, emit: Any) -> Any:
        return win.collect_window("w", up, clock, windower, into, ordered, emit=emit)

    return collected


def _folded(up: Any, clock: Any, windower: Any, ordered: bool, emit: Any) -> Any:
    return win.fold_window(
        "w", up, clock, windower, list, _listing, list.__add__, ordered, emit=emit
    )


def _reduced(up: Any, clock: Any, windower: Any, ordered: bool, emit: Any) -> Any:
    return win.reduce_window(
        "w", up, clock, windower, lambda left, right: left + right, ordered, emit=emit
    )


def _aggregated(up: Any, clock: Any, windower: Any, ordered: bool, emit: Any) -> Any:
    return win.aggregate_window(
        "w",
        up,
        clock,
        windower,
        ordered,
        emit,
        n=win.Count(),
        total=win.Sum(_second),
        first=win.First(),
        earliest=win.Earliest(),
        latest=win.Latest(_second),
        all=win.Collect(),
        best=win.MaxK(_second, 2),
    )


def _figured(operator: Callable[..., Any]) -> Windowed:
    def figured(up: Any, clock: Any, windower: Any, ordered: bool, emit: Any) -> Any:
        return operator("w", up, clock, windower, _second, emit=emit)

    return figured


def _counted(up: Any, clock: Any, windower: Any, ordered: bool, emit: Any) -> Any:
    keyless = op.key_rm("keyless", op.map("with_key", up, lambda pair: (pair[0], pair)))
    return win.count_window("w", keyless, _of_pair(clock), windower, lambda p: p[0], emit=emit)


def _of_pair(clock: Any) -> Any:
    """The clock for values that still have their key with them."""
    if isinstance(clock, win.SystemClock):
        return clock
    return win.EventClock(
        lambda pair: time_of(pair[1]),
        clock.wait_for_system_duration,
        on_idle=clock.on_idle,
        max_ahead=clock.max_ahead,
    )


def _witnessed(up: Any, clock: Any, windower: Any, ordered: bool, emit: Any) -> Any:
    return win.window("w", up, clock, windower, Witness, ordered)


def _joined(insert_mode: Any, emit_mode: Any) -> Windowed:
    def joined(up: Any, clock: Any, windower: Any, ordered: bool, emit: Any) -> Any:
        odd = op.filter_value("odd", up, lambda value: value[1] % 2 == 1)
        even = op.filter_value("even", up, lambda value: value[1] % 2 == 0)
        modes = {"insert_mode": insert_mode, "emit_mode": emit_mode}
        return win.join_window(
            "w", odd, even, clock=clock, windower=windower, ordered=ordered, **modes
        )

    return joined


OPERATORS: dict[str, Windowed] = {
    "collect list": _collected(list),
    "collect set": _collected(set),
    "collect dict": _collected(dict),
    "fold": _folded,
    "reduce": _reduced,
    "aggregate": _aggregated,
    "max": _figured(win.max_window),
    "min": _figured(win.min_window),
    "sum": _figured(win.sum_window),
    "mean": _figured(win.mean_window),
    "count": _counted,
    "window": _witnessed,
}
"""Operators, all called alike, each with a step ``w``; those that ignore an argument do so."""
JOINS: dict[str, Windowed] = {
    f"join {insert} {emit}": _joined(insert, emit)
    for insert in ("first", "last", "product")
    for emit in ("complete", "final", "running")
}
"""Joins of odd and even values."""

Received: TypeAlias = dict[str, dict[str, list[Any]]]
"""What each port has sent, by key."""


def windowed_flow(make: Callable[[KeyedStream[Any]], win.WindowOut[Any, Any]]) -> Dataflow:
    """A flow of one windowing step, with an output for each of its ports."""
    flow = Dataflow("windowed")
    out = make(op.input("in", flow, TestingSource([])))
    for name in out._fields:
        op.output(name, getattr(out, name), TestingSink([]))
    return flow


def received(driver: TestDriver) -> Received:
    """Return the items that each port of a `windowed_flow` has emitted so far, by key, in order."""
    by_port: Received = {}
    for port in ("down", "late", "closed"):
        by_port[port] = {}
        for key, item in driver.received(port):
            by_port[port].setdefault(key, []).append(item)
    return by_port


def in_epochs(items: Sequence[Any], sizes: Iterable[int]) -> list[list[Any]]:
    """The items cut into epochs of these sizes, with the rest in a last one."""
    rest, epochs = list(items), []
    for size in sizes:
        epochs.append(rest[:size])
        rest = rest[size:]
    return [*epochs, rest]


@dataclass
class Heard:
    """Items that a key's driver has emitted so far, in order.

    Attributes:
        down: the emitted results of windows.
        late: the late values.
        closed: the windows that have closed.
        counted: values of the port that is only counted.
    """

    down: list[Any] = field(default_factory=list)
    late: list[win.LateValue[Any]] = field(default_factory=list)
    closed: list[win.WindowMetadata] = field(default_factory=list)
    counted: list[Any] = field(default_factory=list)

    def add(self, emitted: Iterable[tuple[int, Any]]) -> None:
        """Add what one call has emitted."""
        ports = {DOWN: self.down, LATE: self.late, CLOSED: self.closed, COUNTED: self.counted}
        for port, value in emitted:
            ports[port].append(value)


class OneKey:
    """Runs one key's driver as the engine does.

    Args:
        config: what builds the driver.
        rebuilt: whether it is pickled and built anew after each epoch, as it is between the epochs
            of a stream; otherwise it lives on, as in a batch.
    """

    def __init__(self, config: Callable[[Any], Any], rebuilt: bool = False) -> None:
        self.config = config
        self.heard = Heard()
        self.snapshot: Any = None
        self.due_us = 0
        self._rebuilt = rebuilt
        self._logic: Any = None

    def epoch(self, values: Sequence[Any], moment: Moment, *, end: bool = False) -> None:
        """Play an epoch."""
        logic = self._logic
        if self._rebuilt and self.snapshot is not None:
            logic = self.config(pickle.loads(self.snapshot))
        if logic is not None and self.due_us <= moment.now_us:
            logic = self._call(logic, logic.on_notify(moment))
        if values:
            logic = logic or self.config(None)
            logic = self._call(logic, logic.on_batch(list(values), moment))
        if logic is not None and logic.notify_at_us() <= moment.now_us:
            logic = self._call(logic, logic.on_notify(moment))
        if logic is not None:
            self.heard.add(logic.on_epoch_end(moment))
        if logic is not None and end:
            logic = self._call(logic, logic.on_end(moment))
        self._logic = logic
        self.due_us = 0 if logic is None else logic.notify_at_us()
        self.snapshot = None if logic is None else pickle.dumps(logic.snapshot())

    def state(self) -> Any:
        """The state of the key; ``None`` if the key has been discarded."""
        return None if self.snapshot is None else pickle.loads(self.snapshot)

    def _call(self, logic: Any, made: tuple[Iterable[Any], Any]) -> Any:
        emitted, keep = made
        self.heard.add(emitted)
        return None if keep is DISCARD else logic


class OneKeyOverColumns:
    """Runs one key of a step that has one form, over columns, as the engine does.

    Args:
        builder: the builder of the step.
        rebuilt: whether the state is stored and loaded anew after each epoch, as it is between the
            epochs of a stream; otherwise it lives on, as in a batch.
    """

    def __init__(self, builder: Any, rebuilt: bool = False) -> None:
        self.heard = Heard()
        self._new_logic, self._rebuilt = builder.lower().shard_logic, rebuilt
        self._logic: ShardLogic = self._new_logic()

    def epoch(self, values: Sequence[Any], moment: Moment, *, end: bool = False) -> None:
        """Play an epoch."""
        count = len(values)
        rows = ShardRows(
            pa.array(["k"]), np.array([count]), np.arange(count), np.arange(count), list(values)
        )
        ports = frozenset({DOWN, LATE, CLOSED})
        epoch = ShardEpoch(moment, end, ports)
        made = self._logic.run(rows if count else None, epoch)
        for port, chunks in enumerate(made.chunks):
            items = [item for chunk in chunks for item in as_pairs(chunk, "").values]
            self.heard.add(zip(repeat(port), items, strict=False))
        self.heard.add((COUNTED, counted) for counted in made.counted)
        if self._rebuilt:
            (segment,) = self._logic.dump(np.zeros(len(self._logic.keys()), np.int64), [0])
            self._logic = self._new_logic()
            if segment.content is not None:
                self._logic.load(segment.content)


def finished(
    config: Callable[[Any], Any], epochs: Sequence[Epoch], rebuilt: bool = False
) -> OneKey:
    """Run a key's timeline to the end of its input, and return the key."""
    has_keyed_form = getattr(config, "has_keyed_form", True)
    one: Any = OneKey(config, rebuilt) if has_keyed_form else OneKeyOverColumns(config, rebuilt)
    *before, last = moments(epochs)
    for epoch, moment in zip(epochs, before, strict=True):
        one.epoch(epoch.values, moment)
    one.epoch((), last, end=True)
    return one


def heard(config: Callable[[Any], Any], epochs: Sequence[Epoch], rebuilt: bool = False) -> Heard:
    """Run a key's timeline to the end of its input, and return what the key has emitted."""
    return finished(config, epochs, rebuilt).heard


def collecting(clock: Any, windower: Any, ordered: bool, emit: Any = "close") -> DriverBuilder:
    """Return the builder of the drivers of a `collect_window` step."""
    return DriverBuilder(clock, windower, FoldingBuilder(IntoList(), emit), ordered, emit=emit)
