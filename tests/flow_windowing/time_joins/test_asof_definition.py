"""As-of joins, compared with an oracle written from the definition and `pandas.merge_asof`."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.instants import datetime_us
from flow.testing import TestDriver
from flow_windowing import EventClock
from flow_windowing.time_joins.asof_join import AsofJoin
from tests.support.asof_flows import (
    asof_flow,
    directions,
    emits,
    hows,
    quote,
    tolerance_of,
    tolerances,
)
from tests.support.asof_oracle import Asof, answer
from tests.support.interval_flows import (
    SidedValue,
    clock_of,
    clocks,
    events_of,
    time_of,
    time_of_pair,
    timelines,
    values,
)
from tests.support.sampling import sampled
from tests.support.windowed_flows import (
    ORIGIN,
    ORIGIN_US,
    SECOND,
    Epoch,
    OneKeyOverColumns,
    heard,
    moments,
)


@sampled(600, by_default=60)
@given(clocks, tolerances, directions, hows, emits, timelines, st.booleans())
def test_the_output_is_that_of_the_definition(
    clock: Any,
    tolerance: int | None,
    direction: Any,
    how: Any,
    emit: Any,
    epochs: list[Epoch],
    rebuilt: bool,
) -> None:
    expected = answer(
        clock_of(*clock, getter=time_of_pair),
        Asof(tolerance, direction, how, emit),
        events_of(epochs),
        quote,
    )
    config = AsofJoin(clock_of(*clock), tolerance_of(tolerance), direction, how, emit, quote)
    found = heard(config, epochs, rebuilt)
    assert [
        (window.window_id - ORIGIN_US, datetime_us(window.timestamp) - ORIGIN_US, left, right)
        for window, (left, right) in found.down
    ] == [(at - ORIGIN_US, at - ORIGIN_US, *pair) for _, at, *pair in expected.down]
    assert [(late.side, late.value) for late in found.late] == expected.late
    assert [window.window_id for window in found.closed] == expected.closed


@sampled(300, by_default=40)
@given(clocks, tolerances, directions, timelines)
def test_a_value_leaves_as_soon_as_its_partner_is_final(
    clock: Any, tolerance: int | None, direction: Any, epochs: list[Epoch]
) -> None:
    # Each epoch has one value, so that the epoch in which an item leaves is its event.
    single = [
        Epoch(epoch.moved if first else 0, epoch.down if first else 0, tuple(some))
        for epoch in epochs
        for first, some in _one_by_one(epoch.values)
    ]
    expected = answer(
        clock_of(*clock, getter=time_of_pair), Asof(tolerance, direction), events_of(single), quote
    )
    config = AsofJoin(clock_of(*clock), tolerance_of(tolerance), direction, right_value=quote)
    one, at_each = OneKeyOverColumns(config), list[int]()
    for epoch, moment in zip(single, moments(single), strict=False):
        one.epoch(epoch.values, moment)
        at_each.append(len(one.heard.down))
    assert at_each == [
        sum(event <= number for event, *_ in expected.down) for number in range(len(single))
    ]


def _one_by_one(some: tuple[Any, ...]) -> list[tuple[bool, tuple[Any, ...]]]:
    return [(at == 0, (one,)) for at, one in enumerate(some)] or [(True, ())]


keyed = values.map(lambda some: [("aab"[value[1] % 3], (side, value)) for side, value in some])


@sampled(200, by_default=25)
@given(tolerances, directions, hows, keyed)
def test_a_batch_is_that_of_pandas(
    tolerance: int | None, direction: Any, how: Any, sent: list[tuple[str, SidedValue]]
) -> None:
    sides: list[list[Any]] = [[(key, v) for key, (at, v) in sent if at == side] for side in (0, 1)]
    with TestDriver(
        asof_flow(EventClock(time_of, "1h"), tolerance_of(tolerance), direction=direction, how=how),
        now=ORIGIN,
    ) as t:
        t.send_all(dict(zip(("left", "right"), sides, strict=True)))
        t.end()
        found = [(left, right) for _, (_, (left, right)) in t.received("down")]
    assert sorted(found) == sorted(by_pandas(*sides, tolerance, direction, how))


def by_pandas(left: Any, right: Any, tolerance: int | None, direction: Any, how: str) -> list[Any]:
    """Return the pairs of `pandas.merge_asof`; of right values of one time it gets the last."""
    frames = [
        pd.DataFrame(
            [(key, at, number) for key, (at, number) in side], columns=["key", "at", name]
        ).astype({"key": str, "at": "int64", name: "int64"})
        for name, side in (("left", left), ("right", right))
    ]
    frames[1] = frames[1].drop_duplicates(["key", "at"], keep="last")
    frames[1]["right_at"] = frames[1]["at"]
    frames = [frame.sort_values("at", kind="stable") for frame in frames]
    joined = pd.merge_asof(*frames, on="at", by="key", tolerance=tolerance, direction=direction)
    pairs: list[Any] = [
        ((at, one), None if pd.isna(other) else (int(right_at), int(other)))
        for at, one, other, right_at in joined[["at", "left", "right", "right_at"]].itertuples(
            index=False
        )
    ]
    return pairs if how == "left" else [pair for pair in pairs if pair[1] is not None]


@pytest.mark.parametrize(("passed", "has_left"), [(-1, False), (0, False), (1, True)])
@pytest.mark.parametrize(
    ("direction", "rights", "final"),
    [
        # A left value at 100 s, tolerance 5 s. A right value at the watermark is still on time.
        ("backward", [], 100),
        ("backward", [97], 100),
        ("forward", [], 105),
        ("forward", [103], 103),
        ("nearest", [], 105),
        ("nearest", [103], 103),
        ("nearest", [97, 104], 102.999999),
        ("nearest", [100], 100),
    ],
)
def test_a_partner_is_final_to_the_microsecond(
    direction: Any, rights: list[int], final: float, passed: int, has_left: bool
) -> None:
    clock = EventClock(lambda at: at, "10s", on_idle="hold")
    with TestDriver(asof_flow(clock, "5s", direction=direction), now=0) as t:
        t.send("left", [("k", 100)])
        t.send("right", [("k", at) for at in rights])
        t.send("left", [("k", final + passed / SECOND + 10)])
        assert [pair[0] for _, (_, pair) in t.received("down")] == [100] * has_left
