"""The command ``python -m flow.prepare``: make flows start faster in this Python environment.

A JVM that starts Spark spends most of its first seconds on reading classes. The command runs a
small flow, as a batch job and, except on Spark 4.0, as a stream, and stores the classes that the
flow loads in an archive in the Python environment. Later runs on this machine map the archive into
memory. The archive has about 200 MB. Another version of Java or PySpark ignores the archive: run
the command again after a change of either.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import flow.operators as op
from flow.cli.command_line import CommandError, CommandParser, print_error
from flow.config.effective_config import EffectiveConfig, of_arguments
from flow.connectors.files import JsonLinesSource, ParquetSink, TextSink
from flow.dataflow import Dataflow
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.temporary import temporary_directory
from flow.errors import FlowError
from flow.execution import run_configured
from recovery import RecoveryConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare this environment, and return the exit code: 1 if the archive cannot be made."""
    parser = CommandParser("python -m flow.prepare", "Make flows start faster in this environment.")
    parser.add_version()
    try:
        parser.parse_args(argv)
    except CommandError as error:
        print_error(str(error))
        return 2
    from flow.engine.spark.session.jvm import prepare_home

    sys.stderr.write("running a small flow, for Java to store the classes that it needs ...\n")
    try:
        archive = prepare_home(_run_flows)
    except FlowError as error:
        print_error(str(error))
        return 1
    size = archive.stat().st_size // 2**20
    sys.stderr.write(f"flows start from {archive} ({size} MB) from now on\n")
    return 0


def _run_flows() -> None:
    """Run a flow as a batch job and, on a Spark that has them, as a stream."""
    with temporary_directory("prepare-") as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for number in range(3):
            lines = "".join(f'{{"key": "k{n % 7}", "n": {n}}}\n' for n in range(100))
            (folder / "in" / f"{number}.jsonl").write_text(lines)
        checkpoint = of_arguments({"recovery": RecoveryConfig(folder / "checkpoint")})
        # Environment variables configure the user's flows, not these two.
        if spark_capabilities().adapters:
            run_configured(_flow(folder, "stream"), EffectiveConfig(checkpoint))
        run_configured(_flow(folder, "batch"), EffectiveConfig())


def _flow(folder: Path, out: str) -> Dataflow:
    """Make a flow of two levels with outputs of two kinds."""
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
