"""Measurement of stream progress where items leave a step: stamps, marks and their format."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.columns.chunks import Items
from flow.dataflow import StreamId
from flow.engine.plan.plan import Edge, EdgeKind
from flow.engine.progress.meter import Marks, Meter, Partition
from flow.instants import NEVER, NO_PROGRESS, Moment
from tests.support.logics import Mileage

EDGE = Edge(3, StreamId("up", "down"), "step", 0, 1, EdgeKind.KEYED)
SOURCE, LEVEL = Partition("in", 0), Partition("", 1)


def meter(partition: Partition = SOURCE, progress: Mileage | None = None) -> Meter:
    return Meter(EDGE, progress or Mileage(), partition, Moment(0))


def chunk(*values: Any, start: int = 0) -> Items:
    """Items of one key, one at each position."""
    pos = np.arange(start, start + len(values), dtype=np.int64)
    return Items([("k", value) for value in values], pos)


def marks_of(one: Meter) -> list[tuple[int, int]]:
    marks = one.marks()
    return list(zip(marks.positions.tolist(), marks.values.tolist(), strict=True))


def test_marks_are_set_wherever_progress_advances() -> None:
    """Of several items at one position the last counts."""
    one = meter()
    one.stamp(chunk(1, 2, 2, None, 3))
    one.stamp(Items([("k", 4), ("k", 5), ("k", 6)], np.array([5, 7, 7])))
    assert marks_of(one) == [(0, 1), (1, 2), (4, 3), (5, 4), (7, 6)]


#  position      0  1  2  3 | 4  5  6  7 | 8  9
#  four at most  x        x            x       x
def test_marks_over_the_limit_keep_the_first_and_the_ends_of_runs() -> None:
    with mock.patch("flow.engine.progress.meter.MOST_MARKS", 4):
        one = meter()
        one.stamp(chunk(*range(10)))
    assert marks_of(one) == [(0, 0), (3, 3), (7, 7), (9, 9)]


@given(st.lists(st.integers(0, 2000), max_size=400), st.integers(2, 20))
def test_marks_are_bounded_and_include_the_first_and_the_last(values: list[int], most: int) -> None:
    with mock.patch("flow.engine.progress.meter.MOST_MARKS", most):
        thin = meter()
        thin.stamp(chunk(*values))
    every = meter(LEVEL)
    every.stamp(chunk(*values))
    few, all_marks = marks_of(thin), marks_of(every)
    assert len(few) <= most
    assert set(few) <= set(all_marks)
    assert [few[:1], few[-1:]] == [all_marks[:1], all_marks[-1:]]


def test_marks_of_a_level_are_not_limited() -> None:
    one = meter(LEVEL)
    one.stamp(chunk(*range(1000)))
    assert len(marks_of(one)) == 1000


def test_measures_are_limited_to_the_range_of_time() -> None:
    one = meter()
    assert one.stamp(chunk(NO_PROGRESS - 1, NEVER + 1)).values == [
        (NO_PROGRESS - 1, NO_PROGRESS),
        (NEVER + 1, NEVER),
    ]


@pytest.mark.parametrize("values", [(-5, 3, None, 10), (None,)])
@pytest.mark.parametrize("partition", [SOURCE, LEVEL, Partition("two\nlines", 7)])
def test_marks_survive_a_round_trip(partition: Partition, values: tuple[Any, ...]) -> None:
    one = meter(partition)
    one.stamp(chunk(*values))
    marks = one.marks()
    payload = marks.encode()
    again = Marks.decode(payload)
    assert (again.dest, again.partition) == (3, partition)
    assert again.positions.tolist() == marks.positions.tolist()
    assert again.values.tolist() == marks.values.tolist()
    assert Marks.dest_in(payload) == 3
