"""Interval joins over columns, compared with key by key."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.keyed.step import KeyByKey, OverColumns
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from flow_windowing import EventClock, SystemClock
from flow_windowing.interval.shard import ShardJoin
from tests.support.columns import as_dicts, as_records, clocks
from tests.support.interval_flows import (
    bounds,
    clock_of,
    duration,
    graces,
    hows,
    interval_flow,
)
from tests.support.interval_flows import clocks as small_clocks
from tests.support.sampling import sampled
from tests.support.two_sides import Counting, Epoch, epochs_of_sides, forms_of_epochs, play, sided
from tests.support.window_flow import PORTS, START, results_by_key
from tests.support.windowed_flows import ORIGIN, bytes_up_to

steps = st.fixed_dictionaries(
    {
        "clock": clocks,
        "before": st.sampled_from(["0s", "5s", "1m", "-2s"]),
        "after": st.sampled_from(["2s", "20s"]),
        "how": hows,
        "grace": st.sampled_from([None, "0s", "10s"]),
    }
)


def join_of(options: dict[str, Any]) -> Dataflow:
    """Return an interval join of records of users."""
    made = Dataflow("join")
    sides = [
        op.key_on(f"key-{name}", op.input(name, made, TestingSource([])), "user")
        for name in ("left", "right")
    ]
    out = win.join_interval("w", *sides, **options)
    for port in PORTS:
        op.output(port, getattr(out, port), TestingSink([]))
    return made


def outcome(
    flow: Dataflow, epochs: list[Epoch], forms: list[Any], alone: list[bool], own: bool
) -> Any:
    """Return all output.

    Args:
        flow: the flow.
        epochs: the epochs.
        forms: the form of the values of each epoch.
        alone: True for each epoch that runs key by key.
        own: True if the sides have columns of their own.
    """
    with TestDriver(flow, now=START, shards=2) as t:
        for epoch, form, by_itself in zip(epochs, forms, alone, strict=False):
            with key_by_key() if by_itself else nullcontext():
                play(t, epoch, form, has_own_columns=own)
        t.end()
        return results_by_key(t)


@sampled(200, by_default=60)
@given(
    steps,
    epochs_of_sides,
    st.booleans(),
    st.lists(st.booleans(), min_size=4, max_size=4),
    forms_of_epochs,
)
def test_records_and_objects_over_columns_agree_with_key_by_key(
    options: dict[str, Any], epochs: list[Epoch], own: bool, alone: list[bool], forms: list[Any]
) -> None:
    flow = join_of(options)
    with key_by_key():
        expected = outcome(flow, epochs, [as_dicts] * 4, [True] * 4, own)
    assert outcome(flow, epochs, [as_records] * 4, [False] * 4, own) == expected
    assert outcome(flow, epochs, [as_dicts] * 4, [False] * 4, own) == expected
    assert outcome(flow, epochs, forms, alone, own) == expected


@sampled(400, by_default=150)
@given(
    small_clocks,
    st.sampled_from(["key", "key", "stream"]),
    bounds(),
    hows,
    graces,
    bytes_up_to(40).map(sided),
    st.lists(st.sampled_from([(), ("left",), ("right",)]), max_size=6),
)
def test_columns_agree_to_the_microsecond_also_while_an_input_is_behind(
    clock: Any,
    scope: Any,
    interval: tuple[int, int],
    how: Any,
    grace: int | None,
    epochs: list[Epoch],
    behind: list[tuple[str, ...]],
) -> None:
    grace_of = None if grace is None else duration(grace)
    before, after = map(duration, interval)
    of_scope = replace(clock_of(*clock), scope=scope)
    flow = interval_flow(of_scope, before, after, how=how, grace=grace_of)

    def found() -> Any:
        with TestDriver(flow, now=ORIGIN, shards=2) as t:
            for epoch, names in zip_longest(epochs, behind[: len(epochs)], fillvalue=()):
                play(t, epoch, list, names)
            t.end()
            return results_by_key(t)

    over_columns = found()
    with key_by_key():
        assert over_columns == found()


def lowering(clock: Any) -> Any:
    (step,) = (one for one in interval_flow(clock, "5s", "2s").steps if one.step_id == "w")
    operator: Any = step.operator
    return operator.lower()


def test_interval_joins_are_lowered_to_columns() -> None:
    for clock in (SystemClock(), EventClock("at", "5s"), EventClock("at", "5s", scope="stream")):
        assert isinstance(lowering(clock), OverColumns)


def test_a_custom_clock_runs_key_by_key_for_a_reason() -> None:
    class OwnClock(SystemClock):
        pass

    assert lowering(OwnClock()) == KeyByKey("OwnClock has no columnar form")


def test_streams_without_a_reader_are_counted_only() -> None:
    flow = Dataflow("f")
    sides = [op.input(name, flow, TestingSource([])) for name in ("left", "right")]
    out = win.join_interval("w", *sides, EventClock("at", "0s"), "5s", "5s", how="left")
    op.output("closed", out.closed, TestingSink([]))
    with TestDriver(flow) as t:
        t.send("left", [("k", {"at": 10}), ("k", {"at": 3})])
        t.send("right", [("k", {"at": 10})])
        t.end()
        assert len(t.received("closed")) == 1
        counts = {what: n for (step, what), n in t.stats.counts.items() if step == "w"}
    assert (counts["out"], counts["late"]) == (1, 1)


def test_a_value_in_state_is_read_only_once_it_leaves() -> None:
    assert pickle.loads(pickle.dumps(Counting(1))).at == 1
    flow = interval_flow(EventClock(lambda value: value.at, "9000s"), "5s", "5s")
    with TestDriver(flow, shards=1) as t:
        t.send("left", [("k", Counting(100 * n)) for n in range(50)])
        Counting.read = 0
        t.send("right", [("k", Counting(301))])
        t.send("right", [("j", Counting(301))])
        assert len(t.received("down")) == 1
    # The two values that arrived, the partner of one of them, and the emitted pair.
    assert Counting.read <= 5


def test_an_epoch_reads_only_the_segments_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = 0
    load = ShardJoin.load

    def counting(self: ShardJoin, content: bytes) -> int:
        nonlocal loaded
        keys = load(self, content)
        loaded += keys
        return keys

    flow = interval_flow(EventClock(lambda at: at, "9000s"), "5s", "5s")
    with TestDriver(flow, shards=4) as t:
        t.send("left", [(f"key {number}", 10) for number in range(20_000)])
        monkeypatch.setattr(ShardJoin, "load", counting)
        t.send("right", [("key 7", 12)])
        assert len(t.received("down")) == 1
    assert 1 <= loaded <= 2_000
