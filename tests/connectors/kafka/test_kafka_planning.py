"""What each epoch reads of topics, planned against brokers that a test makes up."""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.kafka import KafkaSource, cluster
from flow.connectors.kafka.cluster import Ends, TopicPartition, Unreachable
from flow.connectors.kafka.planning import KafkaPlanner, Reach, _cut, _shares
from flow.connectors.source import MemoryLog
from flow.engine.feed import EpochOffset, Feed, FixedTime
from flow.errors import SourceError


@dataclass
class Clock:
    """Seconds, in the test's hands; some pass with each look at it."""

    now: float = 0.0
    passing: float = 0.0

    def __call__(self) -> float:
        self.now += self.passing
        return self.now


@dataclass
class Brokers:
    """Partitions by name, each with where it begins and ends."""

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


def planner(
    brokers: Brokers,
    clock: Clock | None = None,
    cores: int = 1,
    scales: Any = None,
    **more: Any,
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
    """What a slice reads: ranges, source partitions, and places among the splits of those."""
    return [(split.what, split.partition, split.order) for split in planned.splits]


# --- epochs ---


def test_an_epoch_reads_all_that_is_new_and_says_where_to_go_on() -> None:
    brokers = Brokers({"t/0": (0, 5), "t/1": (2, 2)})
    plan = planner(brokers)
    first = plan.next(None)
    assert first.end == {"t/0": 5, "t/1": 2}
    assert read(first) == [(["t", 0, 0, 5], 0, 0)]
    assert plan.next(first.end) is None
    brokers.partitions_there["t/1"] = (2, 3)
    second = plan.next(first.end)
    assert (second.end, read(second)) == ({"t/0": 5, "t/1": 3}, [(["t", 1, 2, 3], 1, 0)])


def test_a_backlog_comes_in_epochs_of_what_its_messages_weigh() -> None:
    class Scales:
        def most(self, at: Ends, waiting: dict[TopicPartition, int]) -> int:
            return at[TopicPartition("t", 0)] + sum(waiting.values()) // 10

    weighing = planner(Brokers({"t/0": (0, 50), "t/1": (0, 50)}), scales=Scales())
    first = weighing.next(None)
    assert first.end == {"t/0": 5, "t/1": 5}
    assert weighing.next(first.end).end == {"t/0": 12, "t/1": 12}
    limited = planner(Brokers({"t/0": (0, 50)}), scales=Scales(), per_epoch=2)
    assert limited.next(None).end == {"t/0": 2}


def test_a_backlog_comes_in_epochs_of_bounded_size_dealt_out_by_what_waits() -> None:
    plan = planner(Brokers({"t/0": (0, 90), "t/1": (0, 10), "t/2": (0, 1)}), per_epoch=20)
    offset, epochs = None, []
    while (planned := plan.next(offset)) is not None:
        epochs.append(
            {name: end - (offset or {}).get(name, 0) for name, end in planned.end.items()}
        )
        offset = planned.end
    assert epochs[0] == {"t/0": 17, "t/1": 2, "t/2": 1}
    assert [sum(epoch.values()) for epoch in epochs] == [20, 20, 20, 20, 20, 1]
    assert offset == {"t/0": 90, "t/1": 10, "t/2": 1}


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.just("t"), st.integers(0, 20)), st.integers(1, 10**6)
    ),
    st.integers(1, 10**6),
)
def test_shares_add_up_to_the_limit_and_none_is_more_than_there_is(
    waiting: dict[TopicPartition, int], most: int
) -> None:
    shares = _shares(waiting, most)
    assert sum(shares.values()) == min(most, sum(waiting.values()))
    assert all(0 < share <= waiting[one] for one, share in shares.items())


def test_few_partitions_are_cut_up_so_that_all_cores_read() -> None:
    plan = planner(Brokers({"t/0": (0, 100_000)}), cores=4)
    assert [split for split, _, _ in read(plan.next(None))] == [
        ["t", 0, 0, 25_000],
        ["t", 0, 25_000, 50_000],
        ["t", 0, 50_000, 75_000],
        ["t", 0, 75_000, 100_000],
    ]
    assert _cut(0, 30_000, 4) == [(0, 30_000)]
    assert _cut(7, 7 + 59_999, 4) == [(7, 30_006), (30_006, 60_006)]


# --- where it starts ---


def test_a_flow_that_starts_at_the_latest_remembers_where_that_was() -> None:
    brokers = Brokers({"t/0": (0, 5)})
    first = planner(brokers, start="latest").next(None)
    assert (first.end, first.splits) == ({"t/0": 5}, [])
    brokers.partitions_there["t/0"] = (0, 7)
    assert read(planner(brokers, start="latest").next(first.end)) == [(["t", 0, 5, 7], 0, 0)]


def test_a_time_is_asked_of_the_brokers_in_milliseconds_rounded_up() -> None:
    brokers = Brokers({"t/0": (0, 10_000)}, times={"t/0": 7})
    start = datetime.fromtimestamp(1.0001, UTC)
    assert read(planner(brokers, start=start).next(None)) == [(["t", 0, 1_008, 10_000], 0, 0)]


#  t/0   |--------->
#  t/1             |----->   added while the flow runs: read whole, though it starts at the latest
#  other topic            |-->
def test_partitions_that_are_added_are_read_from_their_beginning_and_keep_their_numbers() -> None:
    brokers, clock = Brokers({"t/0": (0, 5)}), Clock()
    plan = planner(brokers, clock, start="latest")
    offset = plan.next(None).end
    brokers.partitions_there = {"a/0": (0, 1), "t/0": (0, 5), "t/1": (0, 3)}
    assert plan.next(offset) is None
    assert brokers.looks == 1
    clock.now = 10.0
    second = plan.next(offset)
    assert list(second.end.items()) == [("t/0", 5), ("a/0", 1), ("t/1", 3)]
    assert read(second) == [(["a", 0, 0, 1], 1, 0), (["t", 1, 0, 3], 2, 0)]


def test_topics_that_turn_up_after_a_pattern_matched_none_are_read_whole() -> None:
    brokers, clock = Brokers({}), Clock()
    plan = planner(brokers, clock, start="latest", topics=(), pattern="t.*")
    offset = plan.next(None).end
    assert offset == {}
    brokers.partitions_there, clock.now = {"t/0": (0, 2)}, 10.0
    assert read(plan.next(offset)) == [(["t", 0, 0, 2], 0, 0)]


def test_offsets_that_are_given_must_be_of_partitions_that_are_there() -> None:
    brokers = Brokers({"t/0": (0, 5), "t/1": (0, 5)})
    start = planner(brokers, start={"t": {1: 3}}).next(None)
    assert read(start) == [(["t", 0, 0, 5], 0, 0), (["t", 1, 3, 5], 1, 0)]
    said = "offsets are given of 't/2', and the partitions that there are are 't/0', 't/1'"
    for where in ("start", "end"):
        with pytest.raises(SourceError, match=said):
            planner(brokers, **{where: {"t": {1: 3, 2: 7}}}).next(None)


@pytest.mark.parametrize("how", [{"topics": ("t",)}, {"topics": (), "pattern": "t.*"}])
def test_a_checkpoint_of_topics_that_are_not_read_any_more_is_refused(how: Any) -> None:
    brokers = Brokers({"t/0": (0, 5)})
    assert read(planner(brokers, **how).next({"t/0": 3})) == [(["t", 0, 3, 5], 0, 0)]
    for question in ("next", "finished"):
        with pytest.raises(SourceError, match=r"holds offsets of topic 'u', which .*reset_steps"):
            getattr(planner(brokers, end="latest", **how), question)({"t/0": 3, "u/0": 7})


# --- where it ends ---


def test_a_run_with_an_end_reads_up_to_the_ends_there_were_at_its_start() -> None:
    brokers, clock = Brokers({"t/0": (0, 5)}), Clock()
    plan = planner(brokers, clock, end="latest")
    assert plan.finished(None) is False
    brokers.partitions_there = {"t/0": (0, 9), "t/1": (0, 3)}
    clock.now = 10.0
    first = plan.next(None)
    assert first.end == {"t/0": 5}
    assert plan.finished(first.end) is True
    assert planner(brokers, end="latest").finished({"t/0": 5}) is False


def test_a_run_that_reads_what_there_is_ends_though_more_comes() -> None:
    brokers = Brokers({"t/0": (0, 5)})
    plan = planner(brokers, per_epoch=3)
    plan.stop_at_present()
    first = plan.next(None)
    brokers.partitions_there["t/0"] = (0, 9)
    second = plan.next(first.end)
    assert (first.end, second.end) == ({"t/0": 3}, {"t/0": 5})
    assert plan.next(second.end) is None
    assert plan.finished(second.end) is False


def test_a_bounded_topic_that_is_empty_is_finished_once_that_is_noted() -> None:
    plan = planner(Brokers({"t/0": (4, 4)}), end="latest")
    assert plan.finished(None) is False
    first = plan.next(None)
    assert (first.end, first.splits) == ({"t/0": 4}, [])
    assert plan.finished(first.end) is True


@pytest.mark.parametrize("left", [None, (0, 2)])
def test_a_run_with_an_end_does_not_wait_for_what_is_lost(left: tuple[int, int] | None) -> None:
    """A partition is deleted, or made anew with fewer messages, before its end was reached."""
    brokers, clock = Brokers({"t/0": (0, 5), "t/1": (0, 9)}), Clock()
    plan = planner(brokers, clock, end="latest", on_data_loss="warn", per_epoch=7)
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


# --- lag ---


def test_lag_is_what_waits_behind_an_offset_by_partition() -> None:
    plan = planner(Brokers({"t/0": (0, 5_000), "t/1": (0, 10)}), per_epoch=1_002)
    first = plan.next(None)
    assert plan.behind(first.end) == {"t/0": 4_000, "t/1": 8}
    assert plan.lag(first.end) == "4,008 behind (t/0 4,000, t/1 8)"
    assert plan.lag({"t/0": 5_000, "t/1": 10}) == "0 behind"
    assert planner(Brokers({})).lag(None) == ""


def test_the_lag_of_many_partitions_shows_the_worst() -> None:
    plan = planner(Brokers({f"t/{n}": (0, n) for n in range(6)}), per_epoch=1)
    assert plan.lag(plan.next(None).end).startswith("14 behind (t/5 ")
    assert plan.lag(plan.next(None).end).endswith(", …)")


# --- losses ---


def test_deleted_messages_are_an_error_that_says_which() -> None:
    plan = planner(Brokers({"t/0": (7, 9)}))
    with pytest.raises(SourceError, match=r"messages 3 to 6 of t/0 were deleted .*='warn' goes"):
        plan.next({"t/0": 3})


def test_one_deleted_message_is_a_loss_and_those_that_were_read_are_none() -> None:
    plan = planner(Brokers({"t/0": (7, 9)}))
    with pytest.raises(SourceError, match="messages 6 to 6 of t/0 were deleted"):
        plan.next({"t/0": 6})
    assert read(plan.next({"t/0": 7})) == [(["t", 0, 7, 9], 0, 0)]
    assert planner(Brokers({"t/0": (7, 7)})).next({"t/0": 7}) is None


def test_a_partition_that_is_gone_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    plan = planner(Brokers({"t/0": (0, 2)}), Clock(passing=5.0), on_data_loss="warn")
    for _ in range(4):
        assert plan.next({"t/0": 2, "t/1": 5}) is None
    assert [record.getMessage() for record in caplog.records] == [
        "t/1 is not on the broker any more; going on with what is left"
    ]


def test_all_messages_deleted_are_a_loss_that_may_be_met_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = planner(Brokers({"t/0": (9, 9)}), on_data_loss="warn")
    planned = plan.next({"t/0": 3})
    assert (planned.end, planned.splits) == ({"t/0": 9}, [])
    assert [record.getMessage() for record in caplog.records] == [
        "messages 3 to 8 of t/0 were deleted on the broker before the flow read them; "
        "going on with what is left"
    ]


def test_a_topic_that_was_made_anew_is_a_loss_once_it_is_certain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    brokers = Brokers({"t/0": (0, 2)})
    fails = planner(brokers, clock)
    warns = planner(brokers, clock, on_data_loss="warn")
    assert fails.next({"t/0": 8}) is None
    assert warns.next({"t/0": 8}) is None
    clock.now = 5.0
    with pytest.raises(SourceError, match="t/0 ends at 2, and the flow has come to 8"):
        fails.next({"t/0": 8})
    assert read(warns.next({"t/0": 8})) == [(["t", 0, 0, 2], 0, 0)]
    assert len(caplog.records) == 1


def test_a_partition_that_is_gone_is_a_loss_once_it_is_certain() -> None:
    clock, brokers = Clock(), Brokers({"t/0": (0, 2), "t/1": (0, 2)})
    plan = planner(brokers, clock)
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


def test_a_run_that_ends_by_itself_waits_until_it_is_certain() -> None:
    clock = Clock()
    plan = planner(Brokers({"t/0": (0, 2)}), clock)
    plan.stop_at_present()
    assert (plan.next({"t/0": 8}), plan.in_doubt()) == (None, True)
    clock.now = 5.0
    with pytest.raises(SourceError, match="t/0 ends at 2"):
        plan.next({"t/0": 8})
    bounded = planner(Brokers({"t/0": (0, 2)}), end="latest")
    assert bounded.next({"t/0": 8}) is None
    assert bounded.finished({"t/0": 8}) is False


def test_a_named_topic_must_be_there_at_the_start() -> None:
    with pytest.raises(
        SourceError, match=r"there is no topic 't' on the broker, or .*: create it first"
    ):
        planner(Brokers({})).next(None)


# --- brokers that do not answer ---


def test_a_broker_that_never_answered_is_waited_for_for_a_while() -> None:
    clock = Clock()
    plan = planner(Brokers({}, silent=True), clock)
    assert plan.next(None) is None
    clock.now = 20.0
    with pytest.raises(SourceError, match="no Kafka broker answers at here:9092: gone; waited 20"):
        plan.next(None)


def test_a_broker_that_answers_no_more_is_waited_for_and_said_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    clock, brokers = Clock(), Brokers({"t/0": (0, 2)})
    plan = planner(brokers, clock)
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


def test_a_run_that_ends_by_itself_does_not_take_silence_for_nothing_new() -> None:
    brokers, clock = Brokers({"t/0": (0, 2)}, silent=True), Clock()
    plan = planner(brokers, clock)
    plan.stop_at_present()
    assert (plan.next(None), plan.in_doubt()) == (None, True)
    brokers.silent = False
    offset = plan.next(None).end
    assert (offset, plan.in_doubt()) == ({"t/0": 2}, False)
    assert (plan.next(offset), plan.in_doubt()) == (None, False)


def test_a_run_of_what_is_available_that_waits_for_a_broker_stops_when_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
