"""Counts of open windows and buffered values in headers, compared with a plain dict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flow.operators as op
from flow.engine.state.header import Header
from flow.engine.state.key_states import SegmentedStates
from flow.engine.state.segment import Segment
from flow.engine.state.segment_counts import SegmentCounts
from flow.engine.state.store import MemoryStore
from flow.instants import NEVER
from flow.keyed.state_counts import StateCounter, StateCounts
from tests.support.sampling import sampled
from tests.support.segments import segments_of


@dataclass
class Held:
    """A logic that is nothing but its snapshot: windows, values, and a text that has a weight."""

    state: tuple[int, int, str]

    def snapshot(self) -> tuple[int, int, str]:
        return self.state


class Counting(op.LogicBuilder):
    """The builder of a step whose windows and values are counted."""

    def __call__(self, snapshot: Any) -> Any:
        return Held(snapshot)

    @property
    def counter(self) -> StateCounter:
        return lambda state: StateCounts(state[0], state[1])


KEYS = [f"key-{number}" for number in range(16)]
states = st.tuples(st.integers(0, 3), st.integers(0, 5), st.text("x", max_size=80))
changes = st.dictionaries(st.sampled_from(KEYS), st.none() | states, max_size=8)
"""An epoch: the new state of each key, ``None`` for a key that is dropped."""


def play(store: MemoryStore, builder: Any, model: dict[str, Any], epoch: dict[str, Any]) -> Any:
    """Run an epoch on the state and on the model, and return the state."""
    one = SegmentedStates(store, "step", builder)
    one.prepare(list(epoch))
    for key, state in epoch.items():
        if state is None:
            one.drop(key)
            model.pop(key, None)
        else:
            one.put(key, Held(state), NEVER)
            model[key] = state
    one.flush()
    return one


def total_of(model: dict[str, Any]) -> StateCounts:
    return StateCounts(
        sum(windows for windows, _, _ in model.values()),
        sum(values for _, values, _ in model.values()),
    )


@sampled(100, by_default=30)
@given(st.lists(changes, max_size=8), st.sampled_from([1, 60, 300, 10_000]))
def test_totals_agree_with_a_dict(epochs: list[dict[str, Any]], target_bytes: int) -> None:
    store, model = MemoryStore(), dict[str, Any]()
    with segments_of(target_bytes):
        for epoch in epochs:
            one = play(store, Counting(), model, epoch)
            assert (one.counts(), one.uncounted()) == (total_of(model), 0)
            again = SegmentedStates(store, "step", Counting())
            assert again.counts() == total_of(model)


FULL = dict.fromkeys(KEYS, (1, 2, "x" * 50))


@sampled(100, by_default=30)
@given(
    st.lists(changes, min_size=1, max_size=4),
    st.lists(changes, max_size=4),
    st.sampled_from([1, 60, 300, 10_000]),
)
@example([FULL], [dict.fromkeys(KEYS)], 60)
@example([FULL], [dict.fromkeys(KEYS[1:])], 60)
def test_totals_of_state_without_counts_are_unknown_or_right(
    earlier: list[dict[str, Any]], later: list[dict[str, Any]], target_bytes: int
) -> None:
    store, model = MemoryStore(), dict[str, Any]()
    with segments_of(target_bytes):
        for epoch in earlier:  # `Held` alone, as a builder, counts nothing.
            assert play(store, Held, model, epoch).counts() is None
        assert (store.read_header("step") or b"\1")[0] == 1
        one = SegmentedStates(store, "step", Counting())
        assert one.uncounted() == len(model)
        for epoch in later:
            one = play(store, Counting(), model, epoch)
            known = one.counts()
            assert (known is None) == (one.uncounted() > 0)
            assert known in (None, total_of(model))
        one = play(store, Counting(), model, {key: (1, 7, key) for key in [*KEYS, *model]})
        assert (one.counts(), one.uncounted()) == (total_of(model), 0)


def test_segments_without_counts_are_counted_once_they_are_loaded() -> None:
    store = MemoryStore()
    play(store, Held, {}, {"a": (1, 2, ""), "b": (3, 4, "")})
    one = SegmentedStates(store, "step", Counting())
    one.flush()
    assert (one.counts(), one.uncounted()) == (None, 2)
    touched = play(store.copy(), Counting(), {}, {"a": (1, 3, "")})
    assert (touched.counts(), touched.uncounted()) == (StateCounts(4, 7), 0)
    one = SegmentedStates(store, "step", Counting())
    assert one.all() == ["a", "b"]
    one.flush()
    assert (one.counts(), one.uncounted()) == (StateCounts(4, 6), 0)
    (content,) = store.read_segments("step", [0])
    assert (content or b"")[0] == 5


def test_a_step_that_counts_no_longer_leaves_no_counts() -> None:
    store = MemoryStore()
    play(store, Counting(), {}, {"a": (1, 2, "")})
    assert (store.read_header("step") or b"")[0] == 5
    one = play(store, Held, {}, {"b": (1, 2, "")})
    assert (one.counts(), one.uncounted()) == (None, 0)
    assert (store.read_header("step") or b"")[0] == 1


# --- the form on disk -------------------------------------------------------------------------


@pytest.mark.parametrize(("held", "version"), [([NEVER, NEVER], 5), ([NEVER, 7], 6)])
@pytest.mark.parametrize("settings", ["", "set"])
def test_a_header_of_counts_survives_encoding(held: list[int], version: int, settings: str) -> None:
    counts = SegmentCounts(np.array([[3, -1], [70_000, -1]], np.int32), uncounted=9)
    header = Header(np.array([5, NEVER]), 12, 30, settings, np.array(held), counts)
    content = header.encode()
    assert content[0] == version
    read = Header.decode(content + b"a stamp", "step")
    assert read.encode() == content
    assert Header.length_in(content + b"a stamp") == len(content)
    assert read.counts is not None
    assert read.counts.counts.tolist() == [[3, -1], [70_000, -1]]
    assert (read.counts.uncounted, read.settings, read.held.tolist()) == (9, settings, held)


def test_the_format_of_a_header_with_counts_is_unchanged() -> None:
    counts = SegmentCounts(np.array([[3], [4]], np.int32))
    header = Header(np.array([NEVER]), 3, 7, "hold", counts=counts)
    assert header.encode().hex() == (
        "05" + "03" + "00" * 7 + "07" + "00" * 7 + "01000000" + "0000000000000040"
        "0000000000000000" + "03000000" + "04000000" + "04000000" + b"hold".hex()
    )


def test_a_segment_has_the_counts_of_each_key() -> None:
    made = Segment({"a": (b"A", 1), "b": (b"B", 2)})
    made.counts = {"b": StateCounts(3, 4), "a": StateCounts(1, 2)}
    content = made.encode() or b""
    assert content[0] == 5
    read = Segment.decode(content, "step")
    assert (read.kept, read.stored_keys) == (made.kept, 2)
    assert read.counts == {"a": StateCounts(1, 2), "b": StateCounts(3, 4)}
