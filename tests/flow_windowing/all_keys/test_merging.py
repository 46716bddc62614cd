"""The second level of windows over all keys: the merge of partial accumulators."""

from __future__ import annotations

from itertools import permutations

from flow.instants import Moment
from flow.keyed.logic import DISCARD
from flow_windowing import Aggregator, WindowMetadata
from flow_windowing.all_keys import CLOSED, DOWN, MergeBuilder, Partial


class Joined(Aggregator[str, str, str]):
    """Texts, one after the other: the result depends on the order of merges."""

    def initialize(self) -> str:
        return ""

    def add(self, state: str, value: str) -> str:
        return state + value

    def merge(self, state: str, other: str) -> str:
        return state + other

    def result(self, state: str) -> str:
        return state


def window(number: int) -> WindowMetadata:
    return WindowMetadata.of_us(number, number * 10, number * 10 + 10)


def test_partials_are_merged_in_order_of_their_source_and_windows_in_order_of_time() -> None:
    partials = [
        Partial("2", window(7), "b"),
        Partial("10", window(7), "a"),
        Partial("3", window(-1), "d"),
        Partial("3", window(7), "c"),
    ]
    for order in permutations(partials):
        output, keep = MergeBuilder(Joined())(None).on_batch(list(order), Moment(0))
        assert list(output) == [
            (DOWN, (window(-1), "d")),
            (CLOSED, window(-1)),
            (DOWN, (window(7), "abc")),
            (CLOSED, window(7)),
        ]
        assert keep is DISCARD
