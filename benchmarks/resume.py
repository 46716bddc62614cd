"""Seconds from the start of a run to its first new epoch, with much state in the checkpoint.

Run with ``python benchmarks/resume.py [--keys N] [--runs N]``. A first run fills a checkpoint with
a count for each key. Each further run adds one row to the input and continues in a fresh process;
the times are medians of these runs. *Spark* is the start of the session, *first epoch* is the time
from the call of `run` to the end of the epoch that reads the row, *whole* that to the end of `run`.
At the end the benchmark checks that the state has all keys, and that the row's key was counted once
for each run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink, ParquetSource
from flow.engine.spark.session.session import SparkSettings, make_session
from recovery import RecoveryConfig, status

EPOCH_ROWS = 200_000
KEY = "key 1"
COLUMNS = {"session": "Spark", "epoch": "first epoch", "whole": "whole"}


def make_flow(home: Path) -> Dataflow:
    """Return a flow that counts the rows of each key, and writes the counts of one key."""
    flow = Dataflow("resume")
    source = ParquetSource(home / "in", rows_per_epoch=EPOCH_ROWS, follow=True)
    keyed = op.key_on("key", op.input("in", flow, source), "id")
    counts = op.stateful_map("count", keyed, _add_one)
    chosen = op.filter("chosen", counts, lambda pair: pair[0] == KEY)
    rows = op.map("row", chosen, lambda pair: {"id": pair[0], "count": pair[1]})
    op.output("out", rows, JsonLinesSink(home / "out"))
    return flow


def _add_one(count: int | None, row: Any) -> tuple[int, int]:  # noqa: ARG001
    return (count or 0) + 1, (count or 0) + 1


def write_rows(home: Path, ids: Sequence[str]) -> None:
    """Add a file to the input folder."""
    folder = home / "in"
    folder.mkdir(exist_ok=True)
    number = len(list(folder.glob("*.parquet")))
    temporary = folder / f".{number}"  # The source does not see the file until it is whole.
    pq.write_table(pa.table({"id": ids}), temporary, row_group_size=EPOCH_ROWS // 2)
    temporary.rename(folder / f"{number:06d}.parquet")


def go_on(home: Path) -> dict[str, float]:
    """Read the new rows, and return the times; called in a process of its own."""
    ends: list[float] = []
    begun = time.perf_counter()
    spark = make_session("resume", SparkSettings("local[2]"))
    started = time.perf_counter()
    run(
        make_flow(home),
        spark=spark,
        recovery=RecoveryConfig(home / "checkpoint"),
        trigger="available",
        drain=False,
        on_epoch=lambda *_: ends.append(time.perf_counter()),
    )
    ended = time.perf_counter()
    return {"session": started - begun, "epoch": ends[0] - started, "whole": ended - started}


def in_a_process(home: Path) -> dict[str, float]:
    """Call `go_on` in a process of its own, and return its result."""
    command = [sys.executable, __file__, "--home", str(home)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(home: Path, keys: int, runs: int) -> list[dict[str, float]]:
    """Fill the checkpoint, then continue from it `runs` times; return the times of each run."""
    write_rows(home, [f"key {number}" for number in range(keys)])
    in_a_process(home)
    times: list[dict[str, float]] = []
    for _ in range(runs):
        write_rows(home, [KEY])
        times.append(in_a_process(home))
    check(home, keys, runs)
    return times


def check(home: Path, keys: int, runs: int) -> None:
    """Check that every run continued from the state of the run before, and that no key is lost."""
    lines = [
        line for file in (home / "out").rglob("*.jsonl") for line in file.read_text().splitlines()
    ]
    counts = sorted(json.loads(line)["count"] for line in lines)
    (keys_in_state,) = (step.keys for step in status(home / "checkpoint").steps)
    if counts != list(range(1, runs + 2)) or keys_in_state != keys:
        raise SystemExit(f"{keys_in_state} keys were kept of {keys}, one was counted as {counts}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.home is not None:
        print(json.dumps(go_on(arguments.home)))
        return
    with tempfile.TemporaryDirectory(prefix="flow-resume-") as home:
        times = measure(Path(home), arguments.keys, arguments.runs)
        files = [file for file in (Path(home) / "checkpoint").rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in files)
    print(
        f"seconds, {arguments.keys:,} keys, {size / 1e6:,.0f} MB, median of {arguments.runs} runs"
    )
    print("".join(f"{title:>14}" for title in COLUMNS.values()))
    medians = [statistics.median(one[name] for one in times) for name in COLUMNS]
    print("".join(f"{seconds:>14.1f}" for seconds in medians))


if __name__ == "__main__":
    main()
