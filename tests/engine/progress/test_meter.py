"""Measurement of stream progress where items leave a step: stamps, marks and their format."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.columns.chunks import Items, KeyedRecords
from flow.dataflow import StreamId
from flow.engine.plan.plan import Edge, EdgeKind
from flow.engine.progress.meter import Marks, Meter, Partition
from flow.errors import StepError
from flow.instants import NEVER, NO_PROGRESS, Moment
from tests.support.logics import Mileage

EDGE = Edge(3, StreamId("up", "down"), "step", 0, 1, EdgeKind.KEYED)
SOURCE, LEVEL = Partition("in", 0), Partition.of_level(1)


def meter(partition: Partition = SOURCE, progress: Mileage | None = None) -> Meter:
    return Meter(EDGE, progress or Mileage(), partition, Moment(0))


def chunk(*values: Any, start: int = 0) -> Items:
    """Items of one key, one at each position."""
    pos = np.arange(start, start + len(values), dtype=np.int64)
    return Items([("k", value) for value in values], pos)


def marks_of(one: Meter) -> list[tuple[int, int]]:
    marks = one.marks()
    return list(zip(marks.positions.tolist(), marks.values.tolist(), strict=True))


def test_a_stamp_is_the_greatest_measure_so_far() -> None:
    made = meter().stamp(chunk(None, 5, 3, 8, None, 8))
    assert made.keys == ["k"] * 6
    assert made.values == [(None, NO_PROGRESS), (5, 5), (3, 5), (8, 8), (None, 8), (8, 8)]


def test_stamps_continue_over_chunks() -> None:
    one = meter()
    one.stamp(chunk(5))
    assert one.stamp(chunk(3, start=1)).values == [(3, 5)]


def test_records_are_measured_row_by_row() -> None:
    batch = pa.RecordBatch.from_pylist([{"n": 5}, {"n": 4}])

    class OfRecords(Mileage):
        def measure(self, value: Any, moment: Moment) -> int:
            return int(value["n"])

    made = meter(progress=OfRecords()).stamp(
        KeyedRecords(pa.array(["a", "b"]), batch, np.arange(2))
    )
    assert (made.keys, made.values) == (["a", "b"], [({"n": 5}, 5), ({"n": 4}, 5)])


def test_marks_are_set_wherever_progress_advances() -> None:
    one = meter()
    one.stamp(chunk(1, 2, 2, None, 3))
    assert marks_of(one) == [(0, 1), (1, 2), (4, 3)]


def test_the_last_of_several_items_at_one_position_counts() -> None:
    one = meter()
    one.stamp(Items([("k", 1), ("k", 2), ("k", 3)], np.array([0, 7, 7])))
    assert marks_of(one) == [(0, 1), (7, 3)]


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


@pytest.mark.parametrize("partition", [SOURCE, LEVEL, Partition("two\nlines", 7)])
def test_marks_survive_a_round_trip(partition: Partition) -> None:
    one = meter(partition)
    one.stamp(chunk(-5, 3, None, 10))
    marks = one.marks()
    payload = marks.encode()
    again = Marks.decode(payload)
    assert (again.dest, again.partition) == (3, partition)
    assert again.positions.tolist() == marks.positions.tolist()
    assert again.values.tolist() == marks.values.tolist()
    assert Marks.dest_in(payload) == 3


def test_empty_marks_survive_a_round_trip() -> None:
    one = meter()
    one.stamp(chunk(None))
    assert len(Marks.decode(one.marks().encode()).positions) == 0


@pytest.mark.parametrize("answer", ["raises", "is no number"])
def test_a_measure_that_fails_names_the_step_the_key_and_the_value(answer: str) -> None:
    class Failing(Mileage):
        def measure(self, value: Any, moment: Moment) -> Any:
            return 1 // 0 if answer == "raises" else "far"

    with pytest.raises(StepError, match="step 'step': measuring its progress raised ") as caught:
        meter(progress=Failing()).stamp(chunk("here"))
    assert (caught.value.key, caught.value.item) == ("k", "'here'")
