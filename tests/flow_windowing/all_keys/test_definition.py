"""Windows over all keys, compared with an oracle written from the definition."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from flow import Dataflow
from flow.testing import TestDriver
from flow_windowing import Count, EventClock, SlidingWindower, Sum
from tests.support.all_keys_flows import aggregated, all_keys_flow, ranked
from tests.support.all_keys_oracle import Visit, Windows, answer, ranking
from tests.support.sampling import sampled

visits = st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 60))
epochs_of_visits = st.lists(st.lists(visits, max_size=12), min_size=1, max_size=5)
all_windows = st.builds(
    Windows, st.integers(1, 20), st.integers(1, 20), st.none() | st.integers(0, 10)
).filter(lambda windows: windows.offset <= windows.length)


def step_of(windows: Windows, wait: int) -> tuple[Any, Any]:
    """Return a clock and a windower."""
    grace = None if windows.grace is None else f"{windows.grace}s"
    windower = SlidingWindower(f"{windows.length}s", f"{windows.offset}s", grace=grace)
    return EventClock("at", f"{wait}s", on_idle="hold"), windower


def outputs(flow: Dataflow, epochs: list[list[Visit]], shards: int) -> tuple[Any, ...]:
    """Return the results of each epoch and of the end, and the late values."""
    results = []
    with TestDriver(flow, now="1970-01-01T00:00Z", shards=shards) as t:
        for epoch in epochs:
            t.send("in", [{"user": user, "at": float(at), "n": at} for user, at in epoch])
            results.append(t.take("down"))
        t.end()
        results.append(t.take("down"))
        closed = [window for _, window in t.take("closed")]
        late = [
            (one.value["user"], int(one.value["at"]), *(each.window_id for each in one.windows))
            for _, one in t.take("late")
        ]
    assert closed == [window for epoch in results for _, (window, _) in epoch]
    assert {key for epoch in results for key, _ in epoch} <= {"all"}
    by_window = [[(window.window_id, made) for _, (window, made) in epoch] for epoch in results]
    return by_window, sorted(late)


@sampled(300, by_default=6)
@given(all_windows, st.integers(0, 15), epochs_of_visits, st.sampled_from([1, 4, 32]))
@example(Windows(10, 10, None), 0, [[("a", 5), ("b", 10)], [("c", 9), ("c", 10)]], 4)
def test_each_window_has_one_result_of_all_its_values(
    windows: Windows, wait: int, epochs: list[list[Visit]], shards: int
) -> None:
    expected = answer(windows, wait, epochs)
    clock, windower = step_of(windows, wait)
    late = sorted((*visit, *missed) for visit, missed in expected.late)

    flow = all_keys_flow(aggregated(clock, windower, n=Count()))
    counted = [[(n, {"n": len(expected.keys_of[n])}) for n in ids] for ids in expected.closed]
    assert outputs(flow, epochs, shards) == (counted, late)

    flow = all_keys_flow(ranked(clock, windower, 3))
    rankings = [[(n, ranking(expected.keys_of[n], 3)) for n in ids] for ids in expected.closed]
    assert outputs(flow, epochs, shards) == (rankings, late)


@sampled(100, by_default=4)
@given(st.lists(visits, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_the_cut_of_the_input_changes_nothing(items: list[Visit], cuts: list[int]) -> None:
    clock, windower = EventClock("at", "5s", on_idle="hold"), SlidingWindower("20s", "10s")
    bounds = [0, *sorted(cuts), len(items)]
    epochs = [items[a:b] for a, b in pairwise(bounds)]
    for add in (aggregated(clock, windower), ranked(clock, windower, 2, Sum("n"))):
        whole, cut = (outputs(all_keys_flow(add), each, 8) for each in ([items], epochs))
        flat = [[one for epoch in results for one in epoch] for results, _ in (whole, cut)]
        assert flat[0] == flat[1]
        assert whole[1] == cut[1]
