"""Events a second and core of Nexmark's windowed queries.

::

    python benchmarks/nexmark/run.py [--events N] [--runs 3] [--queries q5,q7,...]
                                     [--engine streaming|batch] [--cores 2] [--data DIR]

The command makes the events, warms up a local Spark session, runs each query several times, in
turn, and prints one table. If DuckDB is installed (``pip install duckdb``), it compares each result
with that of the same query in SQL. ``docs/explanation/nexmark.md`` explains the table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.nexmark.answers import can_check, check
from benchmarks.nexmark.auction_house import ROUND, AuctionHouse
from benchmarks.nexmark.measuring import Measured, Settings, measure
from benchmarks.nexmark.queries import QUERIES, Query
from benchmarks.nexmark.report import table
from benchmarks.nexmark.tables import Tables
from flow.engine.spark.session.session import SparkSettings, make_session

WARM_UP = 100_000
"""The number of events of the warm-up."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the queries and print the table."""
    options = _parser().parse_args(arguments)
    queries = [QUERIES[name] for name in options.queries]
    if not can_check():
        say("DuckDB is not installed: results are not checked")
    with tempfile.TemporaryDirectory(prefix="nexmark-") as scratch:
        house = AuctionHouse(options.seed, options.rate)
        tables = Tables(Path(options.data or f"{scratch}/tables"), options.events, house)
        tables.write(say)
        settings = Settings(tables, options.engine, options.cores, options.epoch_events)
        make_session("nexmark", SparkSettings(f"local[{options.cores}]"))
        warm_up(queries[0], settings, Path(scratch) / "few")
        results: dict[str, list[Measured]] = {query.name: [] for query in queries}
        for number in range(1, options.runs + 1):
            for query in queries:
                results[query.name].append(run_query(query, settings, number))
    runs = "one run" if options.runs == 1 else f"median of {options.runs} runs"
    print(f"\n{options.events:,} events, {options.engine}, {options.cores} cores, {runs}")
    print(table(results, QUERIES))


def warm_up(query: Query, settings: Settings, folder: Path) -> None:
    """Run a query on a few events, so that no time includes the start of Spark."""
    say("warming up")
    few = Tables(folder, WARM_UP, settings.tables.house)
    few.write()
    small = replace(settings, tables=few, epoch_events=WARM_UP // 2)
    measure(query, small, lambda _: None, lambda _: None)


def run_query(query: Query, settings: Settings, number: int) -> Measured:
    """Run a query once, check its result if DuckDB is installed, and return its times."""

    def report(text: str) -> None:
        say(f"{query.name}, run {number}: {text}")

    def checked(result: Path) -> None:
        if can_check():
            rows = check(query.name, settings.tables.folder, result)
            report(f"the result is what DuckDB gives: {rows:,} rows")

    measured = measure(query, settings, report, checked)
    report(f"{measured.per_core:,.0f} events/s/core, {measured.seconds:.1f} s")
    return measured


def say(text: str) -> None:
    """Print a text after the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=_events, default=5_000_000, help="how many to make")
    parser.add_argument("--runs", type=_count, default=3, help="runs of each query")
    parser.add_argument("--queries", type=_names, default=list(QUERIES), help="such as q5,q11")
    parser.add_argument("--engine", choices=("streaming", "batch"), default="streaming")
    parser.add_argument("--cores", type=_count, default=2, help="how many Spark is given")
    parser.add_argument("--epoch-events", type=_events, default=1_000_000, help="in an epoch")
    parser.add_argument("--rate", type=_count, default=10_000, help="events a second of event time")
    parser.add_argument("--seed", type=int, default=1, help="other events for another number")
    parser.add_argument("--data", help="where to keep the events for the next time")
    return parser


def _count(text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"needs a whole number of at least {least}, got {text!r}")
    return int(text)


def _events(text: str) -> int:
    return _count(text, least=ROUND)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in QUERIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no query {unknown[0]!r}: there are {', '.join(QUERIES)}")
    return names


if __name__ == "__main__":
    main()
