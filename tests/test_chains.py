"""Steps in event time that read results: nothing on time is late, and results are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.engine.local import LocalEngine
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from recovery import RecoveryConfig, rescale
from tests.support.chains import play, play_at_once

HOUR = 3600.0
Values = list[dict[str, Any]]


def check_chain(seed: int) -> None:
    wanted = play_at_once(seed)
    assert wanted.late == {}
    for live in (True, False):
        found = play(seed, live=live)
        assert found.late == {}
        for name, is_certain in found.certain.items():
            if is_certain:
                assert (name, found.results[name]) == (name, wanted.results[name])


@pytest.mark.parametrize(
    "seed", [*range(9), *(pytest.param(n, marks=pytest.mark.extended) for n in range(9, 150))]
)
def test_random_chains_are_those_of_all_values_at_once(seed: int) -> None:
    check_chain(seed)


# --- flows of users -----------------------------------------------------------------------------


def visits(users: int) -> Values:
    """Return sessions of five visits, one of each user, that begin ten minutes apart."""
    times = [(600.0 * user + 200 * visit, user) for user in range(users) for visit in range(5)]
    return [{"user": f"u{user}", "at": at, "n": 1} for at, user in sorted(times)]


def sessions_by_hour(flow: Dataflow, source: Any, **clock: Any) -> Any:
    """Count sessions by the hour in which they begin."""
    of_user = op.key_on("of_user", op.input("in", flow, source), "user")
    sessions = win.aggregate_window(
        *("sessions", of_user, win.EventClock("at", "1m"), win.SessionWindower("10m")),
        timestamp="open",
        n=win.Count(),
    )
    site = op.map("site", sessions.down, lambda item: item[1][0].timestamp)
    opened = win.EventClock(lambda time: time, "0s", **clock)
    return win.count_window("by_hour", site, opened, win.TumblingWindower("1h"), lambda _: "site")


def hits_by_hour(flow: Dataflow, source: Any, **clock: Any) -> Any:
    """Count visits of each user and minute, and of these the site's and hour's."""
    of_user = op.key_on("of_user", op.input("in", flow, source), "user")
    minutes = win.aggregate_window(
        *("minutes", of_user, win.EventClock("at", "1m"), win.TumblingWindower("1m")),
        n=win.Count(),
    )
    rows = op.key_on("site", op.records("rows", minutes.down), lambda _: "site")
    opened, hours = win.EventClock("open_time", "0s", **clock), win.TumblingWindower("1h")
    return win.sum_window("by_hour", rows, opened, hours, by="n")


class Funnel(win.WindowLogic[Any, int, int]):
    """A user's logic: the number of visits, as a user's session closes."""

    def __init__(self, count: int | None) -> None:
        self.count = count or 0

    def on_value(self, value: Any) -> tuple[()]:
        self.count += 1
        return ()

    def on_merge(self, original: Any) -> tuple[()]:
        self.count += original.count
        return ()

    def on_close(self) -> tuple[int]:
        return (self.count,)

    def snapshot(self) -> int:
        return self.count


def funnels_by_hour(flow: Dataflow, source: Any, **clock: Any) -> Any:
    """Sum a logic's results of each user by the hour in which the user begins."""
    of_user = op.key_on("of_user", op.input("in", flow, source), "user")
    funnels = win.window(
        "funnels", of_user, win.EventClock("at", "1m"), win.SessionWindower("10m"), Funnel
    )
    site = op.map("site", funnels.down, lambda item: ("site", item[1]))
    opened = win.EventClock(lambda value: value[0].open_time, "0s", **clock)
    return win.sum_window(
        "by_hour", site, opened, win.TumblingWindower("1h"), by=lambda value: value[1]
    )


SIX, HITS = dict.fromkeys(range(4), 6), {0: 28, 1: 30, 2: 30, 3: 30, 4: 2}
FLOWS: dict[Callable[..., Any], dict[int, int]] = {
    sessions_by_hour: SIX,
    hits_by_hour: HITS,
    funnels_by_hour: {hour: 5 * users for hour, users in SIX.items()},
}
"""Flows with their results by hour. Six of 24 users begin in an hour, and make five visits each, of
which the last of one user and the last two of another lie in the next hour."""


def live(values: Values) -> Iterator[tuple[Values, float]]:
    """Yield each value with the time that passes before it, then a day."""
    now = 0.0
    for value in values:
        yield [value], value["at"] - now
        now = value["at"]
    yield [], 24 * HOUR


def backlog(values: Values) -> Iterator[tuple[Values, float]]:
    """Yield the values of each two hours; no time passes."""
    for start in range(0, int(values[-1]["at"]) + 1, 7200):
        yield [value for value in values if start <= value["at"] < start + 7200], 0.0


PACES = {"live": live, "batch": lambda values: [(values, 0.0)], "backlog": backlog}


def by_hour(items: Iterable[Any]) -> dict[float, int]:
    """Return the result of each hour; a later result takes the place of an earlier one."""
    return {meta.open_time.timestamp() / HOUR: int(result) for _, (meta, result) in items}


def cases() -> list[Any]:
    """Return each flow in columns and key by key, at each pace and of each scope.

    A live flow has an epoch for each value: an ordinary run has each flow, form and scope live, but
    not all of their combinations.
    """
    forms = {"columns": True, "key by key": False}
    found = []
    for form, build, pace, scope in product(forms, FLOWS, PACES, ("key", "stream")):
        is_ordinary = pace != "live" or forms[form] == (scope == "key")
        marks = [] if is_ordinary else [pytest.mark.extended]
        name = f"{form}-{build.__name__}-{pace}-{scope}"
        found.append(pytest.param(build, pace, scope, forms[form], id=name, marks=marks))
    return found


@pytest.mark.parametrize(("build", "pace", "scope", "in_columns"), cases())
def test_two_levels_of_windows_lose_nothing(
    build: Callable[..., Any], pace: str, scope: str, in_columns: bool
) -> None:
    flow = Dataflow("levels")
    out = build(flow, TestingSource([]), scope=scope)
    op.output("out", out.down, TestingSink([]))
    with (
        nullcontext() if in_columns else key_by_key(),
        TestDriver(flow, now=0, shards=3) as driver,
    ):
        for values, passed in PACES[pace](visits(24)):
            driver.send("in", values, after=f"{passed}s", behind=pace == "backlog")
        if pace != "live":  # Live, time alone closes all windows.
            driver.end()
        assert by_hour(driver.received("out")) == FLOWS[build]
        assert driver.late("by_hour") == 0


def test_a_step_that_ignores_those_above_loses_results_of_a_batch() -> None:
    flow = Dataflow("levels")
    out = sessions_by_hour(flow, TestingSource([]), upstream="ignore")
    op.output("out", out.down, TestingSink([]))
    with TestDriver(flow, now=0, shards=3) as driver:
        driver.send("in", visits(24))
        driver.end()
        assert driver.late("by_hour") > 0


def test_an_as_of_join_of_windows_and_values_loses_nothing() -> None:
    random, flow = Random(5), Dataflow("features")
    values = [
        {"user": f"u{random.randrange(6)}", "at": 7.0 * number, "n": number}
        for number in range(300)
    ]
    of_user = op.key_on("of_user", op.input("in", flow, TestingSource([])), "user")
    clock = win.EventClock("at", "0s")
    minutes = win.sum_window(
        "minutes", of_user, clock, win.TumblingWindower("1m"), by="n", timestamp="close"
    )
    features = op.map_value(
        "features", minutes.down, lambda pair: {"at": pair[0].timestamp, "sum": pair[1]}
    )
    joined = win.join_asof("joined", of_user, features, clock, tolerance=None)
    op.output("out", joined.down, TestingSink([]))
    with TestDriver(flow, now=0, shards=3) as driver:
        for start in range(0, 300, 50):
            driver.send("in", values[start : start + 50], behind=True)
        driver.end()
        found = {pair.left["n"]: pair.right for _, (_, pair) in driver.received("out")}
    sums = Counter[tuple[str, float]]()
    for value in values:
        sums[value["user"], value["at"] // 60 * 60 + 60] += value["n"]
    for value in values:
        closed = [at for user, at in sums if user == value["user"] and at <= value["at"]]
        wanted = sums[value["user"], max(closed)] if closed else None
        right = found[value["n"]]
        assert (None if right is None else right["sum"]) == wanted


# --- resumed with another flow ------------------------------------------------------------------


def resumable(timestamp: Any, *, is_read: bool) -> Dataflow:
    flow = Dataflow("resumed")
    keyed = op.key_on("keyed", op.input("in", flow, TestingSource([])), "user")
    # Values in timestamp order: the value of ``slow`` is buffered, not in a window.
    clock, minutes = win.EventClock("at", "1m"), win.TumblingWindower("1m")
    sums = win.collect_window("sums", keyed, clock, minutes, timestamp=timestamp)
    op.output("sums.out", sums.down, TestingSink([]))
    if is_read:
        all_sums = op.map("all", sums.down, lambda item: ("all", item[1][0].timestamp))
        clock = win.EventClock(lambda time: time, "0s")
        hours = win.collect_window("hours", all_sums, clock, win.TumblingWindower("1h"))
        op.output("out", hours.down, TestingSink([]))
    return flow


@pytest.mark.parametrize("forms", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize(
    "before", [resumable("open", is_read=False), resumable("close", is_read=True)]
)
def test_holds_in_state_follow_a_changed_flow(before: Dataflow, forms: tuple[bool, bool]) -> None:
    """A reader is new, or results have another timestamp, or the step has another form.

    The value of ``slow`` is buffered, and its result lies in an hour that the result of ``fast``
    would close.
    """
    first = {"user": "slow", "at": 3 * HOUR - 30, "n": 1}
    after = resumable("open", is_read=True)
    flows = dict(zip((before, after), forms, strict=True))
    stores: Any = {}
    for flow, is_by_key in flows.items():
        with key_by_key() if is_by_key else nullcontext():
            driver = TestDriver(flow, now=0, shards=2)
            engine: LocalEngine = driver._engine
            engine._stores = stores
            if flow is before:
                driver.send("in", [first])
            else:
                fast = [{"user": "fast", "at": at * HOUR, "n": 1} for at in (2, 4, 9)]
                driver.send("in", fast)
                assert driver.received("out") == []
                driver.end()
                assert driver.late("hours") == 0
                assert [len(times) for _, (_, times) in driver.received("out")] == [2, 1, 1]
            stores = engine._stores


# --- on Spark -----------------------------------------------------------------------------------


@pytest.mark.spark
def test_chains_on_spark_lose_nothing_when_they_resume_and_rescale(
    spark: SparkSession, tmp_path: Path
) -> None:
    def build(values: Values, rows: list[Any]) -> Dataflow:
        flow = Dataflow("levels")
        out = hits_by_hour(flow, TestingSource(values, batch_size=25))
        op.output("out", out.down, TestingSink(rows))
        op.output("late", out.late, TestingSink(rows))
        return flow

    values = visits(24)
    rows: list[Any] = []
    run(build(values, rows), spark=spark, engine="batch")
    assert by_hour(rows) == HITS
    rows.clear()
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    run(build(values[:50], rows), spark=spark, recovery=recovery, drain=False)
    rescale(tmp_path / "checkpoint", shards=5, spark=spark)
    run(build(values, rows), spark=spark, recovery=recovery)
    assert by_hour(rows) == HITS
