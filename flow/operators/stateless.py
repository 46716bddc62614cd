"""Operators without state: of items, of many items at a time, and of items that fail.

Each function adds one step to the flow and returns the stream or streams that the step makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from flow.checks import check_getter, check_path, check_whole
from flow.columns.arrow_types import Expression, RecordBatch
from flow.columns.predicate import ColumnPredicate, as_predicate
from flow.dataflow import KeyedStream, Operator, Stream, add_step, check_callable
from flow.errors import FlowBuildError, FlowTypeError, printable, shorten

X = TypeVar("X")
Y = TypeVar("Y")
V = TypeVar("V")
W = TypeVar("W")
M = TypeVar("M")


@dataclass(frozen=True)
class Map(Operator):
    """Map each item to one item."""

    mapper: Callable[[Any], Any]
    on_value: bool = False


@dataclass(frozen=True)
class FlatMap(Operator):
    """Map each item to any number of items."""

    mapper: Callable[[Any], Iterable[Any]]
    on_value: bool = False


@dataclass(frozen=True)
class Filter(Operator):
    """Keep the items for which the predicate is true."""

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("predicate",)

    predicate: Callable[[Any], bool] | ColumnPredicate
    on_value: bool = False


@dataclass(frozen=True)
class Branch(Operator):
    """Send each item to one of two ports."""

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("predicate",)

    predicate: Callable[[Any], bool] | ColumnPredicate

    ports = ("trues", "falses")


@dataclass(frozen=True)
class Merge(Operator):
    """Merge several streams into one."""


@dataclass(frozen=True)
class Redistribute(Operator):
    """Spread the items evenly over the shards."""


@dataclass(frozen=True)
class KeyOn(Operator):
    """Put a key before each item: the result of a function, or a text made of fields at paths."""

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("paths",)

    key: Callable[[Any], str] | str | tuple[str, ...]

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of the fields that the key is made of; empty for a function."""
        if callable(self.key):
            return ()
        return (self.key,) if isinstance(self.key, str) else self.key


@dataclass(frozen=True)
class KeyRm(Operator):
    """Remove the key of each item."""


@dataclass(frozen=True)
class Inspect(Operator):
    """Call a function on each item, and pass the item on."""

    inspector: Callable[[str, Any], None]


class BranchOut(NamedTuple):
    """The two streams of a `branch`."""

    trues: Stream[Any]
    falses: Stream[Any]


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


def map_window(
    step_id: str, up: KeyedStream[tuple[M, V]], mapper: Callable[[str, M, V], Y]
) -> Stream[Y]:
    """Turn each result of a window into an item.

    A windowing step emits ``(key, (WindowMetadata, value))``; the mapper gets the three parts as
    arguments of their own.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream ``down`` of a windowing step.
        mapper: called once on each result, as ``mapper(key, window, value)``.

    Example:
        >>> import flow.operators as op
        >>> import flow_windowing as win
        >>> from flow.testing import run_once
        >>> def flights_per_hour(departures):
        ...     clock, hours = win.EventClock("at", "10m"), win.TumblingWindower("1h")
        ...     counts = win.count_window("count", departures, clock, hours, "airport")
        ...     text = lambda key, window, count: f"{key} {window.open_time:%H:%M} {count}"
        ...     return op.map_window("text", counts.down, text)
        >>> departures = [{"airport": "LHR", "at": 60.0}, {"airport": "LHR", "at": 90.0}]
        >>> run_once(departures, flights_per_hour)
        ['LHR 00:00 2']
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, Map(WindowMapper(mapper)), up)[0]


@dataclass(frozen=True)
class WindowMapper:
    """A mapper of window results that calls a function with their three parts."""

    function: Callable[[str, Any, Any], Any]

    def __call__(self, item: Any) -> Any:
        """Return the function's result for one window result.

        Raises:
            FlowTypeError: when the item is not the result of a window.
        """
        try:
            key, (window, value) = item
        except (TypeError, ValueError):
            raise FlowTypeError(
                "map_window reads results of windows, (key, (WindowMetadata, value)), such as the "
                f"stream down of a windowing step; got {shorten(item)}"
            ) from None
        return self.function(key, window, value)


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
    """Emit the items of each iterable, one by one.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([[1, 2], []], lambda s: op.flatten("flat", s))
    [1, 2]
    """
    return add_step(step_id, FlatMap(_checked_iterable), up)[0]


def filter(step_id: str, up: Stream[X], predicate: Callable[[X], bool] | Expression) -> Stream[X]:
    """Keep the items for which `predicate` is true.

    An expression of Arrow, such as ``pc.field("amount") >= 100``, is computed for many items at a
    time. Records from files, data frames and Kafka stay columns, and no Python code runs for an
    item, so an expression is much faster than a function there.

    - An expression reads fields: ``pc.field("amount")``, and ``pc.field("user", "id")`` inside a
      record. Combine expressions by ``&``, ``|`` and ``~``, with parentheses around comparisons.
    - Where its result is null, the item is dropped, as in the WHERE clause of SQL.
    - In a keyed stream it reads the fields of the values, as `map_batches` does.
    - Objects become columns for the expression, as for `map_batches`, and pass unchanged: dicts
      and dataclasses by field, other items as the column ``value``. A field that only some of the
      items have is null in the others, and a field that none of the items that came together has
      is an error. For objects a function is faster: making columns takes longer than the call.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        predicate: a function that is called once on each item, and returns a bool; or an
            expression whose type is bool.

    Raises:
        FlowTypeError: when `predicate` is neither a function nor an expression.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([1, 2, 3], lambda s: op.filter("odd", s, lambda x: x % 2 == 1))
        [1, 3]

        With an expression:

        >>> import pyarrow.compute as pc
        >>> orders = [{"amount": 20}, {"amount": 100}, {"amount": None}]
        >>> run_once(orders, lambda s: op.filter("large", s, pc.field("amount") >= 100))
        [{'amount': 100}]
    """
    return add_step(step_id, Filter(_predicate(step_id, predicate)), up)[0]


def filter_value(
    step_id: str, up: KeyedStream[V], predicate: Callable[[V], bool] | Expression
) -> KeyedStream[V]:
    """Keep the pairs for whose value `predicate` is true.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        predicate: a function that is called once on each value, and returns a bool; or an
            expression over the fields of the value, as in `filter`, where null drops the pair.

    Raises:
        FlowTypeError: when `predicate` is neither a function nor an expression.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> pairs = [("a", 1), ("a", 2)]
        >>> run_once(pairs, lambda s: op.filter_value("odd", s, lambda x: x % 2 == 1))
        [('a', 1)]

        With an expression:

        >>> import pyarrow.compute as pc
        >>> orders = [("a", {"amount": 20}), ("b", {"amount": 100})]
        >>> run_once(orders, lambda s: op.filter_value("large", s, pc.field("amount") >= 100))
        [('b', {'amount': 100})]
    """
    return add_step(step_id, Filter(_predicate(step_id, predicate), on_value=True), up)[0]


def filter_map(step_id: str, up: Stream[X], mapper: Callable[[X], Y | None]) -> Stream[Y]:
    """Map each item, and drop the items for which `mapper` returns ``None``.

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
    """Map each value, and drop the pairs for whose value `mapper` returns ``None``.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> pairs = [("a", "1"), ("a", "")]
    >>> run_once(pairs, lambda s: op.filter_map_value("n", s, lambda text: text or None))
    [('a', '1')]
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, FlatMap(_UnlessNone(mapper), on_value=True), up)[0]


def key_on(
    step_id: str, up: Stream[X], key: Callable[[X], str] | str | list[str] | tuple[str, ...]
) -> KeyedStream[X]:
    """Put a key before each item, which keyed operators then group by.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        key: the path of a field, such as ``"user.id"``; a list of paths, such as
            ``["tenant", "user"]``; or a function that returns a `str`. With paths, records stay
            columns.

    A key is text, and fields make it by these rules:

    - Text is the key itself, and a whole number its digits. True and False are ``true`` and
      ``false``, a date is ISO 8601 text, a UUID its 36 characters.
    - Two or more fields are a JSON array, which `json.loads` reads: ``["acme",7]``.
    - A null fails the flow, as do floats, decimal numbers and times: equal ones may differ as text.

    Raises:
        FlowTypeError, FlowBuildError: when `key` is neither a function nor paths.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([{"id": 7}], lambda s: op.key_on("by_id", s, "id"))
        [('7', {'id': 7})]
        >>> orders = [{"tenant": "acme", "user": 7}]
        >>> run_once(orders, lambda s: op.key_on("by_user", s, ["tenant", "user"]))
        [('["acme",7]', {'tenant': 'acme', 'user': 7})]
    """
    name = f"step {shorten(step_id)}: key"
    if not isinstance(key, (list, tuple)):
        check_getter(name, key, "user.id")
        return add_step(step_id, KeyOn(key), up)[0]
    for path in key:
        check_path(name, path, "user.id")
    if not key:
        raise FlowBuildError(f"{name} must name a field or more, got {shorten(key)}")
    return add_step(step_id, KeyOn(key[0] if len(key) == 1 else tuple(key)), up)[0]


def key_rm(step_id: str, up: KeyedStream[X]) -> Stream[X]:
    """Remove the key of each pair.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([("a", 1)], lambda s: op.key_rm("values", s))
    [1]
    """
    return add_step(step_id, KeyRm(), up)[0]


def branch(step_id: str, up: Stream[X], predicate: Callable[[X], bool] | Expression) -> BranchOut:
    """Send each item to ``trues`` or ``falses``, as `predicate` decides.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        predicate: a function that is called once on each item, and returns a bool; or an
            expression over the fields of the item, as in `filter`. An item for which the result of
            the expression is null goes to ``falses``.

    Raises:
        FlowTypeError: when `predicate` is neither a function nor an expression.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([1, 2, 3], lambda s: op.branch("odd", s, lambda x: x % 2 == 1).falses)
        [2]

        With an expression:

        >>> import pyarrow.compute as pc
        >>> orders = [{"amount": 20}, {"amount": 100}, {"amount": None}]
        >>> run_once(orders, lambda s: op.branch("large", s, pc.field("amount") >= 100).falses)
        [{'amount': 20}, {'amount': None}]
    """
    return BranchOut(*add_step(step_id, Branch(_predicate(step_id, predicate)), up))


def merge(step_id: str, *ups: Stream[Any]) -> Stream[Any]:
    """Merge several streams into one; items are interleaved by position.

    An item's position is its place in its source partition's part of the epoch. A keyed step after
    the merge applies the items of each key in this order:

    - In order of epochs. In a batch slices take the place of epochs; the slices of all inputs lie
      side by side, in proportion, and a data frame is all in the first slice.
    - Within an epoch (streaming, `TestDriver`) or a slice (batch), by position: the first item of
      each source partition, then the second of each, and so on. Where an epoch reads a partition in
      several splits, the first split of each partition comes before the second of each.
    - Among equal positions, in order of the inputs in the flow and of the partitions of each. Data
      frames that Spark reads come before or after all other inputs.

    Neither the order of `ups` nor timestamps matter: `docs/explanation/catching_up.md`
    describes how watermarks wait for the input that is behind.

    An item that a stateless or stateful step makes of one item has the position of that item. An
    item that a step makes of all items of a key in an epoch, as windowing operators do, has the
    position of the last of them. Items that a keyed step emits as time passes come before or after
    all items of the epoch, and items that it emits at the end of the input come last.

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

    The step costs a shuffle: use it where one source partition feeds heavy work.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> sorted(run_once([1, 2], lambda s: op.redistribute("spread", s)))
    [1, 2]
    """
    return add_step(step_id, Redistribute(), up)[0]


def inspect(
    step_id: str, up: Stream[X], inspector: Callable[[str, X], None] | None = None
) -> Stream[X]:
    """Call a function on each item, and pass the item on; text that it prints reaches the driver.

    A flow may end with this step: an output is not needed.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        inspector: called with the step's id and each item; by default, prints both.

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


@dataclass(frozen=True)
class _UnlessNone:
    """A mapper wrapped to return a tuple of its result, empty if the result is ``None``."""

    mapper: Callable[[Any], Any]

    def __call__(self, item: Any) -> tuple[Any, ...]:
        made = self.mapper(item)
        return () if made is None else (made,)


def _predicate(step_id: str, value: Any) -> Callable[[Any], bool] | ColumnPredicate:
    return as_predicate(f"step {shorten(step_id)}: predicate", value)


def _checked_iterable(items: Any) -> Any:
    """Return an item of `flatten` after a check that it is iterable."""
    if isinstance(items, Iterable):
        return items
    raise TypeError(f"flatten needs iterables, got {type(items).__name__} {shorten(items)}")


def _print_item(step_id: str, item: Any) -> None:
    print(printable(f"{step_id}: {item!r}"))  # noqa: T201  (op.inspect prints on purpose)


@dataclass(frozen=True)
class TryMap(Operator):
    """Map each item; an item on which the mapper raises goes to ``errors`` as an `ItemError`."""

    mapper: Callable[[Any], Any]

    ports = ("ok", "errors")


@dataclass(frozen=True)
class Raises(Operator):
    """Fail at the first item."""

    ports = ()


@dataclass(frozen=True)
class ItemError:
    """An item on which the function of a `try_map` or `map_async` step raised.

    Attributes:
        item: the item.
        step_id: the step whose function raised.
        exception: the exception.
    """

    item: Any
    step_id: str
    exception: Exception


class TryOut(NamedTuple):
    """The streams of a `try_map` or `map_async`: results, and an `ItemError` for each failure."""

    ok: Stream[Any]
    errors: Stream[ItemError]


def try_map(step_id: str, up: Stream[X], mapper: Callable[[X], Y]) -> TryOut:
    """Map each item; an item on which `mapper` raises is an `ItemError` on the ``errors`` stream.

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


def raises(step_id: str, up: Stream[Any]) -> None:
    """Fail at the first item, for a stream that must stay empty."""
    add_step(step_id, Raises(), up)


Record: TypeAlias = dict[str, Any]
"""An item as a dict of named columns."""


@dataclass(frozen=True)
class MapBatches(Operator):
    """Call a function for batches of items.

    Attributes:
        function: a function of a record batch, which returns a batch or a table of as many rows.
        size: the greatest number of rows of a batch; ``None`` for no limit.
    """

    function: Callable[[RecordBatch], Any]
    size: int | None


@dataclass(frozen=True)
class ToRecords(Operator):
    """Turn each item into the record that a sink of tables writes for it."""


def map_batches(
    step_id: str,
    up: Stream[X],
    fn: Callable[[RecordBatch], RecordBatch],
    *,
    size: int | None = None,
) -> Stream[Any]:
    """Turn items into records with a function over Arrow batches, such as a model's ``predict``.

    The function gets a `pyarrow.RecordBatch` with a row for each item, and returns a batch or a
    table with the new item of each row, in the same order. Records from files, data frames and
    windows stay columns. Objects become columns once, with the types of their values: dicts and
    dataclasses by field, other items as the column ``value``.

    In a keyed stream the rows are the values, and the keys stay.

    The rows of a batch are items of one epoch and task that happened to come together, so a
    function must compute each row from that row alone. Then results do not depend on the cut of
    the input into epochs.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        fn: called with each batch; returns as many rows.
        size: the greatest number of rows of a batch; by default, all that come together.

    Raises:
        FlowTypeError, FlowBuildError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> import pyarrow.compute as pc
        >>> from flow.testing import run_once
        >>> def with_area(batch):
        ...     return batch.append_column("area", pc.multiply(batch["a"], batch["b"]))
        >>> run_once([{"a": 2, "b": 3}], lambda s: op.map_batches("area", s, with_area))
        [{'a': 2, 'b': 3, 'area': 6}]
    """
    check_callable(step_id, "fn", fn)
    if size is not None:
        check_whole(f"step {shorten(step_id)}: size", size, 1)
    return add_step(step_id, MapBatches(fn, size), up)[0]


def records(step_id: str, up: Stream[Any]) -> Stream[Record]:
    """Turn each item into a record, a dict with the columns that a sink of tables writes for it.

    For a result of a window these are ``key``, ``window_id``, ``open_time``, ``close_time``,
    ``merged_ids``, ``is_retraction`` and the results by name, or ``value`` for a result without a
    name. For any other item they are those of `flow.connectors.sink.to_record`. Results of windows
    that run over columns stay columns, which a sink writes as they are, and `key_on` and further
    windows read.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read, such as ``hourly.down`` or ``hourly.late``.

    Example:
        >>> import flow.operators as op
        >>> import flow_windowing as win
        >>> from flow.testing import run_once
        >>> def flights_per_hour(departures):
        ...     clock, hours = win.EventClock("at", "10m"), win.TumblingWindower("1h")
        ...     keyed = op.key_on("by_airport", departures, "airport")
        ...     hourly = win.aggregate_window("hourly", keyed, clock, hours, n=win.Count())
        ...     return op.records("rows", hourly.down)
        >>> departures = [{"airport": "LHR", "at": 60.0}, {"airport": "LHR", "at": 90.0}]
        >>> (row,) = run_once(departures, flights_per_hour)
        >>> row["key"], f"{row['open_time']:%H:%M}", row["n"]
        ('LHR', '00:00', 2)
    """
    return add_step(step_id, ToRecords(), up)[0]


Combiner: TypeAlias = Callable[[Sequence[str], list[Any]], tuple[list[str], list[Any]]]
"""A function of keys and values of a chunk that returns fewer keys and values."""

RowFilter: TypeAlias = Callable[[pa.Array, pa.RecordBatch], "pa.Array | None"]
"""A function of keys and rows that returns the indices of the rows to keep, ``None`` for all."""


@dataclass(frozen=True)
class Bucket(Operator):
    """Replace the key of each item by its bucket, a part of the key space by a hash of the key.

    The bucket of a key is the same in every version and on every machine.

    Attributes:
        count: the number of buckets.
    """

    count: int


@dataclass(frozen=True)
class Combine(Operator):
    """Combine the items of each chunk into fewer items, before a shuffle.

    The engine chooses the chunks. So a later step must make the same of the combined items, however
    the items were divided into chunks.

    Attributes:
        combiner: combines keys and values.
        row_filter: chooses rows while they are columns, before `combiner`; ``None`` to keep all.
    """

    combiner: Combiner
    row_filter: RowFilter | None = None


@dataclass(frozen=True)
class Rekey(Operator):
    """Replace the key of each item by one key.

    The step is left out if no output needs its items.

    Attributes:
        key: the key.
    """

    key: str

    is_optional = True
