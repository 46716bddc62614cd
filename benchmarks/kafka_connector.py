"""flow-windows on `benchmarks.kafka_job`, reading through Spark's own connector for Kafka.

The connector is from Maven Central. There is none for Spark 4.3 yet; that of 4.2 works.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.kafka_job import START_MS, Job, run_as_asked, seconds_of
from benchmarks.kafka_ours import make_flow
from flow import run
from flow.connectors.dataframe import DataFrameSource
from recovery import RecoveryConfig

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


def work(job: Job) -> float:
    """Return the seconds of a whole call of `run`, after a warm-up of Spark."""
    builder = SparkSession.builder.appName("connector").master("local[2]")
    builder = builder.config("spark.driver.memory", "3g").config("spark.ui.enabled", "false")
    spark = builder.config("spark.jars.packages", CONNECTOR).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def once(topic: str, sink: str, name: str) -> None:
        run(
            make_flow(job, _source(spark, job, topic), sink),
            spark=spark,
            recovery=RecoveryConfig(f"{job.scratch}/{name}"),
            trigger="available",
            drain=True,
            # With constant system time no value is late, however slow the machine is.
            system_time=START_MS / 1000,
        )

    once(job.warm, f"{job.sink}-warm", "warm")
    return seconds_of(lambda: once(job.source, job.sink, "work"))


def _source(spark: SparkSession, job: Job, topic: str) -> DataFrameSource:
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.epoch)
        .load()
    )
    value = F.from_json(F.col("value").cast("string"), "amount bigint")
    amount = value.getField("amount").alias("amount")
    return DataFrameSource(messages.select(F.col("key").cast("string"), "timestamp", amount))


if __name__ == "__main__":
    run_as_asked(work)
