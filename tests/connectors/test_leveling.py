"""Shares of an epoch that bring partitions forward together in event time."""

from __future__ import annotations

from flow.connectors.leveling import Leveling


def test_a_partition_of_unknown_pace_gets_a_share_beside_others():
    leveling = Leveling()
    leveling.learn_pace({"known": 0}, {"known": 0})
    leveling.learn_pace({"known": 10}, {"known": 10})
    assert leveling.shares({"known": 100, "new": 100}, 20) == {"known": 10, "new": 10}


def test_a_removed_partition_leaves_no_state():
    leveling = Leveling()
    for units in (0, 10):
        leveling.learn_pace({"gone": units, "stays": units}, {"gone": units, "stays": units})
    leveling.forget(["gone", "never known"])
    assert [set(known) for known in vars(leveling).values()] == [{"stays"}] * 3


def test_a_partition_without_progress_gets_at_most_its_proportion():
    leveling = Leveling()
    leveling.learn_pace({"still": 0, "other": 0}, {"still": 0, "other": 0})
    leveling.learn_pace({"still": 10, "other": 1_000}, {"still": 10, "other": 10})
    assert leveling.shares({"still": 500, "other": 500}, 10) == {"still": 10}
    leveling.learn_pace({"still": 10, "other": 1_000}, {"still": 20, "other": 10})
    assert leveling.shares({"still": 500, "other": 500}, 10) == {"still": 5, "other": 5}


def test_a_small_partition_furthest_behind_is_read():
    leveling = Leveling()
    leveling.learn_pace({"small": 0, "large": 0}, {"small": 0, "large": 0})
    leveling.learn_pace({"small": 10, "large": 10}, {"small": 10, "large": 10})
    leveling.learn_pace({"large": 20}, {"large": 20})
    assert leveling.shares({"small": 1, "large": 1_000}, 1) == {"small": 1}


def test_a_restarted_partition_is_measured_anew():
    leveling = Leveling()
    leveling.learn_pace({"again": 0, "other": 0}, {"again": 0, "other": 0})
    leveling.learn_pace({"again": 9_000, "other": 10}, {"again": 90, "other": 10})
    leveling.learn_pace({"again": 9_000}, {"again": 5, "other": 10})
    leveling.learn_pace({"again": 9_010}, {"again": 15, "other": 10})
    # A unit of either is a microsecond now: 9,000 bring the other one to where this one is.
    shares = leveling.shares({"again": 20_000, "other": 20_000}, 10_000)
    assert abs(shares["again"] - 500) <= 1


def test_a_share_is_found_where_event_time_leaps() -> None:
    """A unit of partition 1 covers so much time that its backlog ends beyond any timestamp."""
    leveling: Leveling[int] = Leveling()
    leveling.learn_pace({0: 0, 1: 0}, {0: 0, 1: 0})
    leveling.learn_pace({0: 10, 1: 10**17}, {0: 10, 1: 1})
    assert leveling.shares({0: 10**6, 1: 10**6}, 100) == {0: 100}
