"""Stream progress of a step: at each item, between epochs, and in every shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
from flow import Dataflow, KeyedStream, Stream
from flow.dataflow import add_step
from flow.engine.local import Part
from flow.errors import StepError
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.keyed.step import Stateful
from flow.testing import TestDriver
from tests.support.logics import Journey, Mileage, Traveller, Waypoint
from tests.support.one_stream import a_flow
from tests.support.sampling import sampled

MICRO = "0.000001s"
"""The unit of progress here: what time moves it by."""


def travel(step_id: str, *ups: Stream[Any], builder: Any = None) -> KeyedStream[Any]:
    operator = Stateful(builder or Journey(), "travel", sides=len(ups))
    return add_step(step_id, operator, *ups)[0]


@dataclass(frozen=True)
class JourneyOf(Journey):
    """Builder of travellers of another class."""

    traveller: Any = Traveller

    def __call__(self, state: int | None) -> Traveller:
        return self.traveller(NEVER if state is None else state)  # type: ignore[no-any-return]


def driver(builder: Any = None, shards: int = 4) -> TestDriver:
    return TestDriver(a_flow(lambda s: travel("travel", s, builder=builder)), shards=shards)


def by_key(items: Iterable[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for key, value in items:
        found[key].append(value)
    return dict(found)


def take_by_key(t: TestDriver) -> dict[str, list[Any]]:
    """Take the items that each key has emitted since the last call."""
    return by_key(t.take("out"))


def parts(*of_partitions: Sequence[Any], key: str = "") -> dict[str, list[Part]]:
    """Return parts for the input "in", one for each partition.

    All values of a partition have one key, by default a key of the partition's own.
    """
    return {
        "in": [
            Part([(key or f"p{number}", value) for value in values], partition=number)
            for number, values in enumerate(of_partitions)
        ]
    }


# --- one partition ----------------------------------------------------------------------------


def test_an_item_sees_the_progress_of_all_keys() -> None:
    with driver() as t:
        t.send("in", [("a", 5), ("b", 3), ("a", None), ("b", 9), ("a", 7)])
        assert take_by_key(t) == {"a": [(5, 5), (None, 5), (7, 9)], "b": [(3, 5), (9, 9)]}
        t.send("in", [("a", 1)])
        assert take_by_key(t) == {"a": [(1, 9)]}


#  epoch   1          2        3
#  a       at 10, 4            (at 10) 12
#  b                  11
def test_items_of_other_keys_notify_a_silent_key() -> None:
    with driver() as t:
        t.send("in", [("a", Waypoint(10)), ("a", 4)])
        t.send("in", [("b", 9)])
        assert take_by_key(t) == {"a": [(Waypoint(10), NO_PROGRESS), (4, 4)], "b": [(9, 9)]}
        t.send("in", [("b", 11)])
        assert take_by_key(t) == {"a": [("notify", 11)], "b": [(11, 11)]}
        t.send("in", [("a", 12)])
        assert take_by_key(t) == {"a": [(12, 12)]}


def test_a_key_with_items_is_notified_after_them() -> None:
    with driver() as t:
        t.send("in", [("a", Waypoint(10)), ("b", 11), ("a", 3)])
        assert take_by_key(t) == {
            "a": [(Waypoint(10), NO_PROGRESS), (3, 11), ("notify", 11)],
            "b": [(11, 11)],
        }


def test_the_end_of_input_sees_all_progress() -> None:
    with driver() as t:
        t.send("in", [("a", 5), ("b", 8)])
        take_by_key(t)
        t.end()
        assert take_by_key(t) == {"a": [("end", 8)], "b": [("end", 8)]}


def test_calls_at_the_end_of_an_epoch_see_all_progress() -> None:
    class Chatty(Traveller):
        def on_epoch_end(self, moment: Moment) -> list[Any]:
            return [("epoch", moment.progress_us)]

    with driver(JourneyOf(traveller=Chatty)) as t:
        t.send("in", [("a", 5), ("b", 8)])
        assert take_by_key(t) == {"a": [(5, 5), ("epoch", 8)], "b": [(8, 8), ("epoch", 8)]}


VALUES = st.lists(st.integers(0, 60) | st.none(), max_size=60)
CUTS = st.lists(st.integers(0, 6), max_size=12)


def cut(items: list[Any], sizes: list[int]) -> list[list[list[Any]]]:
    """Items as epochs of one partition, of up to three splits each."""
    epochs: list[list[list[Any]]] = []
    for number, size in enumerate(sizes):
        if number % 3 == 0 or not epochs:
            epochs.append([])
        epochs[-1].append(items[:size])
        items = items[size:]
    return [*epochs, [items]]


def sent(flow: Dataflow, shards: int, epochs: list[list[list[Any]]]) -> dict[str, list[Any]]:
    """Return the items that each key has emitted after epochs of one partition."""
    with TestDriver(flow, shards=shards) as t:
        for epoch in epochs:
            t.send_parts({"in": [Part(split) for split in epoch]})
        return take_by_key(t)


def stamped(items: Iterable[tuple[str, int | None]]) -> dict[str, list[Any]]:
    """Return the values of each key with the running maximum of all values."""
    reached, found = NO_PROGRESS, []
    for key, value in items:
        reached = max(reached, NO_PROGRESS if value is None else value)
        found.append((key, (value, reached)))
    return by_key(found)


def spread(pair: tuple[str, int | None]) -> list[tuple[str, int | None]]:
    """Some items vanish, and some become several, of keys of their own."""
    key, n = pair
    if n is None:
        return [pair]
    return [(key, n), (f"{key}'", n - 7), (key, n + 3)][: n % 4]


@sampled(100, by_default=15)
@given(VALUES, CUTS, st.sampled_from([1, 3, 8]), st.integers(1, 4))
def test_epoch_boundaries_do_not_change_a_stream_of_one_partition(
    values: list[int | None], sizes: list[int], shards: int, keys: int
) -> None:
    items = [(f"k{number % keys}", value) for number, value in enumerate(values)]

    def build(stream: Stream[Any]) -> Stream[Any]:
        kept = op.filter("some", stream, lambda pair: pair[1] is None or pair[1] % 5 != 0)
        return travel("travel", op.flat_map("spread", kept, spread))

    arrives = [one for pair in items if pair[1] is None or pair[1] % 5 for one in spread(pair)]
    assert sent(a_flow(build), shards, cut(items, sizes)) == stamped(arrives)


@sampled(100, by_default=15)
@given(VALUES, CUTS, st.sampled_from([1, 3, 8]), st.booleans())
def test_a_shuffle_does_not_change_a_stream_of_one_partition(
    values: list[int | None], sizes: list[int], shards: int, keyed: bool
) -> None:
    def build(stream: Stream[Any]) -> Stream[Any]:
        if keyed:
            return travel("travel", op.stateful_map("same", stream, lambda n, value: (1, value)))
        return travel("travel", op.redistribute("spread", stream))

    items = [(f"k{number % 4}", value) for number, value in enumerate(values)]
    assert sent(a_flow(build), shards, cut(items, sizes)) == stamped(items)


# --- several partitions -----------------------------------------------------------------------


#  position   0   1   2
#  p0         10  20  30
#  p1         5   15  50
#  stream     5   15  30
def test_stream_progress_is_that_of_the_slowest_partition() -> None:
    with driver() as t:
        t.send_parts(parts([10, 20, 30], [5, 15, 50]))
        assert take_by_key(t) == {
            "p0": [(10, 5), (20, 15), (30, 30)],
            "p1": [(5, 5), (15, 15), (50, 30)],
        }


def test_a_partition_without_items_does_not_hold_the_stream() -> None:
    with driver() as t:
        t.send_parts(parts([1, 2], [None]))
        assert take_by_key(t) == {"p0": [(1, 1), (2, 2)], "p1": [(None, NO_PROGRESS)]}
        t.send_parts(parts([3], [None]))
        assert take_by_key(t) == {"p0": [(3, 3)], "p1": [(None, 2)]}


#  epoch   1    2    3    4
#  p0      10   12   14   16
#  p1           3    5    15
#  stream  10   10   10   15
def test_a_new_slow_partition_holds_the_stream_without_moving_it_back() -> None:
    with driver() as t:
        for p0, p1 in (([10], []), ([12], [3]), ([14], [5]), ([16], [15])):
            t.send_parts(parts(p0, p1))
        assert take_by_key(t) == {
            "p0": [(10, 10), (12, 10), (14, 10), (16, 15)],
            "p1": [(3, 10), (5, 10), (15, 15)],
        }


def test_partitions_of_different_inputs_are_separate() -> None:
    flow = a_flow(lambda *sides: travel("travel", op.merge("both", *sides)), "left", "right")
    with TestDriver(flow) as t:
        t.send_all({"left": [("a", 10)], "right": [("b", 4)]})
        t.send("left", [("a", 20)])
        assert take_by_key(t) == {"a": [(10, 4), (20, 4)], "b": [(4, 4)]}


def test_partitions_of_different_sides_are_separate() -> None:
    with TestDriver(a_flow(lambda *sides: travel("travel", *sides), "left", "right")) as t:
        t.send_all({"left": [("a", 10), ("a", 12)], "right": [("b", 4), ("a", 11)]})
        assert take_by_key(t) == {
            "a": [((0, 10), 4), ((0, 12), 11), ((1, 11), 11)],
            "b": [((1, 4), 4)],
        }


def test_one_stream_read_on_two_sides_counts_on_each() -> None:
    def build(stream: Stream[Any]) -> Stream[Any]:
        return travel("travel", stream, op.filter("high", stream, lambda pair: pair[1] >= 5))

    with TestDriver(a_flow(build)) as t:
        t.send("in", [("a", 6), ("a", 2), ("a", 8)])
        assert take_by_key(t) == {
            "a": [((0, 6), 6), ((1, 6), 6), ((0, 2), 6), ((0, 8), 8), ((1, 8), 8)]
        }


@sampled(100, by_default=30)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=3), max_size=4),
    st.sampled_from([2, 7]),
    st.integers(1, 3),
)
def test_all_shards_see_the_same_monotonic_progress(
    epochs: list[list[list[int | None]]], shards: int, keys: int
) -> None:
    emissions = []
    for count in (1, shards):
        with driver(shards=count) as t:
            for epoch in epochs:
                t.send_parts(
                    {
                        "in": [
                            Part([(f"k{n % keys}", v) for n, v in enumerate(values)], partition)
                            for partition, values in enumerate(epoch)
                        ]
                    }
                )
            t.end()
            emissions.append(take_by_key(t))
    assert emissions[0] == emissions[1]
    for emitted in emissions[0].values():
        progress = [reached for _, reached in emitted]
        assert progress == sorted(progress)


# --- time -------------------------------------------------------------------------------------


def test_system_time_advances_the_stream_if_enabled() -> None:
    for by_time, reached in ((True, 15), (False, 5)):
        with driver(Journey(Mileage(by_time=by_time))) as t:
            t.send("in", [("a", 5)])
            t.advance("0.00001s")
            t.send("in", [("a", None)])
            assert take_by_key(t) == {"a": [(5, 5), (None, reached)]}


def test_an_item_below_the_progress_by_time_changes_nothing() -> None:
    with driver(Journey(Mileage(by_time=True))) as t:
        t.send("in", [("a", 5)])
        t.advance("0.00001s")
        t.send("in", [("a", 14), ("a", 16)])
        t.advance("0.00001s")
        t.send("in", [("a", None)])
        assert take_by_key(t) == {"a": [(5, 5), (14, 15), (16, 16), (None, 26)]}


def test_downtime_does_not_advance_the_stream() -> None:
    with driver(Journey(Mileage(by_time=True))) as t:
        t.send("in", [("a", 5)])
        t.advance("0.000003s")
        t.restart(after="1h")
        t.send("in", [("a", None)])
        t.advance("0.000002s")
        t.send("in", [("a", None)])
        assert take_by_key(t) == {"a": [(5, 5), (None, 8), (None, 10)]}


def test_system_time_advances_a_silent_partition() -> None:
    with driver(Journey(Mileage(by_time=True))) as t:
        t.send_parts(parts([10], [2]))
        t.advance("0.000005s")
        t.send_parts(parts([30], []))
        assert take_by_key(t) == {"p0": [(10, 2), (30, 7)], "p1": [(2, 2)]}


def test_a_logic_is_called_when_system_time_makes_it_due() -> None:
    with driver(Journey(Mileage(by_time=True))) as t:
        t.send("in", [("a", Waypoint(25)), ("b", 5)])
        assert t.stats.due_us == 20
        t.advance("0.00001s")
        assert t.stats.due_us == 20
        take_by_key(t)
        t.advance("0.000009s")
        assert take_by_key(t) == {}
        t.advance(MICRO)
        assert take_by_key(t) == {"a": [("notify", 25)]}
        assert t.stats.due_us == NEVER


def test_timers_due_by_time_run_before_the_items() -> None:
    with driver(Journey(Mileage(by_time=True))) as t:
        t.send("in", [("a", Waypoint(25)), ("b", 5)])
        take_by_key(t)
        t.restart()
        t._now_us += 30
        t.send("in", [("a", 90)])
        assert take_by_key(t) == {"a": [("notify", 35), (90, 90)]}


@pytest.mark.parametrize(("by_time", "first"), [(False, ("b", 5)), (True, ("b", None))])
def test_no_timer_is_due_by_time_that_moves_no_stream(by_time: bool, first: Any) -> None:
    with driver(Journey(Mileage(by_time=by_time))) as t:
        t.send("in", [("a", Waypoint(25)), first])
        assert t.stats.due_us == NEVER


def test_a_timer_in_the_past_is_due_now() -> None:
    with driver(Journey(Mileage(by_time=True))) as t:
        t.send("in", [("a", 5)])
        t.send("in", [("b", Waypoint(3))])
        assert take_by_key(t)["b"] == [(Waypoint(3), 5), ("notify", 5)]


#  now     0    1    2    3    4    5    6    7   8
#  p0      10   11   12 ...
#  p1           3    4    5    6    7    8    9   10
#  stream  10   11   11 ...                       11 held until p1 has caught up
def test_a_held_stream_advances_when_time_moves_its_slowest_partition() -> None:
    with driver(Journey(Mileage(by_time=True))) as t:
        t.send_parts(parts([10], []))
        t.advance(MICRO)
        t.send_parts(parts([Waypoint(13)], [3]))
        assert take_by_key(t)["p0"] == [(10, 10), (Waypoint(13), 11)]
        assert t.stats.due_us == 1 + (13 - 3)
        t.advance("0.000005s")
        t.send_parts(parts([None], []))
        assert take_by_key(t) == {"p0": [(None, 11)]}
        t.advance("0.000004s")
        assert take_by_key(t) == {}
        t.advance(MICRO)
        assert take_by_key(t) == {"p0": [("notify", 13)]}


# --- what levels make -------------------------------------------------------------------------


def second_level(stream: Stream[Any]) -> Stream[Any]:
    """Each value of level 1 leaves under the name of its last letter."""
    some = op.filter_value("some", stream, lambda value: value is not None)
    same = op.stateful_map("same", some, lambda state, value: (None, value))
    return travel("travel", op.map("rename", same, lambda pair: (pair[0][-1], pair[1])))


#  position   0    1    2    3
#  p0         10   .    20   .
#  p1         .    5    .    30
def test_at_level_two_the_output_of_level_one_is_one_partition() -> None:
    with TestDriver(a_flow(second_level), shards=5) as t:
        p0 = [("1x", 10), ("1x", None), ("2x", 20)]
        p1 = [("3y", None), ("3y", 5), ("3y", None), ("4y", 30)]
        t.send_parts({"in": [Part(p0, partition=0), Part(p1, partition=1)]})
        assert take_by_key(t) == {"x": [(10, 10), (20, 20)], "y": [(5, 10), (30, 30)]}
        t.send("in", [("9x", 2)])
        assert take_by_key(t) == {"x": [(2, 30)]}


def test_at_level_two_a_silent_key_is_notified_in_the_same_epoch() -> None:
    with TestDriver(a_flow(second_level), shards=5) as t:
        t.send("in", [("1x", Waypoint(10)), ("2y", 1)])
        take_by_key(t)
        t.send("in", [("3y", 12)])
        assert take_by_key(t) == {"x": [("notify", 12)], "y": [(12, 12)]}


def test_source_partitions_and_the_output_of_a_level_are_separate_partitions() -> None:
    def build(stream: Stream[Any]) -> Stream[Any]:
        same = op.stateful_map("same", stream, lambda state, value: (1, value))
        late = op.map_value("later", stream, lambda value: value + 100)
        return travel("travel", op.merge("both", same, late))

    with TestDriver(a_flow(build), shards=3) as t:
        t.send("in", [("a", 1), ("a", 2)])
        assert take_by_key(t) == {"a": [(101, 1), (1, 1), (102, 2), (2, 2)]}


def test_two_steps_of_a_level_are_measured_in_order_of_position() -> None:
    def build(stream: Stream[Any]) -> Stream[Any]:
        one = op.stateful_map("one", stream, lambda state, value: (1, value))
        other = op.stateful_map("other", stream, lambda state, value: (1, value - 1))
        return travel("travel", op.merge("both", one, other))

    with TestDriver(a_flow(build), shards=1) as t:
        t.send("in", [("a", 10), ("a", 20)])
        assert take_by_key(t) == {"a": [(10, 10), (9, 10), (20, 20), (19, 20)]}


def test_a_step_of_level_one_and_one_of_level_two_have_progress_of_their_own() -> None:
    def build(stream: Stream[Any]) -> Stream[Any]:
        first = travel("first", stream)
        second = travel("second", op.map_value("plain", first, lambda pair: pair[0]))
        return op.merge("both", first, second)

    with TestDriver(a_flow(build), shards=3) as t:
        t.send("in", [("a", 5), ("b", 3)])
        assert {key: sorted(values) for key, values in take_by_key(t).items()} == {
            "a": [(5, 5), (5, 5)],
            "b": [(3, 5), (3, 5)],
        }


# --- failures, and what it costs --------------------------------------------------------------


def test_a_failed_epoch_does_not_change_progress() -> None:
    class Fragile(Traveller):
        def on_item(self, value: Any, moment: Moment) -> Any:
            if value.value == "broken":
                raise ValueError("broken")
            return super().on_item(value, moment)

    with driver(JourneyOf(traveller=Fragile)) as t:
        t.send("in", [("a", 5)])
        with pytest.raises(StepError) as caught:
            t.send("in", [("a", 90), ("b", "broken")])
        assert (caught.value.key, caught.value.item) == ("b", "'broken'")
        t.send("in", [("a", 7)])
        assert take_by_key(t) == {"a": [(5, 5), (7, 7)]}


def test_a_batch_logic_s_failure_shows_values_without_stamps() -> None:
    class Bad(op.StatefulBatchLogic[Any, Any, None]):
        def __init__(self, due: int) -> None:
            """Take no time."""

        def on_batch(self, values: list[Any], moment: Moment) -> Any:
            raise ValueError("bad")

        def snapshot(self) -> None:
            pass

    with driver(JourneyOf(traveller=Bad)) as t, pytest.raises(StepError) as caught:
        t.send("in", [("a", 5), ("a", 6)])
    assert str(caught.value) == (
        "step 'travel': on_batch raised ValueError: bad\n  key:  'a'\n  item: [5, 6]"
    )


@pytest.mark.parametrize(
    ("measure", "problem"),
    [
        (lambda *_: {}["at"], "KeyError: 'at'"),
        (lambda *_: "far", "ValueError: invalid literal for int() with base 10: 'far'"),
    ],
    ids=["raises", "is no number"],
)
def test_a_measure_that_fails_names_the_step(measure: Any, problem: str) -> None:
    broken = type("Broken", (Mileage,), {"measure": measure})()
    with driver(Journey(broken)) as t, pytest.raises(StepError) as caught:
        t.send("in", [("a", 5)])
    assert str(caught.value) == (
        f"step 'travel': measuring its progress raised {problem}\n  key:  'a'\n  item: 5"
    )


def test_an_attribute_of_the_same_name_is_no_progress() -> None:
    class Plain(Traveller):
        progress = "half way"

        def __init__(self, state: Any) -> None:
            super().__init__(NEVER)

        def on_item(self, value: Any, moment: Moment) -> Any:
            return [(value, moment.progress_us)], op.KEEP

    with driver(Plain) as t:
        t.send("in", [("a", 5)])
        assert take_by_key(t) == {"a": [(5, NO_PROGRESS)]}


def test_the_cost_of_an_epoch_depends_on_due_keys() -> None:
    built: list[str] = []

    @dataclass(frozen=True)
    class Counting(Journey):
        def __call__(self, state: int | None) -> Traveller:
            built.append("new" if state is None else "old")
            return super().__call__(state)

    with driver(Counting()) as t:
        t.send("in", [(f"k{number}", Waypoint(number)) for number in range(10, 500)])
        built.clear()
        t.send("in", [("mover", 12)])
        assert sorted(built) == ["new", "old", "old", "old"]
        notified = [value for values in take_by_key(t).values() for value in values[1:]]
        assert notified == [("notify", 12)] * 3
