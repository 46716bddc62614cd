"""A topic read through Spark's own connector, as a data frame."""

from __future__ import annotations

import json

import pytest

from flow.engine.spark.session.versions import installed_version
from tests.support.kafka import Broker
from tests.support.maven import jars_of
from tests.support.programs import printed_by

# Maven Central has none for Spark 4.3; that of 4.2 serves it.
RELEASE = "4.1.1" if installed_version().startswith("4.1.") else "4.2.0"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{RELEASE}"
COUNT = 500
KEYS = 7

# In a process of its own: a session gets its jars as it starts.
FLOW = """
import json, sys
import flow.operators as op
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
amounts = op.map_value("amount", keyed, lambda record: record["value"]["amount"])
op.output("out", op.reduce_final("sum", amounts, lambda a, b: a + b), TestingSink(out))
options = {"trigger": "available", "drain": True, "shards": 2, "partitions": 1}
summary = run(flow, spark=spark, system_time=1_700_000_000, **options)
print(json.dumps({"epochs": summary.epochs, "found": sorted(out)}))
"""


@pytest.mark.extended
@pytest.mark.spark
def test_a_topic_is_read_by_sparks_connector(broker: Broker) -> None:
    problem, folder = jars_of(CONNECTOR, "org.apache.hadoop")
    if problem:
        pytest.skip(f"no connector of Spark's for Kafka: {problem}")
    topic = broker.topic(partitions=2)
    sent = ({"key": f"k{n % KEYS}", "value": json.dumps({"amount": n})} for n in range(COUNT))
    broker.produce(topic, sent)
    jars = ",".join(str(path) for path in sorted(folder.glob("*.jar")))
    answer = json.loads(printed_by("-c", FLOW, broker.servers, topic, jars))
    assert answer["found"] == [[f"k{n}", sum(range(n, COUNT, KEYS))] for n in range(KEYS)]
    assert answer["epochs"] > COUNT / 200
