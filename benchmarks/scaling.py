"""Cost of an epoch as one factor at a time grows: items, keys, windows, levels, shards, cores.

::

    python benchmarks/scaling.py [--only keys,levels] [--epochs 5]

Each line is a flow over generated events, in equal epochs, streaming with recovery. The times are
medians over the epochs, after two that do not count: elapsed seconds, and processor time, of Python
and of the JVM apart, Linux only. ``docs/explanation/scaling.md`` explains them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import flow.operators as op
import flow_windowing as win
from benchmarks.windows.memory import descendants
from flow import Dataflow, run
from flow.connectors.files import ParquetSink, ParquetSource
from flow.engine.local import DEFAULT_SHARDS
from flow.engine.spark.session.session import SparkSettings, make_session
from recovery import RecoveryConfig

START = datetime(2024, 1, 1, tzinfo=UTC)
SKIPPED = 2
EPOCH_US = 120_000_000
"""The event time of an epoch."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Case:
    """A flow to time.

    Attributes:
        rows: the number of rows in an epoch.
        keys: the number of keys of these rows.
        windows: the number of windows of each row.
        levels: the number of keyed steps, one after the other.
        shards: the number of shards.
        cores: the number of cores, and of partitions.
    """

    rows: int = 500_000
    keys: int = 10_000
    windows: int = 1
    levels: int = 1
    shards: int = DEFAULT_SHARDS
    cores: int = 2


SMALL = Case(rows=100, keys=10)
CASES: dict[str, list[Case]] = {
    "rows": [replace(Case(), rows=rows) for rows in (1_000, 10_000, 100_000, 500_000, 1_000_000)],
    "keys": [replace(Case(), keys=keys) for keys in (10, 10_000, 100_000, 1_000_000)],
    "windows": [replace(Case(), windows=windows) for windows in (1, 4, 16)],
    "levels": [replace(SMALL, levels=levels) for levels in (1, 2, 3)],
    "shards": [
        replace(case, shards=shards) for case in (SMALL, Case()) for shards in (8, 16, 128, 512)
    ],
    "cores": [replace(Case(), cores=cores) for cores in (1, 2)],
}


@dataclass(frozen=True)
class Spent:
    """Elapsed seconds, and seconds of processor time of Python and of the JVM."""

    clock: float
    python: float
    jvm: float

    @classmethod
    def now(cls) -> Spent:
        """Return the times of this process and its descendants so far."""
        of_kind = {"python": 0.0, "jvm": 0.0}
        for process in {os.getpid(), *descendants(os.getpid())}:
            try:
                name, _, rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")
            except OSError:
                continue
            own_and_ended_below = [int(ticks) for ticks in rest.split()[11:15]]
            kind = "jvm" if "(java" in name else "python"
            of_kind[kind] += sum(own_and_ended_below[: 4 if kind == "python" else 2]) / _TICKS
        return cls(time.perf_counter(), **of_kind)

    def since(self, before: Spent) -> Spent:
        """Return the times between two moments."""
        return Spent(self.clock - before.clock, self.python - before.python, self.jvm - before.jvm)


def write_events(case: Case, folder: Path, epochs: int) -> None:
    """Write a file of events for each epoch."""
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True)
    for number in range(epochs):
        first = int(START.timestamp()) * 1_000_000 + number * EPOCH_US
        times = first + np.arange(case.rows) * (EPOCH_US // case.rows)
        keys = pa.array(rng.integers(case.keys, size=case.rows)).cast(pa.string())
        columns = {"key": keys, "ts": pa.array(times, pa.timestamp("us", "UTC"))}
        amounts = pa.array(rng.integers(1, 400, case.rows) / 4)
        table = pa.table({**columns, "amount": amounts})
        pq.write_table(table, folder / f"{number:04d}.parquet", row_group_size=-(-case.rows // 2))


def make_flow(case: Case, home: Path) -> Dataflow:
    """Return a flow with sums of windows of a minute, and on further levels running counts."""
    flow = Dataflow("scaling")
    source = ParquetSource(home / "in", rows_per_epoch=case.rows)
    keyed: Any = op.key_on("key", op.input("in", flow, source), "key")
    windower: Any = win.TumblingWindower("1m")
    if case.windows > 1:
        windower = win.SlidingWindower("1m", f"{60_000 // case.windows}ms")
    clock: win.EventClock[Any] = win.EventClock("ts", "0s", on_idle="hold")
    stream: Any = win.aggregate_window("w", keyed, clock, windower, total=win.Sum("amount")).down
    for level in range(1, case.levels):
        again = op.key_on(f"again-{level}", stream, lambda _: "all")
        stream = op.stateful_map(f"count-{level}", again, lambda n, _: ((n or 0) + 1, (n or 0) + 1))
    op.output("out", stream, ParquetSink(home / "out"))
    return flow


def measured(case: Case, epochs: int) -> Spent:
    """Return the median times of an epoch of a flow."""
    spark = make_session("scaling", SparkSettings(f"local[{case.cores}]"))
    moments: list[Spent] = []
    with tempfile.TemporaryDirectory(prefix="flow-scaling-") as scratch:
        home = Path(scratch)
        write_events(case, home / "in", epochs + SKIPPED)
        run(
            make_flow(case, home),
            spark=spark,
            recovery=RecoveryConfig(home / "checkpoint"),
            system_time=START,
            shards=case.shards,
            drain=False,
            on_epoch=lambda *_: moments.append(Spent.now()),
        )
    pairs = list(zip(moments[SKIPPED - 1 :], moments[SKIPPED:], strict=False))
    each = [after.since(before) for before, after in pairs]
    return Spent(*(statistics.median(part) for part in zip(*map(_parts, each), strict=True)))


def _parts(spent: Spent) -> tuple[float, float, float]:
    return spent.clock, spent.python, spent.jvm


def print_line(case: Case, spent: Spent) -> None:
    """Print one line of the table."""
    of_row = 1e6 * (spent.python + spent.jvm) / case.rows
    print(
        f"{case.rows:>9,} {case.keys:>9,} {case.windows:>7} {case.levels:>6} {case.shards:>6} "
        f"{case.cores:>5} {1000 * spent.clock:>8.0f} {1000 * spent.python:>8.0f} "
        f"{1000 * spent.jvm:>6.0f} {of_row:>11.2f}",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Time every case and print the table; a process for each number of cores."""
    options = _parser().parse_args(arguments)
    names = options.only.split(",") if options.only else list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise SystemExit(f"there is nothing called {unknown[0]!r}: choose from {', '.join(CASES)}")
    if not options.one_core:
        print(
            "     rows      keys windows levels shards cores ms/epoch python ms jvm ms µs cpu/row",
            flush=True,
        )
        measured(SMALL, 3)  # A warm-up, so that no line includes the start of Spark.
    for case in [case for name in names for case in CASES[name]]:
        if case.cores == 1 and not options.one_core:
            again = ["--only", "cores", "--one-core", "--epochs", str(options.epochs)]
            subprocess.run([sys.executable, __file__, *again], check=True)
        elif (case.cores == 1) == options.one_core:
            print_line(case, measured(case, options.epochs))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help=f"which of {', '.join(CASES)}, with commas between them")
    parser.add_argument("--epochs", type=int, default=5, help="epochs that count")
    parser.add_argument("--one-core", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
