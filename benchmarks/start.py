"""Stages of a short run, from the start of Python to its end, with the time of each.

Run with ``python benchmarks/start.py [--runs N] [--python PATH ...]``. Each run is a process of its
own that counts the rows of a thousand JSON lines in windows. ``--python`` names the interpreters of
environments with other versions of Spark; runs of the environments alternate. The stages of a run:

*imports*
    Python starts, and the program imports the library.
*session*
    Java starts, and Spark makes a session.
*query*
    `run` compiles the flow, opens the checkpoint and starts the query.
*first epoch*
    Spark plans the first epoch, starts the workers, and the epoch ends.
*last epoch*
    The epoch that ends the input, with everything warm.
*end*
    The query, Java and Python end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

STARTED = "FLOW_BENCHMARK_STARTED"
"""Variable with the time at which the parent started the process."""
STAGES = ("imports", "session", "query", "first epoch", "last epoch", "end")
ROOT = Path(__file__).parents[1]


def run_once(home: Path) -> None:
    """Run the flow, and print the version of Spark and the times between stages as JSON."""
    import pyspark

    import flow.operators as op
    import flow_windowing as win
    from flow import Dataflow, run
    from flow.connectors.files import JsonLinesSink, JsonLinesSource
    from flow.engine.spark import streaming
    from flow.engine.spark.session.session import SparkSettings, make_session
    from recovery import RecoveryConfig

    marks = [float(os.environ[STARTED]), time.time()]
    graph = Dataflow("start")
    rows = op.input("in", graph, JsonLinesSource(home / "rows.jsonl"))
    clock, minutes = win.EventClock("at", "0s"), win.TumblingWindower("1m")
    counts = win.count_window("count", rows, clock, minutes, key="key")
    op.output(
        "out", op.map("row", counts.down, lambda one: {"key": one[0]}), JsonLinesSink(home / "out")
    )
    spark = make_session("start", SparkSettings("local[2]"))
    marks.append(time.time())
    start_query = streaming.StreamingRun._started

    def timed(self: streaming.StreamingRun, *arguments: object) -> object:
        query = start_query(self, *arguments)
        marks.append(time.time())
        return query

    streaming.StreamingRun._started = timed  # type: ignore[assignment, method-assign]
    recovery = RecoveryConfig(home / "checkpoint")
    run(graph, spark=spark, recovery=recovery, on_epoch=lambda _: marks.append(time.time()))
    print(json.dumps([pyspark.__version__, marks]))


def in_a_process(python: str) -> tuple[str, list[float]]:
    """Return the version of Spark and the seconds of each stage of a run in a fresh process."""
    with tempfile.TemporaryDirectory() as home:
        rows = ({"key": f"k{n % 10}", "at": float(n)} for n in range(1_000))
        Path(home, "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        environment = {**os.environ, STARTED: str(time.time()), "PYTHONPATH": str(ROOT)}
        command = [python, __file__, "--home", home]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        ended = time.time()
    version, marks = json.loads(done.stdout.splitlines()[-1])
    times = [*marks, ended]
    if len(times) != len(STAGES) + 1:
        raise SystemExit(f"expected a run of two epochs, got the times {times}")
    return version, [after - before for before, after in pairwise(times)]


def measure(pythons: Sequence[str], runs: int) -> dict[str, list[list[float]]]:
    """Return the seconds of each stage of each run, by version of Spark."""
    found: dict[str, list[list[float]]] = {}
    for _ in range(runs):
        for python in pythons:
            version, stages = in_a_process(python)
            found.setdefault(version, []).append(stages)
    return found


def table(found: dict[str, list[list[float]]]) -> str:
    """Return the median of each stage as a table in Markdown."""
    lines = [
        f"| Spark | {' | '.join(STAGES)} | whole |",
        f"|---|{'---:|' * (len(STAGES) + 1)}",
    ]
    for version, runs in sorted(found.items()):
        medians = [statistics.median(times) for times in zip(*runs, strict=True)]
        whole = statistics.median(map(sum, runs))
        cells = " | ".join(f"{seconds:.1f}" for seconds in [*medians, whole])
        lines.append(f"| {version} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.home is not None:
        run_once(arguments.home)
        return
    print(table(measure(arguments.python, arguments.runs)))


if __name__ == "__main__":
    main()
