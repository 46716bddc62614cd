"""The files and functions that a row crosses from one Parquet file to another.

Run with ``python3 dev.py journey [--counts]``. A small flow with a keyed window runs with the batch
engine. The report has the functions of the product that are called, in order of their first call:
*planning* in the driver, *reading* and the *level* in the workers, and the *sink* in both. Imports
do not count, nor what comes before the planning, such as the compilation of the flow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.journey.tracing import FOLDER_VARIABLE, ROOT, Function, Journey, Tracer, journey_in

DAEMON = {"spark.python.daemon.module": "benchmarks.journey.traced_daemon"}


def crossed() -> Journey:
    """Return the functions that a row crosses, from a run in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="flow-journey-") as home:
        environment = {
            **os.environ,
            FOLDER_VARIABLE: home,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "-m", "benchmarks.journey.run", "--home", home]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        return journey_in(Path(home))


def run_traced(home: Path) -> None:
    """Write a few rows, and run a flow over them while their calls are recorded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import flow.operators as op
    import flow_windowing as win
    from flow import Dataflow, run
    from flow.connectors.files import ParquetSink, ParquetSource

    (home / "in").mkdir()
    columns = {"user": ["ann", "bob"] * 50, "ts": range(100), "amount": [1.0] * 100}
    seconds = pa.array(columns.pop("ts"), pa.timestamp("s", "UTC"))
    pq.write_table(pa.table({**columns, "ts": seconds}), home / "in" / "rows.parquet")

    flow = Dataflow("journey")
    rows = op.input("in", flow, ParquetSource(home / "in"))
    keyed = op.key_on("user", rows, "user")
    clock, minutes = win.EventClock("ts", "10s"), win.TumblingWindower("1m")
    sums = win.aggregate_window("sum", keyed, clock, minutes, total=win.Sum("amount"))
    op.output("out", sums.down, ParquetSink(home / "out"))
    with Tracer(home):
        run(flow, engine="batch", master="local[2]", conf=DAEMON)


def counts(functions: Iterable[Function]) -> tuple[int, int]:
    """Return the number of files, and of functions."""
    distinct = set(functions)
    return len({one.file for one in distinct}), len(distinct)


def report(journey: Journey, only_counts: bool = False) -> Iterator[str]:
    """Yield the lines of the report."""
    for part, functions in journey.items():
        yield _headline(part, functions)
        if not only_counts:
            for file in dict.fromkeys(one.file for one in functions):
                yield f"  {file}"
                names = ", ".join(one.name for one in functions if one.file == file)
                yield textwrap.fill(names, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
    yield _headline("in all", [one for part in journey.values() for one in part])


def _headline(part: str, functions: Iterable[Function]) -> str:
    files, calls = counts(functions)
    return f"{part:10}{files:>4} files {calls:>5} functions"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(
        prog="dev.py journey",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--counts", action="store_true", help="print only the counts")
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.home is not None:
        run_traced(options.home)
        return
    print(*report(crossed(), options.counts), sep="\n")


if __name__ == "__main__":
    main()
