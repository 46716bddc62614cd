"""The flights example agrees with the same rules in pandas, in process and killed on Spark."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pandas as pd
import pyarrow.parquet as pq
import pytest

from examples import flights
from flow.testing import TestDriver

SCRIPT = Path(flights.__file__)
SOME = 120_000
"""Flights for the test that runs the script twice: three epochs of them."""
MINUTE = pd.Timedelta(minutes=1)
LATE = ["origin", "departed_at", "carrier", "flight", "dest", "dep_delay", "late_by_minutes"]


class Results(NamedTuple):
    """What the flow gives: a row an hour, and the late departures."""

    hours: pd.DataFrame
    late: pd.DataFrame


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's input, all of it."""
    path = tmp_path_factory.mktemp("flights") / "data"
    flights.prepare(path)
    return path


@pytest.fixture(scope="module")
def expected() -> Results:
    """What must come of all flights."""
    return by_the_rules()


@pytest.fixture(scope="module")
def some_expected() -> Results:
    """What must come of the first `SOME` flights that are heard of."""
    return by_the_rules(SOME)


def by_the_rules(heard: int | None = None) -> Results:
    """The flow's rules over the package's own files: a watermark an airport, in landing order."""
    package = flights.find_package()
    flown = pd.read_csv(package / "flights.csv.zip", parse_dates=["time_hour"])
    weather = pd.read_csv(package / "weather.csv", parse_dates=["time_hour"])
    scheduled = flown.time_hour + flown.minute * MINUTE
    departed = scheduled + flown.dep_delay * MINUTE
    landed = departed + flown.air_time * MINUTE
    flown = flown.assign(departed=departed, heard=landed.fillna(departed).fillna(scheduled))
    flown = flown.sort_values("heard", kind="stable")[:heard].dropna(subset="departed")
    watermark = flown.groupby("origin").departed.cummax() - pd.Timedelta(hours=6)
    is_late = flown.departed < watermark
    late = flown[is_late].assign(late_by_minutes=(watermark - flown.departed)[is_late] / MINUTE)
    on_time = flown[~is_late].assign(hour=flown.departed.dt.floor("h"))
    delays = on_time.groupby(["origin", "hour"]).dep_delay
    hours = pd.DataFrame({"flights": delays.count(), "mean_delay": delays.mean()}).reset_index()
    measured = weather.drop(columns="hour").rename(columns={"time_hour": "hour"})
    hours = hours.merge(measured, how="left", on=["origin", "hour"])[flights.HOURS.names]
    return Results(hours, late.rename(columns={"departed": "departed_at"})[LATE])


def results(hours: pd.DataFrame, late: pd.DataFrame) -> Results:
    """What a run gave, in the form of `by_the_rules`."""
    late = late.assign(departed_at=pd.to_datetime(late.departed_at))
    return Results(hours[flights.HOURS.names], late[LATE])


def written(out: Path) -> Results:
    """What a run on Spark wrote."""
    return results(pd.read_parquet(out / "hours"), pd.DataFrame(flights.lines_of(out / "late")))


def assert_same(got: Results, wanted: Results) -> None:
    """The same rows, whatever their order; lateness to the minute, as system time goes on, too."""
    for rows, same, order in zip(got, wanted, (["origin", "hour"], LATE[:4]), strict=True):
        pd.testing.assert_frame_equal(
            rows.sort_values(order, ignore_index=True),
            same.sort_values(order, ignore_index=True),
            check_dtype=False,
            check_exact="late_by_minutes" not in rows,
            rtol=0,
            atol=1,
        )


def test_flights_are_heard_of_when_they_land() -> None:
    """
    New York  9:00   10:00  10:20  10:50  11:10  11:40          19:00
    HNL       departs ·······························  ········ lands
    BOS                                   departs lands
    ORD                     departs, lands nobody knows where
    DCA                            cancelled
    """
    columns = ["dest", "hour", "minute", "dep_delay", "air_time"]
    flown = pd.DataFrame(
        [
            ["HNL", 9, 0, 0.0, 600.0],
            ["BOS", 10, 30, 40.0, 30.0],
            ["ORD", 10, 25, -5.0, None],
            ["DCA", 10, 50, None, None],
        ],
        columns=columns,
    ).assign(year=2013, month=7, day=1)
    ordered = flights.in_landing_order(flown)
    assert list(ordered.dest) == ["ORD", "DCA", "BOS", "HNL"]
    assert list(ordered.departed_at.dropna().dt.strftime("%H:%M %Z")) == [
        "14:20 UTC",
        "15:10 UTC",
        "13:00 UTC",
    ]


def test_a_departure_over_the_change_of_the_clocks_is_the_right_instant() -> None:
    """At 2:00 on 10 March 2013 New York goes over to 3:00; 1:50 and 20 minutes are 3:10."""
    flown = pd.DataFrame(
        {"year": [2013], "month": [3], "day": [10], "hour": [1], "minute": [50]}
    ).assign(dep_delay=20.0, air_time=60.0)
    departed = flights.in_landing_order(flown).departed_at
    assert [str(at) for at in departed] == ["2013-03-10 07:10:00+00:00"]


@pytest.mark.slow
def test_hours_and_late_departures_agree_with_pandas_exactly(
    data: Path, expected: Results, tmp_path: Path
) -> None:
    with TestDriver(flights.make_flow(data, tmp_path)) as driver:
        for name in ("weather", "flights"):
            for batch in pq.ParquetFile(data / f"{name}.parquet").iter_batches(100_000):
                driver.send(name, batch)
        driver.end()
        got = results(pd.DataFrame(driver.received("hours")), pd.DataFrame(driver.received("late")))
    assert_same(got, expected)
    assert sorted(got.late.late_by_minutes) == sorted(expected.late.late_by_minutes)
    assert len(got.late) == 734
    assert len(got.hours) == 21_105
    assert got.hours.flights.sum() == 327_787
    assert got.hours.visib.isna().sum() == 125
    assert driver.stats.counts["departed", "filtered"] == 8_255


class Start(Protocol):
    """Starts the example as a process of its own."""

    def __call__(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start it with these arguments."""


@pytest.fixture
def start() -> Iterator[Start]:
    """What is still running when the test is over is killed, and all that it has started."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, SCRIPT, *arguments],
            env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process, contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def output_of(process: subprocess.Popen[str]) -> list[str]:
    """The lines of a process that must end well."""
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output.splitlines()


@pytest.mark.spark
@pytest.mark.slow
def test_the_script_runs_to_its_end_once_and_then_shows_the_result_again(
    data: Path, expected: Results, tmp_path: Path, start: Start
) -> None:
    first = output_of(start("--data", data, "--out", tmp_path))
    assert_same(written(tmp_path), expected)
    assert first[-1] == (
        "734 departures were heard of too late for their hour, 699 of them to Honolulu: "
        f"{tmp_path / 'late'}"
    )
    again = output_of(start("--data", data, "--out", tmp_path))
    assert again[0] == "Everything is done already; --fresh starts over."
    assert again[1:] == first[first.index("") :]
    assert_same(written(tmp_path), expected)


@pytest.mark.spark
@pytest.mark.slow
def test_killed_in_the_middle_and_started_again_the_script_gives_the_same_result(
    data: Path, some_expected: Results, tmp_path: Path, start: Start
) -> None:
    """
    epoch      0 ·········· 1 ··· killed
    started again                 1 ·········· 2 ·········· 3, the end
    """
    some = tmp_path / "data"
    some.mkdir()
    (some / "weather.parquet").hardlink_to(data / "weather.parquet")
    table = pq.read_table(data / "flights.parquet")
    pq.write_table(table[:SOME], some / "flights.parquet", row_group_size=25_000)

    first = start("--data", some, "--out", tmp_path)
    for line in first.stdout or ():
        if line.startswith("epoch 0:"):
            break
    time.sleep(0.7)
    first.kill()
    again = output_of(start("--data", some, "--out", tmp_path))
    assert [line.partition(":")[0] for line in again[:3]] == ["epoch 1", "epoch 2", "epoch 3"]
    assert_same(written(tmp_path), some_expected)
