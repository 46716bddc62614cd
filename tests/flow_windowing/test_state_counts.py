"""Totals of open windows and buffered values, compared with counts over decoded state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, KeyedStream
from flow.engine.epoch.statistics import BUFFERED_VALUES, OPEN_WINDOWS
from flow.engine.state.step_state import Header
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from flow_windowing.by_key.state_by_time import TimedState
from flow_windowing.rules.key_state import DriverState, IntervalState, WaitQueue
from recovery.reading.epoch_state import decode_segment, load_snapshot

START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = int(START.timestamp())
SHARDS = 2
STEP = "step"
Add = Callable[[KeyedStream[Any], KeyedStream[Any]], Any]


def clock(wait: str = "20s", **options: Any) -> win.EventClock[Any]:
    return win.EventClock("at", wait, **options)


def folded(windower: Any, ordered: bool | None = None, **options: Any) -> Add:
    """Return what adds a step that adds up the values of windows, or lists them in order."""
    # Over columns, values wait only for an aggregate that depends on their order.
    made = {"all": win.Collect("n")} if ordered else {"n": win.Count(), "total": win.Sum("n")}
    return lambda left, right: win.aggregate_window(
        STEP, left, options.get("clock", clock()), windower, ordered=ordered, **made,
        emit=options.get("emit", "close"),
    ).down  # fmt: skip


def listed(windower: Any, time: Any = None) -> Add:
    return lambda left, right: win.collect_window(STEP, left, time or clock(), windower).down


def interval(**options: Any) -> Add:
    return lambda left, right: (
        win.join_interval(STEP, left, right, clock(), before="15s", after="10s", **options).down
    )


def as_of(**options: Any) -> Add:
    return lambda left, right: (
        win.join_asof(STEP, left, right, clock(), tolerance="30s", **options).down
    )


def added(total: int | None, value: Any) -> tuple[int, int]:
    return (total or 0) + 1, (total or 0) + 1


TUMBLING, SLIDING = win.TumblingWindower("30s"), win.SlidingWindower("30s", "10s", grace="5s")
SESSIONS = win.SessionWindower("5s")
KINDS: dict[str, Add] = {
    "tumbling": folded(TUMBLING),
    "tumbling, ordered": folded(TUMBLING, ordered=True),
    "tumbling, each epoch": folded(TUMBLING, emit="epoch"),
    "tumbling, a trigger": folded(TUMBLING, emit=win.Early(count=3)),
    "tumbling, one watermark": folded(TUMBLING, ordered=True, clock=clock(scope="stream")),
    "tumbling, forgotten": folded(TUMBLING, clock=clock(forget_after="10s")),
    "sliding": folded(SLIDING, ordered=True),
    "with gaps": folded(win.SlidingWindower("10s", "25s")),
    "calendar": folded(win.CalendarWindower("day", "Europe/Paris"), ordered=True),
    "sessions": folded(SESSIONS),
    "sessions, retracted": folded(SESSIONS, emit="update"),
    "counts": folded(win.CountWindower(4, 2)),
    "event sliding": listed(win.EventSlidingWindower("10s")),
    "lists": listed(TUMBLING),
    "system time": listed(TUMBLING, win.SystemClock()),
    "join in windows": lambda left, right: (
        win.join_window(STEP, left, right, clock=clock(), windower=TUMBLING).down
    ),
    "interval join": interval(),
    "interval join, outer": interval(how="outer"),
    "as-of join": as_of(),
    "as-of join, nearest": as_of(direction="nearest"),
    "as-of join, now": as_of(emit="now"),
    "state by time": lambda left, right: (
        win.stateful_map(STEP, left, clock(), added, ttl="1h").down
    ),
}


def flow_of(kind: str) -> Dataflow:
    flow = Dataflow("counted")
    sides = [op.key_on(f"key_{name}", op.input(name, flow, TestingSource([])), "key")
             for name in ("left", "right")]  # fmt: skip
    op.output("out", KINDS[kind](*sides), TestingSink([]))
    op.output("unused", sides[1], TestingSink([]))
    return flow


def values_in(state: Any) -> Iterator[Any]:
    """Yield the values that a key's state retains."""
    if isinstance(state, (DriverState, TimedState)):
        queue = WaitQueue(state.waiting)
        while queue:
            yield queue.pop()
    if isinstance(state, (DriverState, IntervalState)):
        yield from state.retained


def found_in_state(t: TestDriver) -> tuple[int, int]:
    """Return the number of open windows and of buffered values in the decoded state of all keys."""
    windows = values = 0
    for (_, shard), store in t._engine._stores.items():
        header = store.read_header(STEP)
        numbers = [] if header is None else range(Header.decode(header, STEP).segments)
        for number, content in zip(numbers, store.read_segments(STEP, list(numbers)), strict=True):
            for key in () if content is None else decode_segment(content, shard, number, STEP):
                state = load_snapshot(key, STEP)
                windows += len(state.windows) if isinstance(state, DriverState) else 0
                values += sum(1 for _ in values_in(state))
    return windows, values


def shown(t: TestDriver) -> tuple[int, int]:
    """Return the totals that the last epoch has reported."""
    names = OPEN_WINDOWS, BUFFERED_VALUES
    assert {name for step, name in t.stats.gauges if step == STEP} == {
        "keys",
        "state_bytes",
        *names,
    }
    windows, values = (t.stats.gauges[STEP, name] for name in names)
    return windows, values


def records(rng: random.Random, epoch: int, count: int) -> list[dict[str, Any]]:
    """Return records of six keys, in some order, in the half minute of an epoch."""
    return [
        {"key": f"key-{rng.randrange(6)}", "at": SECONDS + 30 * epoch + rng.randrange(40), "n": n}
        for n in range(count)
    ]


def paths_of(name: str) -> list[bool]:
    """Return for each epoch if the step runs key by key."""
    return {"columns": [False] * 6, "keys": [True] * 6, "in turns": [False, True, True] * 2}[name]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("columns", marks=pytest.mark.extended),
        pytest.param("keys", marks=pytest.mark.extended),
        "in turns",
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_totals_equal_the_counts_over_decoded_state(kind: str, path: str) -> None:
    rng, seen = random.Random(kind), list[tuple[int, int]]()
    with TestDriver(flow_of(kind), now=START, shards=SHARDS) as t:
        for epoch, is_key_by_key in enumerate(paths_of(path)):
            sent = {name: records(rng, epoch, 25) for name in ("left", "right")}
            with key_by_key() if is_key_by_key else nullcontext():
                if epoch % 2:
                    t.send_all({name: pa.RecordBatch.from_pylist(of) for name, of in sent.items()})
                else:
                    t.send_all(sent)
                seen.append(shown(t))
                assert seen[-1] == found_in_state(t)
                t.advance("7s")
                assert shown(t) == found_in_state(t)
            t.restart("3s")
        assert any(windows or values for windows, values in seen)
        with key_by_key() if path == "keys" else nullcontext():
            t.end()
        assert shown(t) == found_in_state(t)
        if kind != "counts":  # The end of the input does not fill a window of a number of values.
            assert shown(t) == (0, 0)


# Over columns, the join keeps the values that each window needs, whatever their order.
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"join in windows"}))
def test_both_paths_have_the_same_totals(kind: str) -> None:
    both = []
    for is_key_by_key in (False, True):
        rng, seen = random.Random(kind), list[tuple[int, int]]()
        with (
            key_by_key() if is_key_by_key else nullcontext(),
            TestDriver(flow_of(kind), now=START, shards=SHARDS) as t,
        ):
            for epoch in range(4):
                t.send_all({name: records(rng, epoch, 25) for name in ("left", "right")})
                seen.append(shown(t))
        both.append(seen)
    assert both[0] == both[1]


#  epoch          1                 2       3
#  a              0:05 0:20 0:25            0:55
#  b                                0:45
#  watermarks     a 0:05            b 0:25  a 0:35
@pytest.mark.parametrize("is_key_by_key", [False, True])
def test_windows_open_and_values_wait_as_the_watermark_advances(is_key_by_key: bool) -> None:
    with (
        key_by_key() if is_key_by_key else nullcontext(),
        TestDriver(flow_of("tumbling, ordered"), now=START, shards=SHARDS) as t,
    ):
        assert t.stats.gauges == {}

        def send(*values: tuple[str, int]) -> tuple[int, int]:
            t.send("left", [{"key": key, "at": SECONDS + at, "n": 1} for key, at in values])
            return shown(t)

        # The watermark of a is at 0:05, so its first value enters 0:00, and two wait.
        assert send(("a", 5), ("a", 20), ("a", 25)) == (1, 2)
        # b has no open window yet.
        assert send(("b", 45)) == (1, 3)
        # 0:35: all three values of a are in the window, which has closed; 0:55 waits.
        assert send(("a", 55)) == (0, 2)
        t.advance("1h")
        assert shown(t) == (0, 0)


@pytest.mark.parametrize("is_key_by_key", [False, True])
def test_keys_that_have_expired_leave_nothing(is_key_by_key: bool) -> None:
    with (
        key_by_key() if is_key_by_key else nullcontext(),
        TestDriver(flow_of("tumbling, forgotten"), now=START, shards=SHARDS) as t,
    ):
        t.send("left", [{"key": f"key-{n}", "at": SECONDS, "n": n} for n in range(40)])
        assert shown(t) == (40, 0)
        t.advance("1h")
        t.advance("1h")
        assert (shown(t), t.stats.gauges[STEP, "keys"]) == ((0, 0), 0)


def test_a_step_without_windows_and_buffered_values_has_no_totals() -> None:
    flow = Dataflow("plain")
    stream = op.input("in", flow, TestingSource([]))
    op.output("out", op.stateful_map(STEP, stream, added), TestingSink([]))
    with TestDriver(flow, now=START) as t:
        t.send("in", [("a", 1)])
        assert {name for _, name in t.stats.gauges} == {"keys", "state_bytes"}


@pytest.mark.parametrize("path", ["columns", "keys"])
@pytest.mark.parametrize("kind", ["tumbling, ordered", "interval join"])
def test_a_step_that_gets_a_counter_counts_all_its_keys(
    kind: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        key_by_key() if path == "keys" else nullcontext(),
        TestDriver(flow_of(kind), now=START, shards=SHARDS) as t,
    ):
        with monkeypatch.context() as earlier:
            for room in ("lowering", "time_joins.join_shard"):
                earlier.setattr(f"flow_windowing.{room}.counts_of", None)
            t.send("left", records(random.Random(kind), 0, 25))
            assert {name for _, name in t.stats.gauges} == {"keys", "state_bytes"}
        t.send("right", [])
        assert shown(t) == found_in_state(t) != (0, 0)


@pytest.mark.parametrize("kind", ["tumbling, ordered", "interval join"])
def test_a_step_that_no_longer_runs_over_columns_keeps_the_counts_of_all_keys(kind: str) -> None:
    rng = random.Random(kind)
    with TestDriver(flow_of(kind), now=START, shards=SHARDS) as t:
        t.send("left", records(rng, 0, 25))
        with key_by_key():
            t.send("left", records(rng, 0, 1))
            assert shown(t) == found_in_state(t) != (0, 0)
