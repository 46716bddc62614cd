"""Chunks: items in flight, in several shapes, each with its position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.columns.arrays import running_max
from flow.columns.chunks import (
    AFTER_ITEMS,
    AT_END,
    BEFORE_ITEMS,
    MAX_SPLITS,
    Chunk,
    Items,
    KeyedRecords,
    Pairs,
    Positions,
    Records,
    as_items,
    in_order,
    order_of,
    positions,
    take,
)


def at(*places: int) -> Positions:
    return np.array(places, np.int64)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def keyed(keys: str, *numbers: int, pos: Positions | None = None) -> KeyedRecords:
    places = np.arange(len(numbers), dtype=np.int64) if pos is None else pos
    return KeyedRecords(pa.array(list(keys), pa.string()), batch(*numbers), places)


def plain(chunk: Chunk) -> list[tuple[int, Any]]:
    """Positions and items."""
    one = as_items(chunk)
    return list(zip(one.pos.tolist(), one.items, strict=True))


# --- positions --------------------------------------------------------------------------------


def test_positions_go_by_slice_then_split_then_row() -> None:
    assert positions(0, 0, 5, 3).tolist() == [5, 6, 7]
    slices = [positions(s, o, 0, 1)[0] for s in (0, 1, 2) for o in (0, 1, MAX_SPLITS - 1)]
    assert slices == sorted(set(slices))
    assert positions(0, 0, 2**32 - 1, 1)[0] < positions(0, 1, 0, 1)[0]


def test_positions_of_timers_lie_before_and_after_all_items() -> None:
    last_item = positions(2**20 - 1, MAX_SPLITS - 1, 2**32 - 1, 1)[0]
    first_item = positions(0, 0, 0, 1)[0]
    order = [BEFORE_ITEMS, first_item, last_item, AFTER_ITEMS, AT_END, 2**63]
    assert order == sorted(set(order))


def test_a_mask_of_all_items_copies_nothing() -> None:
    chunk = keyed("aba", 1, 2, 3)
    assert take(chunk, np.ones(3, np.bool_)) is chunk


# --- order ------------------------------------------------------------------------------------


OTHER_SCHEMA = pa.RecordBatch.from_pylist([{"m": "x"}])


@pytest.mark.parametrize(
    ("chunks", "types"),
    [
        ([], []),
        ([Records(batch(1), at(0)), Items(["x"], at(1))], [Records, Items]),
        ([Records(batch(1, 2), at(0, 2)), Items(["x"], at(1))], [Items]),
        ([Records(batch(1, 2), at(0, 2)), Records(OTHER_SCHEMA, at(1))], [Items]),
        ([keyed("ac", 1, 3, pos=at(0, 2)), keyed("b", 2, pos=at(1))], [KeyedRecords]),
    ],
    ids=["none", "apart", "two shapes interleave", "two schemas interleave", "one shape"],
)
def test_shapes_that_interleave_become_plain_items(chunks: list[Chunk], types: list[type]) -> None:
    assert [type(chunk) for chunk in in_order(chunks)] == types


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_order_of_is_a_stable_sort(numbers: list[int]) -> None:
    order = order_of(np.array(numbers, np.int64)).tolist()
    assert order == sorted(range(len(numbers)), key=numbers.__getitem__)


PLACED = st.lists(
    st.tuples(
        st.sampled_from(["items", "pairs", "records", "keyed records"]),
        st.lists(st.integers(0, 5), max_size=4),
    ),
    max_size=5,
)


def placed(shape: str, places: list[int], first: int) -> Chunk:
    numbers = range(first, first + len(places))
    objects: list[Any] = [{"n": number} for number in numbers]
    match shape:
        case "items":
            return Items(objects, at(*places))
        case "pairs":
            return Pairs(["k"] * len(places), objects, at(*places))
        case "records":
            return Records(batch(*numbers), at(*places))
        case _:
            return keyed("k" * len(places), *numbers, pos=at(*places))


@given(PLACED)
def test_chunks_are_sorted_by_position_stably(parts: list[tuple[str, list[int]]]) -> None:
    chunks: list[Chunk] = []
    for shape, places in parts:
        chunks.append(placed(shape, places, first=sum(map(len, chunks))))
    everything = [item for chunk in chunks for item in plain(chunk)]
    ordered = [item for chunk in in_order(chunks) for item in plain(chunk)]
    assert ordered == sorted(everything, key=lambda item: item[0])


# --- runs ---

wide = st.one_of(st.integers(-4, 4), st.integers(-(2**62), 2**62))


@given(st.lists(st.lists(wide, min_size=1, max_size=5), max_size=5))
def test_running_max_restarts_with_each_run(runs: list[list[int]]) -> None:
    values = np.array([one for run in runs for one in run], np.int64)
    run_of_row = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
    expected = [max(run[: at + 1]) for run in runs for at in range(len(run))]
    assert running_max(values, run_of_row).tolist() == expected
