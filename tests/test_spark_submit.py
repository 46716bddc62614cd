"""Flows started by ``spark-submit``: the JVM comes first, and starts the program's Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import SPARK_HOME, running_cluster
from tests.support.faults import Child, Victims, no_leftovers
from tests.support.java import QUICK
from tests.support.packed_environment import pack_environment

LAST = 14
PROGRAM = f"""\
import sys
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink
from flow.connectors.source import PartitionedSource
from recovery import RecoveryConfig


@dataclass
class Total:
    value: int = 0


class Slow(PartitionedSource):
    bounded = True

    def partitions(self):
        return ["all"]

    def first_offset(self, partition):
        return 0

    def next_offset(self, partition, start):
        return None if start >= {LAST} else start + 2

    def read_partition(self, partition, start, end):
        time.sleep(0.3)
        yield list(range(start, end))


def add(total, n):
    total = Total((total.value if total else 0) + n)
    return total, {{"n": n, "total": total.value, "prefix": sys.prefix}}


flow = Dataflow("sums")
numbers = op.input("in", flow, Slow())
by_parity = op.key_on("by_parity", numbers, lambda n: str(n % 2))
sums = op.stateful_map("sum", by_parity, add)
op.output("out", op.key_rm("rows", sums), JsonLinesSink("out"))
session = {{}}
if "own-session" in sys.argv:
    session = {{"spark": SparkSession.builder.getOrCreate()}}
else:
    try:
        run(flow, driver_memory="8g")
    except ValueError as error:
        print(error)
done = run(
    flow,
    recovery=RecoveryConfig("checkpoint"),
    shards=2,
    partitions=1,
    on_epoch=lambda report: print("epoch", report.epoch, flush=True),
    **session,
)
print("went on", done.stopped)
context = SparkSession.builder.getOrCreate().sparkContext
conf = context.getConf()
level = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel()
print(conf.get("spark.master"), conf.get("spark.driver.memory"), level)
"""
SUMS = [(n, sum(range(n % 2, n + 1, 2))) for n in range(LAST)]
"""Each number, with the sum of the numbers of its parity up to it."""
JAVA = " ".join(QUICK)
COMMON = ("--driver-memory", "700m", "--driver-java-options", JAVA)
COMMON += ("--conf", f"spark.executor.extraJavaOptions={JAVA}")
COMMON += ("--conf", "spark.log.level=ERROR", "--conf", "spark.ui.enabled=false")


def submit(folder: Path, python: str, *options: str, argument: str = "") -> Child:
    """Start the program with ``spark-submit``, in a folder of its own."""
    (folder / "program.py").write_text(PROGRAM)
    spark_submit = str(SPARK_HOME / "bin" / "spark-submit")
    environment = {"SPARK_HOME": str(SPARK_HOME), "PYTHONPATH": "", "PYSPARK_PYTHON": python}
    command = [spark_submit, *COMMON, *options, "program.py", argument]
    return Child.start(command, folder, environment)


def rows(folder: Path) -> list[dict[str, object]]:
    files = (folder / "out").rglob("*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def sums(folder: Path) -> list[tuple[object, object]]:
    return sorted((row["n"], row["total"]) for row in rows(folder))  # type: ignore[type-var]


def last_printed(child: Child, count: int) -> list[str]:
    """Return the last lines that the program printed, once it has ended well.

    PySpark's workers may print later, that their pipe is broken: the JVM ends before them.
    """
    lines = child.finish().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("went on"))
    return lines[start : start + count]


def python_of(child: Child) -> int:
    """Return the number of the program's process, which the JVM has started."""
    members = child.members()
    mine = [pid for pid, line in members.items() if "program.py" in line]
    return max(pid for pid in mine if pid != child.process.pid)


@pytest.mark.cluster
@pytest.mark.extended
def test_a_killed_run_in_a_packed_environment_continues_on_a_cluster(tmp_path: Path) -> None:
    archive = pack_environment(tmp_path)
    (tmp_path / "env").mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(tmp_path / "env")], check=True)
    options = ("--archives", f"{archive}#env", "--executor-memory", "512m")
    options += ("--executor-cores", "1", "--conf", "spark.driver.host=127.0.0.1")
    nothing = str(tmp_path / "no-python-of-their-own")
    with running_cluster(tmp_path, nothing) as master, no_leftovers() as children:
        arguments = (tmp_path, "./env/bin/python", "--master", master, *options)
        killed = submit(*arguments, argument="own-session")
        children.append(killed)
        assert killed.wait_for(lambda: len(killed.epochs) > 1), killed.output
        killed.kill(Victims.EVERYTHING)
        killed.die(60)
        last = submit(*arguments, argument="own-session")
        children.append(last)
        assert last_printed(last, 1) == ["went on False"]
    assert last.epochs[0] > 0  # It replays the epoch of the kill, if that was not committed.
    assert sums(tmp_path) == SUMS
    # Workers ran in the environment that was unpacked for them, not in that of the driver.
    assert {Path(str(row["prefix"])).name for row in rows(tmp_path)} == {"env"}
    assert str(tmp_path / "env") not in {row["prefix"] for row in rows(tmp_path)}


@pytest.mark.spark
@pytest.mark.extended
def test_a_run_takes_the_settings_of_spark_submit_and_stops_at_a_signal(tmp_path: Path) -> None:
    refused = (
        "run: driver_memory='8g' cannot change the heap of Spark's JVM, which runs already with"
    )
    with no_leftovers() as children:
        child = submit(tmp_path, sys.executable, "--master", "local[1]")
        children.append(child)
        assert child.wait_for(lambda: child.epochs), child.output
        os.kill(python_of(child), signal.SIGTERM)
        assert last_printed(child, 2) == ["went on True", "local[1] 700m ERROR"]
        assert refused in child.output
    assert sums(tmp_path) == SUMS[: 2 * len(child.epochs)]
