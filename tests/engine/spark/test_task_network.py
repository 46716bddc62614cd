"""Servers that tasks need, on clusters whose tasks have no network."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, EnvironmentProblem, run
from flow.connectors.kafka import KafkaSink, KafkaSource
from flow.connectors.then import Then
from flow.engine.plan.compiler import compile_flow
from flow.engine.spark import task_network
from flow.engine.spark.task_network import check_network_of_tasks, first_refusal
from flow.testing import TestingSink, TestingSource

CLOSED = "localhost:1"


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that accepts connections."""
    with socket.create_server(("localhost", 0)) as listening:
        yield f"localhost:{listening.getsockname()[1]}"


@pytest.fixture
def on_a_cluster(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session whose tasks are taken for those of a cluster, which have no network.

    This process takes all servers for reached, and tasks try them.
    """
    monkeypatch.setattr(task_network, "is_local", lambda _: False)
    monkeypatch.setattr(task_network, "first_refusal", lambda _: None)
    return spark


def reading(servers: str) -> Dataflow:
    flow = Dataflow("orders")
    source = KafkaSource(servers, "orders", value="text")
    op.output("out", op.input("orders", flow, source), TestingSink([]))
    return flow


@pytest.mark.spark
def test_tasks_that_do_not_reach_a_broker_are_an_error_with_the_way_through_spark(
    on_a_cluster: SparkSession,
) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        run(reading(CLOSED), spark=on_a_cluster)
    assert str(caught.value) == (
        "step 'orders': tasks of this cluster do not reach localhost:1 ([Errno 111] Connection "
        "refused), and this process does: open the network of the workers, or read the topic with "
        "Spark's own connector as a DataFrameSource (docs/reference/kafka.md, Through Spark's own "
        "connector)"
    )


@pytest.mark.spark
def test_one_broker_of_several_is_enough(on_a_cluster: SparkSession, server: str) -> None:
    check_network_of_tasks(compile_flow(reading(f"{CLOSED},{server}")), on_a_cluster)


@pytest.mark.spark
def test_brokers_that_the_driver_does_not_reach_are_left_to_the_source(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_network, "is_local", lambda _: False)
    check_network_of_tasks(compile_flow(reading(CLOSED)), spark)


@pytest.mark.spark
def test_a_local_session_starts_no_task(spark: SparkSession) -> None:
    statuses = spark.sparkContext.statusTracker()
    jobs = len(statuses.getJobIdsForGroup())
    check_network_of_tasks(compile_flow(reading(CLOSED)), spark)
    assert len(statuses.getJobIdsForGroup()) == jobs


def test_only_a_sink_whose_tasks_write_needs_its_brokers() -> None:
    assert KafkaSink("a:1,b:2", "totals").task_servers == ()
    (servers,) = KafkaSink("a:1,b:2", "totals", guarantee="at least once").task_servers
    assert servers.addresses == ["a:1", "b:2"]


def test_a_history_before_a_live_topic_needs_its_brokers() -> None:
    source = Then(TestingSource([1]), KafkaSource("a:1", "orders", value="text"))
    assert [one.addresses for one in source.task_servers] == [["a:1"]]


def test_an_address_of_another_form_is_left_to_the_connector(server: str) -> None:
    assert first_refusal(["SSL://nowhere"]) is None
    assert first_refusal([CLOSED]) == "[Errno 111] Connection refused"
    assert first_refusal([CLOSED, server]) is None
