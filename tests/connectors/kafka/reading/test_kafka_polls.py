"""The history of polls: its bounded size, and the steady advance of its time."""

from __future__ import annotations

from flow.connectors.kafka.broker.cluster import TopicPartition
from flow.connectors.kafka.reading.polls import MOST_POLLS, PollHistory

ORDERS = TopicPartition("orders", 0)
SECOND = 1_000_000


def test_read_until_is_none_before_the_ends_of_a_poll_are_reached() -> None:
    polls = PollHistory()
    assert polls.read_until_us({}) is None
    polls.add(7, {ORDERS: 3})
    assert polls.read_until_us({ORDERS: 2}) is None
    assert polls.read_until_us({ORDERS: 3}) == 7


def test_read_until_stays_while_no_later_poll_is_reached() -> None:
    polls = PollHistory()
    polls.add(7, {ORDERS: 3})
    polls.add(8, {ORDERS: 5})
    assert [polls.read_until_us({ORDERS: at}) for at in (3, 4, 5)] == [7, 7, 8]
    assert len(polls) == 0


def test_lost_ends_do_not_block_later_polls() -> None:
    polls = PollHistory()
    polls.add(7, {ORDERS: 100})
    polls.add(8, {ORDERS: 5})  # the topic was created again
    assert polls.read_until_us({ORDERS: 5}) == 8


def test_a_long_backlog_keeps_few_polls_and_advances_read_until_steadily() -> None:
    """A poll a second for three hours, a message a second; then all of them are read."""
    polls, count = PollHistory(), 10_000
    for second in range(count):
        polls.add(second * SECOND, {ORDERS: 1_000 + second})
        assert polls.read_until_us({ORDERS: 0}) is None
        assert len(polls) <= MOST_POLLS
    times_us = [polls.read_until_us({ORDERS: 1_000 + second}) for second in range(count)]
    assert times_us[0] == 0
    assert times_us[-1] == (count - 1) * SECOND
    seconds = [(time_us or 0) / SECOND for time_us in times_us]
    lags = [second - time for second, time in enumerate(seconds)]
    assert min(lags) == 0
    assert max(lags) < 4 * count / MOST_POLLS
