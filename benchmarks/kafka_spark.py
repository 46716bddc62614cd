"""Spark SQL on `benchmarks.kafka_job`: at least once, the only guarantee of its Kafka sink.

State store, partitions and compilers are as in `benchmarks.windows.spark_peer`. The connector is
from Maven Central, or from the jars that the environment variable SPARK_KAFKA_JARS lists, separated
by commas.
"""

from __future__ import annotations

import os

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.kafka_job import GRACE_SECONDS, Job, run_as_asked, seconds_of
from benchmarks.windows.spark_peer import CONF


def work(job: Job) -> float:
    """Return the seconds from the start of the query to its end, after a warm-up of Spark."""
    builder = SparkSession.builder.appName("peer").master("local[2]")
    own = {"spark.sql.shuffle.partitions": "2", **_connector()}
    for name, value in {**CONF, **own}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _run(spark, job, job.warm, f"{job.sink}-warm", "warm")
    return seconds_of(lambda: _run(spark, job, job.source, job.sink, "work"))


def _connector() -> dict[str, str]:
    """Return the settings of the connector: the jars in SPARK_KAFKA_JARS, or its coordinates."""
    jars = os.environ.get("SPARK_KAFKA_JARS")
    if jars:
        return {"spark.jars": jars}
    coordinates = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    return {"spark.jars.packages": coordinates}


def _run(spark: SparkSession, job: Job, source: str, sink: str, name: str) -> None:
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.epoch)
        .load()
    )
    values = messages.select(
        F.col("key").cast("string").alias("key"),
        F.col("timestamp"),
        F.from_json(F.col("value").cast("string"), "amount bigint").alias("value"),
    )
    sums = (
        values.withWatermark("timestamp", f"{GRACE_SECONDS} seconds")
        .groupBy("key", F.window("timestamp", "10 seconds").alias("w"))
        .agg(F.sum("value.amount").alias("total"))
    )
    value = F.to_json(F.struct(F.col("w.start").alias("open_time"), F.col("total")))
    (
        sums.select("key", value.alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", job.servers)
        .option("topic", sink)
        .option("checkpointLocation", f"{job.scratch}/{name}")
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    run_as_asked(work)
