"""A topic read through Spark's own connector, as a data frame, by a flow of windows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flow.engine.spark.versions.supported import installed_version
from tests.support.kafka import Broker
from tests.support.maven import jars_of

ROOT = Path(__file__).parents[4]
# Maven Central has none for Spark 4.3; that of 4.2 serves it.
RELEASE = "4.1.1" if installed_version().number == (4, 1) else "4.2.0"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{RELEASE}"
COUNT = 500
KEYS = 7

# In a process of its own: a session gets its jars as it starts.
FLOW = """
import json, sys
import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.dataframe import DataFrameSource
from flow.engine.spark.session.session import SparkSettings, make_session
from flow.testing import TestingSink
from pyspark.sql import functions as F

servers, topic, jars = sys.argv[1:]
spark = make_session("connector", SparkSettings("local[2]", {"spark.jars": jars}))
messages = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 200)
    .load()
)
value = F.from_json(F.col("value").cast("string"), "amount bigint").alias("value")
records = messages.select(F.col("key").cast("string"), "timestamp", value)
flow, out = Dataflow("connector"), []
keyed = op.key_on("keyed", op.input("in", flow, DataFrameSource(records)), "key")
minutes = win.aggregate_window(
    "minutes",
    keyed,
    clock=win.EventClock("timestamp", "1h"),
    windower=win.TumblingWindower("1m"),
    total=win.Sum("value.amount"),
)
op.output("out", minutes.down, TestingSink(out))
options = {"trigger": "available", "drain": True, "shards": 4, "partitions": 2}
summary = run(flow, spark=spark, system_time=1_700_000_000, **options)
found = [[key, window.open_time.timestamp(), sums["total"]] for key, (window, sums) in out]
print(json.dumps({"epochs": summary.epochs, "found": sorted(found)}))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_topic_read_by_sparks_connector_flows_through_windows(
    broker: Broker, tmp_path: Path
) -> None:
    problem, folder = jars_of(CONNECTOR, "org.apache.hadoop")
    if problem:
        pytest.skip(f"no connector of Spark's for Kafka: {problem}")
    topic = broker.topic(partitions=2)
    sent = [(f"k{number % KEYS}", 1_600_000_000 + number, number) for number in range(COUNT)]
    broker.produce(
        topic,
        (
            {"key": key, "value": json.dumps({"amount": amount}), "timestamp": 1000 * at}
            for key, at, amount in sent
        ),
    )
    jars = ",".join(str(path) for path in sorted(folder.glob("*.jar")))
    command = [sys.executable, "-c", FLOW, broker.servers, topic, jars]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert not done.returncode, done.stderr[-2000:]
    sums: dict[tuple[str, float], int] = {}
    for key, at, amount in sent:
        window = key, float(at // 60 * 60)
        sums[window] = sums.get(window, 0) + amount
    answer = json.loads(done.stdout)
    assert answer["found"] == sorted([*window, total] for window, total in sums.items())
    assert answer["epochs"] > COUNT / 200
