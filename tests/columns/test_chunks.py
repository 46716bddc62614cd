"""Chunks: items in flight, in several shapes, each with its position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    as_pairs,
    in_order,
    order_of,
    pick,
    positions,
    reorder,
    take,
)
from flow.errors import StepError


def at(*places: int) -> Positions:
    return np.array(places, np.int64)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def keyed(keys: str, *numbers: int, pos: Positions | None = None) -> KeyedRecords:
    places = np.arange(len(numbers), dtype=np.int64) if pos is None else pos
    return KeyedRecords(pa.array(list(keys), pa.string()), batch(*numbers), places)


SHAPES: dict[str, Callable[[], Chunk]] = {
    "items": lambda: Items([("a", 1), ("b", 2), ("a", 3)], at(0, 1, 2)),
    "pairs": lambda: Pairs(["a", "b", "a"], [1, 2, 3], at(0, 1, 2)),
    "records": lambda: Records(batch(1, 2, 3), at(0, 1, 2)),
    "keyed records": lambda: keyed("aba", 1, 2, 3),
}


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


# --- shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "items"),
    [
        ("items", [("a", 1), ("b", 2), ("a", 3)]),
        ("pairs", [("a", 1), ("b", 2), ("a", 3)]),
        ("records", [{"n": 1}, {"n": 2}, {"n": 3}]),
        ("keyed records", [("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 3})]),
    ],
)
def test_every_shape_has_a_plain_form(shape: str, items: list[Any]) -> None:
    assert as_items(SHAPES[shape]()).items == items


@pytest.mark.parametrize("shape", ["items", "pairs", "keyed records"])
def test_keyed_shapes_have_a_form_as_pairs(shape: str) -> None:
    pairs = as_pairs(SHAPES[shape](), "step")
    assert pairs.keys == ["a", "b", "a"]
    assert pairs.pos.tolist() == [0, 1, 2]


def test_records_are_not_pairs() -> None:
    with pytest.raises(StepError, match=r"needs \(key, value\) pairs, got dict"):
        as_pairs(SHAPES["records"](), "step")


@pytest.mark.parametrize("shape", SHAPES)
def test_items_can_be_taken_by_a_mask(shape: str) -> None:
    chunk = SHAPES[shape]()
    result = take(chunk, np.array([True, False, True]))
    assert type(result) is type(chunk)
    assert plain(result) == [plain(chunk)[0], plain(chunk)[2]]
    assert plain(take(chunk, np.zeros(3, np.bool_))) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mask_of_all_items_copies_nothing(shape: str) -> None:
    chunk = SHAPES[shape]()
    assert take(chunk, np.ones(3, np.bool_)) is chunk


@pytest.mark.parametrize("shape", SHAPES)
def test_items_can_be_put_into_another_order(shape: str) -> None:
    chunk = SHAPES[shape]()
    turned = reorder(chunk, np.array([2, 0]))
    assert type(turned) is type(chunk)
    assert plain(turned) == [plain(chunk)[2], plain(chunk)[0]]


@pytest.mark.parametrize(
    ("order", "picked"), [([], []), ([1], ["b"]), ([2, 0, 2], ["c", "a", "c"])]
)
def test_values_are_picked_by_index(order: list[int], picked: list[str]) -> None:
    assert pick(["a", "b", "c"], np.array(order, np.intp)) == picked


# --- order ------------------------------------------------------------------------------------


def test_chunks_of_one_shape_are_joined() -> None:
    assert len(in_order([Items([1], at(0)), Items([2], at(1))])) == 1
    (records,) = in_order([Records(batch(1), at(0)), Records(batch(2), at(1))])
    assert isinstance(records, Records)
    assert records.batch.to_pydict() == {"n": [1, 2]}


def test_chunks_are_put_in_order_of_position() -> None:
    (chunk,) = in_order([keyed("ac", 1, 3, pos=at(0, 2)), keyed("b", 2, pos=at(1))])
    assert isinstance(chunk, KeyedRecords)
    assert plain(chunk) == [(0, ("a", {"n": 1})), (1, ("b", {"n": 2})), (2, ("c", {"n": 3}))]


def test_items_of_equal_position_keep_their_order() -> None:
    (chunk,) = in_order([Items(["x", "y"], at(0, 1)), Items(["X", "Y"], at(0, 1))])
    assert plain(chunk) == [(0, "x"), (0, "X"), (1, "y"), (1, "Y")]


def test_shapes_that_do_not_interleave_stay_separate() -> None:
    chunks = in_order([Records(batch(1), at(0)), Items(["x"], at(1))])
    assert [type(chunk) for chunk in chunks] == [Records, Items]


def test_shapes_that_interleave_become_plain_items() -> None:
    chunks = in_order([Records(batch(1, 2), at(0, 2)), Items(["x"], at(1))])
    assert [plain(chunk) for chunk in chunks] == [[(0, {"n": 1}), (1, "x"), (2, {"n": 2})]]


def test_records_of_two_schemas_that_interleave_become_plain_items() -> None:
    other = pa.RecordBatch.from_pylist([{"m": "x"}])
    (chunk,) = in_order([Records(batch(1, 2), at(0, 2)), Records(other, at(1))])
    assert plain(chunk) == [(0, {"n": 1}), (1, {"m": "x"}), (2, {"n": 2})]


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_order_of_is_a_stable_sort(numbers: list[int]) -> None:
    order = order_of(np.array(numbers, np.int64)).tolist()
    assert order == sorted(range(len(numbers)), key=numbers.__getitem__)


def test_no_chunks_give_no_chunks() -> None:
    assert in_order([]) == []


PLACED = st.lists(
    st.tuples(
        st.sampled_from(["items", "pairs", "records", "keyed records"]),
        st.lists(st.integers(0, 5), max_size=4),
    ),
    max_size=5,
)


def placed(shape: str, places: list[int], first: int) -> Chunk:
    numbers = list(range(first, first + len(places)))
    match shape:
        case "items":
            return Items([{"n": number} for number in numbers], at(*places))
        case "pairs":
            return Pairs(["k"] * len(places), [{"n": number} for number in numbers], at(*places))
        case "records":
            return Records(batch(*numbers), at(*places))
        case _:
            return keyed("k" * len(places), *numbers, pos=at(*places))


@given(PLACED)
def test_chunks_are_sorted_by_position_stably(
    parts: list[tuple[str, list[int]]],
) -> None:
    chunks: list[Chunk] = []
    for shape, places in parts:
        chunks.append(placed(shape, places, first=sum(map(len, chunks))))
    everything = [item for chunk in chunks for item in plain(chunk)]
    ordered = [item for chunk in in_order(chunks) for item in plain(chunk)]
    assert ordered == sorted(everything, key=lambda item: item[0])
