"""Planning of a user-written source with several partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.source import MemoryLog, PartitionedSource, Planner, Slice
from flow.errors import SourceError
from flow.instants import Moment
from tests.support.sampling import sampled


class Pages(PartitionedSource[int]):
    """Items of partitions, read in pieces of some length; items that exist are a prefix of all."""

    def __init__(self, piece: int = 2, bounded: bool = True, **partitions: list[int]) -> None:
        self.piece = piece
        self.bounded = bounded
        self.items = partitions
        self.arrived_counts = {name: len(items) for name, items in partitions.items()}
        self.arrivals: dict[tuple[str, int], Any] = {}

    def partitions(self) -> list[str]:
        return list(self.items)

    def first_offset(self, partition: str) -> int:
        return 0

    def next_offset(self, partition: str, start: int) -> int | None:
        if self.bounded and start == len(self.items[partition]):
            return None
        return min(start + self.piece, self.arrived_counts[partition])

    def read_partition(self, partition: str, start: int, end: int) -> Iterator[list[int]]:
        yield self.items[partition][start:end]

    def arrived(self, partition: str, offset: int) -> Any:
        return self.arrivals.get((partition, offset))


class Tail(Pages):
    """Numbers that are appended to partitions; each is read from where it is when it is met."""

    def first_offset(self, partition: str) -> int:
        return len(self.items[partition])

    def next_offset(self, partition: str, start: int) -> int | None:
        end = len(self.items[partition])
        return end if end > start else None


def end_and_payloads(planner: Planner, start: Any) -> tuple[Any, list[Any]] | None:
    """Return the end offset of the next slice and the payloads of its splits."""
    found = planner.next(start)
    return None if found is None else (found.end, [split.what for split in found.splits])


def test_the_first_offset_of_a_partition_is_stored_without_items() -> None:
    source = Tail(bounded=False, a=[1, 2])
    planner = source.planner(MemoryLog(), 1)
    assert end_and_payloads(planner, None) == ({"a": 2}, [])
    assert end_and_payloads(planner, {"a": 2}) is None
    source.items["a"].append(3)
    source.items["b"] = [7]
    assert end_and_payloads(planner, {"a": 2}) == ({"a": 3, "b": 1}, [["a", 2, 3]])
    source.items["b"] = [7, 8]
    assert end_and_payloads(planner, {"a": 3, "b": 1}) == ({"a": 3, "b": 2}, [["b", 1, 2]])


def test_a_source_without_partitions_has_no_slice() -> None:
    assert end_and_payloads(Tail(bounded=False).planner(MemoryLog(), 1), None) is None


def next_slice(planner: Planner, start: Any) -> Slice:
    found = planner.next(start)
    assert found is not None
    return found


# --- behind ---


def test_a_partition_whose_next_offset_is_none_is_not_behind() -> None:
    planner = Tail(bounded=False, a=[1]).planner(MemoryLog(), 1)
    assert next_slice(planner, {"a": 0}).behind == []


# --- up to when it is read ---


def test_a_source_that_is_not_behind_is_read_until_now() -> None:
    planner = Pages(bounded=False, a=[1]).planner(MemoryLog(), 1)
    first = next_slice(planner, None)
    assert planner.read_until_us(Moment(7), bool(first.behind)) == 7
    assert planner.next(first.end) is None
    assert planner.read_until_us(Moment(8), False) == 8


def test_a_source_that_is_behind_is_read_until_the_least_arrival() -> None:
    source = Pages(a=[1, 2, 3], b=[1, 2, 3], c=[1])
    source.arrivals = {
        ("a", 2): datetime(1970, 1, 1, 0, 0, 40, tzinfo=UTC),
        ("b", 2): 30,
        ("c", 1): 10,  # read to its end
    }
    planner = source.planner(MemoryLog(), 1)
    assert next_slice(planner, None).behind == [0, 1]
    assert planner.read_until_us(Moment(50_000_000), True) == 30_000_000
    assert planner.read_until_us(Moment(20_000_000), True) == 20_000_000  # at most now
    stepped = Moment(50_000_000, downtime_us=2_000_000, stepped_us=3_000_000)
    assert planner.read_until_us(stepped, True) == 25_000_000  # an arrival is a wall time
    del source.arrivals["a", 2]
    assert planner.read_until_us(Moment(50_000_000), True) is None


def test_without_arrivals_a_source_that_is_behind_has_no_read_until() -> None:
    class Plain(Pages):
        arrived = PartitionedSource.arrived

    planner = Plain(a=[1, 2, 3]).planner(MemoryLog(), 1)
    assert next_slice(planner, None).behind == [0]
    assert planner.read_until_us(Moment(7), True) is None


@pytest.mark.parametrize("arrival", [datetime(2026, 1, 1), "noon", [3]])  # noqa: DTZ001
def test_an_arrival_that_is_no_instant_is_an_error(arrival: Any) -> None:
    source = Pages(a=[1, 2, 3])
    source.arrivals = {("a", 2): arrival}
    planner = source.planner(MemoryLog(), 1)
    next_slice(planner, None)
    message = r"Pages.arrived must return a point in time or None, for partition 'a': .* (is|naive)"
    with pytest.raises(SourceError, match=message):
        planner.read_until_us(Moment(7), True)


# --- which partition is read first ---


#  a   |--2--|--2--|              the dense one: a piece is 10 µs
#  b   |----------2----------|    the sparse one: a piece is 100 µs
def test_the_partition_furthest_behind_is_read_first() -> None:
    source = Pages(a=list(range(100)), b=list(range(100)))
    planner = source.planner(MemoryLog(), 1)
    first = next_slice(planner, None)
    planner.report_progress({0: 10, 1: 100})
    second = next_slice(planner, first.end)
    assert second.end == {"a": 4, "b": 4}  # by how much they come forward is not known yet
    planner.report_progress({0: 20, 1: 200})
    third = next_slice(planner, second.end)
    assert (third.end, third.behind) == ({"a": 6, "b": 4}, [0, 1])
    planner.report_progress({0: 189, 1: 200})
    fourth = next_slice(planner, third.end)
    assert fourth.end == {"a": 8, "b": 6}  # 11 µs ahead, and the last step was 169 µs


def test_a_skipped_partition_is_behind_even_if_one_read_would_reach_its_end() -> None:
    source = Pages(bounded=False, a=list(range(100)), b=[1, 2])
    planner = source.planner(MemoryLog(), 1)
    planner.report_progress({0: 0, 1: 500})
    end = next_slice(planner, {"a": 0, "b": 2}).end
    planner.report_progress({0: 10, 1: 500})
    source.items["b"].append(3)
    source.arrived_counts["b"] = 3
    found = next_slice(planner, end)
    assert (found.end, found.behind) == ({"a": 4, "b": 2}, [0, 1])


def test_a_finished_partition_does_not_hold_back_others() -> None:
    """Its clock may be slow for good, and something new may come of it all the time."""
    source = Pages(bounded=False, a=[1, 2], b=list(range(9)))
    planner = source.planner(MemoryLog(), 1)
    planner.report_progress({0: 0, 1: 500})
    first = next_slice(planner, None)
    planner.report_progress({0: 10, 1: 600})
    source.items["a"].append(3)
    source.arrived_counts["a"] = 3
    assert next_slice(planner, first.end).end == {"a": 3, "b": 4}


def test_partitions_of_unknown_progress_are_always_read() -> None:
    planner = Pages(a=list(range(9)), b=list(range(9)), c=list(range(9))).planner(MemoryLog(), 1)
    planner.report_progress({0: 0, 1: 500})
    first = next_slice(planner, None)
    planner.report_progress({0: 10, 1: 600})
    assert next_slice(planner, first.end).end == {"a": 4, "b": 2, "c": 4}


def test_a_partition_without_event_time_progress_does_not_hold_back_others() -> None:
    planner = Pages(a=list(range(9)), b=list(range(9))).planner(MemoryLog(), 1)
    planner.report_progress({0: 0, 1: 500})
    first = next_slice(planner, None)
    planner.report_progress({0: 10, 1: 600})
    planner.report_progress({0: 10, 1: 600})  # asked again before an epoch has run: nothing is new
    second = next_slice(planner, first.end)
    assert second.end == {"a": 4, "b": 2}
    planner.report_progress({0: 10, 1: 600})
    assert next_slice(planner, second.end).end == {"a": 6, "b": 4}


def test_a_source_partition_has_the_given_name() -> None:
    planner = Pages(north=[1], south=[2]).planner(MemoryLog(), 1)
    assert planner.name_of(1) == "partition 1"  # before the first plan
    planner.next(None)
    assert [planner.name_of(0), planner.name_of(1)] == ["north", "south"]


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=8), min_size=1, max_size=4),
    st.integers(1, 3),
    st.booleans(),
    st.data(),
)
@sampled(100, by_default=40)
def test_items_are_read_once_in_order_with_exact_behind(
    gaps: list[list[int]], piece: int, bounded: bool, data: st.DataObject
) -> None:
    """Timestamps grow by the gaps; items reach partitions while they are read."""
    names = "abcd"[: len(gaps)]
    source = Pages(piece, bounded, **dict(zip(names, gaps, strict=True)))
    source.arrived_counts = {
        name: data.draw(st.integers(0, len(source.items[name]))) for name in names
    }
    planner = source.planner(MemoryLog(), 1)
    offset: Any = None
    read: dict[str, list[int]] = {name: [] for name in names}
    reached_us: dict[int, int] = {}
    while True:
        planner.report_progress(reached_us)
        found = planner.next(offset)
        at = offset or dict.fromkeys(names, 0)
        waiting = [name for name in names if at[name] < source.arrived_counts[name]]
        assert not waiting or (found is not None and found.splits)
        for split in found.splits if found is not None else ():
            name, start, end = split.what
            assert start == len(read[name])
            read[name] += source.items[name][start:end]
            reached_us[split.partition] = sum(read[name])
        if found is not None:
            offset = found.end
            ends = {
                name: len(source.items[name]) if bounded else source.arrived_counts[name]
                for name in names
            }
            left = [number for number, name in enumerate(names) if offset[name] < ends[name]]
            assert list(found.behind) == left
        elif all(source.arrived_counts[name] == len(source.items[name]) for name in names):
            break
        for name in names:
            source.arrived_counts[name] = data.draw(
                st.integers(source.arrived_counts[name], len(source.items[name]))
                if found is not None
                else st.just(len(source.items[name]))
            )
    assert read == source.items
    assert planner.finished(offset) is bounded
