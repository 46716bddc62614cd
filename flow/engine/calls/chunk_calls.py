"""The calls of a chunk: at most the capacity at a time, with attempts, timeouts and ids."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from flow.columns.chunks import Chunk, Items, as_items, as_pairs, take
from flow.durations import duration_text
from flow.engine.calls.resources import Identity, event_loop, resources_of_process
from flow.engine.epoch.context import TaskContext
from flow.engine.epoch.failures import portable
from flow.errors import RAISED, brief, pair_advice, step_error
from flow.operators.async_calls import CURRENT_CALL, CallId, MapAsync
from flow.operators.stateless import ItemError

X = TypeVar("X")

_ID_BYTES = 16


def run_calls(
    kind: MapAsync, step_id: str, chunk: Chunk, context: TaskContext
) -> list[Chunk | None]:
    """Call the function of a step for each item of a chunk; return when all calls have ended.

    Returns:
        The results; for a step with a stream of errors, the results and the `ItemError` objects.

    Raises:
        StepError: when the last attempt of a call failed, or the resource cannot be opened.
    """
    if kind.order == "key":
        as_pairs(chunk, step_id)  # Items without a key are an error.
    plain = as_items(chunk)
    calls = ChunkCalls(kind, step_id, plain.items, call_ids(step_id, plain, context))
    event_loop().run(calls.run(context.run_id))
    context.count(step_id, "retries", calls.retries)
    results = Items(calls.results, plain.pos)
    if not kind.errors:
        return [results]
    context.count(step_id, "errors", int(calls.failed.sum()))
    return [take(results, ~calls.failed), take(results, calls.failed)]


def call_ids(step_id: str, items: Items, context: TaskContext) -> list[CallId]:
    """Return the identity of the call for each item, the same in every replay of the epoch.

    An identity is a digest of the epoch, the task's part of it, the step, the item's position and
    its key, and of the number of the item among those equal in all of these. Chunks may be cut
    differently in a replay; the items of a position arrive in the same order.
    """
    number = 0 if context.control is None else context.control.number
    start = blake2b(
        repr((step_id, context.moment.now_us, number, context.place)).encode(),
        digest_size=_ID_BYTES,
    )
    ids: list[CallId] = []
    for pos, item in zip(items.pos.tolist(), items.items, strict=True):
        digest = start.copy()
        digest.update(f"{pos} {key_of(item)!r}".encode())
        ids.append(CallId(_numbered(digest.digest(), context.calls).hex()))
    return ids


def _numbered(digest: bytes, seen: Counter[bytes]) -> bytes:
    """Return a digest, or for one that was seen before a digest of it and its number."""
    number = seen[digest]
    seen[digest] += 1
    if not number:
        return digest
    return blake2b(digest + number.to_bytes(8), digest_size=_ID_BYTES).digest()


def key_of(item: Any) -> str | None:
    """Return the key of a ``(key, value)`` pair; ``None`` for any other item."""
    is_pair = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
    return item[0] if is_pair else None


class ChunkCalls:
    """The calls for the items of one chunk.

    Attributes:
        results: the result of each call; for a failed call its `ItemError`.
        failed: the mask of failed calls, shape (items,).
        retries: the number of attempts after the first of each call.
    """

    def __init__(
        self, kind: MapAsync, step_id: str, items: Sequence[Any], ids: Sequence[CallId]
    ) -> None:
        self._kind = kind
        self._step_id = step_id
        self._items = items
        self._ids = ids
        self.results: list[Any] = [None] * len(items)
        self.failed: npt.NDArray[np.bool_] = np.zeros(len(items), np.bool_)
        self.retries = 0

    async def run(self, run_id: str) -> None:
        """Make all calls; a failed call that stops the flow cancels the others.

        Raises:
            StepError: when the last attempt of a call failed, or the resource cannot be opened.
        """
        async with AsyncExitStack() as stack:
            factory = self._kind.resource
            first = () if factory is None else (await self._opened(stack, factory, run_id),)
            runs = self._runs()
            workers = [
                asyncio.create_task(self._work(runs, first))
                for _ in range(min(self._kind.capacity, len(self._items)))
            ]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _opened(self, stack: AsyncExitStack, factory: Callable[[], Any], run_id: str) -> Any:
        """Return the step's resource, in use until the stack is left."""
        using = resources_of_process().using(Identity(run_id, self._step_id), factory)
        try:
            return await self._in_time(stack.enter_async_context(using))
        except RAISED as error:
            problem = f"making the resource raised {brief(error)}"
            raise step_error(self._step_id, problem, has_item=False) from error

    def _runs(self) -> Iterator[Iterable[int]]:
        """Return the indices of the items, in runs whose calls are made one after the other."""
        if self._kind.order != "key":
            return ((at,) for at in range(len(self._items)))
        of_key: dict[str | None, list[int]] = {}
        for at, item in enumerate(self._items):
            of_key.setdefault(key_of(item), []).append(at)
        return iter(of_key.values())

    async def _work(self, runs: Iterator[Iterable[int]], first: tuple[Any, ...]) -> None:
        """Make the calls of runs of items that no other task has begun, until none is left."""
        for run in runs:
            for at in run:
                CURRENT_CALL.set(self._ids[at])
                await self._call(at, first)

    async def _call(self, at: int, first: tuple[Any, ...]) -> None:
        """Make the attempts of a call."""
        retry, wait_us = self._kind.retry, 0
        for attempt in itertools.count(1):
            error = await self._attempt(at, first, wait_us)
            if error is None:
                return
            if not (isinstance(error, Exception) and retry.repeats(error, attempt)):
                self._fail(at, error, attempt)
                return
            self.retries += 1
            wait_us = retry.wait_us(attempt, self._ids[at])

    async def _attempt(self, at: int, first: tuple[Any, ...], wait_us: int) -> BaseException | None:
        """Make one attempt after a wait: store its result, or return its exception.

        An exception that would end the loop, such as `SystemExit`, must not leave a task. A call
        that is cancelled has failed, also if the function cancels its own task, or returns
        nevertheless.
        """
        try:
            if wait_us:
                await asyncio.sleep(wait_us / 1e6)
            self.results[at] = await self._in_time(self._kind.function(*first, self._items[at]))
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return asyncio.CancelledError("the call's task was cancelled")
        except RAISED as error:
            return error
        return None

    async def _in_time(self, work: Awaitable[X]) -> X:
        """Await a result for at most the timeout.

        Raises:
            TimeoutError: when there is no result in time.
        """
        timeout_us = self._kind.timeout_us
        try:
            async with asyncio.timeout(timeout_us / 1e6) as limit:
                return await work
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"no result within {duration_text(timeout_us)}") from error
            raise

    def _fail(self, at: int, error: BaseException, attempts: int) -> None:
        """Make an `ItemError` of an item, or raise the step's error."""
        item, key = self._items[at], key_of(self._items[at])
        if self._kind.errors and isinstance(error, Exception):
            self.failed[at] = True
            self.results[at] = ItemError(item, self._step_id, portable(error))
            return
        last = f", in the last of {attempts} attempts" if attempts > 1 else ""
        raise step_error(
            self._step_id,
            f"the call raised {brief(error)}{last}{pair_advice(error, item, None)}",
            item=item if key is None else item[1],
            key=key,
        ) from error
