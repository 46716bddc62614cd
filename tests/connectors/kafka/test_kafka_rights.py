"""Rights that a Kafka user needs, on a broker that checks them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from flow.connectors.kafka import KafkaSink, KafkaSource
from flow.connectors.sink import WriteContext
from flow.testing import run_source
from tests.support.kafka import Broker, own_broker


@pytest.fixture
def guarded_broker() -> Iterator[Broker]:
    """A broker on which everybody may do all that nobody was given the right to."""
    broker = own_broker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="true",
    )
    yield broker
    broker.remove()


def reserve_group(broker: Broker, group: str) -> None:
    """Give the right to use a consumer group to another user alone."""
    right = AclBinding(
        ResourceType.GROUP,
        group,
        ResourcePatternType.LITERAL,
        "User:somebody-else",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": broker.servers})
    (done,) = admin.create_acls([right]).values()
    done.result()


def test_no_right_on_a_consumer_group_is_needed(guarded_broker: Broker) -> None:
    for group in ("flow", "flow-epochs"):
        reserve_group(guarded_broker, group)
    topic = guarded_broker.topic()
    for epoch in (0, 0, 1):
        sink = KafkaSink(guarded_broker.servers, topic, value_format="text")
        sink.open("a run", resuming=False)
        written = sink.write(
            WriteContext("out", epoch, 0, "a run"), iter([[{"value": f"{epoch}"}]])
        )
        sink.commit(epoch, [written])
        sink.close()
    source = KafkaSource(guarded_broker.servers, topic, value="text", end="latest", patience="20s")
    assert [message.value for message in run_source(source)] == ["0", "1"]
