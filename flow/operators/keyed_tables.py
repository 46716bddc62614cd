"""Tables: mappings of keys to values that steps look up while they map items.

Every item of an epoch sees the same version of a table. A table is made of a stream of changes, or
of a source that is read again from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from flow.checks import check_getter, check_whole, wrong_type
from flow.connectors.source import Source
from flow.dataflow import (
    Dataflow,
    KeyedStream,
    Operator,
    Stream,
    StreamId,
    add_step,
    check_callable,
    flow_of,
)
from flow.durations import Duration, positive_us
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.instants import UNIX_SECONDS, from_us
from flow.keyed.step import Stateful
from flow.operators.async_calls import MapAsync
from flow.operators.stateless import Redistribute

X = TypeVar("X")
Y = TypeVar("Y")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

Getter: TypeAlias = "Callable[[Any], Any] | str | None"
"""A function of an item, the path of a field, or ``None``."""

MAX_TABLE_BYTES = 64 << 20
"""The default size limit of a table, in bytes."""


@dataclass(frozen=True)
class Table(Operator):
    """Keep the newest value of each key, for steps that look up values.

    Attributes:
        key: the key of a change; ``None`` for changes that are ``(key, value)`` pairs.
        value: the value of a change; ``None`` for the whole change.
        as_of: the time of a change; ``None`` for a table without history.
        keep_us: how long replaced values stay in the history, in µs; ``None`` for no limit.
        max_bytes: the greatest size, in bytes.
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("key", "value", "as_of")

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"keep_us", "max_bytes"})

    key: Getter = None
    value: Getter = None
    as_of: Getter = None
    keep_us: int | None = None
    max_bytes: int = MAX_TABLE_BYTES

    ports = ("table",)


@dataclass(frozen=True)
class LookupTable(Table):
    """Keep the rows of a source by key, and read the source again from time to time.

    Attributes:
        source: the source, or a function that returns the rows.
        refresh_us: the time after which the source is read again, in µs; ``None`` for never.
    """

    # Each reading replaces all rows.
    HARMLESS: ClassVar[frozenset[str]] = Table.HARMLESS | {"key", "value", "source", "refresh_us"}

    source: Source[Any] | Callable[[], Any] | None = None
    refresh_us: int | None = None


@dataclass(frozen=True)
class TableReader(Operator):
    """Look up values of a table while processing items: base of steps that read a table.

    Attributes:
        function: called with an item and the table.
        table: the step of the table.
        as_of: the time of an item; ``None`` to look up the newest values.
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("as_of",)

    function: Callable[[Any, Mapping[str, Any]], Any]
    table: str
    as_of: Getter = None


@dataclass(frozen=True)
class MapWith(TableReader):
    """Map each item to one item, with a table."""


@dataclass(frozen=True)
class FilterWith(TableReader):
    """Keep the items for which a function of item and table returns ``True``."""


@dataclass(frozen=True)
class FlatMapWith(TableReader):
    """Map each item to any number of items, with a table."""


@dataclass(frozen=True, eq=False)
class KeyedTable(Generic[V_co]):
    """A table of a flow, which `map_with`, `filter_with` and `flat_map_with` read.

    Attributes:
        flow: the flow.
        stream_id: the identity of the table in the graph.
    """

    flow: Dataflow
    stream_id: StreamId

    def __repr__(self) -> str:
        return f"KeyedTable({self.stream_id.step_id!r} of {self.flow!r})"


def table(
    step_id: str,
    changes: Stream[Any] | KeyedStream[V],
    key: Getter = None,
    value: Getter = None,
    *,
    as_of: Any = None,
    keep: Duration | None = None,
    max_bytes: int = MAX_TABLE_BYTES,
) -> KeyedTable[Any]:
    """Make a table of a stream of changes: the newest value of each key.

    The process that plans epochs reads the changes. All changes that have arrived as an epoch is
    planned are in the version that the epoch's items see, in every task and in every replay. A
    batch reads all changes before any item. A value of ``None`` removes its key.

    Only inputs, and stateless steps after them, may make the changes, and these inputs may feed
    nothing but tables.

    Args:
        step_id: the step's id, unique in the flow.
        changes: the stream of changes.
        key: the key of a change, as a function or a field's path; left out, changes are
            ``(key, value)`` pairs.
        value: the value of a change, as a function or a field's path; left out, the whole change.
        as_of: the time of a change: an `EventClock`, a function or a field's path. The table then
            keeps earlier values, and steps with `as_of` look up the values of an item's own time.
        keep: the time for which a replaced value is kept, before the newest change of its key; by
            default without limit. Needs `as_of`.
        max_bytes: the greatest size of the pickled values, earlier values included. A table that
            grows larger stops the flow with an error.

    Raises:
        FlowBuildError: if a keyed step or a shuffle makes the changes.

    Example:
        >>> import flow.operators as op
        >>> from flow import Dataflow
        >>> from flow.testing import TestDriver, TestingSink, TestingSource
        >>> flow = Dataflow("limits")
        >>> changes = op.input("changes", flow, TestingSource([]))
        >>> payments = op.input("payments", flow, TestingSource([]))
        >>> limits = op.table("limits", changes, key="card", value="limit")
        >>> allowed = lambda pay, limits: (pay["card"], pay["sum"] <= limits.get(pay["card"], 0))
        >>> op.output("out", op.map_with("allow", payments, limits, allowed), TestingSink([]))
        >>> t = TestDriver(flow)
        >>> t.send("changes", [{"card": "a", "limit": 50}])
        >>> t.send("payments", [{"card": "a", "sum": 30}, {"card": "b", "sum": 1}])
        >>> t.take("out")
        [('a', True), ('b', False)]
    """
    flow = flow_of(step_id, changes)
    _check_driver_can_read(step_id, changes)
    time_of = _time_getter(step_id, as_of)
    if keep is not None and time_of is None:
        raise FlowBuildError(f"step {shorten(step_id)}: keep={keep!r} needs as_of=")
    operator = Table(
        _getter(step_id, "key", key),
        _getter(step_id, "value", value),
        time_of,
        None if keep is None else positive_us(keep, f"step {shorten(step_id)}: keep"),
        _max_bytes(step_id, max_bytes),
    )
    return KeyedTable(flow, flow.add(step_id, operator, changes).downs[0])


def lookup_table(
    step_id: str,
    flow: Dataflow,
    source: Source[Any] | Callable[[], Any],
    key: Callable[[Any], str] | str,
    value: Getter = None,
    *,
    refresh: Duration | None = None,
    max_bytes: int = MAX_TABLE_BYTES,
) -> KeyedTable[Any]:
    """Make a table of the rows of a source, which is read again from time to time.

    The process that plans epochs reads the source: at the start of each run, and in the first epoch
    after `refresh`. Each reading replaces the whole table. A reading that fails leaves the
    table as it is, with a warning; the first reading must succeed.

    Args:
        step_id: the step's id, unique in the flow.
        flow: the flow to add to.
        source: a bounded source of `flow.connectors`, or a function without arguments that returns
            a Spark data frame, an Arrow table, or an iterable of rows.
        key: the key of a row, as a function or a field's path; of rows with the same key the last
            one counts.
        value: the value of a row, as a function or a field's path; left out, the whole row. A row
            with a value of ``None`` is left out.
        refresh: the system time after which the source is read again; by default never in a run.
        max_bytes: the greatest size of the pickled values; a table that is larger stops the flow.

    Raises:
        FlowBuildError: if the source has no end, or is a data frame that exists already.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> def cities(codes):
        ...     rows = lambda: [{"code": "LHR", "city": "London"}]
        ...     airports = op.lookup_table("airports", codes.flow, rows, "code", "city")
        ...     return op.map_with("city", codes, airports, lambda code, table: table.get(code))
        >>> run_once(["LHR", "CDG"], cities)
        ['London', None]
    """
    where = f"step {shorten(step_id)}"
    if not isinstance(flow, Dataflow):
        raise wrong_type(f"{where}: a lookup table is added to a Dataflow", flow)
    _check_lookup_source(step_id, source)
    if key is None:
        raise FlowTypeError(
            f"{where}: key must be a function or a field's path such as 'id', got None"
        )
    operator = LookupTable(
        _getter(step_id, "key", key),
        _getter(step_id, "value", value),
        max_bytes=_max_bytes(step_id, max_bytes),
        source=source,
        refresh_us=None if refresh is None else positive_us(refresh, f"{where}: refresh"),
    )
    return KeyedTable(flow, flow.add(step_id, operator).downs[0])


def map_with(
    step_id: str,
    up: Stream[X],
    table: KeyedTable[V],
    mapper: Callable[[X, Mapping[str, V]], Y],
    *,
    as_of: Any = None,
) -> Stream[Y]:
    """Turn each item into another, with a table.

    All items of an epoch see the same version of the table; `table` says which.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read; items of a keyed stream are ``(key, value)`` pairs.
        table: the table.
        mapper: called with each item and the table, a mapping that cannot be changed; its values
            are copies, which the mapper may change.
        as_of: the time of an item: an `EventClock`, a function or a field's path. The mapping then
            has the values of that time. Needs a table with `as_of`; left out, the mapping has the
            newest values.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> def priced(orders):
        ...     prices = op.lookup_table("prices", orders.flow, lambda: [("tea", 3)],
        ...                              lambda row: row[0], lambda row: row[1])
        ...     return op.map_with("price", orders, prices, lambda name, table: table[name])
        >>> run_once(["tea"], priced)
        [3]
    """
    return _reading(step_id, up, table, MapWith, "mapper", mapper, as_of)


def filter_with(
    step_id: str,
    up: Stream[X],
    table: KeyedTable[V],
    predicate: Callable[[X, Mapping[str, V]], bool],
    *,
    as_of: Any = None,
) -> Stream[X]:
    """Keep the items for which `predicate` of item and table is ``True``; compare `map_with`.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> def unblocked(users):
    ...     blocked = op.lookup_table("blocked", users.flow, lambda: ["eve"], str)
    ...     return op.filter_with("allow", users, blocked, lambda user, table: user not in table)
    >>> run_once(["ann", "eve"], unblocked)
    ['ann']
    """
    return _reading(step_id, up, table, FilterWith, "predicate", predicate, as_of)


def flat_map_with(
    step_id: str,
    up: Stream[X],
    table: KeyedTable[V],
    mapper: Callable[[X, Mapping[str, V]], Iterable[Y]],
    *,
    as_of: Any = None,
) -> Stream[Y]:
    """Turn each item into any number of items, with a table; compare `map_with`.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> def alerts(amounts):
    ...     rules = op.lookup_table("rules", amounts.flow, lambda: [5, 50], str)
    ...     above = lambda amount, rules: [rule for rule in rules.values() if amount > rule]
    ...     return op.flat_map_with("alerts", amounts, rules, above)
    >>> run_once([7, 70], alerts)
    [5, 5, 50]
    """
    return _reading(step_id, up, table, FlatMapWith, "mapper", mapper, as_of)


def _reading(
    step_id: str,
    up: Stream[Any],
    table: KeyedTable[Any],
    kind: type[TableReader],
    what: str,
    function: Callable[[Any, Mapping[str, Any]], Any],
    as_of: Any,
) -> Stream[Any]:
    """Add a step that reads a table."""
    flow = flow_of(step_id, up)
    if not isinstance(table, KeyedTable):
        raise wrong_type(
            f"step {shorten(step_id)}: table must be a table of op.table or op.lookup_table", table
        )
    check_callable(step_id, what, function)
    time_of = _time_getter(step_id, as_of)
    name = table.stream_id.step_id
    if time_of is not None and table.flow is flow:
        operator = flow.step(name).operator
        if not isinstance(operator, Table) or operator.as_of is None:
            raise FlowBuildError(
                f"step {shorten(step_id)}: as_of= needs a table that keeps earlier values: give "
                f"as_of= to op.table({name!r}, ...) too"
            )
    read: Stream[Any] = Stream(table.flow, table.stream_id)
    return add_step(step_id, kind(function, name, time_of), up, read)[0]


def _check_driver_can_read(step_id: str, changes: Stream[Any]) -> None:
    """Raise a `FlowBuildError` unless only inputs and stateless steps make the changes."""
    flow, waiting = changes.flow, [changes.stream_id.step_id]
    while waiting:
        step = flow.step(waiting.pop())
        if isinstance(step.operator, (Stateful, Redistribute, TableReader, MapAsync)):
            raise FlowBuildError(
                f"step {shorten(step_id)}: step {step.step_id!r} comes before the table, and has "
                "state, needs a shuffle, reads a table or makes calls: a table is read before its "
                "epoch runs, so only inputs and steps such as op.map, op.filter and op.key_on may "
                "make its changes; to use results of keyed steps, join the two streams (op.join)"
            )
        waiting += [up.step_id for up in step.ups]


def _check_lookup_source(step_id: str, source: object) -> None:
    """Raise unless a source can be read again and again, where the flow was started.

    Raises:
        FlowTypeError: it is no source and no function.
        FlowBuildError: it has no end, has a stream of errors, or is a data frame.
    """
    if not isinstance(source, Source):
        if not callable(source):
            rule = "source must be a Source, or a function that returns rows"
            raise wrong_type(f"step {shorten(step_id)}: {rule}", source)
        check_callable(step_id, "source", source)
        return
    problem = ""
    if source.is_frame:
        problem = (
            "a data frame keeps the files that Spark found first: give a function that makes it, "
            "such as lambda: spark.read.parquet(...)"
        )
    elif not source.bounded:
        problem = "it has no end: read it with op.input, and make a table of it with op.table"
    elif source.on_invalid == "errors":
        problem = "on_invalid='errors' makes a stream of errors: use 'drop' or 'fail'"
    if problem:
        raise FlowBuildError(
            f"step {shorten(step_id)}: {shorten(source)} cannot be read again and again: {problem}"
        )


def _getter(step_id: str, what: str, getter: Any) -> Getter:
    """Return a getter after a check that it is a function, a path or ``None``."""
    if getter is not None:
        check_getter(f"step {shorten(step_id)}: {what}", getter, "rule.id")
    return getter  # type: ignore[no-any-return]


def _time_getter(step_id: str, as_of: Any) -> Getter:
    """Return the getter of timestamps: that of a clock, or the argument itself."""
    getter = _getter(step_id, "as_of", getattr(as_of, "ts_getter", as_of))
    return getter if getattr(as_of, "form", UNIX_SECONDS) == UNIX_SECONDS else _TimeBy(as_of)


@dataclass(frozen=True)
class _TimeBy:
    """The timestamp of an item by a clock."""

    clock: Any

    def __call__(self, item: Any) -> datetime:
        return from_us(self.clock.timestamp_us(item))


def _max_bytes(step_id: str, max_bytes: int) -> int:
    check_whole(f"step {shorten(step_id)}: max_bytes", max_bytes, 1)
    return max_bytes
