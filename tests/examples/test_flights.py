"""The flights example, compared with pandas: in process, on Spark, and with kills."""

from __future__ import annotations

import sys
import time
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow.parquet as pq
import pytest

from examples import flights
from flow.engine.epoch.statistics import Stats
from flow.engine.epoch.summary import Summary
from flow.testing import TestDriver
from tests.support.faults import Child, Victims, no_leftovers

SOME = 120_000
"""Flights for the test that runs the script again: three epochs of them."""
MINUTE = pd.Timedelta(1, "min")
LATE = [
    *["origin", "departed_at", "carrier", "flight", "tailnum", "dest", "dep_delay"],
    *["late_by_minutes", "missed_hour"],
]


class Results(NamedTuple):
    """Outputs of the flow: a row an hour, the late departures, and rows of longer windows."""

    hours: pd.DataFrame
    late: pd.DataFrame
    days: pd.DataFrame
    carriers: pd.DataFrame
    rotations: pd.DataFrame


ORDERS = Results(
    hours=["origin", "hour"],
    late=LATE[:4],
    days=["origin", "day"],
    carriers=["carrier", "since"],
    rotations=["tailnum", "first"],
)
"""Of each, columns that tell all rows apart."""
SCHEMAS = {
    "hours": flights.HOURS,
    "days": flights.DAYS,
    "carriers": flights.CARRIERS,
    "rotations": flights.ROTATIONS,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's input, all of it."""
    path = tmp_path_factory.mktemp("flights") / "data"
    flights.prepare(path)
    return path


def by_the_rules(arrivals: int | None = None) -> Results:
    """The flow's rules over the package's own files: a watermark an airport, in landing order."""
    package = flights.find_package()
    flown = pd.read_csv(package / "flights.csv.zip", parse_dates=["time_hour"])
    weather = pd.read_csv(package / "weather.csv", parse_dates=["time_hour"])
    scheduled = flown.time_hour + flown.minute * MINUTE
    departed = scheduled + flown.dep_delay * MINUTE
    landed = departed + flown.air_time * MINUTE
    flown = flown.assign(departed=departed, arrival=landed.fillna(departed).fillna(scheduled))
    flown = flown.sort_values("arrival", kind="stable")[:arrivals].dropna(subset="departed")
    hours, late = hours_by_the_rules(flown, weather)
    # No flight is in the air for twelve hours, so no departure is late for what waits that long.
    return Results(hours, late, days_of(flown), carriers_of(flown), rotations_of(flown))


def hours_by_the_rules(
    flown: pd.DataFrame, weather: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    watermark = flown.groupby("origin").departed.cummax() - pd.Timedelta(6, "h")
    flown = flown.assign(hour=flown.departed.dt.floor("h"))
    is_late = flown.departed < watermark
    late = flown[is_late].assign(late_by_minutes=(watermark - flown.departed)[is_late] / MINUTE)
    delays = flown[~is_late].groupby(["origin", "hour"]).dep_delay
    hours = pd.DataFrame({"flights": delays.count(), "mean_delay": delays.mean()}).reset_index()
    measured = weather.drop(columns="hour").rename(columns={"time_hour": "hour"})
    hours = hours.merge(measured, how="left", on=["origin", "hour"])[flights.HOURS.names]
    return hours, late.rename(columns={"departed": "departed_at"}).drop(columns="hour").assign(
        missed_hour=late.hour
    )[LATE]


def days_of(flown: pd.DataFrame) -> pd.DataFrame:
    """The days of New York in 2013; on 10 March the clocks went forward, on 3 November back."""
    local = flown.departed.dt.tz_convert("America/New_York").dt.tz_localize(None)
    delays = flown.assign(day=local.dt.date).groupby(["origin", "day"]).dep_delay
    days = delays.agg(flights="count", mean_delay="mean", max_delay="max").reset_index()
    odd = {date(2013, 3, 10): 23, date(2013, 11, 3): 25}
    return days.assign(hours=[odd.get(day, 24) for day in days.day])[flights.DAYS.names]


def carriers_of(flown: pd.DataFrame) -> pd.DataFrame:
    """Each departure is in the four days that began less than 24 hours ago, one every six."""
    last = flown.departed.dt.floor("6h")
    each = pd.concat(
        [flown.assign(since=last - pd.Timedelta(hours, "h")) for hours in (0, 6, 12, 18)]
    )
    each = each.assign(is_delayed=each.dep_delay >= 15)
    days = each.groupby(["carrier", "since"]).agg(
        flights=("dep_delay", "count"),
        mean_delay=("dep_delay", "mean"),
        delayed=("is_delayed", "sum"),
    )
    days = days.reset_index()
    return days.assign(until=days.since + pd.Timedelta(24, "h"))[flights.CARRIERS.names]


def rotations_of(flown: pd.DataFrame) -> pd.DataFrame:
    """The departures of an aircraft at most three hours apart, where there are several."""
    flown = flown.sort_values(["tailnum", "departed"], kind="stable")
    silence = flown.groupby("tailnum").departed.diff()
    # The first departure of an aircraft has nothing before it, and nothing is more than three.
    session = (~(silence <= pd.Timedelta(3, "h"))).cumsum()
    turns = flown.groupby(session.to_numpy()).agg(
        tailnum=("tailnum", "first"),
        first=("departed", "min"),
        last=("departed", "max"),
        flights=("dest", "count"),
        dests=("dest", ", ".join),
    )
    return turns[turns.flights > 1][flights.ROTATIONS.names]


def results(rows: dict[str, pd.DataFrame]) -> Results:
    """Return the results of a run in the form of `by_the_rules`."""
    late = rows["late"]
    instants = {name: pd.to_datetime(late[name]) for name in ("departed_at", "missed_hour")}
    columns = {"late": LATE, **{name: schema.names for name, schema in SCHEMAS.items()}}
    rows = {**rows, "late": late.assign(**instants)}
    return Results(**{name: rows[name][columns[name]] for name in Results._fields})


def read_results(out: Path) -> Results:
    """Read the results that a run on Spark wrote."""
    rows = {name: pd.read_parquet(out / name) for name in SCHEMAS}
    return results({**rows, "late": pd.DataFrame(flights.lines_of(out / "late"))})


def assert_same(got: Results, wanted: Results) -> None:
    """The same rows, whatever their order; lateness to the minute, as system time advances, too."""
    for rows, same, order in zip(got, wanted, ORDERS, strict=True):
        pd.testing.assert_frame_equal(
            rows.sort_values(order, ignore_index=True),
            same.sort_values(order, ignore_index=True),
            check_dtype=False,
            check_exact="late_by_minutes" not in rows,
            rtol=0,
            atol=1,
        )


def test_flights_arrive_when_they_land() -> None:
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


def test_a_departure_over_a_change_of_the_clocks_is_the_right_instant() -> None:
    """At 2:00 on 10 March 2013 New York goes over to 3:00; 1:50 and 20 minutes are 3:10."""
    flown = pd.DataFrame(
        {"year": [2013], "month": [3], "day": [10], "hour": [1], "minute": [50]}
    ).assign(dep_delay=20.0, air_time=60.0)
    departed = flights.in_landing_order(flown).departed_at
    assert [str(at) for at in departed] == ["2013-03-10 07:10:00+00:00"]


@pytest.fixture
def few_flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the first rows of each file only."""
    package = tmp_path / "package"
    package.mkdir()
    for name in ("flights.csv.zip", "weather.csv"):
        rows = pd.read_csv(flights.find_package() / name, nrows=5_000)
        rows.to_csv(package / name, index=False)
    monkeypatch.setattr(flights, "find_package", lambda: package)


@pytest.mark.usefixtures("few_flights")
def test_data_that_lacks_a_column_is_prepared_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert flights.prepare(data)
    assert not flights.prepare(data)
    whole = pq.read_table(data / "flights.parquet")
    pq.write_table(whole.drop_columns("tailnum"), data / "flights.parquet")
    assert flights.prepare(data)
    assert pq.read_table(data / "flights.parquet") == whole
    assert capsys.readouterr().out.count("Preparing the data in") == 2


@pytest.mark.usefixtures("few_flights")
def test_every_output_of_some_flights_agrees_with_pandas(tmp_path: Path) -> None:
    flights.prepare(tmp_path / "data")
    expected = by_the_rules()
    got, _ = results_in_process(tmp_path / "data", tmp_path)
    assert_same(got, expected)
    assert sorted(got.late.late_by_minutes) == sorted(expected.late.late_by_minutes)
    assert len(got.late) > 0


@pytest.mark.extended
def test_every_output_agrees_with_pandas_exactly(data: Path, tmp_path: Path) -> None:
    expected = by_the_rules()
    got, stats = results_in_process(data, tmp_path)
    assert_same(got, expected)
    assert sorted(got.late.late_by_minutes) == sorted(expected.late.late_by_minutes)
    assert len(got.late) == 734
    assert len(got.hours) == 21_105
    assert got.hours.flights.sum() == 327_787
    assert got.hours.visib.isna().sum() == 125
    assert got.days.flights.sum() == 328_521
    assert sorted(got.days[got.days.hours != 24].hours) == [23] * 3 + [25] * 3
    assert got.carriers.flights.sum() == 4 * 328_521
    assert stats.counts["departed", "filtered"] == 8_255
    assert {step for step, what in stats.counts if what == "late"} == {"hourly"}


def results_in_process(data: Path, out: Path) -> tuple[Results, Stats]:
    """Return the results of all flights, and the counts of the run."""
    with TestDriver(flights.make_flow(data, out)) as driver:
        for name in ("weather", "flights"):
            for batch in pq.ParquetFile(data / f"{name}.parquet").iter_batches(100_000):
                driver.send(name, batch)
        driver.end()
        found = {name: pd.DataFrame(driver.received(name)) for name in Results._fields}
        return results(found), driver.stats


def test_a_stopped_run_shows_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = Summary("flights", "streaming", epochs=3, stopped=True)
    monkeypatch.setattr(flights, "prepare", lambda data: False)
    monkeypatch.setattr(flights, "run", lambda *_, **__: stopped)
    assert flights.main(["--data", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "Stopped. Start it again and it continues from the last epoch above.\n"
    )


@pytest.mark.spark
@pytest.mark.extended
def test_a_killed_and_restarted_script_gives_the_same_result(data: Path, tmp_path: Path) -> None:
    """
    epoch      0 ·········· 1 ··· killed
    started again                 1 ·········· 2 ·········· 3, the end
    and again                                                        nothing
    """
    expected = by_the_rules(SOME)
    some, out = tmp_path / "data", tmp_path / "out"
    some.mkdir()
    (some / "weather.parquet").hardlink_to(data / "weather.parquet")
    table = pq.read_table(data / "flights.parquet")
    pq.write_table(table[:SOME], some / "flights.parquet", row_group_size=25_000)
    script = [sys.executable, flights.__file__, "--data", str(some), "--out", str(out)]
    with no_leftovers() as children:

        def start() -> Child:
            children.append(Child.start(script, tmp_path))
            return children[-1]

        first = start()
        assert first.wait_for(lambda: "epoch 0:" in first.output)
        time.sleep(0.7)
        first.kill(Victims.DRIVER)
        again = start().finish().splitlines()
        assert [line.partition(":")[0] for line in again[:3]] == ["epoch 1", "epoch 2", "epoch 3"]
        assert_same(read_results(out), expected)
        late, honolulu = len(expected.late), (expected.late.dest == "HNL").sum()
        assert again[-1] == (
            f"{late} departures were heard of too late for their hour, {honolulu} of them to "
            f"Honolulu: {out / 'late'}"
        )
        shown = start().finish().splitlines()
    assert shown[0] == "Everything is done already; --fresh starts over."
    assert shown[1:] == again[again.index("") :]
    assert_same(read_results(out), expected)
