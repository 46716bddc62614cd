"""Values that cannot be sent to workers: found before Spark starts, and named."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

import flow.operators as op
from flow import Dataflow, FlowBuildError, run
from flow.engine.plan.portability import obstacle_in
from flow.errors import FlowTypeError
from flow.operators.stateless import Map
from flow.testing import TestDriver
from tests.support.one_stream import a_flow

LOCK = threading.Lock()


def flow_with(mapper: Callable[[Any], Any]) -> Dataflow:
    return a_flow(lambda s: op.map("guarded", s, mapper))


def closing_over_a_lock() -> Callable[[Any], Any]:
    lock = threading.Lock()

    def guarded(item: Any) -> Any:
        with lock:
            return item

    return guarded


def calling_another() -> Callable[[Any], Any]:
    inner = closing_over_a_lock()
    return lambda item: inner(item)


class Client:
    def __init__(self) -> None:
        self.options = {"sockets": [socket.socket()]}
        self.options["sockets"][0].close()

    def __call__(self, item: Any) -> Any:
        return item

    def fetch(self, item: Any) -> Any:
        return item


def with_default(item: Any, lock: Any = LOCK) -> Any:
    return item


with_default.__qualname__ = "no_such_name"  # Workers cannot import it, as if of the main script.
using_a_global: Any = lambda item: LOCK and item  # noqa: E731
using_a_global.__qualname__ = "no_such_name"


@pytest.mark.parametrize(
    ("mapper", "place", "kind"),
    [
        (closing_over_a_lock(), r"variable 'lock' of function '\S+\.guarded'", "lock"),
        (calling_another(), r"variable 'lock' of function '\S+\.guarded'", "lock"),
        (Client(), r"mapper\.options\['sockets'\]\[0\]", "socket"),
        (Client().fetch, r"mapper\.__self__\.options\['sockets'\]\[0\]", "socket"),
        (functools.partial(with_default, lock=threading.Lock()), r"mapper\['lock'\]", "lock"),
        (with_default, "variable 'lock' of function 'no_such_name'", "lock"),
        (using_a_global, "variable 'LOCK' of function 'no_such_name'", "lock"),
    ],
    ids=["closure", "inner", "object", "method", "partial", "default", "global"],
)
def test_what_cannot_be_sent_is_named(mapper: Callable[[Any], Any], place: str, kind: str) -> None:
    message = rf"^step 'guarded' cannot be sent to workers: {place} is .*, of type {kind} \(.+\): "
    with pytest.raises(FlowBuildError, match=message):
        TestDriver(flow_with(mapper))


@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_run_finds_it_before_spark_starts(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_session(*_: Any) -> Any:
        pytest.fail("Spark was started")

    monkeypatch.setattr("flow.engine.spark.session.session.make_session", no_session)
    with pytest.raises(FlowBuildError, match="variable 'lock' of function"):
        run(flow_with(closing_over_a_lock()), engine=engine)


def test_functions_and_classes_of_all_kinds_can_be_sent() -> None:
    class Local:
        def double(self, item: int) -> int:
            return 2 * item

    later: Any = lambda item: not_yet(item)  # noqa: E731
    mappers: list[Callable[[Any], Any]] = [
        str,
        len,
        "a".join,
        Local().double,
        functools.partial(max, 3),
        lambda item: threading.Lock() and Local() and item,
        later,
    ]
    for mapper in mappers:
        assert obstacle_in(Map(mapper)) is None, mapper
    not_yet = str


async def fetch(item: Any) -> Any:
    return item


async def fetch_all(item: Any) -> Any:
    yield item


@pytest.mark.parametrize("mapper", [fetch, fetch_all])
def test_an_async_function_is_refused(mapper: Any) -> None:
    message = f"^step 'guarded': mapper must be a plain function, got async def {mapper.__name__}: "
    with pytest.raises(FlowTypeError, match=rf"{message}only op\.map_async awaits"):
        flow_with(mapper)
