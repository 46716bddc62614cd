"""Records of several streams in one order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flow.columns.record_batches import SidedRecords

LEFT = pa.schema([("bid", pa.int64())])
RIGHT = pa.schema([("ask", pa.float64()), ("who", pa.string())])

chunks = st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(1, 3)), max_size=5)


def records(side: int, count: int, first: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    if side == 0:
        return pa.RecordBatch.from_pylist([{"bid": n} for n in numbers], schema=LEFT)
    rows = [{"ask": n / 2, "who": f"n{n}" if n % 3 else None} for n in numbers]
    return pa.RecordBatch.from_pylist(rows, schema=RIGHT)


def made(drawn: list[tuple[int, int]]) -> tuple[SidedRecords, list[tuple[int, Any]]]:
    """Return records, and the pairs that they stand for."""
    batches = [(side, records(side, count, 10 * at)) for at, (side, count) in enumerate(drawn)]
    pairs = [(side, row) for side, batch in batches for row in batch.to_pylist()]
    return SidedRecords.of(2, batches), pairs


@given(chunks)
def test_values_are_a_sequence_of_sides_and_dicts(drawn: list[tuple[int, int]]) -> None:
    values, pairs = made(drawn)
    assert list(values) == pairs
    assert values.records() == [row for _, row in pairs]
    assert list(values[1:3]) == pairs[1:3]


@given(chunks, chunks, st.data())
def test_some_values_of_two_are_those_of_their_lists(
    drawn: list[tuple[int, int]], others: list[tuple[int, int]], data: Any
) -> None:
    (values, pairs), (more, more_pairs) = made(drawn), made(others)
    chosen = data.draw(st.permutations(range(len(pairs)))) if pairs else []
    chosen = chosen[: data.draw(st.integers(0, len(pairs)))]
    taken = values.take(np.array(chosen, np.int64))
    expected = [pairs[at] for at in chosen]
    assert list(taken) == list(taken.compacted()) == expected
    both = taken.concat(more)
    assert both is not None
    assert list(both) == expected + more_pairs


def test_rows_that_no_value_refers_to_are_left_out_once_they_are_many() -> None:
    values, _ = made([(0, 3), (1, 3)])
    few = values.take(np.array([4]))
    assert [batch.num_rows for batch in few.batches] == [3, 3]
    assert [batch.num_rows for batch in few.compacted().batches] == [0, 1]


def test_records_with_other_columns_are_not_concatenated() -> None:
    values, _ = made([(0, 2)])
    others = SidedRecords.of(2, [(0, records(1, 1, 0))])
    assert values.concat(others) is None
