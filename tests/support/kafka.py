"""An Apache Kafka broker of the tests' own: one node, without ZooKeeper, on this machine alone.

Its program comes from Maven Central, once, into a cache. It is started with the machine's Java, on
free ports, and is stopped by its own process id.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flow.engine.spark.session.versions import check_java
from flow.errors import EnvironmentProblem
from tests.support.guarded import GuardedServer
from tests.support.java import QUICK
from tests.support.maven import jars_of

PROGRAM = "org.apache.kafka:kafka_2.13:4.3.1"
_SECONDS = 60.0
"""Seconds that an operation may take."""
_JAVA_OPTIONS = ("-Xmx384m", "-Xms128m", *QUICK)


class Broker(GuardedServer):
    """A broker, and the operations of tests on it.

    Attributes:
        servers: the address that clients are given.
    """

    def __init__(self, jars: Path) -> None:
        super().__init__("kafka")
        self._jars = jars
        self._kept_admin: Any = None
        port, controller = _free_port(), _free_port()
        self.servers = f"127.0.0.1:{port}"
        self._write_settings(port, controller)
        cluster = "flowTestsOfKafka00000Q"
        tool = self._java("kafka.tools.StorageTool", "format", "-t", cluster)
        self._run_once([*tool, "-c", "server.properties"])
        self.start()

    def topic(
        self, name: str = "", partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, with a name of its own if none is given; returns the name."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        last = time.monotonic() + _SECONDS
        while self.partitions(name) != partitions:
            try:
                new = NewTopic(name, partitions, 1, config=dict(settings or {}))
                _done(self._admin().create_topics([new]))
            except KafkaException:  # on a busy machine, the broker may have lost touch with itself
                if time.monotonic() > last:
                    raise
            time.sleep(0.02)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """Add partitions to a topic, and wait until the broker reports them."""
        from confluent_kafka.admin import NewPartitions

        _done(self._admin().create_partitions([NewPartitions(topic, total)]))
        self._wait_for_partitions(topic, total)

    def _wait_for_partitions(self, topic: str, count: int) -> None:
        last = time.monotonic() + _SECONDS
        while self.partitions(topic) != count and time.monotonic() < last:
            time.sleep(0.02)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, or 0 if it does not exist."""
        found = self._admin().list_topics(timeout=10).topics.get(topic)
        return 0 if found is None or found.error is not None else len(found.partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until the broker does not list it."""
        _done(self._admin().delete_topics([topic]))
        self._wait_for_partitions(topic, 0)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the messages of a partition before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        _done(self._admin().delete_records([TopicPartition(topic, partition, before)]))

    def produce(self, topic: str, messages: Iterable[Mapping[str, Any]]) -> None:
        """Write messages, given as arguments of `confluent_kafka.Producer.produce`, and wait."""
        producer = self.producer()
        for message in messages:
            while True:
                try:
                    producer.produce(topic, **message)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(_SECONDS)
        if left:
            raise RuntimeError(f"{left} messages could not be written to {topic!r}")

    def values(self, topic: str, values: Sequence[bytes | str], partition: int = 0) -> None:
        """Write messages that have nothing but a value to a partition."""
        self.produce(topic, ({"value": value, "partition": partition} for value in values))

    def producer(self, **properties: Any) -> Any:
        """A producer of a test's own."""
        from confluent_kafka import Producer

        names = {name.replace("_", "."): value for name, value in properties.items()}
        # Without idempotence the first messages of a new topic may come after later ones.
        config = {"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 5}
        return Producer({**config, "log_level": 0, **names})

    def consume(self, topic: str, seconds: float = 30.0) -> list[Any]:
        """All committed messages of a topic, partition by partition, up to its present end."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        try:
            count = self.partitions(topic)
            consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
            found: list[Any] = []
            ended, last = 0, time.monotonic() + seconds
            while ended < count and time.monotonic() < last:
                for message in consumer.consume(10_000, 0.2):
                    ended += _is_end(message)
                    if message.error() is None:
                        found.append(message)
            return sorted(found, key=lambda one: (one.partition(), one.offset()))
        finally:
            consumer.close()

    def _admin(self) -> Any:
        """One client for all questions: its answers are lost when it is."""
        from confluent_kafka.admin import AdminClient

        if self._kept_admin is None:
            self._kept_admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return self._kept_admin

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException, OSError):
            host, port = self.servers.split(":")
            socket.create_connection((host, int(port)), 1).close()
            return bool(self._admin().list_topics(timeout=2).brokers)
        return False

    def _write_settings(self, port: int, controller: int) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # How long it waits, after it was killed, for the end of the one that it was before.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "6000",
            # Messages of tests may be as old as can be.
            "log.retention.ms": "-1",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            # Everybody may do all that nobody was given the right to.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self._folder / "server.properties").write_text("".join(lines))

    def _command(self) -> list[str]:
        return self._java("kafka.Kafka", "server.properties")

    def _java(self, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = os.path.join(home, "bin", "java") if home else "java"
        return [java, *_JAVA_OPTIONS, "-cp", f"{self._jars}/*", *arguments]


@functools.cache
def running_broker() -> Broker:
    """The broker of this test run, started at the first use.

    Where its program cannot be had, or there is no client, the test that asks is skipped.
    """
    pytest.importorskip("confluent_kafka", reason="no Kafka client: install confluent-kafka")
    problem, jars = broker_program()
    if problem:
        pytest.skip(problem)
    broker = Broker(jars)
    atexit.register(broker.remove)
    return broker


def broker_program() -> tuple[str, Path]:
    """Return the reason why no broker can be started, or "", and the folder of its jars."""
    try:
        check_java()
    except EnvironmentProblem as error:
        return f"no Kafka broker: {error}", Path()
    problem, jars = jars_of(PROGRAM)
    return (f"no Kafka broker: {problem}" if problem else ""), jars


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _done(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(_SECONDS)


def _is_end(message: Any) -> bool:
    from confluent_kafka import KafkaError

    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF
