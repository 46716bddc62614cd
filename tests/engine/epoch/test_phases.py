"""The phases of an epoch, the times of steps, and the lag of watermarks."""

from __future__ import annotations

from collections import Counter

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.engine.epoch.context import Stats
from flow.engine.epoch.phases import PHASES, EpochTimer
from flow.engine.epoch.watermark_lag import WatermarkLag, watermark_lags
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key


class Clock:
    """A clock that the test sets."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


#  clock    0        1        3         6        10       15         20
#           planning |        |         |        |
#                    planned  job       job end  commit
#                                                         planning (waiting: 5)
def test_phases_follow_each_other_without_a_gap() -> None:
    clock = Clock()
    timer = EpochTimer(clock)
    for seconds, call in [
        (0.0, timer.start_planning),
        (1.0, timer.end_planning),
        (3.0, timer.start_job),
        (6.0, timer.end_job),
    ]:
        clock.seconds = seconds
        call()
    clock.seconds = 10.0
    assert timer.end_commit() == {"planning": 1.0, "starting": 2.0, "steps": 3.0, "commit": 4.0}
    clock.seconds = 12.0
    timer.start_planning()  # Nothing to do yet.
    clock.seconds = 15.0
    timer.start_planning()
    timer.end_planning()
    timer.start_job()
    timer.end_job()
    ended = timer.end_commit()
    assert tuple(ended) == PHASES
    assert ended["waiting"] == 5.0


def test_a_replayed_epoch_has_no_planning() -> None:
    clock = Clock()
    timer = EpochTimer(clock)
    timer.start_job()
    timer.end_job()
    assert set(timer.end_commit()) == {"steps", "commit"}
    timer.start_planning()
    timer.end_planning()
    for _ in range(2):  # The second attempt of an epoch that failed is not planned again.
        timer.start_job()
        timer.end_job()
        ended = timer.end_commit()
    assert set(ended) == {"steps", "commit"}


def test_statistics_of_tasks_are_added_with_their_times_memory_and_lags() -> None:
    stats = Stats(busy_ns=Counter({"a": 3}), lags=Counter({("a", 10): 1}))
    stats.workers = {"w1": 5, "w2": 1}
    stats.add(Stats.decode(stats.encode()))
    other = Stats(busy_ns=Counter({"b": 1}))
    other.workers = {"w1": 9}
    stats.add(Stats.decode(other.encode()))
    assert stats.busy_ns == {"a": 6, "b": 1}
    assert stats.workers == {"w1": 9, "w2": 1}
    assert stats.lags == {("a", 10): 2}


def test_a_median_of_an_even_number_is_the_lower_one() -> None:
    counts = {("s", 1_000_000): 1, ("s", 2_000_000): 2, ("s", 9_000_000): 1}
    assert watermark_lags(counts) == {"s": WatermarkLag(1.0, 2.0, 9.0, 4)}


def lags_of_a_flow() -> dict[str, WatermarkLag]:
    flow = Dataflow("visits")
    visits = op.input("visits", flow, TestingSource([]))
    clock = win.EventClock(lambda value: value, wait_for_system_duration="10s")
    out = win.collect_window("minutes", visits, clock, win.TumblingWindower(length="1m"))
    op.output("out", out.down, TestingSink([]))
    driver = TestDriver(flow, now="1970-01-01T00:02:00Z")
    driver.send("visits", [("a", 100), ("a", 90), ("b", 60)])
    return watermark_lags(driver.stats.lags)


def test_the_lag_is_that_of_keys_with_values_over_columns_and_key_by_key() -> None:
    #  now 120 s; watermarks: a 100 - 10 = 90, b 60 - 10 = 50
    expected = {"minutes": WatermarkLag(30.0, 30.0, 70.0, 2)}
    assert lags_of_a_flow() == expected
    with key_by_key():
        assert lags_of_a_flow() == expected
