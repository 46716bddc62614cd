"""Planning of the offsets that each epoch reads: limits, event time, partitions behind and lag."""

from __future__ import annotations

from flow.connectors.kafka.broker.cluster import Ends, TopicPartition
from flow.connectors.kafka.reading.planner import _cut
from tests.support.clock import Clock
from tests.support.kafka_planning import Brokers, new_planner, read

# --- epochs ---


def test_an_epoch_reads_all_new_messages_and_returns_the_next_offset() -> None:
    brokers = Brokers({"t/0": (0, 5), "t/1": (2, 2)})
    plan = new_planner(brokers)
    first = plan.next(None)
    assert first.end == {"t/0": 5, "t/1": 2}
    assert read(first) == [(["t", 0, 0, 5], 0, 0)]
    assert plan.next(first.end) is None
    brokers.partitions_there["t/1"] = (2, 3)
    second = plan.next(first.end)
    assert (second.end, read(second)) == ({"t/0": 5, "t/1": 3}, [(["t", 1, 2, 3], 1, 0)])


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


def test_epochs_of_a_backlog_are_shared_in_proportion_to_lag() -> None:
    plan = new_planner(Brokers({"t/0": (0, 90), "t/1": (0, 10), "t/2": (0, 1)}), per_epoch=20)
    offset, epochs = None, []
    while (planned := plan.next(offset)) is not None:
        epochs.append(
            {name: end - (offset or {}).get(name, 0) for name, end in planned.end.items()}
        )
        offset = planned.end
    assert epochs[0] == {"t/0": 17, "t/1": 2, "t/2": 1}
    assert [sum(epoch.values()) for epoch in epochs] == [20, 20, 20, 20, 20, 1]
    assert offset == {"t/0": 90, "t/1": 10, "t/2": 1}


def test_few_partitions_are_split_for_all_cores() -> None:
    plan = new_planner(Brokers({"t/0": (0, 100_000)}), cores=4)
    assert [split for split, _, _ in read(plan.next(None))] == [
        ["t", 0, 0, 25_000],
        ["t", 0, 25_000, 50_000],
        ["t", 0, 50_000, 75_000],
        ["t", 0, 75_000, 100_000],
    ]
    assert _cut(0, 30_000, 4) == [(0, 30_000)]
    assert _cut(7, 7 + 59_999, 4) == [(7, 30_006), (30_006, 60_006)]


# --- event time ---


#  t/0   |-+-+-+-+-+-+-+-+-->    dense: a message is a microsecond
#  t/1   |---+---+---+---+-->    sparse: a message is a hundred
def test_partitions_of_a_backlog_advance_together_in_event_time() -> None:
    plan = new_planner(Brokers({"t/0": (0, 10_000), "t/1": (0, 10_000)}), per_epoch=100)
    offset = plan.next(None).end
    assert offset == {"t/0": 50, "t/1": 50}
    plan.hear({0: 50, 1: 5_000})
    offset = plan.next(offset).end
    assert offset == {"t/0": 100, "t/1": 100}  # the paces are not known before
    plan.hear({0: 100, 1: 10_000})
    third = plan.next(offset)
    assert third.end == {"t/0": 200, "t/1": 100}
    assert third.behind == [0, 1]  # also the one that is not read
    plan.hear({0: 5_100, 1: 10_000})  # its messages were fifty apart this time
    assert plan.next(third.end).end == {"t/0": 300, "t/1": 100}


def test_progress_is_mapped_to_the_partitions_of_a_checkpoint() -> None:
    """The first thing that a planner hears, before it has planned, is of where a run goes on."""
    plan = new_planner(Brokers({"t/0": (0, 500), "t/1": (0, 500)}), per_epoch=10)
    plan.hear({0: 1_000, 1: 0})
    offset = plan.next({"t/1": 100, "t/0": 100}).end
    plan.hear({0: 1_005, 1: 5})
    # By the checkpoint t/1 is partition 0: it is the one that is ahead.
    assert plan.next(offset).end == {"t/1": 105, "t/0": 115}


def test_a_source_partition_is_named_by_topic_and_number() -> None:
    plan = new_planner(Brokers({"t/0": (0, 5), "t/1": (0, 5)}))
    assert plan.name_of(1) == "partition 1"  # before the first plan
    plan.next({"t/1": 3})
    assert [plan.name_of(0), plan.name_of(1)] == ["t/1", "t/0"]


# --- behind ---


def test_partitions_with_messages_left_after_the_epoch_are_behind() -> None:
    brokers = Brokers({"t/0": (0, 90), "t/1": (0, 10), "t/2": (3, 3)})
    plan = new_planner(brokers, per_epoch=95)
    first = plan.next(None)
    assert (first.end, first.behind) == ({"t/0": 85, "t/1": 10, "t/2": 3}, [0])
    assert plan.next(first.end).behind == []
    assert plan.next({"t/0": 90, "t/1": 10, "t/2": 3}) is None


def test_transaction_markers_count_as_read_with_their_offsets() -> None:
    """Of t/0 two markers are left, of which no message and no progress comes."""
    plan = new_planner(Brokers({"t/0": (0, 12), "t/1": (0, 10)}), per_epoch=5)
    offset, behind = {"t/0": 10, "t/1": 0}, []
    while (planned := plan.next(offset)) is not None:
        plan.hear({1: planned.end["t/1"]})
        offset = planned.end
        behind.append(list(planned.behind))
    assert (offset, behind) == ({"t/0": 12, "t/1": 10}, [[0, 1], [1], []])


def test_a_partition_is_behind_up_to_the_end_of_the_run_only() -> None:
    brokers = Brokers({"t/0": (0, 50), "t/1": (0, 5)})
    given = new_planner(brokers, end={"t": {0: 5, 1: 9}}).next(None)
    assert given.end == {"t/0": 5, "t/1": 5}
    assert given.behind == [1]  # a source with an end is behind until then
    present = new_planner(brokers)
    present.stop_at_present()
    first = present.next(None)
    brokers.partitions_there = {"t/0": (0, 90), "t/1": (0, 9)}
    assert first.behind == []
    assert present.next(first.end) is None


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
