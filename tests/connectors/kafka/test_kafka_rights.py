"""Rights that a Kafka user needs, on a broker that checks them."""

from __future__ import annotations

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
from tests.support.kafka import Broker


def test_no_right_on_a_consumer_group_is_needed(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for group in ("flow", "flow-epochs"):  # of which another user alone has the right
        what = (ResourceType.GROUP, group, ResourcePatternType.LITERAL)
        right = AclBinding(*what, "User:else", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        (done,) = admin.create_acls([right]).values()
        done.result()
    topic = broker.topic()
    for epoch in (0, 0, 1):
        sink = KafkaSink(broker.servers, topic, value_format="text")
        sink.open("a run", resuming=False)
        context = WriteContext("out", epoch, 0, "a run")
        sink.commit(epoch, [sink.write(context, iter([[{"value": f"{epoch}"}]]))])
        sink.close()
    source = KafkaSource(broker.servers, topic, value="text", end="latest", patience="20s")
    assert [message.value for message in run_source(source)] == ["0", "1"]
