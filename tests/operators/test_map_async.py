"""Async calls in process: order, attempts, timeouts, resources, errors and event loops."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flow.operators as op
from flow import Stream
from flow.columns.chunks import Items
from flow.engine.calls.chunk_calls import call_ids
from flow.engine.calls.resources import Identity, Resources, close_resources
from flow.engine.epoch.context import TaskContext
from flow.errors import FlowBuildError, FlowError, FlowTypeError, StepError
from flow.instants import Moment
from flow.testing import TestDriver, run_once
from tests.support import one_stream


def calling(fn: Any, **options: Any) -> Callable[[Stream[Any]], Stream[Any]]:
    return lambda s: op.map_async("call", s, fn, **options)


def failing(fn: Any, **options: Any) -> Callable[[Stream[Any]], Stream[Any]]:
    return lambda s: op.map_async("call", s, fn, on_error="errors", **options).errors


def driver(fn: Any, **options: Any) -> TestDriver:
    return one_stream.driver(calling(fn, **options))


ONCE = op.Retry(1)
THRICE = op.Retry(3, "1ms")


async def echo(item: Any) -> Any:
    return item


async def pause(milliseconds: int) -> int:
    await asyncio.sleep(milliseconds / 1000)
    return milliseconds


async def broken(item: Any) -> Any:
    raise ValueError(f"no {item}")


# --- order and capacity -----------------------------------------------------------------------


def test_calls_wait_at_the_same_time() -> None:
    started = time.monotonic()
    assert run_once([50] * 40, calling(pause, capacity=40)) == [50] * 40
    assert time.monotonic() - started < 1


def test_a_function_gets_keyed_items_as_pairs_and_records_as_dicts() -> None:
    assert run_once([("a", 1)], lambda s: calling(echo)(op.map_value("m", s, str))) == [("a", "1")]
    assert run_once(pa.RecordBatch.from_pylist([{"n": 1}]), calling(echo)) == [{"n": 1}]
    assert run_once([], calling(broken)) == []


def test_order_by_key_needs_pairs() -> None:
    with pytest.raises(StepError, match=r"step 'call': needs \(key, value\) pairs"):
        run_once([1], calling(echo, order="key"))


# --- attempts and errors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "attempts"), [(THRICE, ", in the last of 3 attempts"), (ONCE, "")], ids=["3", "1"]
)
def test_the_error_names_step_key_item_and_attempts(retry: op.Retry, attempts: str) -> None:
    with pytest.raises(StepError) as caught:
        run_once([("ann", 7)], calling(broken, retry=retry))
    assert str(caught.value) == (
        f"step 'call': the call raised ValueError: no ('ann', 7){attempts}\n"
        "  key:  'ann'\n"
        "  item: 7"
    )
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_call_is_repeated_after_the_exceptions_of_its_retry_only() -> None:
    asked: Counter[str] = Counter()

    async def ask(name: str) -> str:
        asked[name] += 1
        raise {"gone": ConnectionError, "wrong": KeyError}[name](name)

    retry = op.Retry(4, "1ms", on=(OSError, TimeoutError))
    errors = run_once(["gone", "wrong"], failing(ask, retry=retry))
    assert [type(error.exception) for error in errors] == [ConnectionError, KeyError]


def test_the_timeout_is_of_one_attempt() -> None:
    (error,) = run_once([60_000], failing(pause, timeout="10ms", retry=op.Retry(2, "1ms")))
    assert (error.item, error.step_id) == (60_000, "call")
    assert (type(error.exception), str(error.exception)) == (TimeoutError, "no result within 10ms")


def test_a_timeout_of_the_function_itself_keeps_its_message() -> None:
    async def ask(item: Any) -> None:
        raise TimeoutError("the server is busy")

    (error,) = run_once([1], failing(ask, retry=ONCE))
    assert str(error.exception) == "the server is busy"


@pytest.mark.parametrize("on_error", ["fail", "errors"])
@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_an_exit_or_a_cancellation_stops_the_flow(kind: type[BaseException], on_error: str) -> None:
    async def end(item: Any) -> None:
        raise kind("stop")

    def build(s: Stream[Any]) -> Stream[Any]:
        if on_error == "errors":
            return op.map_async("call", s, end, on_error="errors").ok
        return op.map_async("call", s, end)

    with pytest.raises(StepError, match=f"the call raised {kind.__name__}: stop"):
        run_once([1, 2], build)
    assert run_once([1], calling(echo)) == [1], "the event loop must still run"


async def leave(kind: type[BaseException] = SystemExit) -> None:
    raise kind("stop")


async def leave_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leave(KeyboardInterrupt))


async def leave_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit)
    await asyncio.sleep(60)


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)


async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()


class Gone(BaseException):
    """An exception that ends a program."""


@pytest.mark.parametrize(
    ("work", "problem"),
    [
        (lambda: asyncio.gather(leave(), pause(1)), "SystemExit: stop"),
        (lambda: asyncio.wait_for(leave(KeyboardInterrupt), 9), "KeyboardInterrupt: stop"),
        (lambda: asyncio.create_task(leave()), "SystemExit: stop"),
        (lambda: leave(Gone), "Gone: stop"),
        (leave_in_a_group, "KeyboardInterrupt: stop"),
        (leave_in_a_callback, "TimeoutError: no result within 100ms"),
        (lambda: asyncio.sleep(own_task().cancel()), "CancelledError: "),
        (cancel_all, "CancelledError: "),
        (stop_the_loop, "RuntimeError: the event loop serves all calls of a process"),
    ],
)
def test_no_call_ends_the_loop_of_all_calls(work: Any, problem: str) -> None:
    async def ask(item: Any) -> None:
        await work()

    with pytest.raises(StepError, match=f"the call raised {problem}") as caught:
        run_once([7], calling(ask, timeout="100ms", retry=ONCE))
    assert (caught.value.step_id, caught.value.item) == ("call", "7")
    assert run_once([1], calling(echo)) == [1]


def test_a_call_that_cancels_its_task_and_returns_has_failed() -> None:
    async def ask(item: Any) -> None:
        own_task().cancel()

    with pytest.raises(StepError, match="CancelledError: the call's task was cancelled") as caught:
        run_once([7, 8], calling(ask, capacity=1))
    assert caught.value.item == "7"


def test_a_failure_cancels_the_other_calls() -> None:
    ended: list[str] = []

    async def ask(item: int) -> None:
        if not item:
            raise ValueError("no")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    started = time.monotonic()
    with pytest.raises(StepError, match="ValueError: no"):
        run_once([1, 2, 0], lambda s: op.map_async("call", s, ask, retry=ONCE))
    assert ended == ["cancelled", "cancelled"]
    assert time.monotonic() - started < 5


def test_the_waits_double_up_to_the_longest_and_are_the_same_for_a_call() -> None:
    retry, call = op.Retry(9, "100ms", longest="500ms"), op.CallId("ab" * 16)
    waits = [retry.wait_us(attempt, call) for attempt in (1, 2, 3, 4, 40)]
    for wait, whole in zip(waits, (100, 200, 400, 500, 500), strict=True):
        assert whole * 500 <= wait <= whole * 1000
    assert waits == [retry.wait_us(attempt, call) for attempt in (1, 2, 3, 4, 40)]
    assert retry.wait_us(1, call) != retry.wait_us(1, op.CallId("ac" * 16))


# --- identities of calls ----------------------------------------------------------------------


async def with_id(item: Any) -> tuple[Any, op.CallId]:
    await asyncio.sleep(0)
    return item, op.call_id()


def test_every_item_of_every_epoch_and_step_has_a_call_id_of_its_own() -> None:
    def build(s: Stream[Any]) -> Stream[Any]:
        return op.merge("both", *(op.map_async(name, s, with_id) for name in ("first", "second")))

    with one_stream.driver(build) as t:
        for _ in range(3):  # Time stands still: the number of the epoch tells them apart.
            t.send("in", ["a", "a", "b"])
        ids = {call for _, call in t.received("out")}
    assert len(ids) == 18
    assert all(len(call) == 32 and int(call, 16) >= 0 for call in ids)


def test_attempts_of_a_call_have_one_id() -> None:
    seen: list[op.CallId] = []

    async def ask(item: Any) -> None:
        seen.append(op.call_id())
        raise ConnectionError

    run_once([1], failing(ask, retry=THRICE))
    assert len(seen) == 3
    assert len(set(seen)) == 1


@pytest.mark.parametrize("cuts", [[4], [1, 3], [2, 1, 1]])
def test_ids_do_not_depend_on_the_cut_of_a_task_into_chunks(cuts: list[int]) -> None:
    """A source may cut what it reads into other chunks in a replay."""
    context, ids = TaskContext(Moment(5), place=("in", 0)), list[op.CallId]()
    items, pos, first = [("a", 1), ("b", 1), ("a", 2), 7], np.array([0, 0, 0, 3]), 0
    for size in cuts:
        part = slice(first, first + size)
        ids += call_ids("call", Items(items[part], pos[part]), context)
        first += size
    whole = TaskContext(Moment(5), place=("in", 0))
    assert ids == call_ids("call", Items(items, pos), whole)
    assert len(set(ids)) == 4
    other = TaskContext(Moment(5), place=("in", 1))
    assert not set(ids) & set(call_ids("call", Items(items, pos), other))


def test_an_id_follows_the_position_of_its_item() -> None:
    """The two ways of a branch may meet again in another order."""
    items = ["left", "right"]
    there = call_ids("call", Items(items, np.array([0, 1])), TaskContext(Moment(5)))
    back = call_ids("call", Items(items[::-1], np.array([1, 0])), TaskContext(Moment(5)))
    assert there == back[::-1]


def test_there_is_no_call_id_outside_of_a_call() -> None:
    with pytest.raises(FlowError, match=r"only inside a function of op\.map_async"):
        op.call_id()


def test_the_call_id_is_known_in_threads_of_a_call() -> None:
    async def ask(item: Any) -> bool:
        return await asyncio.to_thread(op.call_id) == op.call_id()

    assert run_once([1, 2], calling(ask)) == [True, True]


# --- resources --------------------------------------------------------------------------------

LOG: list[str] = []
"""The events of resources, which are made in this process."""


@pytest.fixture(autouse=True)
def _clear_log() -> None:
    LOG.clear()


class Client:
    """A client that is made inside a running loop, and closed by `aclose`."""

    def __init__(self) -> None:
        asyncio.get_running_loop()
        LOG.append("made")

    async def aclose(self) -> None:
        LOG.append("closed")


class Plain:
    """A client with a plain `close`."""

    def __init__(self) -> None:
        LOG.append("made")

    def close(self) -> None:
        LOG.append("closed")


@asynccontextmanager
async def entered() -> AsyncIterator[str]:
    LOG.append("made")
    yield "the entered value"
    LOG.append("closed")


async def awaited() -> Client:
    return Client()


async def kind_of(resource: Any, item: Any) -> str:
    return resource if isinstance(resource, str) else type(resource).__name__


@pytest.mark.parametrize(
    ("factory", "kind"),
    [
        (Client, "Client"),
        (Plain, "Plain"),
        (entered, "the entered value"),
        (awaited, "Client"),
        (functools.partial(dict, a=1), "dict"),
    ],
)
def test_a_resource_serves_all_epochs_and_closes_with_the_driver(factory: Any, kind: str) -> None:
    with driver(kind_of, resource=factory) as t:
        t.send("in", [1, 2])
        t.send("in", [3])
        assert t.received("out") == [kind] * 3
        assert ([] if kind == "dict" else ["made"]) == LOG
    assert ([] if kind == "dict" else ["made", "closed"]) == LOG


def test_drivers_side_by_side_keep_their_resources() -> None:
    with driver(kind_of, resource=Client) as one, driver(kind_of, resource=Client) as two:
        for t in (one, two, one, two):
            t.send("in", [1])
        assert LOG == ["made", "made"]
    assert LOG == ["made", "made", "closed", "closed"]


def test_an_epoch_after_the_block_makes_the_resource_again() -> None:
    with driver(kind_of, resource=Client) as t:
        t.send("in", [1])
    t.send("in", [1])
    close_resources()
    assert LOG == ["made", "closed"] * 2


def test_an_idle_resource_of_another_run_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flow.engine.calls.resources._IDLE_SECONDS", -1.0)
    with driver(kind_of, resource=Client) as one, driver(kind_of, resource=Client) as two:
        one.send("in", [1])
        two.send("in", [1])
        assert LOG == ["made", "closed", "made"]


def test_a_resource_in_use_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flow.engine.calls.resources._IDLE_SECONDS", -1.0)

    async def main() -> None:
        resources = Resources()
        one, two = (resources.using(Identity(run, "call"), Client) for run in ("one", "two"))
        async with one, two:
            assert LOG == ["made", "made"]
        await resources.close()

    asyncio.run(main())
    assert LOG == ["made", "made", "closed", "closed"]


@pytest.mark.parametrize("kind", [ConnectionRefusedError, SystemExit, asyncio.CancelledError])
def test_a_resource_that_cannot_be_made_stops_the_flow(kind: type[BaseException]) -> None:
    def refused() -> None:
        raise kind("no server")

    with pytest.raises(StepError) as caught:
        run_once([1], calling(kind_of, resource=refused, on_error="fail"))
    assert (
        str(caught.value) == f"step 'call': making the resource raised {kind.__name__}: no server"
    )


def test_making_a_resource_has_the_timeout_too() -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    with pytest.raises(StepError, match="making the resource raised TimeoutError: no result with"):
        run_once([1], calling(kind_of, resource=slow, timeout="10ms"))


@pytest.mark.parametrize("kind", [OSError, SystemExit])
def test_a_resource_that_fails_to_close_is_logged(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck:
        def close(self) -> None:
            raise kind("busy")

    with driver(kind_of, resource=Stuck) as t:
        t.send("in", [1])
    assert caplog.messages == ["step 'call': closing its resource failed"]


# --- event loops and interrupts ---------------------------------------------------------------


def test_a_flow_runs_inside_a_running_event_loop() -> None:
    async def main() -> list[Any]:
        return run_once([1, 2], calling(echo))

    assert asyncio.run(main()) == [1, 2]


def test_a_call_cannot_run_a_flow_with_calls_in_its_own_loop() -> None:
    async def nested(item: Any) -> Any:
        return run_once([item], calling(echo))

    with pytest.raises(StepError, match=r"run the flow in another thread, with asyncio\.to_thread"):
        run_once([1], calling(nested, retry=ONCE))


def test_a_call_may_run_a_flow_with_calls_in_another_thread() -> None:
    async def nested(item: Any) -> Any:
        return await asyncio.to_thread(run_once, [item], calling(echo))

    assert run_once([1], calling(nested)) == [[1]]


def test_several_threads_share_the_loop() -> None:
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(run_once([20] * 5, calling(pause))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == [[20] * 5] * 4


def test_an_interrupt_cancels_the_calls_and_returns_soon() -> None:
    ended: list[str] = []

    async def ask(item: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_once([1], calling(ask))
    assert time.monotonic() - started < 5
    assert ended == ["cancelled"]


# --- arguments --------------------------------------------------------------------------------


def plain(item: Any) -> Any:
    return item


async def two(resource: Any, item: Any) -> None: ...


class Asker:
    async def __call__(self, item: Any) -> Any:
        return item


def test_an_object_or_a_partial_may_be_the_function() -> None:
    assert run_once([1], calling(Asker())) == [1]
    assert run_once([1], calling(functools.partial(two, None))) == [None]


@pytest.mark.parametrize(
    ("fn", "options", "message"),
    [
        (plain, {}, "fn must be an async def function, got function"),
        (3, {}, "fn must be an async def function, got int 3"),
        (two, {}, r"fn must take 1 argument, fn\(item\), got .* \(resource= makes one\)"),
        (echo, {"resource": dict}, r"fn must take 2 arguments, fn\(resource, item\), got"),
        (two, {"resource": 3}, "resource must be a function that makes the resource"),
        (echo, {"retry": 3}, r"retry must be a Retry, such as Retry\(3, '200ms'\)"),
    ],
)
def test_a_wrong_type_is_an_error_of_the_build(fn: Any, options: Any, message: str) -> None:
    with pytest.raises(FlowTypeError, match=f"step 'call': {message}"):
        run_once([], calling(fn, **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity must be a whole number of at least 1, got 0"),
        ({"timeout": "0s"}, "timeout must be positive, got '0s'"),
        ({"order": "keys"}, "order must be 'input', 'key' or 'none', got 'keys'"),
        ({"on_error": "drop"}, "on_error must be 'fail' or 'errors', got 'drop'"),
    ],
)
def test_a_wrong_value_is_an_error_of_the_build(options: Any, message: str) -> None:
    with pytest.raises(FlowBuildError, match=f"step 'call': {message}"):
        run_once([], calling(echo, **options))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attempts": 0}, "Retry: attempts must be a whole number of at least 1, got 0"),
        ({"wait": "-1s"}, "Retry: wait must not be negative, got '-1s'"),
        ({"longest": "x"}, "Retry: longest 'x' is not a duration"),
        ({"on": (BaseException,)}, "Retry: on must be a tuple of exception classes"),
    ],
)
def test_a_wrong_retry_is_an_error_of_the_build(arguments: Any, message: str) -> None:
    with pytest.raises(FlowBuildError, match=message):
        op.Retry(**arguments)


def test_one_exception_class_may_stand_for_a_tuple() -> None:
    assert op.Retry(on=OSError) == op.Retry(on=(OSError,))  # type: ignore[arg-type]
