"""Event time of a history and the live data after it: no gap, nothing late, nothing twice.

The feed, the planners and the local engine run in this process, and the test sets system time.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.items import from_items
from flow.connectors.source import Source
from flow.connectors.then import Then
from flow.testing import TestingSink
from tests.support.feeding import FedRun
from tests.support.growing_source import GrowingSource, numbered
from tests.support.sampling import sampled


def counts(source: Source[Any], scope: Literal["key", "stream"] = "key", **clock: Any) -> Dataflow:
    """Count values of each key in windows of ten seconds, with a wait of a second."""
    flow = Dataflow("counts")
    keyed = op.key_on("by_key", op.input("in", flow, source), "k")
    event_time = win.EventClock("at", "1s", scope=scope, **clock)
    windows = win.TumblingWindower("10s")
    counted = win.aggregate_window("count", keyed, event_time, windows, n=win.Count())
    op.output("out", counted.down, TestingSink([]))
    op.output("late", counted.late, TestingSink([]))
    return flow


def totals(run: FedRun) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for key, (meta, figures) in run.outputs.get("out", []):
        assert (key, meta.window_id) not in found, "a window came twice"
        found[key, meta.window_id] = figures["n"]
    return found


def row(key: str, at: float) -> dict[str, Any]:
    return {"k": key, "at": at}


def closed(run: FedRun) -> list[tuple[str, float]]:
    """The closed windows as pairs of key and close time, in seconds."""
    items = run.outputs.get("out", [])
    return [(key, meta.close_time.timestamp()) for key, (meta, _) in items]


@pytest.mark.parametrize("scope", ["key", "stream"])
def test_time_that_passes_at_the_switch_makes_nothing_late(scope: Any) -> None:
    """A minute passes after each epoch.

    history     1    5 | 12          (two rows an epoch)
    live                     13 18 21
    """
    history = from_items([row("a", at) for at in (1, 5, 12)], batch_size=2)
    live = GrowingSource({"0": [row("a", at) for at in (13, 18, 21)]}, piece=1)
    run = FedRun(counts(Then(history, live), scope))
    for _ in range(20):
        run.seconds.now += 60
        run.epoch()
    assert run.outputs.get("late", []) == []
    assert totals(run) == {("a", 0): 2, ("a", 1): 3, ("a", 2): 1}


def test_a_window_that_spans_the_switch_closes_by_live_data() -> None:
    """The window [10, 20) has a value of the history and a value of the live source."""
    history = from_items([row("a", 12)])
    live = GrowingSource({"0": [row("a", 15)]})
    run = FedRun(counts(Then(history, live)))
    run.run()
    assert closed(run) == []
    live.items["0"].append(row("a", 21.5))
    run.run()
    assert closed(run) == [("a", 20)]
    assert totals(run) == {("a", 1): 2}


@pytest.mark.parametrize("on_idle", ["advance", "hold"])
def test_a_finished_history_does_not_hold_the_watermark_of_a_stream(on_idle: Any) -> None:
    """Ten hours lie between the history and the live data; only the latter move the stream."""
    hour = 3_600
    histories = GrowingSource({"0": [row("a", 1)], "1": [row("b", 2)]}, bounded=True)
    live = GrowingSource({"0": [row("a", 10 * hour)]})
    run = FedRun(counts(Then(histories, live), "stream", on_idle=on_idle))
    run.run()
    live.items["0"].append(row("a", 10 * hour + 12))
    run.run()
    assert sorted(closed(run)) == [("a", 10), ("a", 10 * hour + 10), ("b", 10)]


def world(seed: int) -> tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]]]:
    """Rows of a history and of live partitions, each sorted but for delays within the wait."""
    r = random.Random(seed)
    cut = r.uniform(20, 80)

    def rows(first: float, last: float) -> list[dict[str, Any]]:
        at, found = first, []
        while (at := at + r.expovariate(10 ** r.uniform(-0.5, 0.5))) < last:
            delay = r.uniform(0, 0.9) * (r.random() < 0.3)
            found.append((at, row(f"key {r.randrange(3)}", round(max(first, at - delay), 3))))
        return [one for _, one in found]

    old = [rows(0, cut) for _ in range(r.choice([1, 1, 3]))]
    return old, [rows(cut, 120) for _ in range(r.choice([1, 2, 4]))]


@sampled(80, by_default=4)
@given(st.integers(0, 10**6), st.sampled_from(["key", "stream"]))
def test_values_on_time_are_never_late_and_counted_once(seed: int, scope: Any) -> None:
    old, new = world(seed)
    r = random.Random(seed + 1)
    piece = r.choice([3, 10, 1_000])
    history, live = (GrowingSource(numbered(*part), piece, bounded=True) for part in (old, new))
    source = Then(history, live)
    run = FedRun(counts(source, scope))
    for _ in range(2_000):
        run.seconds.now += r.choice([0.0, 0.2, 5.0, 60.0])
        if r.random() < 0.2:
            run.kill()
        if not run.epoch():
            break
    assert run.outputs.get("late", []) == []
    rows = [one for part in (*old, *new) for one in part]
    assert totals(run) == Counter((one["k"], int(one["at"] // 10)) for one in rows)
