"""The phases of an epoch, the times of steps, and the lag of watermarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from time import sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow.engine.epoch.context import Control
from flow.engine.epoch.statistics import Stats, TaskWork, Work, WorkPhase
from flow.engine.epoch.summary import WatermarkLag, watermark_lags
from flow.engine.local import LocalEngine, Part
from flow.engine.spark.epochs import PHASES, EpochTimer, split_job
from flow.instants import Moment
from flow.testing import TestDriver, key_by_key
from tests.support.monitored import Clock
from tests.support.one_stream import a_flow, running_total, step

READING, LEVELS, SINKS = WorkPhase
JOB = ("reading", "steps", "sinks", "spark")
"""The phases of a job."""


def seconds(count: int) -> int:
    """Return seconds in ns."""
    return count * 1_000_000_000


def job(**phases: float) -> dict[str, float]:
    """Return the phases of a job; those that are not given took no time."""
    return {**dict.fromkeys(JOB, 0.0), **phases}


#  clock    0        1        3         6        10       15         20
#           planning |        |         |        |
#                    planned  job       job end  commit
#                                                         planning (waiting: 5)
def test_phases_follow_each_other_without_a_gap() -> None:
    clock = Clock(100.0)
    timer = EpochTimer(clock)
    calls = {0.0: timer.start_planning, 1.0: timer.end_planning, 3.0: timer.start_job}
    for clock.seconds, call in calls.items():
        call()
    clock.seconds = 6.0
    timer.end_job({Work(0, "a", READING): 2_000_000_000})
    clock.seconds = 10.0
    of_job = job(reading=2.0, spark=1.0)
    assert timer.end_commit() == {"planning": 1.0, "starting": 2.0, **of_job, "commit": 4.0}
    clock.seconds = 12.0
    timer.start_planning()  # Nothing to do yet.
    clock.seconds = 15.0
    timer.start_planning()
    timer.end_planning()
    timer.start_job()
    timer.end_job({})
    ended = timer.end_commit()
    assert tuple(ended) == PHASES
    assert ended["waiting"] == 5.0


def test_a_replayed_epoch_has_no_planning() -> None:
    clock = Clock()
    timer = EpochTimer(clock)
    timer.start_job()
    timer.end_job({})
    assert set(timer.end_commit()) == {*JOB, "commit"}
    timer.start_planning()
    timer.end_planning()
    for _ in range(2):  # The second attempt of an epoch that failed is not planned again.
        timer.start_job()
        timer.end_job({})
        ended = timer.end_commit()
    assert set(ended) == {*JOB, "commit"}


#  One worker reads for 1 s and runs steps for 2 s; the rest of the job's 5 s is Spark's.
def test_a_single_worker_s_work_is_the_duration_of_its_phases() -> None:
    work = {Work(0, "a", READING): seconds(1), Work(0, "a", LEVELS): seconds(2)}
    assert split_job(5.0, work, slots=4) == job(reading=1.0, steps=2.0, spark=2.0)


#  one slot   a |reading 2|sinks 3| b |sinks 1|
#  two slots  a |reading 2|sinks 3|
#             b           |sinks 1|
def test_stages_follow_each_other_and_workers_of_a_stage_share_the_slots() -> None:
    work = {
        Work(0, "a", READING): seconds(2),
        Work(1, "a", SINKS): seconds(3),
        Work(1, "b", SINKS): seconds(1),
    }
    assert split_job(8.0, work, slots=1)["sinks"] == 4.0
    assert split_job(8.0, work, slots=2) == job(reading=2.0, sinks=3.0, spark=3.0)


#  a |steps 4|  b, c, d |steps 2|, each beside a: 10 s of work on two slots last 5 s at least
def test_all_work_on_all_slots_may_last_longer_than_the_busiest_worker() -> None:
    work = {Work(1, name, LEVELS): seconds(2) for name in "bcd"}
    work[Work(1, "a", LEVELS)] = seconds(4)
    assert split_job(6.0, work, slots=2) == job(steps=5.0, spark=1.0)


def test_work_that_does_not_fit_the_job_is_scaled_down_to_it() -> None:
    work = {Work(0, "a", READING): seconds(3), Work(1, "b", SINKS): seconds(1)}
    assert split_job(2.0, work, slots=1) == job(reading=1.5, sinks=0.5)


works = st.dictionaries(
    st.builds(Work, st.integers(0, 3), st.sampled_from("abcd"), st.sampled_from(WorkPhase)),
    st.integers(0, 10**13),
)


@given(st.floats(0, 1e6), works, st.integers(1, 64))
def test_the_phases_of_a_job_sum_to_it_and_none_is_negative(
    duration: float, work_ns: dict[Work, int], slots: int
) -> None:
    found = split_job(duration, work_ns, slots)
    assert tuple(found) == JOB
    assert min(found.values()) >= 0.0
    assert sum(found.values()) == pytest.approx(duration)


@given(works, st.integers(1, 64))
def test_with_more_slots_the_rest_is_not_shorter(work_ns: dict[Work, int], slots: int) -> None:
    before, after = (split_job(1e9, work_ns, count)["spark"] for count in (slots, slots + 1))
    assert after >= before - 1e-3


def test_a_task_measures_the_making_of_elements_and_not_their_use() -> None:
    work = TaskWork(2)

    def made() -> Iterator[int]:
        yield 1
        sleep(0.02)
        yield 2

    for _ in work.iterated(READING, made()):
        sleep(0.1)
    with work.timed(SINKS):
        sleep(0.02)
    found = work.of_worker("a")
    assert set(found) == {Work(2, "a", READING), Work(2, "a", SINKS)}
    assert 0.02 <= found[Work(2, "a", READING)] / 1e9 < 0.2
    assert found[Work(2, "a", SINKS)] / 1e9 >= 0.02


def test_the_steps_of_each_stage_report_their_work() -> None:
    flow = a_flow(
        lambda s: op.stateful_map("sums", op.key_on("odd", s, lambda n: str(n % 2)), running_total)
    )
    result = LocalEngine(flow).epoch({"in": [Part([1, 2, 3])]}, Control(Moment(0)))
    found = {(work.stage, work.phase) for work, ns in result.stats.work_ns.items() if ns}
    assert found == {(0, LEVELS), (1, LEVELS)}


def test_statistics_of_tasks_are_added_with_their_times_memory_and_lags() -> None:
    stats = Stats(busy_ns=Counter({"a": 3}), lags=Counter({("a", 10): 1}))
    stats.workers = {"w1": 5, "w2": 1}
    stats.work_ns = Counter({Work(0, "w1", READING): 4})
    stats.add(Stats.decode(stats.encode()))
    other = Stats(busy_ns=Counter({"b": 1}))
    other.workers = {"w1": 9}
    stats.add(Stats.decode(other.encode()))
    assert stats.busy_ns == {"a": 6, "b": 1}
    assert stats.workers == {"w1": 9, "w2": 1}
    assert stats.work_ns == {Work(0, "w1", READING): 8}
    assert stats.lags == {("a", 10): 2}


def test_a_median_of_an_even_number_is_the_lower_one() -> None:
    counts = {("s", 1_000_000): 1, ("s", 2_000_000): 2, ("s", 9_000_000): 1}
    assert watermark_lags(counts) == {"s": WatermarkLag(1.0, 2.0, 9.0, 4)}


def lags_of_a_flow() -> dict[str, WatermarkLag]:
    clock = win.EventClock(lambda value: value, wait_for_system_duration="10s")
    minutes = step(win.collect_window, clock, win.TumblingWindower(length="1m"))
    driver = TestDriver(a_flow(lambda s: minutes(s).down), now="1970-01-01T00:02:00Z")
    driver.send("in", [("a", 100), ("a", 90), ("b", 60)])
    return watermark_lags(driver.stats.lags)


def test_the_lag_is_that_of_keys_with_values_over_columns_and_key_by_key() -> None:
    #  now 120 s; watermarks: a 100 - 10 = 90, b 60 - 10 = 50
    expected = {"step": WatermarkLag(30.0, 30.0, 70.0, 2)}
    assert lags_of_a_flow() == expected
    with key_by_key():
        assert lags_of_a_flow() == expected
