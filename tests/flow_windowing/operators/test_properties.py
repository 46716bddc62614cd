"""Laws of windowing, over random clocks, windowers, operators and timelines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow_windowing as win
from flow.testing import TestDriver
from flow_windowing import EventClock, LateReason, SystemClock
from flow_windowing.lowering import DriverBuilder
from tests.support.sampling import sampled
from tests.support.windowed_flows import (
    JOINS,
    KINDS,
    OPERATORS,
    ORIGIN,
    Epoch,
    Heard,
    Received,
    Value,
    Witness,
    bytes_up_to,
    clocks,
    collecting,
    counts,
    event_sliding,
    finished,
    heard,
    in_epochs,
    items,
    received,
    sessions,
    time_of,
    timelines,
    uncounted_windowers,
    values,
    windowed_flow,
    windowers,
)

Items: TypeAlias = list[tuple[str, Value]]

cuts = bytes_up_to(12).map(lambda drawn: [byte % 7 for byte in drawn])
emits = st.sampled_from(["close", "update"])


def played(make: Any, sent: Items, sizes: list[int], shards: int = 1) -> Received:
    """Send items in epochs of these sizes at one system time, and return what each port emits."""
    with TestDriver(windowed_flow(make), now=ORIGIN, shards=shards) as t:
        for epoch in in_epochs(sent, sizes):
            t.send("in", epoch)
        t.end()
        return received(t)


@pytest.mark.parametrize("operator", [*OPERATORS, *JOINS])
@sampled(40, by_default=3)
@given(clocks, windowers, items, cuts, st.booleans(), emits)
def test_cutting_the_input_into_epochs_differently_changes_nothing(
    operator: str,
    clock: Any,
    windower: Any,
    sent: Items,
    sizes: list[int],
    ordered: bool,
    emit: str,
) -> None:
    def make(up: Any) -> Any:
        return {**OPERATORS, **JOINS}[operator](up, clock, windower, ordered, emit)

    assert played(make, sent, sizes) == played(make, sent, [], shards=2)


@sampled(100, by_default=6)
@given(clocks, windowers, items, cuts, st.booleans())
def test_cutting_differently_leaves_the_last_word_of_each_window_the_same(
    clock: Any, windower: Any, sent: Items, sizes: list[int], ordered: bool
) -> None:
    def last_words(sizes: list[int]) -> dict[tuple[str, int], Any]:
        out = played(
            lambda up: OPERATORS["collect list"](up, clock, windower, ordered, "epoch"),
            sent,
            sizes,
        )
        return {
            (key, metadata.window_id): (metadata, value)
            for key, emitted in out["down"].items()
            for metadata, value in emitted
            if not isinstance(value, win.Retracted)
            and metadata.window_id not in merged_away(out, key)
        }

    assert last_words(sizes) == last_words([])


def merged_away(out: Received, key: str) -> set[int]:
    """The ids of windows that became part of others before they closed."""
    return {one for metadata in out["closed"].get(key, ()) for one in metadata.merged_ids}


@pytest.mark.parametrize("kind", KINDS)
@sampled(100, by_default=8)
@given(
    st.data(),
    clocks,
    timelines,
    st.booleans(),
    st.sampled_from(["close", "update", "epoch"]),
    st.sampled_from([None, "last"]),
    st.sampled_from([None, "2s"]),
)
def test_a_snapshot_at_any_point_changes_nothing(
    kind: str,
    data: st.DataObject,
    clock: Any,
    epochs: list[Epoch],
    ordered: bool,
    emit: Any,
    timestamp: Any,
    forget_after: str | None,
) -> None:
    windower = data.draw(KINDS[kind])
    if isinstance(clock, EventClock):
        clock = replace(clock, forget_after=forget_after)
    config = replace(collecting(clock, windower, ordered, emit), timestamp=timestamp)
    assert heard(config, epochs, rebuilt=True) == heard(config, epochs)


@given(clocks, windowers, timelines, st.booleans(), st.sampled_from(["open", "close", "last"]))
def test_a_snapshot_of_a_logic_of_ones_own_changes_nothing_either(
    clock: Any, windower: Any, epochs: list[Epoch], ordered: bool, timestamp: Any
) -> None:
    config = DriverBuilder(clock, windower, Witness, ordered, timestamp=timestamp)
    told, told_again = heard(config, epochs, rebuilt=True), heard(config, epochs)
    assert told == told_again
    assert [one.timestamp for one, _ in told.down] == [one.timestamp for one, _ in told_again.down]


@sampled(150, by_default=15)
@given(clocks, uncounted_windowers, timelines, st.booleans())
def test_every_value_is_in_a_window_or_late(
    clock: Any, windower: Any, epochs: list[Epoch], ordered: bool
) -> None:
    out = heard(collecting(clock, windower, ordered), epochs)
    assert in_windows(out) | set(late_values(out)) == sent_in(epochs)


@given(clocks, counts, timelines, st.booleans())
def test_values_in_no_window_of_a_count_are_in_those_that_are_still_open(
    clock: Any, windower: Any, epochs: list[Epoch], ordered: bool
) -> None:
    count, step = windower.count, windower.step
    out = heard(collecting(clock, win.CountWindower(count, step), ordered), epochs)
    twin = heard(collecting(clock, win.CountWindower(count, step, partial=True), ordered), epochs)
    assert twin.down[: len(out.down)] == out.down
    assert twin.late == out.late
    assert in_windows(twin) | set(late_values(twin)) == sent_in(epochs)
    assert not in_windows(twin) & set(late_values(twin))
    assert all(len(held) < count for _, held in twin.down[len(out.down) :])


def in_windows(out: Heard) -> set[Value]:
    return {value for _, held in out.down for value in held}


def late_values(out: Heard) -> list[Value]:
    return [late.value for late in out.late]


def sent_in(epochs: list[Epoch]) -> set[Value]:
    return {value for epoch in epochs for value in epoch.values}


@sampled(150, by_default=15)
@given(clocks, windowers, timelines, st.booleans())
def test_windows_close_once_in_order_and_no_late_value_is_in_one_it_missed(
    clock: Any, windower: Any, epochs: list[Epoch], ordered: bool
) -> None:
    out = heard(collecting(clock, windower, ordered), epochs, rebuilt=True)
    ids = [metadata.window_id for metadata in out.closed]
    assert len(set(ids)) == len(ids)
    assert [metadata for metadata, _ in out.down] == out.closed
    if not isinstance(windower, win.CountWindower):
        assert sorted(out.closed, key=lambda window: window.close_time) == out.closed
    gone = {merged for metadata in out.closed for merged in metadata.merged_ids}
    assert not gone & set(ids)
    held = {metadata.window_id: values for metadata, values in out.down}
    assert len(set(late_values(out))) == len(out.late)
    for late in out.late:
        assert list(late.windows) == sorted(set(late.windows))
        if late.windows and not isinstance(windower, win.SessionWindower):
            assert all(late.value not in held.get(one.window_id, ()) for one in late.windows)
        else:
            assert all(late.value not in values for values in held.values())


@sampled(150, by_default=15)
@given(clocks, windowers, timelines, st.booleans())
def test_after_the_end_no_window_is_open_but_those_that_count(
    clock: Any, windower: Any, epochs: list[Epoch], ordered: bool
) -> None:
    state = finished(collecting(clock, windower, ordered), epochs).state()
    counting = isinstance(windower, win.CountWindower)
    if state is None:
        return
    assert not state.waiting
    assert not state.retained
    if counting and not windower.partial:
        assert set(state.windows) == set(state.windower[1])
    else:
        assert not state.windows
        assert counting or state.windower is None
    assert isinstance(clock, SystemClock) <= (counting or state.clock is None)


patient = EventClock(time_of, "100s")


@given(sessions | event_sliding, values, st.randoms(use_true_random=False), st.booleans())
def test_within_the_wait_the_order_of_arrival_does_not_matter(
    windower: Any, sent: list[Value], random: Any, ordered: bool
) -> None:
    shuffled = list(sent)
    random.shuffle(shuffled)

    def windows(arriving: list[Value]) -> list[tuple[Any, ...]]:
        out = heard(collecting(patient, windower, ordered), [Epoch(values=tuple(arriving))])
        assert not out.late
        return [
            (one.open_time, one.close_time, held if ordered else Counter(held))
            for one, held in out.down
        ]

    by_number = [(second, 0) for second, _ in sent], [(second, 0) for second, _ in shuffled]
    assert windows(by_number[0]) == windows(by_number[1])
    assert [one[:2] for one in windows(sent)] == [one[:2] for one in windows(shuffled)]
    assert [Counter(one[2]) for one in windows(sent)] == [
        Counter(one[2]) for one in windows(shuffled)
    ]


@given(event_sliding, values, st.randoms(use_true_random=False), st.booleans())
def test_event_sliding_windows_have_the_same_ids_in_any_order_of_arrival(
    windower: Any, sent: list[Value], random: Any, ordered: bool
) -> None:
    shuffled = list(sent)
    random.shuffle(shuffled)
    config = collecting(patient, windower, ordered)
    assert (
        heard(config, [Epoch(values=tuple(sent))]).closed
        == heard(config, [Epoch(values=tuple(shuffled))]).closed
    )


@given(values, windowers, cuts, st.booleans())
def test_values_without_a_timestamp_are_dropped_and_counted(
    sent: list[Value], windower: Any, sizes: list[int], ordered: bool
) -> None:
    clock = EventClock(_time_if_even, "5s", on_invalid="drop")
    config = collecting(clock, windower, ordered)
    mixed = heard(config, [Epoch(values=tuple(some)) for some in in_epochs(sent, sizes)])
    valid = heard(config, [Epoch(values=tuple(value for value in sent if value[0] % 2 == 0))])
    dropped = sum(counted.amount for counted in mixed.counted if counted.what == "dropped")
    assert dropped == sum(second % 2 for second, _ in sent)
    assert (mixed.down, mixed.late) == (valid.down, valid.late)


def _time_if_even(value: Value) -> Any:
    return None if value[0] % 2 else time_of(value)


@given(values, windowers, st.booleans())
def test_what_is_too_far_ahead_moves_nothing(
    sent: list[Value], windower: Any, ordered: bool
) -> None:
    # system time is that of second 0; nothing further than second 30 may come
    clock = EventClock(time_of, "5s", max_ahead="30s")
    honest = [value for value in sent if value[0] <= 30]
    out = heard(collecting(clock, windower, ordered), [Epoch(values=tuple(sent))])
    alone = heard(collecting(clock, windower, ordered), [Epoch(values=tuple(honest))])
    refused = [late for late in out.late if late.reason is LateReason.TOO_FAR_AHEAD]
    assert [late.value for late in refused] == [value for value in sent if value[0] > 30]
    assert [late for late in out.late if late not in refused] == alone.late
    assert (out.down, out.closed) == (alone.down, alone.closed)
