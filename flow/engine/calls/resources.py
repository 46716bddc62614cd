"""Resources of calls, such as clients: one for each run and step in a process.

A resource outlives epochs. It is closed when the process exits, when its `TestDriver` is left, and
when another run opens a resource after this one has had no calls for a minute. A worker that Spark
kills closes nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flow.engine.calls.event_loop import event_loop

logger = logging.getLogger("flow")

_IDLE_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
"""The longest time in which a resource is closed."""


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
    except Exception:  # A user's resource may raise anything.
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
