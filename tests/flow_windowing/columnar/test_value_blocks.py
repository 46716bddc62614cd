"""Values that a key holds between epochs in blocks, which are written once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

import flow.operators as op
import flow_windowing as win
from flow.engine.state.store import MemoryStore
from flow.errors import CheckpointError
from flow.testing import TestDriver, key_by_key
from flow_windowing import EventClock, TumblingWindower
from flow_windowing.columnar.values import blocks as value_blocks
from flow_windowing.rules.metadata import Retracted
from recovery.reading.epoch_state import _without_blocks, decode_segment, load_snapshot
from tests.support.windowed_flows import windowed_flow

MINUTE = EventClock(lambda value: value[0], "60s")
NEVER = EventClock(lambda value: value[0], "100000000d")
AT_ONCE = EventClock(lambda value: value[0], "0s")
ENDLESS = TumblingWindower("100000000s")


def joined(up: Any, clock: Any, windower: Any, ordered: bool = False) -> Any:
    """Join all values of a window with the odd ones."""
    odd = op.filter_value("odd", up, lambda value: value[1] % 2 == 1)
    return win.join_window(
        "w", up, odd, clock=clock, windower=windower, insert_mode="product", ordered=ordered
    )


def steps(clock: Any) -> dict[str, Any]:
    ten = TumblingWindower("10s")
    return {
        "window": lambda up: win.collect_window("w", up, clock, ten),
        "lists of windows": lambda up: win.aggregate_window(
            "w", up, clock, ten, all=win.Collect(), last=win.Collect(lambda value: value[1])
        ),
        "interval join": lambda up: win.join_interval("w", up, up, clock, "2s", "0s", how="outer"),
        "as-of join": lambda up: win.join_asof("w", up, up, clock, "5s", direction="nearest"),
        "as-of join at once": lambda up: win.join_asof(
            "w", up, up, clock, None, direction="nearest", emit="now"
        ),
    }


LISTS: dict[str, Any] = {
    "lists of sessions": lambda up: win.aggregate_window(
        "w", up, MINUTE, win.SessionWindower("3s"), all=win.Collect(), ordered=False
    ),
    "lists in order of sessions": lambda up: win.collect_window(
        "w", up, MINUTE, win.SessionWindower("4s")
    ),
    "join of all values": lambda up: joined(up, MINUTE, TumblingWindower("10s")),
    "join of sessions": lambda up: joined(up, MINUTE, win.SessionWindower("3s")),
}


def run(step: Any, epochs: list[list[Any]], rows: int, by_key: bool = False) -> dict[str, Any]:
    """Return what the step emits, and its gauges after each epoch, with blocks of so many rows."""
    gauges = []
    with (
        mock.patch.object(value_blocks, "BLOCK_ROWS", rows),
        TestDriver(windowed_flow(step), shards=1) as t,
    ):
        for epoch in epochs[:-1]:
            t.send("in", epoch)
            t.advance("1s")
            gauges.append((t.stats.gauges["w", "buffered_values"], t.stats.due_us))
        if by_key:
            with key_by_key():
                t.send("in", epochs[-1])
                t.end()
        else:
            t.send("in", epochs[-1])
            t.end()
        return {port: t.received(port) for port in ("down", "late", "closed")} | {"gauges": gauges}


def scattered(seed: int) -> list[list[tuple[str, tuple[int, int]]]]:
    """Epochs of values of two keys, up to a minute and more out of order, some at one time."""
    chance = random.Random(seed)
    return [
        [(chance.choice("ab"), (at * 10 + chance.randint(-70, 10), n)) for n in range(12)]
        for at in range(20)
    ]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.extended) for seed in (1, 2))]
)
@pytest.mark.parametrize("name", [*steps(MINUTE), *LISTS])
def test_blocks_change_no_result(name: str, seed: int) -> None:
    epochs, step = scattered(seed), {**steps(MINUTE), **LISTS}[name]
    whole, parts = (run(step, epochs, rows) for rows in (1_000, 2))
    if name.startswith("as-of"):  # Rows in blocks stay until they are read, so the key is due then.
        whole.pop("gauges"), parts.pop("gauges")
    assert parts == whole


def test_a_step_that_runs_key_by_key_reads_blocks() -> None:
    epochs = [[("k", (second, n)) for n in range(5)] for second in (30, 20, 10)]
    found = run(steps(NEVER)["window"], epochs, 2, by_key=True)["down"]
    assert [values for _, (_, values) in found] == [
        [(second, n) for n in range(5)] for second in (10, 20, 30)
    ]


def test_a_step_that_runs_key_by_key_reads_the_blocks_of_lists() -> None:
    epochs = [[("k", (5 * epoch + n, 0)) for n in range(5)] for epoch in range(3)]
    found = run(HOLDING["list of a window"], epochs, 2, by_key=True)["down"]
    assert [values for _, (_, values) in found] == [[(number, 0) for number in range(15)]]


def test_a_join_that_runs_key_by_key_reads_the_blocks_of_all_its_sides() -> None:
    epochs = [[("k", (3 * epoch + n, n)) for n in range(3)] for epoch in range(3)]
    found = run(HOLDING["join of all values of a window"], epochs, 2, by_key=True)["down"]
    left = [(3 * epoch + n, n) for epoch in range(3) for n in range(3)]
    right = [(1, 1), (4, 1), (7, 1)]
    assert [pair for _, (_, pair) in found] == [(one, other) for one in left for other in right]


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the bytes of segments and blocks that are read and written."""
    counted = Counter[str]()
    read, write = MemoryStore.read_segments, MemoryStore.write_segments

    def reading(store: MemoryStore, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        found = read(store, step_id, numbers)
        counted["read"] += sum(len(one or b"") for one in found)
        return found

    def writing(store: MemoryStore, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        counted["written"] += sum(len(one or b"") for one in contents.values())
        write(store, step_id, contents)

    monkeypatch.setattr(MemoryStore, "read_segments", reading)
    monkeypatch.setattr(MemoryStore, "write_segments", writing)
    return counted


def bytes_of_epochs(step: Any, held: int, weighed: Counter[str]) -> int:
    """Return the bytes read and written in four epochs of 500 values, with so many held."""
    with TestDriver(windowed_flow(step), shards=1) as t:
        t.send("in", [("k", (5 * number, 0)) for number in range(held)])
        weighed.clear()
        for begin in range(held, held + 2_000, 500):
            t.send("in", [("k", (5 * number, 0)) for number in range(begin, begin + 500)])
        return weighed.total()


HOLDING = {
    **steps(NEVER),
    "list of a window": lambda up: win.collect_window("w", up, AT_ONCE, ENDLESS),
    "list of a session": lambda up: win.collect_window(
        "w", up, AT_ONCE, win.SessionWindower("100000000s")
    ),
    "join of all values of a window": lambda up: joined(up, AT_ONCE, ENDLESS, ordered=True),
    "list of a window, unordered": lambda up: win.collect_window(
        "w", up, NEVER, ENDLESS, ordered=False
    ),
}


@pytest.mark.parametrize("name", HOLDING)
def test_the_values_that_a_key_holds_are_not_written_again(
    name: str, weighed: Counter[str]
) -> None:
    few, many = (bytes_of_epochs(HOLDING[name], held, weighed) for held in (4_000, 20_000))
    assert many < 1.5 * few


@pytest.mark.parametrize("emit", ["update", "epoch"])
def test_lists_are_whole_after_a_change_of_the_setting_of_emission(emit: Any) -> None:
    def collecting(emit: Any) -> Any:
        return lambda up: win.collect_window("w", up, AT_ONCE, ENDLESS, emit=emit)

    with mock.patch.object(value_blocks, "BLOCK_ROWS", 2):
        with TestDriver(windowed_flow(collecting("close")), shards=1) as first:
            for begin in (0, 5, 10):
                first.send("in", [("k", (number, 0)) for number in range(begin, begin + 5)])
        with TestDriver(windowed_flow(collecting(emit)), shards=1) as second:
            second._engine._stores = first._engine._stores
            second.send("in", [("k", (15, 0))])
            second.send("in", [("k", (16, 0))])
            _, (_, last) = second.received("down")[-1]
    assert last == [(number, 0) for number in range(17)]


def test_a_session_that_has_emitted_is_retracted_with_its_whole_list() -> None:
    #   emit="epoch"            10 11 12 13
    #   emit="close"   4    7                 30
    def collecting(emit: Any) -> Any:
        return lambda up: win.collect_window(
            "w", up, MINUTE, win.SessionWindower("3s"), ordered=False, emit=emit
        )

    with mock.patch.object(value_blocks, "BLOCK_ROWS", 2):
        with TestDriver(windowed_flow(collecting("epoch")), shards=1) as first:
            first.send("in", [("k", (second, 0)) for second in (10, 11, 12, 13)])
        with TestDriver(windowed_flow(collecting("close")), shards=1) as second:
            second._engine._stores = first._engine._stores
            for at in (30, 4, 7):
                second.send("in", [("k", (at, 0))])
            second.end()
            found = [value for _, (_, value) in second.received("down")]
    emitted = [(10, 0), (11, 0), (12, 0), (13, 0)]
    assert found == [Retracted(emitted), [*emitted, (4, 0), (7, 0)], [(30, 0)]]


def stored(step: Any, epochs: list[list[Any]]) -> tuple[list[Any], Any]:
    """Return the blocks and the segment of a step after epochs, with few values a block."""
    with (
        mock.patch.object(value_blocks, "BLOCK_ROWS", 2),
        TestDriver(windowed_flow(step), shards=1) as t,
    ):
        for epoch in epochs:
            t.send("in", epoch)
        (store,) = t._engine._stores.values()
        contents = sorted((number, content) for (_, number), content in store._segments.items())
    *blocks, segment = [("w", 0, number, content) for number, content in contents]
    assert len(blocks) > 1
    return blocks, segment


def keys_in(rows: list[Any]) -> list[Any]:
    ((_, shard, number, content),) = _without_blocks(rows)
    return decode_segment(content, shard, number, "w")


def test_recovery_reads_segments_with_the_values_of_their_blocks() -> None:
    epoch = [("k", (second, 0)) for second in (9, 7, 8, 6)]
    blocks, segment = stored(steps(NEVER)["interval join"], [epoch])
    (key,) = keys_in([*blocks, segment])
    assert key.counts == (0, 8)
    retained = load_snapshot(key, "w").retained
    assert sorted(value for _, _, value in retained) == [(n, 0) for n in (6, 6, 7, 7, 8, 8, 9, 9)]
    with pytest.raises(CheckpointError, match="segment 0 of shard 0 cannot be read: a block of"):
        keys_in([*blocks[1:], segment])


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("list of a window", lambda number: (number, 0)),
        ("list of a session", lambda number: (number, 0)),
        ("join of all values of a window", lambda number: (0, (number, 0))),
    ],
)
def test_recovery_reads_the_blocks_of_lists(name: str, entry: Any) -> None:
    epochs = [[("k", (5 * epoch + n, 0)) for n in range(5)] for epoch in range(3)]
    blocks, segment = stored(HOLDING[name], epochs)
    (key,) = keys_in([*blocks, segment])
    ((entries,),) = load_snapshot(key, "w").windows.values()
    assert [value for _, value in sorted(entries)] == [*map(entry, range(15))]
    with pytest.raises(CheckpointError, match="segment 0 of shard 0 cannot be read: a block of"):
        keys_in([*blocks[1:], segment])


@pytest.mark.parametrize("name", ["list of a window", "join of all values of a window"])
def test_a_list_that_was_moved_with_its_segment_is_in_blocks_again(name: str) -> None:
    epochs = [[("k", (5 * epoch + n, 0)) for n in range(5)] for epoch in range(3)]
    step, is_join = HOLDING[name], name.startswith("join")
    blocks, segment = stored(step, epochs)
    ((_, _, _, content),) = _without_blocks([*blocks, segment])
    with TestDriver(windowed_flow(step), shards=1) as t:
        t.send("in", [("k", (0, 0))])
        (store,) = t._engine._stores.values()
        store.write_segments("w", {0: content})
        t.send("in", [("k", (15, 0))])
        (store,) = t._engine._stores.values()
        assert sum(number < 0 for _, number in store._segments) == len(blocks)
        t.end()
        results = [result for _, (_, result) in t.received("down")]
    listed = [(number, 0) for number in range(16)]
    assert results == ([(one, None) for one in listed] if is_join else [listed])
