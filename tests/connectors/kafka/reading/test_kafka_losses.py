"""Lost messages, and brokers that do not answer."""

from __future__ import annotations

import logging
import socket
from datetime import UTC, datetime

import pytest

from flow.connectors.kafka import KafkaSource
from flow.connectors.kafka.broker import cluster
from flow.connectors.source import MemoryLog
from flow.engine.feed.feed import Feed
from flow.engine.feed.offsets import EpochOffset
from flow.engine.feed.system_time import FixedTime
from flow.errors import SourceError
from tests.support.clock import Clock
from tests.support.kafka_planning import Brokers, new_planner, read

# --- losses ---


def test_deleted_messages_are_an_error_that_names_them() -> None:
    plan = new_planner(Brokers({"t/0": (7, 9)}))
    with pytest.raises(SourceError, match=r"messages 3 to 6 of t/0 were deleted .*='warn' goes"):
        plan.next({"t/0": 3})


def test_only_unread_deleted_messages_are_a_loss() -> None:
    plan = new_planner(Brokers({"t/0": (7, 9)}))
    with pytest.raises(SourceError, match="messages 6 to 6 of t/0 were deleted"):
        plan.next({"t/0": 6})
    assert read(plan.next({"t/0": 7})) == [(["t", 0, 7, 9], 0, 0)]
    assert new_planner(Brokers({"t/0": (7, 7)})).next({"t/0": 7}) is None


def test_a_missing_partition_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    plan = new_planner(Brokers({"t/0": (0, 2)}), Clock(passing=5.0), on_data_loss="warn")
    for _ in range(4):
        assert plan.next({"t/0": 2, "t/1": 5}) is None
    assert [record.getMessage() for record in caplog.records] == [
        "t/1 is not on the broker any more; going on with what is left"
    ]


def test_the_loss_of_all_messages_may_be_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    plan = new_planner(Brokers({"t/0": (9, 9)}), on_data_loss="warn")
    planned = plan.next({"t/0": 3})
    assert (planned.end, planned.splits) == ({"t/0": 9}, [])
    assert [record.getMessage() for record in caplog.records] == [
        "messages 3 to 8 of t/0 were deleted on the broker before the flow read them; "
        "going on with what is left"
    ]


def test_a_recreated_topic_is_a_loss_once_it_is_certain(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    brokers = Brokers({"t/0": (0, 2)})
    fails = new_planner(brokers, clock)
    warns = new_planner(brokers, clock, on_data_loss="warn")
    assert fails.next({"t/0": 8}) is None
    assert warns.next({"t/0": 8}) is None
    clock.now = 5.0
    with pytest.raises(SourceError, match="t/0 ends at 2, and the flow has read up to 8"):
        fails.next({"t/0": 8})
    assert read(warns.next({"t/0": 8})) == [(["t", 0, 0, 2], 0, 0)]
    assert len(caplog.records) == 1


def test_a_missing_partition_is_a_loss_once_it_is_certain() -> None:
    clock, brokers = Clock(), Brokers({"t/0": (0, 2), "t/1": (0, 2)})
    plan = new_planner(brokers, clock)
    offset = plan.next(None).end
    del brokers.partitions_there["t/1"]
    assert plan.next(offset) is None
    brokers.partitions_there["t/1"] = (0, 2)  # it was only slow to come back
    assert plan.next(offset) is None
    clock.now = 5.0
    assert plan.next(offset) is None
    del brokers.partitions_there["t/1"]
    assert plan.next(offset) is None
    clock.now = 10.0
    with pytest.raises(SourceError, match="t/1 is not on the broker any more"):
        plan.next(offset)


def test_a_bounded_run_waits_until_a_loss_is_certain() -> None:
    clock = Clock()
    plan = new_planner(Brokers({"t/0": (0, 2)}), clock)
    plan.stop_at_present()
    assert (plan.next({"t/0": 8}), plan.in_doubt()) == (None, True)
    clock.now = 5.0
    with pytest.raises(SourceError, match="t/0 ends at 2"):
        plan.next({"t/0": 8})
    bounded = new_planner(Brokers({"t/0": (0, 2)}), end="latest")
    assert bounded.next({"t/0": 8}) is None
    assert bounded.finished({"t/0": 8}) is False


#  t/0   ....|--------->   its first messages were deleted; the flow starts at the first left
#  t/1   |----^--------->  the flow starts after messages that the broker still has
#  t/2   ........|         all messages were deleted
#  t/3   |--------->       nothing was deleted
def test_messages_deleted_since_a_start_time_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ranges = {"t/0": (1_700, 9_000), "t/1": (10, 9_000), "t/2": (5, 5), "t/3": (0, 9_000)}
    brokers = Brokers(ranges, times={"t/0": 1_690, "t/1": 30, "t/2": -5, "t/3": -10})
    plan = new_planner(brokers, start=datetime.fromtimestamp(0.01, UTC))
    first = plan.next(None)
    assert {split.what[0] + str(split.what[1]): split.what[2] for split in first.splits} == {
        "t0": 1_700,
        "t1": 40,
        "t3": 0,
    }
    assert [record.getMessage() for record in caplog.records] == [
        "messages before 1,700 of t/0 and 1 more were deleted on the broker, and may include "
        "messages since start=1970-01-01T00:00:00.010000+00:00; going on with what is left"
    ]
    assert plan.next(first.end) is None
    assert len(caplog.records) == 1


def test_a_named_topic_must_exist_at_the_start() -> None:
    with pytest.raises(
        SourceError, match=r"there is no topic 't' on the broker, or .*: create it first"
    ):
        new_planner(Brokers({})).next(None)


# --- brokers that do not answer ---


def test_a_broker_that_never_answered_is_an_error_after_a_while() -> None:
    clock = Clock()
    plan = new_planner(Brokers({}, silent=True), clock)
    assert plan.next(None) is None
    clock.now = 20.0
    with pytest.raises(SourceError, match="no Kafka broker answers at here:9092: gone; waited 20"):
        plan.next(None)


def test_a_broker_that_stops_answering_is_waited_for_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    clock, brokers = Clock(), Brokers({"t/0": (0, 2)})
    plan = new_planner(brokers, clock)
    offset = plan.next(None).end
    brokers.silent = True
    for clock.now in (1.0, 59.0):
        assert plan.next(offset) is None
    brokers.silent = False
    assert plan.next(offset) is None
    assert [record.getMessage() for record in caplog.records] == [
        "no Kafka broker answers at here:9092: gone; waiting for it",
        "Kafka answers again",
    ]
    brokers.silent = True
    clock.now = 100.0
    assert plan.next(offset) is None
    clock.now = 160.0
    with pytest.raises(SourceError, match="waited 60 s"):
        plan.next(offset)


def test_a_bounded_run_does_not_end_while_brokers_are_silent() -> None:
    brokers, clock = Brokers({"t/0": (0, 2)}, silent=True), Clock()
    plan = new_planner(brokers, clock)
    plan.stop_at_present()
    assert (plan.next(None), plan.in_doubt()) == (None, True)
    brokers.silent = False
    offset = plan.next(None).end
    assert (offset, plan.in_doubt()) == ({"t/0": 2}, False)
    assert (plan.next(offset), plan.in_doubt()) == (None, False)


def test_a_run_that_waits_for_a_broker_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nobody listens where the broker should be."""
    monkeypatch.setattr(cluster, "ASKING_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    source = KafkaSource(f"127.0.0.1:{port}", "t")
    planners = {"in": source.planner(MemoryLog(), 1)}
    feed = Feed(planners, FixedTime(7), only_available=True)
    first = feed.next(EpochOffset())
    assert (first.at, feed.next(first)) == ({}, first)
    assert not feed.end.done.is_set()
    feed.end.stop_asked.set()
    assert feed.next(first) is first
    assert feed.end.done.is_set()
