"""The event loop of a process, and the resources of its calls, such as clients.

Steps wait for their calls in the thread that runs them, which may itself run another event loop, as
in a notebook or an async test. So the loop has a thread of its own.

A run has one resource for each step in a process. It outlives epochs, and is closed when the
process exits, when its `TestDriver` is left, and when another run opens a resource after this one
has had no calls for a minute. A worker that Spark kills closes nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from flow.errors import RAISED, EngineError

X = TypeVar("X")

_END_SECONDS = 1.0
"""The longest wait for the end of calls that were cancelled."""

logger = logging.getLogger("flow")

_IDLE_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
"""The longest time in which a resource is closed."""


class EventLoop:
    """An event loop that runs until its process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.stop = _refuse_stop  # type: ignore[method-assign]  # A call may ask for it.
        self._thread = threading.Thread(target=self._serve, name="flow-calls", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop; an exit in a task leaves the loop, and is also the task's exception."""
        while True:
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, X]) -> X:
        """Run a coroutine in the loop, and return its result.

        An exception in the waiting thread, such as an interrupt, cancels the coroutine.

        Raises:
            EngineError: when this thread runs the loop, and so cannot wait for it.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise EngineError(
                "a function of op.map_async cannot run a flow that has a step with op.map_async: "
                "run the flow in another thread, with asyncio.to_thread"
            )
        cancellable = _Cancellable(work)
        try:
            return asyncio.run_coroutine_threadsafe(cancellable.run(), self._loop).result()
        finally:
            if not cancellable.ended.is_set():
                self._loop.call_soon_threadsafe(cancellable.cancel)
                cancellable.ended.wait(_END_SECONDS)


def _refuse_stop() -> None:
    raise RuntimeError("the event loop serves all calls of a process, and cannot be stopped")


class _Cancellable(Generic[X]):
    """A coroutine that can be cancelled at any moment, also before its task is known.

    Attributes:
        ended: set when the coroutine has ended in any way.
    """

    def __init__(self, work: Coroutine[Any, Any, X]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self.ended = threading.Event()

    async def run(self) -> X:
        """Await the coroutine."""
        self._task = asyncio.current_task()
        try:
            if self._is_cancelled:
                self._work.close()
                raise asyncio.CancelledError
            return await self._work
        finally:
            self.ended.set()

    def cancel(self) -> None:
        """Cancel the coroutine; called in the loop."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()


def event_loop() -> EventLoop:
    """Return the event loop of this process."""
    return _loop_of(os.getpid())


@lru_cache(maxsize=1)
def _loop_of(pid: int) -> EventLoop:  # noqa: ARG001  (a forked process has no threads of its parent)
    return EventLoop()


class Identity(NamedTuple):
    """The run and the step of a resource."""

    run_id: str
    step_id: str


@dataclass
class _Open:
    """An open resource.

    Attributes:
        made: the result of the factory.
        value: the value for calls.
        users: the number of chunks whose calls use the resource.
        used_at: the loop's time at the end of the last use, in seconds.
    """

    made: Any
    value: Any
    users: int = 0
    used_at: float = 0.0


class Resources:
    """The open resources of a process; all methods run in its event loop."""

    def __init__(self) -> None:
        self._open: dict[Identity, _Open] = {}

    @contextlib.asynccontextmanager
    async def using(self, identity: Identity, factory: Callable[[], Any]) -> AsyncIterator[Any]:
        """Enter with the resource of a run's step, which is opened at its first use."""
        if identity not in self._open:
            await self._close_idle(identity.run_id)
            self._open[identity] = await _opened(factory)
        found = self._open[identity]
        found.users += 1
        try:
            yield found.value
        finally:
            found.users -= 1
            found.used_at = _now()

    async def close(self, run_id: str | None = None) -> None:
        """Close the resources of a run, or all."""
        for identity in [one for one in self._open if run_id in (None, one.run_id)]:
            await _close(identity, self._open.pop(identity))

    async def _close_idle(self, run_id: str) -> None:
        """Close the resources of other runs that have had no calls for a while."""
        before = _now() - _IDLE_SECONDS
        for identity, found in list(self._open.items()):
            if identity.run_id != run_id and not found.users and found.used_at < before:
                await _close(identity, self._open.pop(identity))


_of_process: dict[int, Resources] = {}
"""The resources of this process, by its id: a forked process has no open resources."""


def resources_of_process() -> Resources:
    """Return the resources of this process."""
    if os.getpid() not in _of_process:
        _of_process.clear()
        _of_process[os.getpid()] = Resources()
        atexit.register(close_resources)
    return _of_process[os.getpid()]


def close_resources(run_id: str | None = None) -> None:
    """Close the resources of a run, or all resources of this process."""
    resources = _of_process.get(os.getpid())
    if resources is not None:
        event_loop().run(resources.close(run_id))


async def _opened(factory: Callable[[], Any]) -> _Open:
    made = factory()
    if inspect.iscoroutine(made):
        made = await made
    if hasattr(type(made), "__aenter__"):
        return _Open(made, await made.__aenter__())
    return _Open(made, made)


async def _close(identity: Identity, opened: _Open) -> None:
    """Close a resource; a failure is logged, as the calls have ended."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await _closing(opened.made)
    except RAISED:  # A user's resource may raise anything.
        logger.warning("step %r: closing its resource failed", identity.step_id, exc_info=True)


async def _closing(made: Any) -> None:
    if hasattr(type(made), "__aexit__"):
        await made.__aexit__(None, None, None)
        return
    close = getattr(made, "aclose", None) or getattr(made, "close", None)
    result = close() if callable(close) else None
    if inspect.isawaitable(result):
        await result


def _now() -> float:
    return asyncio.get_running_loop().time()
