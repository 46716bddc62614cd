"""flow-windows on `benchmarks.kafka_job`, with recovery: exactly or at least once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import flow.operators as op
import flow_windowing as win
from benchmarks.kafka_job import GRACE_SECONDS, START_MS, Job, run_as_asked, seconds_of
from flow import Dataflow, run
from flow.connectors.kafka import KafkaSink, KafkaSource
from flow.connectors.source import Source
from flow.engine.spark.session.session import SparkSettings, make_session
from recovery import RecoveryConfig


def own_source(job: Job, topic: str) -> KafkaSource:
    """Return the source of a topic of orders, up to the topic's present end."""
    return KafkaSource(
        job.servers,
        topic,
        key="text",
        value="json",
        schema={"amount": pa.int64()},
        end="latest",
        max_records_per_epoch=job.epoch,
    )


def make_flow(job: Job, source: Source[Any], sink: str) -> Dataflow:
    """Return a flow that sums the amounts of each key in windows of ten seconds."""
    flow = Dataflow("kafka")
    sums = win.aggregate_window(
        "sums",
        op.key_on("by_key", op.input("messages", flow, source), "key"),
        clock=win.EventClock("timestamp", wait_for_system_duration=f"{GRACE_SECONDS}s"),
        windower=win.TumblingWindower(length="10s"),
        total=win.Sum("amount"),
    )
    op.output("out", sums.down, KafkaSink(job.servers, sink, guarantee=job.guarantee))
    return flow


def work(job: Job) -> float:
    """Return the seconds of a whole call of `run`, after a warm-up of Spark."""
    spark = make_session("kafka", SparkSettings("local[2]", {"spark.driver.memory": "3g"}))
    warm = make_flow(job, own_source(job, job.warm), f"{job.sink}-warm")
    flow = make_flow(job, own_source(job, job.source), job.sink)

    def once(one: Dataflow, name: str) -> None:
        run(
            one,
            spark=spark,
            recovery=RecoveryConfig(f"{job.scratch}/{name}"),
            # With constant system time no value is late, however slow the machine is.
            system_time=START_MS / 1000,
        )

    once(warm, "warm")
    return seconds_of(lambda: once(flow, "work"))


if __name__ == "__main__":
    run_as_asked(work)
