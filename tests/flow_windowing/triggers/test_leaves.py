"""Open sessions of a key under a trigger that are in leaves, which an epoch reads as it needs."""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

import flow.operators as op
import flow_windowing as win
from flow.engine.state.store import FIRST_BLOCK, MemoryStore
from flow.errors import CheckpointError
from flow.testing import TestDriver
from flow_windowing import AfterWatermark, Early, EventClock, Late, SessionWindower
from flow_windowing.aggregates.folding import FoldingBuilder, FoldingLogic
from flow_windowing.by_key import window_driver
from flow_windowing.rules import leaves
from flow_windowing.rules.leaves import Leaves
from recovery.reading.epoch_state import _without_blocks, decode_segment, load_snapshot
from tests.support.windowed_flows import received, windowed_flow

PATIENT = EventClock(lambda value: value[0], "60s")
IN_BOTH = AfterWatermark(early=Early(count=2), late=Late(count=1))


TWO_SECONDS = SessionWindower("2s")


def folded(emit: Any, windower: Any = TWO_SECONDS, clock: Any = PATIENT, **settings: Any) -> Any:
    """Make a step that lists the values of each session."""
    settings = {"ordered": False, **settings}
    return lambda up: win.fold_window(
        "w", up, clock, windower, list, lambda so_far, value: [*so_far, value],
        lambda one, other: [*one, *other], emit=emit, **settings,
    )  # fmt: skip


SOON = EventClock(lambda value: value[0], "20s")
GRACE = SessionWindower("2s", grace="30s")
TRIGGERS: dict[str, Any] = {
    "by count": lambda: folded(Early(count=2)),
    "by time": lambda: folded(Early(every="3s")),
    "by both, with a grace": lambda: folded(
        AfterWatermark(early=Early(count=3, every="4s"), late=Late(every="2s")), GRACE
    ),
    "in order, with a grace": lambda: folded(
        IN_BOTH, SessionWindower("2s", grace="60s"), ordered=True, clock=SOON
    ),
    "discarding": lambda: folded(
        AfterWatermark(early=Early(count=2, every="5s"), late=Late(count=1), accumulate=False),
        GRACE,
    ),
    "the last timestamp": lambda: folded(Early(count=1), timestamp="last"),
    "the close": lambda: folded(Early(every="3s"), timestamp="close"),
    "one watermark": lambda: folded(
        Early(every="3s"), clock=EventClock(lambda value: value[0], "60s", scope="stream")
    ),
    "exclusive": lambda: folded(Early(count=1), SessionWindower("3s", inclusive=False)),
    "a list": lambda: (
        lambda up: win.collect_window(
            "w", up, PATIENT, SessionWindower("2s"), ordered=False, emit=Early(count=3)
        )
    ),
}


def scattered(seed: int) -> list[list[tuple[str, tuple[int, int]]]]:
    """Epochs of values of two keys, up to two minutes out of order, at twice as many times."""
    chance = random.Random(seed)
    return [
        [(chance.choice("aab"), (at * 10 + chance.randint(-120, 10), n)) for n in range(15)]
        for at in range(25)
    ]


def read_by_another(step: Any) -> Any:
    """Return the step with its results read by another step in event time."""

    def both(up: Any) -> Any:
        out = step(up)
        clock = EventClock(lambda result: result[0].open_time, "0s")
        read = win.collect_window("reader", out.down, clock, win.TumblingWindower("1m"))
        return out._replace(late=op.merge("both", out.late, read.down))

    return both


def run(step: Any, epochs: list[list[Any]], size: int) -> Any:
    """Return what a step with leaves of so many sessions emits, and what it shows."""
    after = []
    with (
        mock.patch.object(leaves, "LEAF_WINDOWS", size),
        TestDriver(windowed_flow(read_by_another(step)), shards=1) as t,
    ):
        for epoch in epochs:
            t.send("in", epoch)
            t.advance("1s")
            windows, state = t.stats.gauges["w", "open_windows"], t.state("w", "a")
            after.append((windows, t.stats.due_us, t.hold("w"), state))
        t.end()
        return received(t), after


SEEDS = [4, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(12) if seed != 4)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TRIGGERS)
def test_leaves_change_no_result(name: str, seed: int) -> None:
    whole, parts = (run(TRIGGERS[name](), scattered(seed), size) for size in (1_000, 1 + seed % 3))
    assert parts == whole
    emitted, after = whole
    assert emitted["down"]
    assert max(windows for windows, *_ in after) > 12
    assert len({hold for _, _, hold, _ in after}) > 5


def work(held: int, step: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes that five epochs of ten values write, with so many sessions open."""
    written = 0
    write = MemoryStore.write_segments

    def writing(store: MemoryStore, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        nonlocal written
        written += sum(len(one or b"") for one in contents.values())
        write(store, step_id, contents)

    with monkeypatch.context() as patched, TestDriver(windowed_flow(step), shards=1) as t:
        t.send("in", [("k", (10 * number, 0)) for number in range(held)])
        patched.setattr(MemoryStore, "write_segments", writing)
        for epoch in range(5):
            # New sessions, and others that continue or that a value merges.
            ends = [10 * (held + 4 * epoch + n) for n in range(4)]
            middles = [10 * (held // 7 * (epoch + n) // 2) + 2 * n for n in range(6)]
            t.send("in", [("k", (second, 0)) for second in (*ends, *middles)])
    return written


ENDLESS = EventClock(lambda value: value[0], "100000000s")
PANES = folded(Early(count=2), clock=ENDLESS)


@pytest.mark.parametrize("emit", [Early(count=2), Early(every="1s"), IN_BOTH])
def test_an_epoch_writes_the_sessions_that_it_reads(
    emit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    windower = SessionWindower("4s", grace="1s")
    few, many = (
        work(held, folded(emit, windower, clock=ENDLESS), monkeypatch) for held in (1_000, 10_000)
    )
    assert many < 1.5 * few


@pytest.mark.parametrize(("held", "most_calls"), [(2_000, 31), (20_000, 1)])
def test_an_epoch_unpickles_the_sessions_that_its_values_join(
    held: int, most_calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads many leaves in one call, and replaces their blocks."""
    restored = calls = 0
    build, read = FoldingBuilder.__call__, MemoryStore.read_segments

    def building(builder: FoldingBuilder, state: Any) -> FoldingLogic:
        nonlocal restored
        restored += state is not None
        return build(builder, state)

    def reading(store: MemoryStore, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        nonlocal calls
        calls += min(numbers, default=0) <= FIRST_BLOCK
        return read(store, step_id, numbers)

    with TestDriver(windowed_flow(PANES), shards=1) as t:
        t.send("in", [("k", (10 * number, 0)) for number in range(held)])
        monkeypatch.setattr(FoldingBuilder, "__call__", building)
        monkeypatch.setattr(MemoryStore, "read_segments", reading)
        (store,) = t._engine._stores.values()
        numbers = set(store._segments)
        joined = random.Random(held).sample(range(held), 100)
        t.send("in", [("k", (10 * number, 1)) for number in joined])
    assert (restored, set(store._segments)) == (100, numbers)
    assert 0 < calls <= most_calls


def test_an_epoch_that_reads_ahead_calls_the_timestamp_function_once_a_value() -> None:
    calls: list[Any] = []

    def timestamp(value: Any) -> Any:
        calls.append(value)
        return value[0]

    clock = EventClock(timestamp, "100000000s", on_invalid="drop")
    twice = (50, 2)
    with (
        mock.patch.object(window_driver, "FEW_WINDOWS", 100),
        TestDriver(windowed_flow(folded(Early(count=4), clock=clock)), shards=1) as t,
    ):
        t.send("in", [("k", (10 * second, 0)) for second in range(150)])
        calls.clear()
        t.send("in", [("k", value) for value in ((70, 1), (50, 1), ("no time", 1), (5, 1))])
        assert sorted(calls, key=str) == [*[("no time", 1)] * 2, (5, 1), (50, 1), (70, 1)]
        t.send("in", [("k", twice), ("k", (60, 1)), ("k", twice)])
        ((pane,),) = received(t)["down"].values()
    assert pane[1] == [(50, 0), (50, 1), twice, twice]


def test_a_leaf_does_not_grow_with_the_changes_of_its_sessions() -> None:
    sizes = []
    flow = windowed_flow(
        lambda up: win.fold_window(
            "w", up, ENDLESS, TWO_SECONDS, int, lambda count, _: count + 1, operator.add,
            ordered=False, emit=Early(count=1),
        )
    )  # fmt: skip
    with TestDriver(flow, shards=1) as t:
        t.send("in", [("k", (10 * second, 0)) for second in range(130)])
        for _ in range(100):
            t.send("in", [("k", (10, 0)), ("k", (1290, 0))])
            (store,) = t._engine._stores.values()
            sizes.append(sum(map(len, store._segments.values())))
    assert max(sizes) < 2 * sizes[0]


EPOCHS = [[("k", (10 * second, 0)) for second in range(3 * at, 3 * at + 3)] for at in range(4)]
SESSIONS = [[(10 * second, 0)] for second in range(12)]


def stored() -> tuple[MemoryStore, dict[int, bytes]]:
    """Return the state of a step after `EPOCHS`, and its blocks and segment by number."""
    with (
        mock.patch.object(leaves, "LEAF_WINDOWS", 2),
        TestDriver(windowed_flow(PANES), shards=1) as t,
    ):
        for epoch in EPOCHS:
            t.send("in", epoch)
        assert list(t.state("w", "k")["windows"].values()) == SESSIONS
        (store,) = t._engine._stores.values()
    contents = {number: content for (_, number), content in sorted(store._segments.items())}
    assert len(contents) > 4
    return store, contents


def keys_in(contents: dict[int, bytes]) -> Any:
    """Return the segment with its blocks, and its only key."""
    rows = [("w", 0, number, content) for number, content in contents.items()]
    ((_, shard, number, content),) = _without_blocks(rows)
    (key,) = decode_segment(content, shard, number, "w")
    return content, key


def test_recovery_reads_leaves_with_their_key() -> None:
    _, key = keys_in(stored()[1])
    state = load_snapshot(key, "w")
    assert key.counts == (12, 0)
    assert [values for _, (values, _) in sorted(state.windows.items())] == SESSIONS
    assert [first for _, first, _, _ in state.windower] == [10_000_000 * n for n in range(12)]


@pytest.mark.parametrize("keep", [0, 2])
def test_recovery_names_a_key_without_its_leaves(keep: int) -> None:
    damaged = dict([*stored()[1].items()][-1 - keep :])
    with pytest.raises(CheckpointError, match="step 'w': key 'k' cannot be read: a block of its"):
        load_snapshot(keys_in(damaged)[1], "w")


@pytest.mark.parametrize("size", [1, 20, 70, -1])
def test_recovery_names_a_key_with_a_damaged_leaf(size: int) -> None:
    contents = stored()[1]
    leaf = min(contents)
    contents[leaf] = contents[leaf][:size]
    with pytest.raises(CheckpointError, match="step 'w': key 'k' cannot be read: "):
        load_snapshot(keys_in(contents)[1], "w")


@pytest.mark.parametrize("content", [b"\1B" + bytes(500), b"\1L", b"\2L" + bytes(500)])
def test_a_block_that_is_no_leaf_is_refused(content: bytes) -> None:
    with pytest.raises(CheckpointError, match="a block of"):
        leaves._Leaf(2, content)


class Blocks(dict[int, bytes]):
    """The blocks of a key."""

    def add(self, content: bytes, number: int | None = None) -> int:
        number = number or -1 - len(self)
        self[number] = content
        return number

    def take(self, numbers: Sequence[int]) -> list[bytes]:
        return [self[number] for number in numbers]


def test_leaves_find_sessions_after_they_were_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "LEAF_WINDOWS", 2)
    chance, one, store = random.Random(3), Leaves(), Blocks()
    starts = chance.sample(range(0, 10_000, 10), 200)
    for at in range(0, len(starts), 20):
        sessions = [((us, us, us + 4, ()), us, None, None) for us in sorted(starts[at:][:20])]
        one.put([(session, session[1] + 9, session[1] + 7) for session in sessions], store)
    assert (one.count, one.next_us, one.due_us) == (200, min(starts) + 9, min(starts) + 7)
    again = Leaves(one.content)
    for found in (one, again):
        ids = [found.take_near(us + 2, 3, store.take)[0][1] for us in starts[:50]]
        assert ids == starts[:50]
        due = {us for _, us, _, _ in found.take_due(store.take, now_us=5_007)}
        assert due == {us for us in starts[50:] if us <= 5_000}
        assert found.due_us == min(us for us in starts[50:] if us > 5_000) + 7


OTHER: dict[str, Any] = {
    "other panes": folded(Early(count=1), SessionWindower("3s"), clock=ENDLESS),
    "over columns": folded("epoch", clock=ENDLESS),
    "key by key": folded("update", SessionWindower("2s", grace="9s"), clock=ENDLESS, ordered=True),
}


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize("name", OTHER)
def test_another_emission_goes_on_with_leaves(name: str, is_moved: bool) -> None:
    """With the state in its place, or after a move to another layout."""
    store, contents = stored()
    if is_moved:
        store._segments.clear()
        store.write_segments("w", {0: keys_in(contents)[0]})
    with (
        mock.patch.object(leaves, "LEAF_WINDOWS", 2),
        TestDriver(windowed_flow(OTHER[name]), shards=1) as t,
    ):
        t._engine._stores = {(1, 0): store}
        t.send("in", [("k", (110, 1)), ("k", (200, 0))])
        (store,) = t._engine._stores.values()
        assert (len(store._segments) > 1) == (name == "other panes")
        t.send("in", [("k", (110, 2))])
        t.end()
        last = {window.window_id: values for _, (window, values) in t.received("down")}
    merged = [*SESSIONS[:-1], [(110, n) for n in range(3)], [(200, 0)]]
    assert [values for _, values in sorted(last.items())] == merged
