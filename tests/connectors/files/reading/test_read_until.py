"""Time up to which a source of files is read."""

from __future__ import annotations

import pytest

from flow.connectors.files.reading.planning import FILE_ORDERS, FileOrder, ListingTimes
from flow.connectors.source import Json
from tests.support.file_planning import Case, Lengths, slices, units

S = 1_000_000


@pytest.mark.parametrize("order", FILE_ORDERS)
def test_a_finished_bounded_source_is_read_until_now(order: FileOrder) -> None:
    case = Case(order, [10, 10], 15, parallelism=2)
    answers = [
        case.planner.read_until_us(now * S, bool(planned.behind))
        for now, (_, planned) in enumerate(slices(case.planner), 1)
    ]
    assert answers == [None, 2 * S]


#  seconds          0.5   1     1.5   2     2.5   3     3.5
#  files there      -     0-1   0-2   0-2   0-2   0-2   0-3
#  listed           no    yes   no    yes   no    yes   no
#  reads            -     0-1   -     2     -     -     -
#  all read up to   -     1     1     2     2     3     3
@pytest.mark.parametrize("order", FILE_ORDERS)
def test_read_until_is_the_time_of_the_last_listing(order: FileOrder) -> None:
    case = Case(order, [5] * 9, 100, appeared=0, follow=True)
    listings = Listings(case)
    # The listing of the planner's start belongs to no time that the planner knows.
    assert listings.at(0.5, appeared=0) == (None, None)
    assert listings.at(1.0, appeared=2) == ([0, 1], 1.0)
    assert listings.at(1.5, appeared=3) == (None, 1.0)
    assert listings.at(2.0, appeared=3) == ([2], 2.0)
    assert listings.at(2.5, appeared=3) == (None, 2.0)
    assert listings.at(3.0, appeared=3) == (None, 3.0)
    assert listings.at(3.5, appeared=4) == (None, 3.0)


#  seconds                1      2      3      4      5      6
#  files known            0      0-1    0-2    0-2    0-2    0-2
#  sequence reads half    0      0      1      1      2      2
#  all read up to         -      1      1      2      2      6
#  parallel reads half    0      1      2      0      1      2
#  all read up to         -      -      -      1      2      6
@pytest.mark.parametrize("order", FILE_ORDERS)
def test_read_until_with_a_backlog_is_the_newest_listing_that_is_read(order: FileOrder) -> None:
    case = Case(order, Lengths([10] * 3, least_piece=5), 5, appeared=0, follow=True)
    listings = Listings(case)
    if order == "sequence":
        expected = [([0], None), ([0], 1), ([1], 1), ([1], 2), ([2], 2), ([2], 6)]
    else:
        # A file that has just appeared goes before those of which something is read.
        expected = [([0], None), ([1], None), ([2], None), ([0], 1), ([1], 2), ([2], 6)]
    assert [listings.at(now, min(now, 3)) for now in range(1, 7)] == expected


class Listings:
    """Engine's calls of a planner for slices and read-until times."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._start: Json = None

    def at(self, seconds: float, appeared: int) -> tuple[list[int] | None, float | None]:
        """Return the files that are read next, and the time up to which all is read then."""
        case = self._case
        case.appeared = appeared
        case.clock.now = 100 + seconds
        planned = case.planner.next(self._start)
        if planned is not None:
            self._start = planned.end
        behind = planned is not None and bool(planned.behind)
        until_us = case.planner.read_until_us(round(seconds * S), behind)
        read = (
            None
            if planned is None
            else sorted({number for pieces in units(planned).values() for number, *_ in pieces})
        )
        return read, None if until_us is None else until_us / S


def test_the_number_of_remembered_listings_is_bounded() -> None:
    times = ListingTimes()
    for now_us in range(1_000):
        times.add(now_us, 5)
    assert len(times._listings) == 1
    for now_us in range(1_000, 2_000):
        times.add(now_us, now_us)
        assert times.read_until_us(now_us - 2) == max(999, now_us - 2)
    assert len(times._listings) == 3


def test_a_second_listing_at_the_same_time_replaces_the_first() -> None:
    times = ListingTimes()
    times.add(7, 1)
    assert times.read_until_us(1) == 7
    times.add(7, 2)
    assert times.read_until_us(1) is None
    assert times.read_until_us(2) == 7
