"""Operators that keep nothing between items: map, filter, branch, merge and their kin.

Each function adds one step to the flow and returns the stream or streams that the step makes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from typing_extensions import override

from flow.dataflow import KeyedStream, Operator, Stream
from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, printable, shorten
from flow.fields import FieldPath
from flow.operators.building import add_step, check_callable

X = TypeVar("X")
Y = TypeVar("Y")
V = TypeVar("V")
W = TypeVar("W")
DK = TypeVar("DK")
DV = TypeVar("DV")


@dataclass(frozen=True)
class Map(Operator):
    """One item in, one item out."""

    mapper: Callable[[Any], Any]
    on_value: bool = False


@dataclass(frozen=True)
class FlatMap(Operator):
    """One item in, any number out."""

    mapper: Callable[[Any], Iterable[Any]]
    on_value: bool = False


@dataclass(frozen=True)
class Filter(Operator):
    """Keep the items for which the predicate says ``True``."""

    predicate: Callable[[Any], bool]
    on_value: bool = False


@dataclass(frozen=True)
class Branch(Operator):
    """Send each item one of two ways."""

    predicate: Callable[[Any], bool]

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return ("trues", "falses")


@dataclass(frozen=True)
class Merge(Operator):
    """Several streams into one."""


@dataclass(frozen=True)
class Redistribute(Operator):
    """Spread the items evenly over the shards."""


@dataclass(frozen=True)
class KeyOn(Operator):
    """Put a key before each item: a function of the item, or the path of a field of it."""

    key: Callable[[Any], str] | str


@dataclass(frozen=True)
class KeyRm(Operator):
    """Take the key away."""


@dataclass(frozen=True)
class Inspect(Operator):
    """Look at each item in passing."""

    inspector: Callable[[str, Any], None]


@dataclass(frozen=True)
class TryMap(Operator):
    """Map, with the items whose mapper raised on a stream of their own."""

    mapper: Callable[[Any], Any]

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return ("ok", "errors")


@dataclass(frozen=True)
class EnrichCached(Operator):
    """Map with a cache of what a slow getter returned."""

    getter: Callable[[Any], Any]
    mapper: Callable[[TTLCache[Any, Any], Any], Any]
    ttl_us: int


@dataclass(frozen=True)
class Raises(Operator):
    """Stop the flow at the first item."""

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class ItemError:
    """An item that a `try_map` step's mapper raised on.

    Attributes:
        item: the item.
        step_id: the step whose mapper raised.
        exception: what it raised.
    """

    item: Any
    step_id: str
    exception: Exception


class BranchOut(NamedTuple):
    """The two streams of a `branch`."""

    trues: Stream[Any]
    falses: Stream[Any]


class TryOut(NamedTuple):
    """The two streams of a `try_map`: what was returned, and an `ItemError` a failure."""

    ok: Stream[Any]
    errors: Stream[ItemError]


def map(step_id: str, up: Stream[X], mapper: Callable[[X], Y]) -> Stream[Y]:
    """Turn each item into another.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        mapper: called once on each item.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([1, 2], lambda s: op.map("double", s, lambda x: x * 2))
        [2, 4]
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, Map(mapper), up)[0]


def map_value(step_id: str, up: KeyedStream[V], mapper: Callable[[V], W]) -> KeyedStream[W]:
    """Turn each value into another; the key stays.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([("a", 1)], lambda s: op.map_value("double", s, lambda x: x * 2))
    [('a', 2)]
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, Map(mapper, on_value=True), up)[0]


def flat_map(step_id: str, up: Stream[X], mapper: Callable[[X], Iterable[Y]]) -> Stream[Y]:
    """Turn each item into any number of items.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once(["a b", ""], lambda s: op.flat_map("words", s, str.split))
    ['a', 'b']
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, FlatMap(mapper), up)[0]


def flat_map_value(
    step_id: str, up: KeyedStream[V], mapper: Callable[[V], Iterable[W]]
) -> KeyedStream[W]:
    """Turn each value into any number of values under the same key.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([("k", "a b")], lambda s: op.flat_map_value("words", s, str.split))
    [('k', 'a'), ('k', 'b')]
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, FlatMap(mapper, on_value=True), up)[0]


def flatten(step_id: str, up: Stream[Iterable[X]]) -> Stream[X]:
    """Move the items of each iterable up one level.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([[1, 2], []], lambda s: op.flatten("flat", s))
    [1, 2]
    """
    return add_step(step_id, FlatMap(_itself), up)[0]


def filter(step_id: str, up: Stream[X], predicate: Callable[[X], bool]) -> Stream[X]:
    """Keep the items for which `predicate` returns ``True``; anything but a bool is an error.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([1, 2, 3], lambda s: op.filter("odd", s, lambda x: x % 2 == 1))
    [1, 3]
    """
    check_callable(step_id, "predicate", predicate)
    return add_step(step_id, Filter(predicate), up)[0]


def filter_value(
    step_id: str, up: KeyedStream[V], predicate: Callable[[V], bool]
) -> KeyedStream[V]:
    """Keep the pairs for whose value `predicate` returns ``True``.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([("a", 1), ("a", 2)], lambda s: op.filter_value("odd", s, lambda x: x % 2 == 1))
    [('a', 1)]
    """
    check_callable(step_id, "predicate", predicate)
    return add_step(step_id, Filter(predicate, on_value=True), up)[0]


def filter_map(step_id: str, up: Stream[X], mapper: Callable[[X], Y | None]) -> Stream[Y]:
    """Map, leaving out the items for which `mapper` returns ``None``.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([1, 0], lambda s: op.filter_map("inverse", s, lambda x: 1 / x if x else None))
    [1.0]
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, FlatMap(_UnlessNone(mapper)), up)[0]


def filter_map_value(
    step_id: str, up: KeyedStream[V], mapper: Callable[[V], W | None]
) -> KeyedStream[W]:
    """Map values, leaving out the pairs for whose value `mapper` returns ``None``.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> pairs = [("a", "1"), ("a", "")]
    >>> run_once(pairs, lambda s: op.filter_map_value("n", s, lambda text: text or None))
    [('a', '1')]
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, FlatMap(_UnlessNone(mapper), on_value=True), up)[0]


def key_on(step_id: str, up: Stream[X], key: Callable[[X], str] | str) -> KeyedStream[X]:
    """Put a key before each item, which keyed operators then group by.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        key: a function that returns a `str`, or the path of a text field, such as ``"user.id"``.
            With a path, records stay columns.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([{"id": "a"}], lambda s: op.key_on("by_id", s, "id"))
        [('a', {'id': 'a'})]
    """
    if not isinstance(key, str):
        check_callable(step_id, "key", key)
    elif not FieldPath(key).is_valid:
        raise FlowBuildError(
            f"step {shorten(step_id)}: key must be a field's path such as 'user.id', got {key!r}"
        )
    return add_step(step_id, KeyOn(key), up)[0]


def key_rm(step_id: str, up: KeyedStream[X]) -> Stream[X]:
    """Take the keys away.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([("a", 1)], lambda s: op.key_rm("values", s))
    [1]
    """
    return add_step(step_id, KeyRm(), up)[0]


def branch(step_id: str, up: Stream[X], predicate: Callable[[X], bool]) -> BranchOut:
    """Send each item to ``trues`` or ``falses`` by what `predicate` returns.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([1, 2, 3], lambda s: op.branch("odd", s, lambda x: x % 2 == 1).falses)
    [2]
    """
    check_callable(step_id, "predicate", predicate)
    return BranchOut(*add_step(step_id, Branch(predicate), up))


def merge(step_id: str, *ups: Stream[Any]) -> Stream[Any]:
    """Put the items of several streams into one, interleaved by position.

    An item's position is its place in its source partition's part of the epoch. A keyed step after
    the merge applies the items of each key in this order:

    - In order of epochs. In a batch slices take the place of epochs; the slices of all inputs lie
      side by side, in proportion, and a data frame is all in the first slice.
    - Within an epoch (streaming, `TestDriver`) or a slice (batch), by position: the first item of
      each source partition, then the second of each, and so on. Where an epoch reads a partition in
      several splits, the first split of each partition comes before the second of each.
    - Among equal positions, in order of the inputs in the flow and of the partitions of each. Data
      frames that Spark reads come before or after all other inputs.

    Neither the order of `ups` nor timestamps matter: `docs/catching_up.md` says how watermarks wait
    for the input that is behind.

    What a step makes of an item has the item's position, behind stateless and stateful steps. What
    a step makes of all the items that a key has in an epoch, as windowing operators do, has the
    position of the last of them. What a keyed step emits as time passes comes before or after all
    items of the epoch, and what it emits at the end of the input comes last.

    An output in `TestDriver` receives items in this order. On Spark several tasks write an output,
    each in this order, and between tasks no order is promised.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> odd = lambda n: n % 2 == 1
    >>> run_once([1, 2, 3], lambda s: op.merge("all", *op.branch("odd", s, odd)))
    [1, 2, 3]

    Two inputs, which interleave:

    >>> from flow import Dataflow
    >>> from flow.testing import TestDriver, TestingSink, TestingSource
    >>> flow = Dataflow("two")
    >>> left, right = (op.input(name, flow, TestingSource([])) for name in ("left", "right"))
    >>> op.output("out", op.merge("both", right, left), TestingSink([]))
    >>> with TestDriver(flow) as t:
    ...     t.send_all({"left": ["l1", "l2", "l3"], "right": ["r1", "r2"]})
    ...     t.received("out")
    ['l1', 'r1', 'l2', 'r2', 'l3']
    """
    return add_step(step_id, Merge(), *ups)[0]


def redistribute(step_id: str, up: Stream[X]) -> Stream[X]:
    """Spread the items evenly over the shards, so that slow steps after it run in parallel.

    It costs a shuffle: use it where one source partition feeds heavy work.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> sorted(run_once([1, 2], lambda s: op.redistribute("spread", s)))
    [1, 2]
    """
    return add_step(step_id, Redistribute(), up)[0]


def inspect(
    step_id: str, up: Stream[X], inspector: Callable[[str, X], None] | None = None
) -> Stream[X]:
    """Look at each item in passing; what the inspector prints is shown where the flow was started.

    A flow may end with it: an output is not needed.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        inspector: called with the step's id and each item; prints both when left out.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([1], lambda s: op.inspect("see", s))
        see: 1
        [1]
    """
    if inspector is not None:
        check_callable(step_id, "inspector", inspector)
    return add_step(step_id, Inspect(inspector or _print_item), up)[0]


def raises(step_id: str, up: Stream[Any]) -> None:
    """Stop the flow with an error at the first item: for streams that should stay empty."""
    add_step(step_id, Raises(), up)


def try_map(step_id: str, up: Stream[X], mapper: Callable[[X], Y]) -> TryOut:
    """Map, with an `ItemError` on the ``errors`` stream for each item on which `mapper` raises.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once(["1", "x"], lambda s: op.try_map("int", s, int).ok)
    [1]
    >>> errors = run_once(["1", "x"], lambda s: op.try_map("int", s, int).errors)
    >>> errors[0].item, errors[0].step_id, type(errors[0].exception).__name__
    ('x', 'int', 'ValueError')
    """
    check_callable(step_id, "mapper", mapper)
    return TryOut(*add_step(step_id, TryMap(mapper), up))


_FORGOTTEN_AT_ONCE = 2
"""More than one, or what is too old would stay as long as others come."""


class TTLCache(Generic[DK, DV]):
    """Cache of what a getter returned, with a time to live; the mapper of `enrich_cached` gets it.

    Answers stand in the order in which they were given, so that those that are too old come first.
    Each new one lets go of two of these: what is kept shrinks as fast as it grew, and no look-up
    pays for all. That is no dict, which takes longer to find its first entry the more were removed.
    """

    def __init__(self, getter: Callable[[DK], DV], ttl_us: int) -> None:
        self._getter = getter
        self._ttl_us = ttl_us
        self._known: OrderedDict[DK, tuple[int, DV]] = OrderedDict()
        self.now_us = 0

    def get(self, key: DK) -> DV:
        """Return the getter's answer for `key`, which is asked for again once it is too old."""
        known = self._known.get(key)
        if known is None or self._is_old(known):
            known = (self.now_us, self._getter(key))
            self.remove(key)  # or it would keep its place, among those that are older
            self._known[key] = known
            self._forget_old()
        return known[1]

    def remove(self, key: DK) -> None:
        """Forget what is known of `key`."""
        self._known.pop(key, None)

    def _is_old(self, known: tuple[int, DV]) -> bool:
        return self.now_us - known[0] > self._ttl_us

    def _forget_old(self) -> None:
        for _ in range(_FORGOTTEN_AT_ONCE):
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
    """Map with the help of a slow look-up whose answers are kept for a time.

    The cache lives in each worker and is not part of the flow's state: after a restart, or in
    another worker, the getter is asked again, and may answer differently.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        getter: asked for a key that is not in the cache.
        mapper: called with the cache and each item.
        ttl: how long an answer is used, in system time; older ones are let go as others come.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once(["a"], lambda s: op.enrich_cached("up", s, str.upper, lambda c, x: c.get(x)))
        ['A']
    """
    check_callable(step_id, "getter", getter)
    check_callable(step_id, "mapper", mapper)
    ttl_us = duration_us(ttl, f"step {shorten(step_id)}: ttl")
    if ttl_us < 0:
        raise FlowBuildError(f"step {shorten(step_id)}: ttl must not be negative, got {ttl!r}")
    return add_step(step_id, EnrichCached(getter, mapper, ttl_us), up)[0]


@dataclass(frozen=True)
class _UnlessNone:
    """A mapper whose result is no item or one."""

    mapper: Callable[[Any], Any]

    def __call__(self, item: Any) -> tuple[Any, ...]:
        made = self.mapper(item)
        return () if made is None else (made,)


def _itself(items: Any) -> Any:
    if isinstance(items, Iterable):
        return items
    raise TypeError(f"flatten needs iterables, got {type(items).__name__} {shorten(items)}")


def _print_item(step_id: str, item: Any) -> None:
    print(printable(f"{step_id}: {item!r}"))  # noqa: T201  (what op.inspect is for)
