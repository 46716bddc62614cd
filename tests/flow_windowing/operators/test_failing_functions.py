"""Errors of user functions that raise in a window: the function and the value are named.

It is the same over many keys at once and key by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest
from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key

START = datetime(2024, 5, 1, tzinfo=UTC)
CLOCK: win.EventClock[Any] = win.EventClock(itemgetter(0), "30s")
MINUTE = win.TumblingWindower("1m")
DAY = win.TumblingWindower("1d")
SESSIONS = win.SessionWindower("10s")


def value(second: int) -> tuple[datetime, int]:
    return START + timedelta(seconds=second), second


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("not today")


def fail_at_two(state: Any, one: Any) -> Any:
    return fail() if one[1] == 2 else one


def keep(_state: Any, one: Any) -> Any:
    return one


class Fails:
    """Raises when it is copied."""

    def __init__(self, *_: Any) -> None:
        pass

    def __deepcopy__(self, _memo: object) -> Any:
        return fail()


class Spread(win.Aggregator[Any, Any, Any]):
    """Does nothing, but for the method that fails."""

    def __init__(self, failing: str) -> None:
        self.failing = failing

    def _done(self, method: str, state: Any) -> Any:
        return fail() if method == self.failing else state

    @override
    def initialize(self) -> Any:
        return self._done("initialize", 0)

    @override
    def add(self, state: Any, value: Any) -> Any:
        return self._done("add" if value[1] == 2 else "", state)

    @override
    def merge(self, state: Any, other: Any) -> Any:
        return self._done("merge", state)

    @override
    def result(self, state: Any) -> Any:
        return self._done("result", state)


class Visit(win.EpochWindowLogic[Any, Any, None]):
    """Emits nothing, but for the method that fails: some before they are asked, some after."""

    failing = ""

    @override
    def on_value(self, value: Any) -> Iterable[Any]:
        if self.failing == "on_value" and value[1] == 2:
            yield fail()

    @override
    def on_merge(self, original: Any) -> Iterable[Any]:
        return fail() if self.failing == "on_merge" else ()

    @override
    def on_epoch_end(self) -> Iterable[Any]:
        return fail() if self.failing == "on_epoch_end" else ()

    @override
    def on_close(self) -> Iterable[Any]:
        return fail() if self.failing == "on_close" else ()

    @override
    def snapshot(self) -> None:
        return None


def visit(failing: str) -> Callable[[Any], Visit]:
    kind = type("Visit", (Visit,), {"failing": failing})
    return lambda _state: kind()


Step = Callable[[Any], Any]


def fold(*functions: Any, windower: Any = MINUTE, **options: Any) -> Step:
    return lambda up: win.fold_window("windows", up, CLOCK, windower, *functions, **options)


def spread(failing: str, windower: Any = MINUTE, **options: Any) -> Step:
    own = Spread(failing)
    return lambda up: win.aggregate_window("windows", up, CLOCK, windower, **options, spread=own)


def logic(builder: Any, windower: Any = MINUTE, **options: Any) -> Step:
    return lambda up: win.window("windows", up, CLOCK, windower, builder, **options)


def reduce(up: Any) -> Any:
    return win.reduce_window("windows", up, CLOCK, MINUTE, fail_at_two)


UPDATES: dict[str, Any] = {"emit": "update", "ordered": False}
ADDING: dict[str, tuple[Step, str]] = {
    "fold": (fold(int, fail_at_two), "the folder"),
    "fold, sessions": (fold(int, fail_at_two, keep, windower=SESSIONS), "the folder"),
    "fold, updates": (fold(int, fail_at_two, **UPDATES), "the folder"),
    "fold, updates of sessions": (
        fold(int, fail_at_two, keep, windower=SESSIONS, **UPDATES),
        "the folder",
    ),
    "reduce": (reduce, "the reducer"),
    "own": (spread("add"), "Spread.add"),
    "own, sessions": (spread("add", SESSIONS), "Spread.add"),
    "logic": (logic(visit("on_value")), "Visit.on_value"),
}
"""Steps that fail when the value 2 is added, and what they say has failed."""

OTHERS: dict[str, tuple[Step, str]] = {
    "builder": (fold(fail, keep), "the builder"),
    "builder, updates": (fold(fail, keep, **UPDATES), "the builder"),
    "merger": (fold(int, keep, fail, windower=SESSIONS, ordered=False), "the merger"),
    "merger, updates": (fold(int, keep, fail, windower=SESSIONS, **UPDATES), "the merger"),
    "copy": (fold(int, Fails, **UPDATES), "copying the result"),
    "own beginning": (spread("initialize"), "Spread.initialize"),
    "own merge": (spread("merge", SESSIONS), "Spread.merge"),
    "own result": (spread("result", emit="update"), "Spread.result"),
    "logic's merge": (logic(visit("on_merge"), SESSIONS, ordered=False), "Visit.on_merge"),
    "logic's builder": (logic(fail), "the builder"),
    "logic's epoch": (logic(visit("on_epoch_end"), DAY, ordered=False), "Visit.on_epoch_end"),
    "logic's end": (logic(visit("on_close")), "Visit.on_close"),
}
"""Steps that fail otherwise."""

WITHOUT_KEY: dict[str, tuple[Step, str]] = {
    "own result": (spread("result"), "Spread.result"),
    "result over sessions": (spread("result", SESSIONS), "Spread.result"),
}
"""Steps whose results fail, of many keys at once."""

BOTH_WAYS = pytest.mark.parametrize("at_once", [True, False], ids=["at once", "key by key"])


def failure_of(step: Step) -> StepError:
    flow = Dataflow("failing")
    op.output("out", step(op.input("in", flow, TestingSource([]))).down, TestingSink([]))
    # The session that comes first and the one after it become one by what comes last.
    seconds = (1, 2, 18, 9, 200)
    items = [("a", value(second)) for second in seconds]

    def play(driver: TestDriver) -> None:
        driver.send("in", items)
        driver.end()

    with TestDriver(flow, shards=1) as driver, pytest.raises(StepError) as caught:
        play(driver)
    return caught.value


@BOTH_WAYS
@pytest.mark.parametrize("name", ADDING)
def test_what_fails_on_a_value_is_named_with_the_value(name: str, at_once: bool) -> None:
    step, function = ADDING[name]
    with nullcontext() if at_once else key_by_key():
        error = failure_of(step)
    assert str(error) == (
        f"step 'windows': {function} raised ZeroDivisionError: not today\n"
        f"  key:  'a'\n  item: {value(2)!r}"
    )
    assert isinstance(error.__cause__, ZeroDivisionError)


@BOTH_WAYS
@pytest.mark.parametrize("name", OTHERS)
def test_what_fails_without_a_value_is_named(name: str, at_once: bool) -> None:
    step, function = OTHERS[name]
    with nullcontext() if at_once else key_by_key():
        error = failure_of(step)
    first, second, *_ = str(error).splitlines()
    assert first == f"step 'windows': {function} raised ZeroDivisionError: not today"
    assert second == "  key:  'a'"
    assert isinstance(error.__cause__, ZeroDivisionError)


@BOTH_WAYS
@pytest.mark.parametrize("name", WITHOUT_KEY)
def test_a_result_that_fails_is_named(name: str, at_once: bool) -> None:
    step, function = WITHOUT_KEY[name]
    with nullcontext() if at_once else key_by_key():
        error = failure_of(step)
    first = str(error).splitlines()[0]
    assert first == f"step 'windows': {function} raised ZeroDivisionError: not today"
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_a_builder_that_makes_no_logic_is_told() -> None:
    error = failure_of(logic(lambda _state: 7))
    assert str(error).splitlines()[0] == (
        "step 'windows': the builder raised TypeError: a builder must return a WindowLogic, got 7"
    )


def test_a_logic_that_cannot_merge_says_what_to_write() -> None:
    class Rigid(Visit):
        on_merge = win.WindowLogic.on_merge

    error = failure_of(logic(lambda _state: Rigid(), SESSIONS, ordered=False))
    assert "step 'windows'" in str(error)
    assert "write on_merge" in str(error)
