"""Operators that call services: an async function for each item, and look-ups that are cached."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

from typing_extensions import override

from flow.checks import check_choice, check_whole, wrong_type
from flow.dataflow import Operator, Stream, add_step, check_callable
from flow.durations import Duration, duration_us, natural_us, positive_us
from flow.errors import FlowError, FlowTypeError, shorten
from flow.operators.stateless import TryOut

X = TypeVar("X")
Y = TypeVar("Y")
DK = TypeVar("DK")
DV = TypeVar("DV")

Order: TypeAlias = Literal["input", "key", "none"]
"""The order of a step's calls and results, see `map_async`."""


class CallId(str):
    """The identity of a call: 32 hexadecimal digits, the same in every attempt and every replay.

    It stays after a rewind of the checkpoint too. Use it as an idempotency key, with which an API
    recognises a call that it has already served.
    """

    __slots__ = ()


CURRENT_CALL: ContextVar[CallId] = ContextVar("flow_call_id")
"""The identity of the call that runs in this context."""


def call_id() -> CallId:
    """Return the identity of the call that runs, inside a function of `map_async`.

    Raises:
        FlowError: outside of such a function.
    """
    try:
        return CURRENT_CALL.get()
    except LookupError:
        raise FlowError(
            "op.call_id() has a value only inside a function of op.map_async, while it is called"
        ) from None


@dataclass(frozen=True)
class Retry:
    """The attempts of a call, and the waits between them.

    The wait doubles with each attempt, up to `longest`. A part of it, up to a half, is left out, so
    that calls that failed together are not repeated together; the part follows from the `CallId`.

    Attributes:
        attempts: the greatest number of attempts, including the first.
        wait: the wait before the second attempt.
        longest: the longest wait.
        on: the exceptions after which a call is repeated; a call that takes longer than the timeout
            raises `TimeoutError`.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when a value is invalid.

    >>> Retry(3, "200ms").wait_us(1, CallId("0" * 32)) <= 200_000
    True
    """

    attempts: int = 3
    wait: Duration = "200ms"
    longest: Duration = "30s"
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        check_whole("Retry: attempts", self.attempts, 1)
        for name in ("wait", "longest"):
            natural_us(getattr(self, name), f"Retry: {name}")
        given: object = self.on
        kinds = given if isinstance(given, tuple) else (given,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise FlowTypeError(
                    f"Retry: on must be a tuple of exception classes, got {shorten(self.on)}"
                )
        object.__setattr__(self, "on", kinds)

    def repeats(self, error: Exception, attempt: int) -> bool:
        """Return True if a call is repeated after attempt number `attempt`, from 1, failed."""
        return attempt < self.attempts and isinstance(error, self.on)

    def wait_us(self, attempt: int, call: CallId) -> int:
        """Return the wait after attempt number `attempt`, from 1, in µs."""
        longest_us = duration_us(self.longest)
        doublings = min(attempt - 1, longest_us.bit_length())
        whole_us = min(duration_us(self.wait) << doublings, longest_us)
        digest = blake2b(f"{call} {attempt}".encode(), digest_size=4).digest()
        return whole_us - whole_us * int.from_bytes(digest) // (1 << 33)


@dataclass(frozen=True)
class MapAsync(Operator):
    """Call an async function for each item.

    Attributes:
        function: the function, of a resource and an item, or of an item.
        resource: the factory of the resource; ``None`` for a function of an item.
        capacity: the greatest number of concurrent calls of a task.
        timeout_us: the longest time of an attempt, in µs.
        retry: the attempts of a call.
        order: the order of calls and results.
        errors: True if items whose calls fail go to ``errors``.
    """

    function: Callable[..., Awaitable[Any]]
    resource: Callable[[], Any] | None
    capacity: int
    timeout_us: int
    retry: Retry
    order: Order
    errors: bool

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return ("ok", "errors") if self.errors else ("down",)


@overload
def map_async(
    step_id: str,
    up: Stream[X],
    fn: Callable[..., Awaitable[Y]],
    *,
    resource: Callable[[], Any] | None = None,
    capacity: int = 100,
    timeout: Duration = "10s",
    retry: Retry = ...,
    order: Order = "input",
    on_error: Literal["fail"] = "fail",
) -> Stream[Y]: ...


@overload
def map_async(
    step_id: str,
    up: Stream[X],
    fn: Callable[..., Awaitable[Y]],
    *,
    resource: Callable[[], Any] | None = None,
    capacity: int = 100,
    timeout: Duration = "10s",
    retry: Retry = ...,
    order: Order = "input",
    on_error: Literal["errors"],
) -> TryOut: ...


def map_async(
    step_id: str,
    up: Stream[X],
    fn: Callable[..., Awaitable[Y]],
    *,
    resource: Callable[[], Any] | None = None,
    capacity: int = 100,
    timeout: Duration = "10s",
    retry: Retry = Retry(3, "200ms"),
    order: Order = "input",
    on_error: Literal["fail", "errors"] = "fail",
) -> Stream[Y] | TryOut:
    """Turn each item into another with an async function, with many calls at a time.

    All calls of an epoch end before the epoch does, so a checkpoint never has a call in flight. An
    epoch that failed is replayed, and its calls are made again with the same `call_id`.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        fn: an ``async def`` function: ``fn(item)``, or with a resource ``fn(resource, item)``. Its
            result is the new item. All calls of a worker share one event loop, so the function
            must not block.
        resource: a function without arguments that makes what the calls share, such as a client.
            It is called inside the event loop, once in each worker process, and its result serves
            all epochs of the run. If the result is an async context manager, the calls get what it
            enters with; an ``async def`` function is awaited.
        capacity: the greatest number of concurrent calls of a task.
        timeout: the longest time of an attempt; positive.
        retry: the attempts of a call, and the waits between them; ``Retry(1)`` for one attempt.
        order: ``"input"``: results leave in the order of the items. ``"key"``: the same, and the
            calls for items of one key are made one after the other, in order; items are ``(key,
            value)`` pairs. ``"none"``: no order is promised.
        on_error: ``"fail"``: the flow stops when the last attempt of a call fails. ``"errors"``:
            the item goes to a stream of its own, as an `ItemError`.

    Returns:
        The results; with ``on_error="errors"`` a `TryOut`, with the streams ``ok`` and ``errors``.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.

    Example:
        >>> import asyncio
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> async def price(name):
        ...     await asyncio.sleep(0.01)
        ...     return name, len(name)
        >>> run_once(["tea", "milk"], lambda s: op.map_async("price", s, price, timeout="1s"))
        [('tea', 3), ('milk', 4)]
    """
    where = f"step {shorten(step_id)}"
    _check_function(where, fn, resource)
    check_whole(f"{where}: capacity", capacity, 1)
    timeout_us = positive_us(timeout, f"{where}: timeout")
    if not isinstance(retry, Retry):
        raise FlowTypeError(
            f"{where}: retry must be a Retry, such as Retry(3, '200ms'), or Retry(1) for one "
            f"attempt; got {type(retry).__name__} {shorten(retry)}"
        )
    check_choice(f"{where}: order", order, ("input", "key", "none"))
    check_choice(f"{where}: on_error", on_error, ("fail", "errors"))
    errors = on_error == "errors"
    operator = MapAsync(fn, resource, capacity, timeout_us, retry, order, errors)
    downs = add_step(step_id, operator, up)
    return TryOut(*downs) if errors else downs[0]


def _check_function(where: str, function: object, resource: object) -> None:
    """Check that a function is async, and takes an item, or a resource and an item.

    Raises:
        FlowTypeError: when it is another function, or none.
    """
    call = getattr(function, "__call__", None)  # noqa: B004  (an object may have an async method)
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)):
        raise FlowTypeError(
            f"{where}: fn must be an async def function, got {type(function).__name__} "
            f"{shorten(function)}: use op.map for a plain function, or await "
            "asyncio.to_thread(...) in an async one"
        )
    if resource is not None and not callable(resource):
        rule = f"{where}: resource must be a function that makes the resource in the worker"
        raise wrong_type(rule, resource)
    wanted = ("item",) if resource is None else ("resource", "item")
    try:
        inspect.signature(function).bind(*wanted)  # type: ignore[arg-type]  # It is callable.
    except ValueError:  # A function without a signature; the call itself will tell.
        return
    except TypeError:
        hint = "resource= makes one" if resource is None else "there is a resource="
        raise FlowTypeError(
            f"{where}: fn must take {len(wanted)} argument{'s'[: len(wanted) - 1]}, "
            f"fn({', '.join(wanted)}), got {shorten(function)} with the signature "
            f"{inspect.signature(function)} ({hint})"  # type: ignore[arg-type]
        ) from None


@dataclass(frozen=True)
class EnrichCached(Operator):
    """Map each item with a cache of a slow getter's results."""

    getter: Callable[[Any], Any]
    mapper: Callable[[TTLCache[Any, Any], Any], Any]
    ttl_us: int


_EVICTED_AT_ONCE = 2
"""Expired entries that each new entry evicts: with one, a cache that grew would never shrink."""


class TTLCache(Generic[DK, DV]):
    """A cache of a getter's results, with a time to live; `enrich_cached` passes it to the mapper.

    Entries are ordered by age, the oldest first. Each new entry evicts up to two expired entries,
    so the cache shrinks as fast as it grew, and no look-up pays for all of them. An `OrderedDict`
    finds its first entry in constant time, which a dict does not after many removals.
    """

    def __init__(self, getter: Callable[[DK], DV], ttl_us: int) -> None:
        self._getter = getter
        self._ttl_us = ttl_us
        self._known: OrderedDict[DK, tuple[int, DV]] = OrderedDict()
        self.now_us = 0

    def get(self, key: DK) -> DV:
        """Return the getter's result for `key`, from the cache unless the entry has expired."""
        known = self._known.get(key)
        if known is None or self._is_old(known):
            known = (self.now_us, self._getter(key))
            self.remove(key)  # A new entry of the key has to be the last.
            self._known[key] = known
            self._evict_expired()
        return known[1]

    def remove(self, key: DK) -> None:
        """Remove the entry of `key`, if the cache has it."""
        self._known.pop(key, None)

    def _is_old(self, known: tuple[int, DV]) -> bool:
        return self.now_us - known[0] > self._ttl_us

    def _evict_expired(self) -> None:
        for _ in range(_EVICTED_AT_ONCE):
            key, oldest = next(iter(self._known.items()))
            if not self._is_old(oldest):
                return
            del self._known[key]


def enrich_cached(
    step_id: str,
    up: Stream[X],
    getter: Callable[[DK], DV],
    mapper: Callable[[TTLCache[DK, DV], X], Y],
    ttl: Duration = "5m",
) -> Stream[Y]:
    """Map each item with a slow look-up, whose results are cached for a time.

    The cache lives in each worker and is not part of the flow's state: after a restart, or in
    another worker, the getter is called again, and may return another result.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        getter: called with a key that is not in the cache.
        mapper: called with the cache and each item; all items of a worker share the cached results,
            so the mapper must not change them.
        ttl: the time for which a cached result is valid, in system time.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once(["a"], lambda s: op.enrich_cached("up", s, str.upper, lambda c, x: c.get(x)))
        ['A']
    """
    check_callable(step_id, "getter", getter)
    check_callable(step_id, "mapper", mapper)
    ttl_us = natural_us(ttl, f"step {shorten(step_id)}: ttl")
    return add_step(step_id, EnrichCached(getter, mapper, ttl_us), up)[0]
