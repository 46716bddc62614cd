"""Folds of values into many states at once."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow_windowing.columnar.aggregates.object_accumulators import FailedItem, fold_items

groups_of_items = st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=12)


def add(text: str, item: int) -> str:
    return text + str(item)


def flatten(groups: list[list[int]]) -> tuple[list[str], list[int], np.ndarray]:
    """A state for each group, all items, and where those of each group begin."""
    counts = np.array([len(group) for group in groups], np.int64)
    items = [item for group in groups for item in group]
    return [f"{number}:" for number in range(len(groups))], items, np.cumsum(counts) - counts


@given(groups_of_items)
def test_each_state_takes_its_items_in_order(groups: list[list[int]]) -> None:
    states, items, starts = flatten(groups)
    expected = [reduce(add, group, states[at]) for at, group in enumerate(groups)]
    assert fold_items(add, states, items, starts) == expected


@given(groups_of_items, st.data())
def test_the_item_that_cannot_be_added_is_named(
    groups: list[list[int]], data: st.DataObject
) -> None:
    states, items, starts = flatten(groups)
    if not items:
        return
    culprit = data.draw(st.integers(0, len(items) - 1))
    numbered = [(at, item) for at, item in enumerate(items)]

    def refused(text: str, item: tuple[int, int]) -> str:
        if item[0] == culprit:
            raise ValueError("this one")
        return add(text, item[1])

    with pytest.raises(FailedItem) as caught:
        fold_items(refused, states, numbered, starts)
    assert caught.value.at == culprit
    assert isinstance(caught.value.__cause__, ValueError)


def test_given_states_are_not_changed() -> None:
    states = ["a", "b"]
    assert fold_items(add, states, [1, 2], np.array([0, 1])) == ["a1", "b2"]
    assert states == ["a", "b"]
