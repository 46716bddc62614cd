"""Planning of the offsets that each epoch reads, with brokers of the test."""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.kafka import KafkaSource, cluster
from flow.connectors.kafka.cluster import Ends, TopicPartition, Unreachable
from flow.connectors.kafka.planner import KafkaPlanner, Reach, _cut
from flow.connectors.source import MemoryLog
from flow.engine.feed.clocks import FixedTime
from flow.engine.feed.offsets import EpochOffset
from flow.errors import SourceError
from flow.instants import Moment
from tests.support.clock import Clock
from tests.support.feeding import feed_of
from tests.support.sampling import sampled


@dataclass
class Brokers:
    """Partitions by name, each with its first offset and its end."""

    partitions_there: dict[str, tuple[int, int]]
    silent: bool = False
    looks: int = 0
    times: dict[str, int] = field(default_factory=dict)

    def partitions(self, topics: Collection[str], pattern: str | None) -> list[TopicPartition]:
        self._answer()
        self.looks += 1
        return [TopicPartition.of(name) for name in self.partitions_there]

    def earliest(self, partitions: Iterable[TopicPartition]) -> Ends:
        return {one: self.partitions_there[str(one)][0] for one in self._there(partitions)}

    def latest(self, partitions: Iterable[TopicPartition]) -> Ends:
        return {one: self.partitions_there[str(one)][1] for one in self._there(partitions)}

    def since(self, partitions: Iterable[TopicPartition], millis: int) -> Ends:
        return {one: self.times[str(one)] + millis for one in self._there(partitions)}

    def _there(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        self._answer()
        return [one for one in partitions if str(one) in self.partitions_there]

    def _answer(self) -> None:
        if self.silent:
            raise Unreachable("no Kafka broker answers at here:9092: gone")


def new_planner(
    brokers: Brokers, clock: Clock | None = None, cores: int = 1, scales: Any = None, **more: Any
) -> Any:
    settings: dict[str, Any] = {
        "topics": ("t",),
        "pattern": None,
        "start": "earliest",
        "end": None,
        "per_epoch": 1_000_000,
        "on_data_loss": "fail",
        "looking_seconds": 10.0,
        "patience_seconds": 60.0,
    }
    cluster: Any = brokers
    reach = Reach(**{**settings, **more})
    return KafkaPlanner(reach, cluster, cores, clock or Clock(), scales)


def read(planned: Any) -> list[tuple[Any, int, int]]:
    """Return the range, source partition and order of each split of a slice."""
    return [(split.what, split.partition, split.order) for split in planned.splits]


# --- epochs ---


def test_epochs_of_a_backlog_are_limited_by_message_size() -> None:
    class Scales:
        def most(self, at: Ends, waiting: dict[TopicPartition, int]) -> int:
            return at[TopicPartition("t", 0)] + sum(waiting.values()) // 10

    weighing = new_planner(Brokers({"t/0": (0, 50), "t/1": (0, 50)}), scales=Scales())
    first = weighing.next(None)
    assert first.end == {"t/0": 5, "t/1": 5}
    assert weighing.next(first.end).end == {"t/0": 12, "t/1": 12}
    limited = new_planner(Brokers({"t/0": (0, 50)}), scales=Scales(), per_epoch=2)
    assert limited.next(None).end == {"t/0": 2}


def test_few_partitions_are_split_for_all_cores() -> None:
    plan = new_planner(Brokers({"t/0": (0, 100_000)}), cores=4)
    assert [split for split, _, _ in read(plan.next(None))] == [
        ["t", 0, 0, 25_000],
        ["t", 0, 25_000, 50_000],
        ["t", 0, 50_000, 75_000],
        ["t", 0, 75_000, 100_000],
    ]
    two = new_planner(Brokers({"t/0": (0, 100_000), "t/1": (0, 100_000)}), cores=4)
    assert [split[1:] for split in read(two.next(None))] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert _cut(0, 30_000, 4) == [(0, 30_000)]
    assert _cut(7, 7 + 59_999, 4) == [(7, 30_006), (30_006, 60_006)]


# --- event time ---


#  t/0   |-+-+-+-+-+-+-+-+-->    dense: a message is a microsecond
#  t/1   |---+---+---+---+-->    sparse: a message is a hundred
def test_partitions_of_a_backlog_advance_together_in_event_time() -> None:
    plan = new_planner(Brokers({"t/0": (0, 10_000), "t/1": (0, 10_000)}), per_epoch=100)
    offset = plan.next(None).end
    assert offset == {"t/0": 50, "t/1": 50}
    plan.report_progress({0: 50, 1: 5_000})
    offset = plan.next(offset).end
    assert offset == {"t/0": 100, "t/1": 100}  # the paces are not known before
    plan.report_progress({0: 100, 1: 10_000})
    third = plan.next(offset)
    assert third.end == {"t/0": 200, "t/1": 100}
    assert third.behind == [0, 1]  # also the one that is not read
    plan.report_progress({0: 5_100, 1: 10_000})  # its messages were fifty apart this time
    assert plan.next(third.end).end == {"t/0": 300, "t/1": 100}


def test_progress_is_mapped_to_the_partitions_of_a_checkpoint() -> None:
    """The first thing that a planner hears, before it has planned, is of where a run continues."""
    plan = new_planner(Brokers({"t/0": (0, 500), "t/1": (0, 500)}), per_epoch=10)
    plan.report_progress({0: 1_000, 1: 0})
    offset = plan.next({"t/1": 100, "t/0": 100}).end
    plan.report_progress({0: 1_005, 1: 5})
    # By the checkpoint t/1 is partition 0: it is the one that is ahead.
    assert plan.next(offset).end == {"t/1": 105, "t/0": 115}


def test_a_source_partition_is_named_by_topic_and_number() -> None:
    plan = new_planner(Brokers({"t/0": (0, 5), "t/1": (0, 5)}))
    assert plan.name_of(1) == "partition 1"  # before the first plan
    plan.next({"t/1": 3})
    assert [plan.name_of(0), plan.name_of(1)] == ["t/1", "t/0"]


# --- behind ---


def test_transaction_markers_count_as_read_with_their_offsets() -> None:
    """Of t/0 two markers are left, of which no message and no progress comes."""
    plan = new_planner(Brokers({"t/0": (0, 12), "t/1": (0, 10)}), per_epoch=5)
    offset, behind = {"t/0": 10, "t/1": 0}, []
    while (planned := plan.next(offset)) is not None:
        plan.report_progress({1: planned.end["t/1"]})
        offset = planned.end
        behind.append(list(planned.behind))
    assert (offset, behind) == ({"t/0": 12, "t/1": 10}, [[0, 1], [1], []])


def test_a_partition_is_behind_up_to_the_end_of_the_run_only() -> None:
    brokers = Brokers({"t/0": (0, 50), "t/1": (0, 5)})
    given = new_planner(brokers, end={"t": {0: 5, 1: 9}}).next(None)
    assert given.end == {"t/0": 5, "t/1": 5}
    assert given.behind == [1]  # a source with an end is behind until then
    present = new_planner(brokers, per_epoch=33)
    present.stop_at_present()
    first = present.next(None)
    brokers.partitions_there = {"t/0": (0, 90), "t/1": (0, 9)}  # more arrives
    second = present.next(first.end)
    assert (first.end, first.behind) == ({"t/0": 30, "t/1": 3}, [0, 1])
    assert (second.end, second.behind) == ({"t/0": 50, "t/1": 5}, [])
    assert present.next(second.end) is None
    assert present.finished(second.end) is False


def test_a_partition_in_doubt_stays_behind_until_its_loss_is_certain() -> None:
    clock, brokers = Clock(), Brokers({"t/0": (0, 9), "t/1": (0, 9)})
    plan = new_planner(brokers, clock, on_data_loss="warn", per_epoch=4)
    first = plan.next(None)
    assert first.behind == [0, 1]
    del brokers.partitions_there["t/1"]
    second = plan.next(first.end)
    assert (second.end, second.behind) == ({"t/0": 6, "t/1": 2}, [0, 1])
    clock.now = 5.0
    third = plan.next(second.end)
    assert (third.end, third.behind) == ({"t/0": 9, "t/1": 2}, [])


# --- lag ---


def test_lag_is_the_number_of_unread_messages_by_partition() -> None:
    plan = new_planner(Brokers({"t/0": (0, 5_000), "t/1": (0, 10)}), per_epoch=1_002)
    first = plan.next(None)
    assert plan.behind(first.end) == {"t/0": 4_000, "t/1": 8}
    assert plan.lag(first.end) == "4,008 behind (t/0 4,000, t/1 8)"
    assert plan.lag({"t/0": 5_000, "t/1": 10}) == "0 behind"
    assert new_planner(Brokers({})).lag(None) == ""


def test_the_lag_of_many_partitions_shows_the_worst() -> None:
    plan = new_planner(Brokers({f"t/{n}": (0, n) for n in range(6)}), per_epoch=1)
    assert plan.lag(plan.next(None).end).startswith("14 behind (t/5 ")
    assert plan.lag(plan.next(None).end).endswith(", …)")


# --- where it starts ---


def test_a_flow_that_starts_at_the_latest_remembers_the_offsets() -> None:
    brokers = Brokers({"t/0": (0, 5)})
    first = new_planner(brokers, start="latest").next(None)
    assert (first.end, first.splits) == ({"t/0": 5}, [])
    brokers.partitions_there["t/0"] = (0, 7)
    assert read(new_planner(brokers, start="latest").next(first.end)) == [(["t", 0, 5, 7], 0, 0)]


#  t/0   |--------->
#  t/1             |----->   added while the flow runs: read whole, though it starts at the latest
#  other topic            |-->
def test_added_partitions_are_read_from_their_beginning_and_keep_their_numbers() -> None:
    brokers, clock = Brokers({"t/0": (0, 5)}), Clock()
    plan = new_planner(brokers, clock, start="latest")
    offset = plan.next(None).end
    brokers.partitions_there = {"a/0": (0, 1), "t/0": (0, 5), "t/1": (0, 3)}
    assert plan.next(offset) is None
    assert brokers.looks == 1
    clock.now = 10.0
    second = plan.next(offset)
    assert list(second.end.items()) == [("t/0", 5), ("a/0", 1), ("t/1", 3)]
    assert read(second) == [(["a", 0, 0, 1], 1, 0), (["t", 1, 0, 3], 2, 0)]


def test_topics_that_appear_after_a_pattern_matched_none_are_read_whole() -> None:
    brokers, clock = Brokers({}), Clock()
    plan = new_planner(brokers, clock, start="latest", topics=(), pattern="t.*")
    offset = plan.next(None).end
    assert offset == {}
    brokers.partitions_there, clock.now = {"t/0": (0, 2)}, 10.0
    assert read(plan.next(offset)) == [(["t", 0, 0, 2], 0, 0)]


def test_given_offsets_must_name_existing_partitions() -> None:
    brokers = Brokers({"t/0": (0, 5), "t/1": (0, 5)})
    start = new_planner(brokers, start={"t": {1: 3}}).next(None)
    assert read(start) == [(["t", 0, 0, 5], 0, 0), (["t", 1, 3, 5], 1, 0)]
    message = "offsets are given for 't/2', but the partitions that exist are 't/0', 't/1'"
    for where in ("start", "end"):
        with pytest.raises(SourceError, match=message):
            new_planner(brokers, **{where: {"t": {1: 3, 2: 7}}}).next(None)


@pytest.mark.parametrize("how", [{"topics": ("t",)}, {"topics": (), "pattern": "t.*"}])
def test_a_checkpoint_with_topics_no_longer_read_is_refused(how: Any) -> None:
    brokers = Brokers({"t/0": (0, 5)})
    assert read(new_planner(brokers, **how).next({"t/0": 3})) == [(["t", 0, 3, 5], 0, 0)]
    for question in ("next", "finished"):
        with pytest.raises(SourceError, match=r"holds offsets of topic 'u', which .*reset_steps"):
            getattr(new_planner(brokers, end="latest", **how), question)({"t/0": 3, "u/0": 7})


# --- where it ends ---


def test_a_bounded_run_reads_up_to_the_ends_at_its_start() -> None:
    brokers, clock = Brokers({"t/0": (0, 5)}), Clock()
    plan = new_planner(brokers, clock, end="latest")
    assert plan.finished(None) is False
    brokers.partitions_there = {"t/0": (0, 9), "t/1": (0, 3)}
    clock.now = 10.0
    first = plan.next(None)
    assert first.end == {"t/0": 5}
    assert plan.finished(first.end) is True
    assert new_planner(brokers, end="latest").finished({"t/0": 5}) is False


def test_an_empty_bounded_topic_is_finished_once_logged() -> None:
    plan = new_planner(Brokers({"t/0": (4, 4)}), end="latest")
    assert plan.finished(None) is False
    first = plan.next(None)
    assert (first.end, first.splits) == ({"t/0": 4}, [])
    assert plan.finished(first.end) is True


@pytest.mark.parametrize("left", [None, (0, 2)])
def test_a_bounded_run_does_not_wait_for_lost_messages(left: tuple[int, int] | None) -> None:
    """A partition is deleted, or made anew with fewer messages, before its end was reached."""
    brokers, clock = Brokers({"t/0": (0, 5), "t/1": (0, 9)}), Clock()
    plan = new_planner(brokers, clock, end="latest", on_data_loss="warn", per_epoch=7)
    offset = plan.next(None).end
    assert plan.finished(offset) is False
    del brokers.partitions_there["t/1"]
    if left is not None:
        brokers.partitions_there["t/1"] = left
    for clock.now in (1.0, 6.0, 7.0):
        planned = plan.next(offset)
        offset = offset if planned is None else planned.end
    assert offset == {"t/0": 5, "t/1": 4 if left is None else 2}
    assert plan.finished(offset) is True


# --- losses ---


def test_unread_deleted_messages_are_an_error_that_names_them() -> None:
    plan = new_planner(Brokers({"t/0": (7, 9)}))
    for start, lost in ((3, "messages 3 to 6"), (6, "messages 6 to 6")):
        with pytest.raises(SourceError, match=rf"{lost} of t/0 were deleted .*='warn' continues"):
            plan.next({"t/0": start})
    assert read(plan.next({"t/0": 7})) == [(["t", 0, 7, 9], 0, 0)]
    assert new_planner(Brokers({"t/0": (7, 7)})).next({"t/0": 7}) is None


def test_a_missing_partition_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    plan = new_planner(Brokers({"t/0": (0, 2)}), Clock(passing=5.0), on_data_loss="warn")
    for _ in range(4):
        assert plan.next({"t/0": 2, "t/1": 5}) is None
    assert caplog.messages == ["t/1 is not on the broker any more; continuing with what is left"]


def test_the_loss_of_all_messages_may_be_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    plan = new_planner(Brokers({"t/0": (9, 9)}), on_data_loss="warn")
    planned = plan.next({"t/0": 3})
    assert (planned.end, planned.splits) == ({"t/0": 9}, [])
    assert caplog.messages == [
        "messages 3 to 8 of t/0 were deleted on the broker before the flow read them; "
        "continuing with what is left"
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
    assert len(caplog.messages) == 1


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
def test_messages_deleted_since_the_start_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    ranges = {"t/0": (1_700, 9_000), "t/1": (10, 9_000), "t/2": (5, 5), "t/3": (0, 9_000)}
    brokers = Brokers(ranges, times={"t/0": 1_690, "t/1": 30, "t/2": -5, "t/3": -10})
    plan = new_planner(brokers, start=datetime.fromtimestamp(0.01, UTC))
    first = plan.next(None)
    assert {split.what[0] + str(split.what[1]): split.what[2] for split in first.splits} == {
        "t0": 1_700,
        "t1": 40,
        "t3": 0,
    }
    assert caplog.messages == [
        "messages before 1,700 of t/0 and 1 more were deleted on the broker, and may include "
        "messages since start=1970-01-01T00:00:00.010000+00:00; continuing with what is left"
    ]
    assert plan.next(first.end) is None
    assert len(caplog.messages) == 1


# --- brokers that do not answer ---


def test_a_broker_that_never_answered_is_an_error_after_a_while() -> None:
    clock = Clock()
    plan = new_planner(Brokers({}, silent=True), clock)
    assert plan.next(None) is None
    clock.now = 20.0
    with pytest.raises(SourceError, match="no Kafka broker answers at here:9092: gone; waited 20"):
        plan.next(None)


def test_a_silent_broker_is_waited_for_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock, brokers = Clock(), Brokers({"t/0": (0, 2)})
    plan = new_planner(brokers, clock)
    offset = plan.next(None).end
    brokers.silent = True
    for clock.now in (1.0, 59.0):
        assert plan.next(offset) is None
    brokers.silent = False
    assert plan.next(offset) is None
    assert caplog.messages == [
        "no Kafka broker answers at here:9092: gone; waiting for it",
        "Kafka answers again",
    ]
    brokers.silent = True
    clock.now = 100.0
    assert plan.next(offset) is None
    clock.now = 160.0
    with pytest.raises(SourceError, match="waited 60 s"):
        plan.next(offset)


def test_a_bounded_run_waits_for_a_registry_as_long_as_for_brokers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    plan = new_planner(Brokers({"t/0": (0, 2)}), clock, end="latest")
    silent = Unreachable("no registry answers", "the schema registry")
    monkeypatch.setattr(plan, "_next", Mock(side_effect=silent))
    for clock.now in (0.0, 19.0):
        assert (plan.next(None), plan.finished(None), plan.in_doubt()) == (None, False, True)
    clock.now = 20.0
    with pytest.raises(SourceError, match="no registry answers; waited 20 s"):
        plan.next(None)
    assert caplog.messages == []


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
    feed = feed_of(planners, FixedTime(7), only_available=True)
    first = feed.next(EpochOffset())
    assert (first.at, feed.next(first)) == ({}, first)
    assert not feed.end.done.is_set()
    feed.end.stop_asked.set()
    assert feed.next(first) is first
    assert feed.end.done.is_set()


def test_missing_or_stale_ends_are_no_poll() -> None:
    clock, brokers = Clock(), Brokers({"t/0": (0, 2)})
    plan = new_planner(brokers, clock)
    offset = plan.next(None).end
    assert plan.read_until_us(Moment(1), False) == 1
    brokers.silent = True
    assert (plan.next(offset), plan.read_until_us(Moment(2), False)) == (None, None)
    brokers.silent = False
    brokers.partitions_there["t/0"] = (0, 1)  # a broker that has just started knows no better
    assert (plan.next(offset), plan.read_until_us(Moment(3), False)) == (None, None)
    brokers.partitions_there["t/0"] = (0, 2)
    assert (plan.next(offset), plan.read_until_us(Moment(4), False)) == (None, 4)


@dataclass(frozen=True)
class Epoch:
    """Messages appended to each partition before an epoch, and the limit of what it reads."""

    appended: tuple[int, int, int]
    per_epoch: int


EPOCHS = st.lists(
    st.builds(
        Epoch, st.tuples(*[st.one_of(st.just(0), st.integers(0, 40))] * 3), st.integers(1, 30)
    ),
    max_size=25,
)


@sampled(100, by_default=40)
@given(EPOCHS, st.tuples(*[st.integers(1, 1_000)] * 3))
def test_messages_are_read_once_with_exact_behind_and_read_until(
    epochs: list[Epoch], paces: tuple[int, int, int]
) -> None:
    names = ["t/0", "t/1", "t/2"]
    most = {"now": 1}
    scales: Any = type("Scales", (), {"most": lambda *_: most["now"]})()
    brokers = Brokers(dict.fromkeys(names, (0, 0)))
    plan = new_planner(brokers, scales=scales)
    offset: Any = None
    polls: list[tuple[int, list[int]]] = []
    now_us = 0
    rest = [Epoch((0, 0, 0), 5_000)] * 3  # more than there is
    for epoch in epochs + rest:
        now_us, most["now"] = now_us + 1, epoch.per_epoch
        ends = [brokers.partitions_there[name][1] for name in names]
        ends = [end + more for end, more in zip(ends, epoch.appended, strict=True)]
        brokers.partitions_there = {name: (0, end) for name, end in zip(names, ends, strict=True)}
        polls.append((now_us, ends))
        before = offset or dict.fromkeys(names, 0)
        waiting = sum(ends) - sum(before.values())
        plan.report_progress(
            {n: before[name] * paces[n] for n, name in enumerate(names) if before[name]}
        )
        planned = plan.next(offset)
        assert planned is not None or (offset is not None and not waiting)
        if planned is not None:
            ranges = [tuple(split.what[1:]) for split in planned.splits]
            at = dict(before)
            for number, start, end in ranges:
                assert start == at[f"t/{number}"]
                at[f"t/{number}"] = end
            assert at == planned.end
            offset = planned.end
            assert sum(at.values()) - sum(before.values()) == min(waiting, epoch.per_epoch)
            assert planned.behind == [n for n in range(3) if at[names[n]] < ends[n]]
        behind = bool(planned and planned.behind)
        reached = [
            time_us
            for time_us, theirs in polls
            if all(offset[name] >= end for name, end in zip(names, theirs, strict=True))
        ]
        assert plan.read_until_us(Moment(now_us), behind) == max(reached, default=None)
        assert behind or plan.read_until_us(Moment(now_us), behind) == now_us
