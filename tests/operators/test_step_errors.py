"""Errors of steps: they name the step, the problem, the key, the item and the cause."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
from flow import Dataflow, FlowError, Stream, TimestampError
from flow.errors import StepError, shorten, step_error
from flow.testing import TestDriver, TestingSource, run_once
from tests.support.logics import Diary
from tests.support.one_stream import Build, driver, step


def failure(items: Any, build: Build) -> StepError:
    with pytest.raises(StepError) as caught:
        run_once(items, build)
    return caught.value


# --- functions that raise ---------------------------------------------------------------------


def test_a_mapper_that_raised_names_the_step_and_shows_the_item() -> None:
    error = failure(["1", "x", "2"], lambda s: op.map("number", s, int))
    assert str(error) == (
        "step 'number': the mapper raised ValueError: invalid literal for int() with base 10: 'x'\n"
        "  item: 'x'"
    )
    assert (error.step_id, error.key, error.item) == ("number", None, "'x'")
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == "invalid literal for int() with base 10: 'x'"


def fail(*_: Any) -> Any:
    raise ZeroDivisionError


def fail_midway(*_: Any) -> Any:
    return (1 / n for n in (1, 0))


FUNCTIONS_THAT_RAISE: dict[str, tuple[Build, str]] = {
    "flat_map": (step(op.flat_map, fail), "the mapper"),
    "flat_map in the middle": (step(op.flat_map, fail_midway), "the mapper"),
    "flat_map_value": (step(op.flat_map_value, fail), "the mapper"),
    "filter": (step(op.filter, fail), "the predicate"),
    "filter_value": (step(op.filter_value, fail), "the predicate"),
    "filter_map": (step(op.filter_map, fail), "the mapper"),
    "branch": (lambda s: op.branch("step", s, fail).trues, "the predicate"),
    "key_on": (step(op.key_on, fail), "the key function"),
    "inspect": (step(op.inspect, fail), "the inspector"),
    "enrich_cached getter": (step(op.enrich_cached, fail, lambda c, x: c.get(x)), "the mapper"),
    "enrich_cached mapper": (step(op.enrich_cached, abs, fail), "the mapper"),
    "stateful_map": (step(op.stateful_map, fail), "the mapper"),
    "stateful_flat_map": (step(op.stateful_flat_map, lambda *_: (1, fail_midway())), "on_item"),
    "fold_final builder": (step(op.fold_final, fail, max), "its builder"),
    "fold_final folder": (step(op.fold_final, int, fail), "on_item"),
    "reduce_final": (step(op.reduce_final, fail), "on_item"),
    "max_final by": (step(op.max_final, by=fail), "on_item"),
    "builder": (step(op.stateful, fail), "its builder"),
}


@pytest.mark.parametrize(("build", "what"), FUNCTIONS_THAT_RAISE.values(), ids=FUNCTIONS_THAT_RAISE)
def test_whatever_raises_is_named_and_chained(build: Build, what: str) -> None:
    error = failure([("k", 0), ("k", 0)], build)
    assert error.step_id == "step"
    assert error.problem.startswith(f"{what} raised ZeroDivisionError")
    assert isinstance(error.__cause__, ZeroDivisionError)


STOPPABLE: dict[str, tuple[Callable[[Stream[Any], Any], Stream[Any]], str]] = {
    "map": (lambda s, f: op.map("step", s, f), "the mapper"),
    "flat_map": (lambda s, f: op.flat_map("step", s, lambda x: [f(x)]), "the mapper"),
    "filter": (lambda s, f: op.filter("step", s, lambda x: f(x) == "go"), "the predicate"),
    "key_on": (lambda s, f: op.key_on("step", s, f), "the key function"),
    "inspect": (lambda s, f: op.inspect("step", s, lambda _, x: f(x)), "the inspector"),
    "stateful_map": (
        lambda s, f: op.stateful_map("step", op.key_on("key", s, str), lambda _, x: (0, f(x))),
        "the mapper",
    ),
}


@pytest.mark.parametrize(
    "items", [["stop", "go", "go"], ["go", "stop", "go"], ["go", "go", "stop"]]
)
@pytest.mark.parametrize(("build", "what"), STOPPABLE.values(), ids=STOPPABLE)
def test_a_stop_iteration_is_an_error_and_not_the_end_of_the_items(
    build: Callable[[Stream[Any], Any], Stream[Any]], what: str, items: list[str]
) -> None:
    def go_on(item: str) -> str:
        if item == "stop":
            raise StopIteration
        return item

    error = failure(items, lambda s: build(s, go_on))
    assert error.problem.startswith(f"{what} raised StopIteration")
    assert error.item == "'stop'"
    assert isinstance(error.__cause__, StopIteration)


# --- functions that return what they should not ------------------------------------------------

NOT_BOOL = "the predicate must return True or False, got"
RAISED = "the mapper raised TypeError:"
NO_PAIR = "the mapper must return (state,"
NO_LOGIC = "its builder must return a StatefulLogic or a StatefulBatchLogic, got dict\n  key:  'k'"
OF_K = "\n  key:  'k'\n  item:"
NO_FIELD = (
    "reading the key raised KeyError: \"there is no field 'id' (of 'user.id'): "
    "is it 'user.name'?\"\n"
    "  item: {'user': {'name': 'n'}}"
)
NULL_KEY = "the key field 'id' is null\n  item: {'id': None}"


def no_text(kind: str, item: str) -> str:
    advice = "name its field in op.key_on, which makes text of it, or make it text before"
    return f"a key must be a str, got {kind}: {advice}\n  item: {item}"


def same(item: Any) -> Any:
    return item


WRONG_RETURNS: dict[str, tuple[Any, Build, str]] = {
    "flat_map": ([1], step(op.flat_map, same), f"{RAISED} 'int' object is not iterable\n  item: 1"),
    "flatten": ([2], step(op.flatten), f"{RAISED} flatten needs iterables, got int 2\n  item: 2"),
    "filter": (["a", ""], step(op.filter, same), f"{NOT_BOOL} str 'a'\n  item: 'a'"),
    "filter_value": ([("k", 3)], step(op.filter_value, same), f"{NOT_BOOL} int 3{OF_K} 3"),
    "branch": ([0], lambda s: op.branch("step", s, same).falses, f"{NOT_BOOL} int 0\n  item: 0"),
    "key function": ([{"id": 7}], step(op.key_on, lambda x: x["id"]), no_text("int", "{'id': 7}")),
    "key path": ([{"id": None}], step(op.key_on, "id"), NULL_KEY),
    "key path to nowhere": ([{"user": {"name": "n"}}], step(op.key_on, "user.id"), NO_FIELD),
    "stateful_map": (
        [("k", 1)],
        step(op.stateful_map, lambda state, x: x),
        f"{RAISED} {NO_PAIR} value), got 1{OF_K} 1",
    ),
    "stateful_flat_map": (
        [("k", 1)],
        step(op.stateful_flat_map, lambda state, x: [state, x]),
        f"on_item raised TypeError: {NO_PAIR} values), got [None, 1]{OF_K} 1",
    ),
    "builder": ([("k", 1)], step(op.stateful, lambda state: {"n": 1}), NO_LOGIC),
}


@pytest.mark.parametrize(("items", "build", "text"), WRONG_RETURNS.values(), ids=WRONG_RETURNS)
def test_a_wrong_answer_is_shown(items: Any, build: Build, text: str) -> None:
    assert str(failure(items, build)) == f"step 'step': {text}"


RECORDS = pa.RecordBatch.from_pylist([{"id": "a", "x": 0.5}, {"id": None, "x": 2.0}])


@pytest.mark.parametrize(
    ("column", "problem", "item"),
    [
        ("id", "the key field 'id' is null", "{'id': None, 'x': 2.0}"),
        (
            "x",
            "the key field 'x' is float 0.5, and a key is made of text, whole",
            "{'id': 'a', 'x': 0.5}",
        ),
        (
            "name",
            "reading the key raised KeyError: \"there is no field 'name' (of 'name'): there",
            "{'id': 'a', 'x': 0.5}",
        ),
    ],
    ids=["null", "float", "missing"],
)
def test_a_key_column_without_text_shows_the_record(column: str, problem: str, item: str) -> None:
    error = failure(RECORDS, step(op.key_on, column))
    assert error.problem.startswith(problem)
    assert error.item == item


# --- values that cannot travel ----------------------------------------------------------------


def some_generator() -> Iterator[int]:
    yield 1


def test_a_value_that_cannot_be_pickled_names_the_step_that_made_it() -> None:
    def build(s: Stream[Any]) -> Stream[Any]:
        opened = op.map_value("open", s, lambda n: some_generator() if n else "fine")
        return op.stateful("read", opened, Diary)

    error = failure([("k", 0), ("k", 1)], build)
    assert error.step_id == "open"
    assert error.problem == (
        "made a value that cannot be pickled, so it cannot leave its process: "
        "cannot pickle 'generator' object"
    )
    assert (error.item or "").startswith("<generator object some_generator at ")
    assert isinstance(error.__cause__, TypeError)


def test_an_item_that_cannot_be_pickled_on_its_way_to_an_output_names_its_step() -> None:
    error = failure([1], lambda s: op.map("open", s, lambda n: some_generator()))
    assert error.step_id == "open"
    assert error.problem.startswith("made a value that cannot be pickled")


def test_a_value_that_pickle_breaks_on_shows_what_pickle_said() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise RuntimeError("I stay here")

    error = failure([1], lambda s: op.map("make", s, lambda n: Stubborn()))
    assert error.problem.endswith("so it cannot leave its process: I stay here")


# --- raises -----------------------------------------------------------------------------------


def test_raises_stops_the_flow_at_the_first_item() -> None:
    flow = Dataflow("watched")
    op.raises("never", op.filter("bad", op.input("in", flow, TestingSource([])), lambda n: n < 0))
    with TestDriver(flow) as t:
        t.send("in", [1, 2])
        assert t.stats.counts["in", "out"] == 2
        with pytest.raises(StepError) as caught:
            t.send("in", [1, -2, -3])
    assert str(caught.value) == (
        "step 'never': an item reached a stream that op.raises watches\n  item: -2"
    )


# --- what is shown ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ("x" * 100_000, "'" + "x" * 77 + "..." + "x" * 78 + "'"),
        (list(range(100_000)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...]"),
    ],
    ids=["long", "large"],
)
def test_a_long_or_large_item_is_cut(item: Any, shown: str) -> None:
    assert failure([item], lambda s: op.map("number", s, fail)).item == shown


def test_a_long_key_is_cut_where_it_is_shown() -> None:
    error = failure([("k" * 100_000, 0)], lambda s: op.map_value("inverse", s, fail))
    assert error.key == "k" * 100_000
    assert len(str(error)) < 600


def test_an_item_that_cannot_be_shown_does_not_hide_the_error() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise LookupError("no")

    error = failure([1], lambda s: op.map("use", op.map("make", s, lambda _: Shy()), len))
    assert error.step_id == "use"
    assert (error.item or "").startswith("<Shy ")


@pytest.mark.parametrize(
    "value", ["x" * 10_000, list(range(10_000)), {"k" * 500: "v" * 500}, ["x" * 500] * 12]
)
def test_whatever_is_shown_is_short(value: object) -> None:
    assert len(shorten(value)) <= 400


def test_a_step_error_survives_pickle() -> None:
    error = pickle.loads(pickle.dumps(step_error("step", "broke", key="k", item={"n": 1})))
    assert str(error) == "step 'step': broke\n  key:  'k'\n  item: {'n': 1}"
    assert isinstance(error, FlowError)
    assert isinstance(error, RuntimeError)


def test_the_value_on_which_a_stateful_mapper_failed_is_the_one_shown() -> None:
    def inverse(state: None, value: int) -> tuple[int, float]:
        return 1, 1 / value

    error = failure([("k", 1), ("k", 0), ("k", 2)], step(op.stateful_map, inverse))
    assert (error.key, error.item) == ("k", "0")
    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("item", [7, ("a", 7), ("a", (1, 2, 3)), "ab"])
def test_map_window_refuses_items_that_are_no_results_of_windows(item: Any) -> None:
    with pytest.raises(StepError, match=r"map_window reads results of windows, .* got ") as caught:
        run_once([item], lambda s: op.map_window("shown", s, lambda *parts: parts))
    assert repr(item) in str(caught.value)


def test_an_error_of_a_function_of_map_window_is_its_own() -> None:
    with pytest.raises(StepError, match="the mapper raised TypeError: unsupported operand"):
        run_once([("a", (1, "x"))], lambda s: op.map_window("sum", s, lambda k, w, v: w + v))


@pytest.mark.parametrize("item", [7, "ab", ["a", 1], ("a",), ("a", 1, 2), {"a": 1}])
@pytest.mark.parametrize(
    "build",
    [
        step(op.map_value, lambda x: x),
        step(op.key_rm),
        step(op.stateful, Diary),
        lambda s: op.join("step", s, s),
    ],
)
def test_a_keyed_step_needs_pairs(build: Build, item: Any) -> None:
    assert str(failure([("k", 1), item], build)) == (
        f"step 'step': needs (key, value) pairs, got {type(item).__name__}: "
        f"put a key before each item with op.key_on\n  item: {item!r}"
    )


@pytest.mark.parametrize("key", [7, None, b"k", ("k",)])
def test_a_keyed_step_needs_text_keys(key: Any) -> None:
    error = failure([(key, 1)], step(op.stateful, Diary))
    assert error.problem.startswith(f"a key must be a str, got {type(key).__name__}: name its")
    assert error.item == repr((key, 1))


def test_a_key_that_is_a_kind_of_text_becomes_plain_text() -> None:
    class Name(str):
        __slots__ = ()

    (pair,) = run_once([(Name("k"), 1)], step(op.reduce_final, max))
    assert (pair, type(pair[0])) == (("k", 1), str)

    class Airport(str, Enum):  # noqa: UP042 -- whose str() is not its text
        LONDON = "LHR"

    pairs = [(Airport.LONDON, 1), ("LHR", 2)]
    assert run_once(pairs, step(op.reduce_final, max)) == [("LHR", 2)]


def test_a_key_that_utf_8_cannot_hold_is_refused() -> None:
    error = failure([("k\ud800", 1)], step(op.stateful, Diary))
    assert error.problem == "a key must be text that UTF-8 can hold"
    assert error.key == "k\ud800"


# --- keys, and logics that break their contract ------------------------------------------------


class Misbehaving(Diary):
    """Returns or raises what it is told to."""

    def on_item(self, value: Any, moment: Any) -> Any:
        return value() if callable(value) else value


MISBEHAVIOURS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "TypeError: cannot unpack non-iterable NoneType object"),
    "a list of three": ([1, 2, 3], "ValueError: too many values to unpack (expected 2"),
    "values that are none": ((5, op.KEEP), "TypeError: 'int' object is not iterable"),
    "a bool for keep": (
        ([1], True),
        "TypeError: Misbehaving must return KEEP or DISCARD beside its values, got True",
    ),
}


@pytest.mark.parametrize(("answer", "problem"), MISBEHAVIOURS.values(), ids=MISBEHAVIOURS)
def test_a_logic_must_return_values_and_whether_to_keep_it(answer: Any, problem: str) -> None:
    error = failure([("k", answer)], step(op.stateful, Misbehaving))
    assert (error.key, error.item) == ("k", repr(answer))
    assert error.problem.startswith(
        f"on_item raised {problem}"
    )  # Later Pythons add how many there are.
    assert isinstance(error.__cause__, (TypeError, ValueError))


class Failing(Diary):
    """Raises in the method that a value names."""

    def __init__(self, state: str | None) -> None:
        super().__init__(None)
        self._method = state or ""

    def _reached(self, method: str, answer: Any) -> Any:
        if method == self._method:
            raise OSError("disk on fire")
        return answer

    def on_item(self, value: Any, moment: Any) -> Any:
        self._method = value
        return [], op.KEEP

    def on_epoch_end(self, moment: Any) -> Any:
        return self._reached("on_epoch_end", [])

    def on_end(self, moment: Any) -> Any:
        return self._reached("on_end", ([], op.KEEP))

    def notify_at(self) -> Any:
        return self._reached("notify_at", None)

    def snapshot(self) -> Any:
        return self._reached("snapshot", self._method)


@pytest.mark.parametrize("method", ["on_epoch_end", "on_end", "notify_at", "snapshot"])
def test_a_logic_s_other_methods_are_named_when_they_raise(method: str) -> None:
    error = failure([("k", method)], step(op.stateful, Failing))
    assert str(error) == f"step 'step': {method} raised OSError: disk on fire\n  key:  'k'"
    assert isinstance(error.__cause__, OSError)


def test_a_naive_time_to_be_called_at_is_refused() -> None:
    naive = datetime(2013, 1, 1)  # noqa: DTZ001
    error = failure([("k", naive)], step(op.stateful, Diary))
    assert error.problem.startswith(
        "notify_at raised TimestampError: 2013-01-01T00:00:00 is a naive datetime"
    )
    assert isinstance(error.__cause__, TimestampError)


def reject() -> Any:
    raise op.RejectedValue({"ts": None}, "its timestamp is missing")


def test_a_logic_that_rejects_a_value_says_which() -> None:
    error = failure([("k", reject)], step(op.stateful, Misbehaving))
    assert str(error) == (
        "step 'step': its timestamp is missing\n  key:  'k'\n  item: {'ts': None}"
    )


def resumed(builder: Callable[[Any], Any]) -> StepError:
    """Return the error of a key with state whose logic cannot be made again."""
    with driver(step(op.stateful, builder)) as t:
        t.send("in", [("k", 1)])
        with pytest.raises(StepError) as caught:
            t.send("in", [("k", 2)])
    return caught.value


def test_a_builder_that_cannot_read_a_snapshot_is_named() -> None:
    def builder(state: Any) -> Diary:
        if state is not None:
            raise ValueError("state of an older version")
        return Diary(None)

    error = resumed(builder)
    assert str(error) == (
        "step 'step': making its logic from a snapshot raised ValueError: "
        "state of an older version\n  key:  'k'"
    )
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("nonsense", "its builder must return a StatefulLogic or a StatefulBatchLogic, got str"),
        (None, "making its logic from a snapshot raised TypeError: the builder returned None"),
    ],
)
def test_a_builder_without_a_logic_for_a_snapshot_loses_no_state(answer: Any, problem: str) -> None:
    assert resumed(lambda state: Diary(None) if state is None else answer).problem == problem


def test_state_that_cannot_be_pickled_shows_the_key_and_the_state() -> None:
    error = failure([("k", 1)], step(op.stateful_map, lambda n, x: (some_generator(), x)))
    assert error.problem == (
        "its state cannot be pickled, so it cannot be kept: cannot pickle 'generator' object"
    )
    assert error.key == "k"
    assert (error.item or "").startswith("<generator object")
