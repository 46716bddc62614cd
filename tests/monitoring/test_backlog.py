"""The backlog of inputs: values, time, trend, and the points of the last 15 minutes."""

from __future__ import annotations

import pytest

from flow.engine.epoch.context import Control, ReadUpTo
from flow.engine.epoch.summary import EpochReport, WatermarkLag
from flow.instants import Moment
from flow.monitoring.backlog import (
    MAX_POINTS,
    PERIOD_SECONDS,
    Backlog,
    Backlogs,
    Point,
    with_point,
)
from flow.monitoring.run_status import status_json
from tests.support.monitored import Clock, epoch_report, hourly_plan, recorded


def backlogs(*reports: tuple[float, EpochReport]) -> Backlog:
    """Return the backlog of ``visits`` after reports at moments."""
    measured = Backlogs(hourly_plan())
    found = [measured.after(report, {}, at)["visits"] for at, report in reports]
    return found[-1]


def left(items: int | None, seconds: float) -> EpochReport:
    counts = {} if items is None else {"visits": {"visits/0": items}}
    return EpochReport(1, behind=counts, behind_by={"visits": seconds})


#  seconds      0       10      20
#  values   1,000      800     600     20 a second fewer: 600 last 30 s
def test_a_backlog_that_shrinks_has_an_end() -> None:
    found = backlogs((0.0, left(1_000, 50.0)), (10.0, left(800, 45.0)), (20.0, left(600, 40.0)))
    assert found == Backlog(600, 40.0, growth=-20.0)
    assert found.caught_up_in == 30.0


def test_a_backlog_that_grows_has_none() -> None:
    found = backlogs((0.0, left(1_000, 50.0)), (10.0, left(1_500, 55.0)))
    assert (found.growth, found.caught_up_in) == (50.0, None)


def test_the_trend_is_that_of_time_where_the_values_are_not_counted() -> None:
    found = backlogs((0.0, left(None, 100.0)), (10.0, left(None, 80.0)))
    assert (found.items, found.growth, found.caught_up_in) == (None, -2.0, 40.0)


def test_an_input_that_has_read_all_is_not_behind_whatever_its_watermarks_lag() -> None:
    lags = {"hours": WatermarkLag(5.0, 3_600.0, 3_600.0, 2)}
    report = EpochReport(1, behind={"visits": {"visits/0": 0}}, behind_by={"visits": 3.0})
    found = Backlogs(hourly_plan()).after(report, lags, 0.0)["visits"]
    assert (found, found.is_behind) == (Backlog(0, 0.0), False)


def test_a_run_that_reads_old_data_is_as_far_behind_as_the_watermarks_of_its_steps() -> None:
    lags = {"hours": WatermarkLag(3_000.0, 3_600.0, 4_000.0, 2)}
    found = Backlogs(hourly_plan()).after(left(7, 3.0), lags, 0.0)["visits"]
    assert (found.seconds, found.growth) == (3_600.0, None)


#  running time   100 s: one input is read up to 40 s with more to read, the other up to now
def test_the_time_of_a_backlog_is_that_since_the_input_had_read_all() -> None:
    read = {"visits": ReadUpTo(30_000_000, 40_000_000), "idle": ReadUpTo(0, 90_000_000)}
    control = Control(Moment(100_000_000), read=read, behind=frozenset({("visits", 3)}))
    assert control.behind_by() == {"visits": 60.0}


def test_points_are_of_five_seconds_and_of_fifteen_minutes() -> None:
    points: tuple[Point, ...] = ()
    for number in range(2 * MAX_POINTS + 2):  # Two in each period.
        point = Point(1_000 + 2.5 * number, number, None, None, 0.0, 0, 9.0 - number % 2)
        points = with_point(points, point)
    assert len(points) == MAX_POINTS
    assert points[0].at == 1_000 + PERIOD_SECONDS
    assert (points[-1].rate, points[-1].epoch) == (2 * MAX_POINTS + 1, 9.0)


def test_a_status_has_the_backlog_and_its_course() -> None:
    clock = Clock(1_000.0)
    recorder = recorded(clock=clock)
    for second in (10, 20):
        clock.seconds = 1_000.0 + second
        behind = {"visits": {"visits/0": 1_000 - 10 * second}}
        status = recorder.add(epoch_report(behind=behind, behind_by={"visits": 2.0}))
    assert [(point.at, point.items, point.seconds) for point in status.points] == [
        (1_010.0, 900, 12.0),
        (1_020.0, 800, 12.0),
    ]
    assert (status.points[-1].state, status.points[-1].lag) == (900, 60.0)
    assert status.points[-1].epoch == pytest.approx(2.0)
    assert status_json(status)["backlogs"] == {
        "visits": {"items": 800, "seconds": 12.0, "growth": -10.0, "caught_up_in": 80.0}
    }
