"""Errors of keyed steps: wrong keys, and logics that break their contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from typing import Any

import pytest

import flow.operators as op
from flow import Stream, TimestampError
from flow.errors import StepError
from flow.testing import run_once
from tests.support.logics import Diary
from tests.support.one_stream import driver

Build = Callable[[Stream[Any]], Stream[Any]]


def failure(items: Any, build: Build) -> StepError:
    with pytest.raises(StepError) as caught:
        run_once(items, build)
    return caught.value


@pytest.mark.parametrize("item", [7, "ab", ["a", 1], ("a",), ("a", 1, 2), {"a": 1}])
@pytest.mark.parametrize(
    "build",
    [
        lambda s: op.map_value("step", s, lambda x: x),
        lambda s: op.key_rm("step", s),
        lambda s: op.stateful("step", s, Diary),
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
    error = failure([(key, 1)], lambda s: op.stateful("step", s, Diary))
    assert error.problem.startswith(f"a key must be a str, got {type(key).__name__}: make it text")
    assert error.item == repr((key, 1))


def test_a_key_that_is_a_kind_of_text_becomes_plain_text() -> None:
    class Name(str):
        __slots__ = ()

    (pair,) = run_once([(Name("k"), 1)], lambda s: op.reduce_final("step", s, max))
    assert (pair, type(pair[0])) == (("k", 1), str)

    class Airport(str, Enum):  # noqa: UP042 -- whose str() is not its text
        LONDON = "LHR"

    pairs = [(Airport.LONDON, 1), ("LHR", 2)]
    assert run_once(pairs, lambda s: op.reduce_final("step", s, max)) == [("LHR", 2)]


def test_a_key_that_utf_8_cannot_hold_is_refused() -> None:
    error = failure([("k\ud800", 1)], lambda s: op.stateful("step", s, Diary))
    assert error.problem == "a key must be text that UTF-8 can hold"
    assert error.key == "k\ud800"


class Misbehaving(Diary):
    """Returns or raises what it is told to."""

    def on_item(self, value: Any, moment: Any) -> Any:
        return value() if callable(value) else value


MISBEHAVIOURS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "on_item raised TypeError: cannot unpack non-iterable NoneType object"),
    "a list of three": (
        [1, 2, 3],
        "on_item raised ValueError: too many values to unpack (expected 2",
    ),
    "values that are none": (
        (5, op.KEEP),
        "on_item raised TypeError: 'int' object is not iterable",
    ),
    "a bool for keep": (
        ([1], True),
        "on_item raised TypeError: Misbehaving must return KEEP or DISCARD beside its values, "
        "got True",
    ),
    "text for keep": (
        ([1], "keep"),
        "on_item raised TypeError: Misbehaving must return KEEP or DISCARD beside its values, "
        "got 'keep'",
    ),
}


@pytest.mark.parametrize(("answer", "problem"), MISBEHAVIOURS.values(), ids=MISBEHAVIOURS)
def test_a_logic_must_return_values_and_whether_to_keep_it(answer: Any, problem: str) -> None:
    error = failure([("k", answer)], lambda s: op.stateful("step", s, Misbehaving))
    assert (error.key, error.item) == ("k", repr(answer))
    assert error.problem.startswith(problem)  # Later Pythons add how many there are.
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

    def on_end(self, moment: Any) -> Any:
        return self._reached("on_end", ([], op.KEEP))

    def notify_at(self) -> Any:
        return self._reached("notify_at", None)

    def snapshot(self) -> Any:
        return self._reached("snapshot", self._method)


@pytest.mark.parametrize("method", ["on_end", "notify_at", "snapshot"])
def test_a_logic_s_other_methods_are_named_when_they_raise(method: str) -> None:
    error = failure([("k", method)], lambda s: op.stateful("step", s, Failing))
    assert str(error) == f"step 'step': {method} raised OSError: disk on fire\n  key:  'k'"
    assert isinstance(error.__cause__, OSError)


def test_a_naive_time_to_be_called_at_is_refused() -> None:
    naive = datetime(2013, 1, 1)  # noqa: DTZ001
    error = failure([("k", naive)], lambda s: op.stateful("step", s, Diary))
    assert error.problem.startswith(
        "notify_at raised TimestampError: 2013-01-01T00:00:00 is a naive datetime"
    )
    assert isinstance(error.__cause__, TimestampError)


def reject() -> Any:
    raise op.RejectedValue({"ts": None}, "its timestamp is missing")


def test_a_logic_that_rejects_a_value_says_which() -> None:
    error = failure([("k", reject)], lambda s: op.stateful("step", s, Misbehaving))
    assert str(error) == (
        "step 'step': its timestamp is missing\n  key:  'k'\n  item: {'ts': None}"
    )


def resumed(builder: Callable[[Any], Any]) -> StepError:
    """Return the error of a key with state whose logic cannot be made again."""
    with driver(lambda s: op.stateful("step", s, builder)) as t:
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
def test_a_builder_that_answers_a_snapshot_with_no_logic_does_not_lose_the_state(
    answer: Any, problem: str
) -> None:
    assert resumed(lambda state: Diary(None) if state is None else answer).problem == problem


def some_generator() -> Iterator[int]:
    yield 1


def test_state_that_cannot_be_pickled_shows_the_key_and_the_state() -> None:
    error = failure(
        [("k", 1)], lambda s: op.stateful_map("step", s, lambda n, x: (some_generator(), x))
    )
    assert error.problem == (
        "its state cannot be pickled, so it cannot be kept: cannot pickle 'generator' object"
    )
    assert error.key == "k"
    assert (error.item or "").startswith("<generator object")
