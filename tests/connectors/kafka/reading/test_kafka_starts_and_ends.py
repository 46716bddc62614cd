"""First and last offsets of a run: starts, added partitions, bounded runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from flow.errors import SourceError
from tests.support.clock import Clock
from tests.support.kafka_planning import Brokers, new_planner, read

# --- where it starts ---


def test_a_flow_that_starts_at_the_latest_remembers_the_offsets() -> None:
    brokers = Brokers({"t/0": (0, 5)})
    first = new_planner(brokers, start="latest").next(None)
    assert (first.end, first.splits) == ({"t/0": 5}, [])
    brokers.partitions_there["t/0"] = (0, 7)
    assert read(new_planner(brokers, start="latest").next(first.end)) == [(["t", 0, 5, 7], 0, 0)]


def test_a_start_time_is_rounded_up_to_milliseconds() -> None:
    brokers = Brokers({"t/0": (0, 10_000)}, times={"t/0": 7})
    start = datetime.fromtimestamp(1.0001, UTC)
    assert read(new_planner(brokers, start=start).next(None)) == [(["t", 0, 1_008, 10_000], 0, 0)]


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


def test_a_run_of_available_messages_ends_although_more_arrive() -> None:
    brokers = Brokers({"t/0": (0, 5)})
    plan = new_planner(brokers, per_epoch=3)
    plan.stop_at_present()
    first = plan.next(None)
    brokers.partitions_there["t/0"] = (0, 9)
    second = plan.next(first.end)
    assert (first.end, second.end) == ({"t/0": 3}, {"t/0": 5})
    assert plan.next(second.end) is None
    assert plan.finished(second.end) is False


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
