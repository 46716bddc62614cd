"""Stateless operators over objects and records, in the in-process driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flow.operators as op
from flow import Dataflow, StepError, Stream
from flow.columns.chunks import Items, KeyedRecords, Pairs, Records
from flow.dataflow import Operator
from flow.operators.async_calls import TTLCache
from flow.operators.stateless import Branch, Filter, KeyOn, KeyRm, Map, Merge
from flow.testing import Part, TestDriver, TestingSink, TestingSource, run_once
from tests.support.one_stream import Build, driver, made, step

FLIGHTS = pa.RecordBatch.from_pylist(
    [{"origin": "JFK", "delay": 5}, {"origin": "LGA", "delay": -2}, {"origin": "JFK", "delay": 0}]
)
JFK_5, LGA_2, JFK_0 = FLIGHTS.to_pylist()


def is_late(flight: dict[str, Any]) -> bool:
    return bool(flight["delay"] > 0)


def is_odd(number: int) -> bool:
    return number % 2 == 1


def by_origin(stream: Stream[Any]) -> Stream[Any]:
    return op.key_on("by", stream, "origin")


# --- one item in, items out -------------------------------------------------------------------

PAIRS = [("a", 1), ("b", 2), ("a", 3)]
USER = {"user": {"id": "u1"}}

ON_ITEMS: dict[str, tuple[list[Any], Build, list[Any]]] = {
    "map": ([1, 2], step(op.map, lambda x: x * 2), [2, 4]),
    "flat_map": (["a b", "", "c"], step(op.flat_map, str.split), ["a", "b", "c"]),
    "flat_map_generator": (
        [2, 0, 1],
        step(op.flat_map, lambda n: (i for i in range(n))),
        [0, 1, 0],
    ),
    "flatten": ([[1, 2], [], (3,)], step(op.flatten), [1, 2, 3]),
    "filter_by_numpy": ([1, 2, 3], step(op.filter, lambda x: np.bool_(x > 1)), [2, 3]),
    "filter_map": ([1, 0, None, 4], step(op.filter_map, lambda x: x and 1 / x), [1.0, 0, 0.25]),
    "key_on_a_path": ([USER], step(op.key_on, "user.id"), [("u1", USER)]),
    "try_map_ok": (["1", "x", "2"], lambda s: op.try_map("step", s, int).ok, [1, 2]),
    "none_is_an_item": ([None, 1], step(op.map, lambda x: x), [None, 1]),
    "flat_map_value": ([("k", 2), ("l", 0)], step(op.flat_map_value, range), [("k", 0), ("k", 1)]),
    "filter_map_value": (PAIRS, step(op.filter_map_value, lambda x: x // 3 or None), [("a", 1)]),
    "map_window": (
        [("a", ("10:00", 1)), ("b", ("11:00", (2, 3)))],
        step(op.map_window, lambda key, window, value: [key, window, value]),
        [["a", "10:00", 1], ["b", "11:00", (2, 3)]],
    ),
    "merge_puts_items_back_in_source_order": (
        [1, 2, 3, 4],
        lambda s: op.merge(
            "all",
            op.map("x100", op.branch("even", s, is_odd).falses, lambda n: n * 100),
            op.branch("odd", s, is_odd).trues,
        ),
        [1, 200, 3, 400],
    ),
    "merge_keeps_the_order_of_its_streams_for_what_one_item_became": (
        [1, 2],
        lambda s: op.merge(
            "all", op.map("b", s, lambda n: f"b{n}"), op.map("a", s, lambda n: f"a{n}")
        ),
        ["b1", "a1", "b2", "a2"],
    ),
    "merge_of_a_stream_with_itself": ([1, 2], lambda s: op.merge("twice", s, s), [1, 1, 2, 2]),
}


@pytest.mark.parametrize(("items", "build", "expected"), ON_ITEMS.values(), ids=ON_ITEMS)
def test_on_items(items: list[Any], build: Build, expected: list[Any]) -> None:
    assert run_once(items, build) == expected


ON_RECORDS: dict[str, tuple[Build, list[Any]]] = {
    "map": (step(op.map, lambda r: r["delay"]), [5, -2, 0]),
    "flat_map": (step(op.flat_map, lambda r: (r["delay"], "x")), [5, "x", -2, "x", 0, "x"]),
    "flatten": (step(op.flatten), ["origin", "delay"] * 3),
    "filter": (step(op.filter, is_late), [JFK_5]),
    "branch_trues": (lambda s: op.branch("step", s, is_late).trues, [JFK_5]),
    "branch_falses": (lambda s: op.branch("step", s, is_late).falses, [LGA_2, JFK_0]),
    "key_on_column": (step(op.key_on, "origin"), [("JFK", JFK_5), ("LGA", LGA_2), ("JFK", JFK_0)]),
    "key_on_a_function": (
        step(op.key_on, lambda r: r["origin"].lower()),
        [("jfk", JFK_5), ("lga", LGA_2), ("jfk", JFK_0)],
    ),
    "key_rm": (lambda s: op.key_rm("step", by_origin(s)), [JFK_5, LGA_2, JFK_0]),
    "map_value": (
        lambda s: op.map_value("step", by_origin(s), lambda r: r["delay"]),
        [("JFK", 5), ("LGA", -2), ("JFK", 0)],
    ),
    "filter_value": (lambda s: op.filter_value("step", by_origin(s), is_late), [("JFK", JFK_5)]),
    "redistribute": (step(op.redistribute), [JFK_5, LGA_2, JFK_0]),
    "merge": (lambda s: op.merge("step", *op.branch("late", s, is_late)), [JFK_5, LGA_2, JFK_0]),
    "merge_with_objects": (
        lambda s: op.merge(
            "step", op.filter("all", s, bool), op.map("delay", s, lambda r: r["delay"])
        ),
        [JFK_5, 5, LGA_2, -2, JFK_0, 0],
    ),
    "inspect": (step(op.inspect, lambda step, item: None), [JFK_5, LGA_2, JFK_0]),
}


@pytest.mark.parametrize(("build", "expected"), ON_RECORDS.values(), ids=ON_RECORDS)
@pytest.mark.parametrize("items", [FLIGHTS, FLIGHTS.to_pylist()], ids=["records", "dicts"])
def test_on_records_and_dicts(items: Any, build: Build, expected: list[Any]) -> None:
    """A record is a dict to a user's function, and where it leaves the flow."""
    assert run_once(items, build) == expected


# --- what stays in columns --------------------------------------------------------------------


def records() -> Records:
    return Records(FLIGHTS, np.arange(3, dtype=np.int64))


def keyed_records() -> KeyedRecords:
    keyed = made(KeyOn("origin"), records())[0]
    assert isinstance(keyed, KeyedRecords)
    return keyed


def test_taking_the_key_from_keyed_records_gives_the_records_back() -> None:
    plain = made(KeyRm(), keyed_records())[0]
    assert isinstance(plain, Records)
    assert plain.batch.equals(FLIGHTS)


@pytest.mark.parametrize("kind", [Filter(is_late), Branch(is_late), Merge()])
def test_choosing_among_records_keeps_them_in_columns(kind: Operator) -> None:
    assert {type(one) for one in made(kind, records())} == {Records}


def test_choosing_among_keyed_records_by_value_keeps_them_in_columns() -> None:
    chosen = made(Filter(is_late, on_value=True), keyed_records())[0]
    assert isinstance(chosen, KeyedRecords)
    assert (chosen.keys.to_pylist(), chosen.batch.to_pylist()) == (["JFK"], [JFK_5])
    assert chosen.pos.tolist() == [0]


def test_mapping_records_makes_objects_of_them() -> None:
    assert type(made(Map(len), records())[0]) is Items
    assert type(made(Map(len, on_value=True), keyed_records())[0]) is Pairs


@pytest.mark.parametrize("encode", [False, True], ids=["text", "dictionary"])
def test_keying_records_on_a_column_of_text_keeps_them_in_columns(encode: bool) -> None:
    origins = FLIGHTS.column(0).dictionary_encode() if encode else FLIGHTS.column(0)
    batch = FLIGHTS.set_column(0, "origin", origins)
    keyed = made(KeyOn("origin"), Records(batch, np.arange(3, dtype=np.int64)))[0]
    assert isinstance(keyed, KeyedRecords)
    assert keyed.keys.to_pylist() == ["JFK", "LGA", "JFK"]
    assert keyed.batch.equals(batch)


OTHER_RECORDS: dict[str, tuple[pa.RecordBatch, Build, list[Any]]] = {
    "nested": (pa.RecordBatch.from_pylist([USER]), step(op.key_on, "user.id"), [("u1", USER)]),
    "without columns": (FLIGHTS.select([]), lambda s: op.map("same", s, dict), [{}, {}, {}]),
    "a slice is only its rows": (FLIGHTS.slice(1), by_origin, [("LGA", LGA_2), ("JFK", JFK_0)]),
}


@pytest.mark.parametrize(("batch", "build", "expected"), OTHER_RECORDS.values(), ids=OTHER_RECORDS)
def test_records_of_other_shapes(batch: pa.RecordBatch, build: Build, expected: list[Any]) -> None:
    assert run_once(batch, build) == expected


# --- several streams --------------------------------------------------------------------------


MERGED: dict[str, tuple[dict[str, list[Part]], list[Any]]] = {
    "inputs interleave": ({"right": [Part([4, 5, 6])], "left": [Part([1, 2])]}, [1, 4, 2, 5, 6]),
    "partitions interleave": ({"left": [Part([1, 2, 3]), Part([4, 5], 1)]}, [1, 4, 2, 5, 3]),
    "parts follow each other": (
        {"left": [Part([1, 2]), Part([3]), Part([10, 20, 30], 1)]},
        [1, 10, 2, 20, 3, 30],
    ),
    "records of two schemas": (
        {
            "left": [Part(pa.RecordBatch.from_pylist([{"a": 1}, {"a": 2}]))],
            "right": [Part(pa.RecordBatch.from_pylist([{"b": "x"}]))],
        },
        [{"a": 1}, {"b": "x"}, {"a": 2}],
    ),
}


@pytest.mark.parametrize(("parts", "expected"), MERGED.values(), ids=MERGED)
def test_a_merge_of_inputs_takes_the_first_of_each_and_then_the_second_of_each(
    parts: dict[str, list[Part]], expected: list[Any]
) -> None:
    with driver(lambda left, right: op.merge("all", left, right), "left", "right") as t:
        t.send_parts(parts)
        assert t.received("out") == expected


def test_a_stream_can_be_written_to_several_outputs() -> None:
    flow = Dataflow("copies")
    s = op.input("in", flow, TestingSource([]))
    for name in ("one", "two"):
        op.output(name, s, TestingSink([]))
    with TestDriver(flow) as t:
        t.send("in", [1, 2])
        assert (t.received("one"), t.received("two")) == ([1, 2], [1, 2])


# --- looking, trying, enriching ---------------------------------------------------------------


def test_inspect_prints_the_step_and_each_item(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_once(["a", {"n": 1}], lambda s: op.inspect("see", s)) == ["a", {"n": 1}]
    assert capsys.readouterr().out == "see: 'a'\nsee: {'n': 1}\n"


def test_what_led_to_a_failure_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StepError):
        run_once([1, 0], lambda s: op.map("inverse", op.inspect("see", s), lambda n: 1 / n))
    assert capsys.readouterr().out == "see: 1\nsee: 0\n"


def test_an_inspector_gets_step_and_item_and_may_print(capsys: pytest.CaptureFixture[str]) -> None:
    run_once([1, 2], lambda s: op.inspect("see", s, lambda *seen: print("saw", *seen)))  # noqa: T201
    assert capsys.readouterr().out == "saw see 1\nsaw see 2\n"


def test_try_map_sends_the_items_that_raised_to_the_errors_and_counts_them() -> None:
    with driver(lambda s: op.try_map("number", s, int).errors) as t:
        t.send("in", ["1", "x"])
        (error,) = t.received("out")
        assert t.stats.counts["number", "errors"] == 1
    assert (error.item, error.step_id) == ("x", "number")
    assert isinstance(error.exception, ValueError)
    assert str(error.exception) == "invalid literal for int() with base 10: 'x'"


def test_try_map_keeps_the_words_of_an_exception_that_cannot_be_pickled() -> None:
    class OnlyHere(Exception):
        pass

    def refuse(item: int) -> int:
        raise OnlyHere("not today")

    (error,) = run_once([7], lambda s: op.try_map("refuse", s, refuse).errors)
    assert (type(error.exception), str(error.exception)) == (RuntimeError, "OnlyHere: not today")


#  now      00:00   00:05   00:05+1us
#  ttl 5m   ask     known   ask again
def test_enrich_cached_asks_again_when_the_answer_is_older_than_the_ttl() -> None:
    asked: list[str] = []

    def price(name: str) -> int:
        asked.append(name)
        return len(asked)

    def build(s: Stream[str]) -> Stream[int]:
        return op.enrich_cached("price", s, price, lambda cache, name: cache.get(name), ttl="5m")

    with driver(build) as t:
        t.send("in", ["a", "a", "b"])
        t.send("in", ["a"], after="5m")
        t.send("in", ["a"], after="1us")
        assert t.received("out") == [1, 1, 2, 1, 3]
    assert asked == ["a", "b", "a"]


#  now     0 s       1 s  2 s  3 s  …            each second: one key more, and one that stays
#  ttl 5s  1000 keys
def test_a_cache_lets_go_of_answers_that_are_too_old() -> None:
    """Here the getter answers with the second in which it was asked."""
    cache = TTLCache[str, int](lambda _: cache.now_us // 1_000_000, 5_000_000)
    for number in range(1_000):
        cache.get(f"old {number}")
    answers, sizes = [], []
    for second in range(1, 1_001):
        cache.now_us = second * 1_000_000
        cache.get(f"new {second}")
        answers.append(cache.get("stays"))
        sizes.append(len(cache._known))
    assert answers == [second - (second - 1) % 6 for second in range(1, 1_001)]
    assert (max(sizes), sizes[-1]) == (1_006, 7)


def test_enrich_cached_asks_again_for_what_the_mapper_removed() -> None:
    asked: list[str] = []

    def look_up(name: str) -> str:
        asked.append(name)
        return name.upper()

    def fresh(cache: op.TTLCache[str, str], name: str) -> str:
        found = cache.get(name)
        cache.remove(name)
        cache.remove("never seen")
        return found

    assert run_once(["a", "a"], lambda s: op.enrich_cached("up", s, look_up, fresh)) == ["A", "A"]
    assert asked == ["a", "a"]


def test_enrich_cached_does_not_keep_a_getter_s_failure() -> None:
    answers = iter([KeyError("down"), "up"])

    def flaky(name: str) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def patient(cache: op.TTLCache[str, str], name: str) -> str:
        try:
            return cache.get(name)
        except KeyError:
            return cache.get(name)

    assert run_once(["a"], step(op.enrich_cached, flaky, patient)) == ["up"]
