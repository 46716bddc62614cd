"""As-of joins over columns, compared with key by key."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.errors import StepError
from flow.keyed.step import KeyByKey, OverColumns
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from flow_windowing import EventClock, SystemClock
from flow_windowing.asof.shard import ShardAsof
from tests.support.asof_flows import (
    asof_flow,
    directions,
    hows,
    quote,
    tolerance_of,
    tolerances,
)
from tests.support.columns import as_dicts, as_records
from tests.support.columns import clocks as clocks_of_records
from tests.support.interval_flows import clock_of, clocks
from tests.support.sampling import sampled
from tests.support.two_sides import Counting, Epoch, epochs_of_sides, forms_of_epochs, play, sided
from tests.support.window_flow import PORTS, START, results_by_key
from tests.support.windowed_flows import ORIGIN, bytes_up_to

behinds = st.lists(st.sampled_from([(), ("left",), ("right",)]), max_size=6)


# Another input's bound holds the watermark below the values of the epoch before the late one.
@example((0, "hold", None), "key", None, "backward", "left", sided(b"\x00\x03\x1a\x00"), [])
@sampled(500, by_default=100)
@given(
    clocks,
    st.sampled_from(["key", "key", "stream"]),
    tolerances,
    directions,
    hows,
    bytes_up_to(40).map(sided),
    behinds,
)
def test_columns_agree_to_the_microsecond_also_while_an_input_is_behind(
    clock: Any,
    scope: Any,
    tolerance: int | None,
    direction: Any,
    how: Any,
    epochs: list[Epoch],
    behind: list[tuple[str, ...]],
) -> None:
    of_scope = replace(clock_of(*clock), scope=scope)
    options = {"direction": direction, "how": how, "right_value": quote}
    flow = asof_flow(of_scope, tolerance_of(tolerance), **options)

    def found() -> Any:
        with TestDriver(flow, now=ORIGIN, shards=2) as t:
            for epoch, names in zip_longest(epochs, behind[: len(epochs)], fillvalue=()):
                play(t, epoch, list, names)
            t.end()
            return results_by_key(t)

    over_columns = found()
    with key_by_key():
        assert over_columns == found()


def join_of(options: dict[str, Any]) -> Dataflow:
    """Return an as-of join of records of users."""
    made = Dataflow("join")
    sides = [
        op.key_on(f"key-{name}", op.input(name, made, TestingSource([])), "user")
        for name in ("left", "right")
    ]
    out = win.join_asof("w", *sides, **options)
    for port in PORTS:
        op.output(port, getattr(out, port), TestingSink([]))
    return made


steps = st.fixed_dictionaries(
    {
        "clock": clocks_of_records,
        "tolerance": st.sampled_from([None, "0s", "5s", "1m"]),
        "direction": directions,
        "how": hows,
    }
)


@sampled(200, by_default=40)
@given(
    steps,
    epochs_of_sides,
    st.booleans(),
    st.lists(st.booleans(), min_size=4, max_size=4),
    forms_of_epochs,
)
def test_records_and_objects_and_each_path_with_the_state_of_the_other_agree(
    options: dict[str, Any],
    epochs: list[Epoch],
    has_own_columns: bool,
    alone: list[bool],
    forms: list[Any],
) -> None:
    flow = join_of(options)

    def outcome(forms: list[Any], alone: list[bool]) -> Any:
        with TestDriver(flow, now=START, shards=2) as t:
            for epoch, form, by_itself in zip(epochs, forms, alone, strict=False):
                with key_by_key() if by_itself else nullcontext():
                    play(t, epoch, form, has_own_columns=has_own_columns)
            t.end()
            return results_by_key(t)

    with key_by_key():
        expected = outcome([as_dicts] * 4, [True] * 4)
    assert outcome([as_records] * 4, [False] * 4) == expected
    assert outcome([as_dicts] * 4, [False] * 4) == expected
    assert outcome(forms, alone) == expected


def lowering(clock: Any, **options: Any) -> Any:
    flow = asof_flow(clock, "5s", **options)
    (step,) = (one for one in flow.steps if one.step_id == "w")
    operator: Any = step.operator
    return operator.lower()


def test_as_of_joins_are_lowered_to_columns() -> None:
    for clock in (SystemClock(), EventClock("at", "5s"), EventClock("at", "5s", scope="stream")):
        assert isinstance(lowering(clock), OverColumns)


def test_other_joins_run_key_by_key_for_a_reason() -> None:
    class OwnClock(SystemClock):
        pass

    assert lowering(OwnClock()) == KeyByKey("OwnClock has no columnar form")
    reason = "`emit='now'` pairs each value with those that arrived before it"
    assert lowering(SystemClock(), emit="now") == KeyByKey(reason)


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_right_value_without_the_part_to_pair_is_named(by_itself: bool) -> None:
    flow = asof_flow(EventClock("at", "0s"), "5s", right_value="bid")
    with (
        key_by_key() if by_itself else nullcontext(),
        TestDriver(flow) as t,
        pytest.raises(StepError, match=r"(?s)'w': right_value 'bid' gave nothing.*'k'"),
    ):
        t.send("right", [("j", {"at": 1, "bid": 2}), ("k", {"at": 1})])


def test_a_value_in_state_is_read_only_once_it_leaves() -> None:
    assert pickle.loads(pickle.dumps(Counting(1))).at == 1
    flow = asof_flow(EventClock(lambda value: value.at, "0s", on_idle="hold"), "1h")
    with TestDriver(flow, shards=1) as t:
        t.send("left", [(f"key {n}", Counting(100)) for n in range(50)])
        t.send("right", [(f"key {n}", Counting(100)) for n in range(50)])
        Counting.read = 0
        t.send("right", [("key 7", Counting(101))])
        assert len(t.received("down")) == 1
    # The value that arrived, and the emitted pair.
    assert Counting.read <= 5


def test_an_epoch_reads_only_the_segments_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = 0
    load = ShardAsof.load

    def counting(self: ShardAsof, content: bytes) -> int:
        nonlocal loaded
        keys = load(self, content)
        loaded += keys
        return keys

    flow = asof_flow(EventClock(lambda at: at, "0s"), None)
    with TestDriver(flow, now=0, shards=4) as t:
        t.send("right", [(f"key {number}", 10) for number in range(20_000)])
        t.advance("1m")
        monkeypatch.setattr(ShardAsof, "load", counting)
        t.send("left", [("key 7", 90)])
        t.send("right", [("key 7", 91)])
        assert len(t.received("down")) == 1
    assert 0 < loaded < 2_000
