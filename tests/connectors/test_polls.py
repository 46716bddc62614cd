"""The history of polls: the running time up to which a source is read."""

from __future__ import annotations

from flow.connectors.polls import MOST_POLLS, PollHistory

SECOND = 1_000_000


def test_lost_ends_do_not_block_later_polls() -> None:
    polls = PollHistory[str]()
    polls.add(7, {"orders": 100})
    polls.add(8, {"orders": 5})  # the topic was created again
    assert polls.read_until_us({"orders": 5}) == 8


def test_a_long_backlog_keeps_few_polls_and_advances_read_until_steadily() -> None:
    """A poll a second for most of an hour, a message a second; then all of them are read."""
    polls, count = PollHistory[str](), 3_000
    for second in range(count):
        polls.add(second * SECOND, {"orders": 1_000 + second})
        assert polls.read_until_us({"orders": 0}) is None
        assert len(polls._polls) <= MOST_POLLS
    times_us = [polls.read_until_us({"orders": 1_000 + second}) for second in range(count)]
    assert times_us[0] == 0
    assert times_us[-1] == (count - 1) * SECOND
    seconds = [(time_us or 0) / SECOND for time_us in times_us]
    lags = [second - time for second, time in enumerate(seconds)]
    assert min(lags) == 0
    assert max(lags) < 4 * count / MOST_POLLS


def test_a_later_poll_at_the_same_running_time_replaces_an_earlier_one() -> None:
    polls = PollHistory[str]()
    polls.add(5, {"files": 1})
    polls.add(5, {"files": 2})
    assert polls.read_until_us({"files": 1}) is None
    assert polls.read_until_us({"files": 2}) == 5
