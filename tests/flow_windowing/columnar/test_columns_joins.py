"""Joins over columns, compared with key by key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.engine.local import Part
from flow.keyed.step import OverColumns
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from tests.support.columns import Row, as_dicts, as_records, clocks, rows, windowers
from tests.support.sampling import sampled
from tests.support.window_flow import PORTS, START, results_by_key

Epoch: TypeAlias = tuple[int, list[list[Row]]]
"""How many seconds after the one before, and what each side brings."""


@dataclass(frozen=True)
class Join:
    """A join of two inputs."""

    clock: Any
    windower: Any
    insert_mode: Any
    ordered: bool
    timestamp: Any = None

    def flow(self) -> Dataflow:
        made = Dataflow("join")
        sides = [
            op.key_on(f"key-{name}", op.input(name, made, TestingSource([])), "user")
            for name in ("left", "right")
        ]
        out = win.join_window(
            "w",
            self.clock,
            self.windower,
            *sides,
            insert_mode=self.insert_mode,
            ordered=self.ordered,
            timestamp=self.timestamp,
        )
        for port in PORTS:
            op.output(port, getattr(out, port), TestingSink([]))
        return made


def play(driver: TestDriver, epoch: Epoch, form: Any) -> None:
    later, sides = epoch
    if later:
        driver.advance(timedelta(seconds=later))
    names = ("left", "right")
    parts = {name: [Part(form(some))] for name, some in zip(names, sides, strict=True) if some}
    driver.send_parts(parts)


def outcome(join: Join, epochs: list[Epoch], form: Any) -> Any:
    with TestDriver(join.flow(), now=START, shards=2) as t:
        for epoch in epochs:
            play(t, epoch, form)
        t.end()
        return results_by_key(t)


joins = st.builds(
    Join,
    clocks,
    windowers,
    st.sampled_from(["first", "last"]),
    st.booleans(),
    st.sampled_from([None, "last"]),
)
two_sides = st.lists(st.lists(rows, max_size=5), min_size=2, max_size=2)
epochs_of_sides = st.lists(st.tuples(st.sampled_from([0, 0, 5, 100]), two_sides), max_size=4)


@sampled(200, by_default=50)
@given(joins, epochs_of_sides)
def test_joins_over_columns_agree_with_key_by_key(join: Join, epochs: list[Epoch]) -> None:
    with key_by_key():
        expected = outcome(join, epochs, as_dicts)
    assert outcome(join, epochs, as_records) == expected
    assert outcome(join, epochs, as_dicts) == expected


@sampled(80, by_default=25)
@given(joins, epochs_of_sides, st.lists(st.booleans(), min_size=4, max_size=4))
def test_state_of_joins_survives_changes_of_path(
    join: Join, epochs: list[Epoch], alone: list[bool]
) -> None:
    with key_by_key():
        expected = outcome(join, epochs, as_dicts)
    with TestDriver(join.flow(), now=START, shards=2) as t:
        for epoch, by_itself in zip(epochs, alone, strict=False):
            if by_itself:
                with key_by_key():
                    play(t, epoch, as_dicts)
            else:
                play(t, epoch, as_records)
        t.end()
        assert results_by_key(t) == expected


def test_joins_are_lowered_to_columns() -> None:
    join = Join(win.SystemClock(), win.TumblingWindower("1m"), "last", True)
    (step,) = (one for one in join.flow().steps if one.step_id == "w")
    operator: Any = step.operator
    assert isinstance(operator.lower(), OverColumns)


def test_windows_close_with_the_values_after_which_no_partition_holds() -> None:
    # Each input holds the watermark until its last value; then left has brought it to 15.
    made = Dataflow("join")
    sides = [op.input(name, made, TestingSource([])) for name in ("left", "right")]
    clock = win.EventClock(lambda value: value, "0s")
    out = win.join_window("w", clock, win.TumblingWindower("1s"), *sides)
    op.output("down", out.down, TestingSink([]))

    def closed_at_once() -> list[Any]:
        with TestDriver(made, now=START) as t:
            t.send_all({"left": [("k", 15)], "right": [("k", 10)]})
            return [pair for _, (_, pair) in t.received("down")]

    assert closed_at_once() == [(None, 10)]
    with key_by_key():
        assert closed_at_once() == [(None, 10)]
