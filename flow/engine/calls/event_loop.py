"""The event loop of a process, in a thread of its own.

Steps wait for their calls in the thread that runs them, which may itself run another event loop, as
in a notebook or an async test.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, Generic, TypeVar

from flow.errors import EngineError

X = TypeVar("X")

_END_SECONDS = 1.0
"""The longest wait for the end of calls that were cancelled."""


class EventLoop:
    """An event loop that runs until its process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="flow-calls", daemon=True
        )
        self._thread.start()

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
