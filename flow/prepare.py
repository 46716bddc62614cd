"""Have flows start faster in this Python environment: ``python -m flow.prepare``, once.

A JVM that starts Spark spends most of its first seconds on reading classes. This runs a small flow,
once as a stream and once as a batch job, and keeps the classes that it took in an archive in the
Python environment, from which later runs on this machine map them into memory. The archive takes
some 200 MB. A Java or a PySpark other than those that made it leaves it alone: run this again after
a change of either.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import flow.operators as op
from flow.cli.run_command import complain
from flow.connectors.files import JsonLinesSource, ParquetSink, TextSink
from flow.dataflow import Dataflow
from flow.engine.temporary import temporary_directory
from flow.errors import FlowError
from flow.running import run
from recovery import RecoveryConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare this environment; 1 is the exit code where that cannot be done."""
    description = "Have flows start faster in this Python environment."
    argparse.ArgumentParser("python -m flow.prepare", description=description).parse_args(argv)
    from flow.engine.spark.startup.spark_home import prepare_home

    sys.stderr.write("running a small flow, for Java to keep the classes that it needs ...\n")
    try:
        archive = prepare_home(_run_flows)
    except FlowError as error:
        complain(str(error))
        return 1
    size = archive.stat().st_size // 2**20
    sys.stderr.write(f"flows start from {archive} ({size} MB) from now on\n")
    return 0


def _run_flows() -> None:
    """Run a flow as a stream and as a batch job."""
    with temporary_directory("prepare-") as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for number in range(3):
            lines = "".join(f'{{"key": "k{n % 7}", "n": {n}}}\n' for n in range(100))
            (folder / "in" / f"{number}.jsonl").write_text(lines)
        run(_flow(folder, "stream"), recovery=RecoveryConfig(folder / "checkpoint"))
        run(_flow(folder, "batch"))


def _flow(folder: Path, out: str) -> Dataflow:
    """A flow of two levels, with outputs of two kinds."""
    flow = Dataflow("prepare")
    rows = op.input("rows", flow, JsonLinesSource(str(folder / "in" / "*.jsonl")))
    counted = op.stateful_map("count", op.key_on("by_key", rows, "key"), _count)
    again = op.stateful_map("again", op.key_on("by_parity", counted, _parity), _count)
    records = op.map("record", again, lambda item: {"key": item[0], "count": item[1]})
    op.output("records", records, ParquetSink(folder / out / "records"))
    op.output("lines", op.map("line", counted, str), TextSink(folder / out / "lines"))
    return flow


def _count(count: int | None, _: object) -> tuple[int, int]:
    return (count or 0) + 1, (count or 0) + 1


def _parity(item: tuple[str, int]) -> str:
    return str(item[1] % 2)


if __name__ == "__main__":
    sys.exit(main())
