"""Counts of open windows and buffered values in headers, compared with a plain dict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
from flow.engine.state.key_states import SegmentedStates
from flow.engine.state.segment import Segment
from flow.engine.state.step_state import Header
from flow.engine.state.store import MemoryStore
from flow.instants import NEVER
from flow.keyed.state import StateCounts
from flow.keyed.step import Capabilities
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
    def capabilities(self) -> Capabilities:
        return Capabilities(counter=counted)


def counted(state: tuple[int, int, str]) -> StateCounts:
    return StateCounts(state[0], state[1])


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
            assert one.header.total == total_of(model)
            again = SegmentedStates(store, "step", Counting())
            assert again.header.total == total_of(model)


@sampled(100, by_default=30)
@given(st.lists(changes, min_size=1, max_size=4), st.sampled_from([1, 60, 300, 10_000]))
def test_a_step_that_gets_a_counter_counts_all_its_keys(
    epochs: list[dict[str, Any]], target_bytes: int
) -> None:
    store, model = MemoryStore(), dict[str, Any]()
    with segments_of(target_bytes):
        for epoch in epochs:  # `Held` alone, as a builder, counts nothing.
            assert play(store, Held, model, epoch).header.total == StateCounts()
        play(store, Counting(), model, {})
        assert SegmentedStates(store, "step", Counting()).header.total == total_of(model)


def test_a_step_that_counts_no_longer_leaves_no_counts() -> None:
    store = MemoryStore()
    with segments_of(60):
        play(store, Counting(), {}, dict.fromkeys(KEYS, (1, 2, "x" * 50)))
        before = Header.decode(store.read_header("step") or b"", "step")
        assert (before.total, before.is_counted) == ((16, 32), True)
        assert before.segments > 1
        assert play(store, Held, {}, {"key-1": (1, 2, "")}).header.total == StateCounts()
        after = Header.decode(store.read_header("step") or b"", "step")
        assert (after.total, after.is_counted) == ((0, 0), False)


def test_a_segment_has_the_counts_of_each_key() -> None:
    made = Segment({"a": (b"A", 1), "b": (b"B", 2)})
    made.counts = {"b": StateCounts(3, 4), "a": StateCounts(1, 2)}
    read = Segment.decode(made.encode(), "step", None, counted)
    assert (read.kept, read.counts) == (made.kept, made.counts)
