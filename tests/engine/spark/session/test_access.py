"""Sessions without a JVM in reach: a batch over Spark Connect."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flow.engine.spark.session.access import cores_of, disks_of
from tests.support.java import QUICK_SUBMIT
from tests.support.programs import ROOT, printed_by

PROGRAM = """
import json, sys
from collections import Counter
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[2]").getOrCreate()
SparkContext._active_spark_context = None  # as in a program whose server is elsewhere
import flow.operators as op
from flow import Dataflow, FlowError, run, to_dataframe
from flow.connectors.dataframe import DataFrameSource
from flow.testing import TestingSink
from recovery import RecoveryConfig, status
from tests.engine.spark.session.test_given import hourly

def attempt(call):
    try:
        call()
    except FlowError as error:
        print(json.dumps([type(error).__name__, str(error)]))

flow, out = hourly()
run(flow, spark=spark)
print(json.dumps([value["total"] for _, (_, value) in out]))

def ratio_of_frame(less):
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "name string, n int")
    flow = Dataflow("frame")
    stream = op.input("in", flow, DataFrameSource(frame))
    return flow, op.map("ratio", stream, lambda row: row["n"] // (row["n"] - less))

def of_frame(less):
    flow, ratio = ratio_of_frame(less)
    numbers = []
    op.output("out", ratio, TestingSink(numbers))
    return flow, numbers

flow, numbers = of_frame(0)
run(flow, spark=spark)
print(json.dumps(numbers))
flow, out = hourly()
run(flow, master="local[2]")
print(json.dumps([value["total"] for _, (_, value) in out]))
attempt(lambda: run(flow, conf={"spark.some.name": "x"}))

flow, stream = ratio_of_frame(0)
frame = to_dataframe(stream, schema="value long")
print(json.dumps([type(frame).__module__, sorted(row.value for row in frame.collect())]))
attempt(lambda: to_dataframe(stream, schema="value long", counts=Counter()))
flow, stream = ratio_of_frame(1)
try:
    to_dataframe(stream, schema="value long").collect()
except PySparkException as error:
    print(json.dumps([line for line in str(error).splitlines() if "StepError" in line]))
flow, numbers = of_frame(1)
attempt(lambda: run(flow, spark=spark))
attempt(lambda: run(hourly()[0], recovery=RecoveryConfig(sys.argv[1])))
attempt(lambda: status(sys.argv[1], spark=spark))
spark.stop()
attempt(lambda: run(flow, spark=spark))
"""


NO_VALUE = (
    "cannot change the active Spark session, in which spark.some.name has no value: set it where "
    "that session is made, stop the session before the run, or leave the setting out"
)
ERROR = "flow.errors.StepError: step 'ratio'"


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_runs_over_spark_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    variables = {**QUICK_SUBMIT, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    lines = printed_by(tmp_path / "program.py", tmp_path, **variables).splitlines()
    printed = [json.loads(line) for line in lines if line.startswith("[")]
    no_jvm = (
        "needs Spark's JVM, which a session of Spark Connect does not reach: run the program with "
        "spark-submit, or on a session without remote()"
    )
    totals = [sum(range(start, start + 10)) for start in range(0, 60, 10)]
    step_error, stopped = printed[7][1], printed[-1][1]
    assert printed == [
        totals,
        [1, 1],
        totals,
        ["FlowBuildError", f"run: conf spark.some.name='x' {NO_VALUE}"],
        ["pyspark.sql.connect.dataframe", [1, 1]],
        ["EnvironmentProblem", f"the counter of counts= {no_jvm}"],
        [f"{ERROR}: the mapper raised ZeroDivisionError: integer division or modulo by zero"],
        ["StepError", step_error],
        ["EnvironmentProblem", f"a streaming flow {no_jvm}"],
        ["EnvironmentProblem", f"a checkpoint {no_jvm}"],
        ["FlowBuildError", stopped],
    ]
    assert "'ratio'" in step_error
    assert "ZeroDivisionError" in step_error
    assert stopped.startswith("spark= names a session that was stopped")


class Remote:
    """A session of Spark Connect with a configuration."""

    def __init__(self, **conf: str) -> None:
        settings = {name.replace("_", "."): value for name, value in conf.items()}
        self.conf = SimpleNamespace(get=settings.get)


Remote.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({"spark_default_parallelism": "5", "spark_master": "local[2]"}, 5),
        ({"spark_master": "local[3]"}, 3),
        ({"spark_master": "local[3,4]"}, 3),
        ({"spark_master": "local[*]"}, os.cpu_count()),
        ({"spark_master": "spark://host:7077"}, 8),
        ({}, 8),
    ],
)
def test_cores_of_a_remote_session_come_from_its_conf(conf: dict[str, Any], cores: int) -> None:
    assert cores_of(Remote(**conf)) == cores


def test_disks_of_a_remote_session_are_unknown() -> None:
    assert disks_of(Remote()).local == ()
