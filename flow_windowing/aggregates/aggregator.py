"""The contract of an aggregate: values are added one by one to a state, which gives a result.

An `Aggregator` is configuration. The accumulator of a window is a state of any type, which
`initialize` makes and each call receives. Every aggregator follows these laws, and tests check them
for the built-in aggregators:

- Merging the states of two parts of the values gives the result of adding all of them to one state,
  for any division into parts, and with either state merged into the other (except for the last
  digits of a `StdDev`).
- `result` does not change the state, and a returned result does not change with the state later.
- A state can be pickled, and is as small as the result allows: a snapshot of the window holds it.

Calls may change a state in place: a caller that needs an earlier state makes a copy. `copy.copy` is
enough for the states of built-in aggregates, whose elements are immutable.

An aggregate declares the form of its accumulators as `form`, which is plain data:
`flow_windowing.columnar.aggregates.accumulator_column` has the kernels of each form, in columns of
numbers. Accumulators can always be Python objects too, for values that such columns cannot hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.checks import KnownArguments, check_getter, given_arguments
from flow.columns.arrow_types import Expression
from flow.columns.predicate import ColumnPredicate, as_predicate
from flow.errors import RAISED, FlowTypeError, brief, shorten
from flow.fields import field_path
from flow.instants import Instant, instant_us
from flow.keyed.logic import FailedCall
from flow.operators import RejectedValue
from flow_windowing.rules.window_logic import Arrival


@dataclass(frozen=True, kw_only=True)
class Form:
    """Accumulators as Python objects alone; the subclasses also have columns of numbers.

    Attributes:
        ignores_order: True if the result does not depend on the order in which values enter a
            window and windows merge. The arrivals of values may decide.
        ignores_arrival: True if the result does not depend on the arrivals of values.
        emits_items: True if a window emits each item of its result, which is a list.
    """

    ignores_order: bool = False
    ignores_arrival: bool = False
    emits_items: bool = False


@dataclass(frozen=True, kw_only=True)
class CountForm(Form):
    """Counts of values of any type; the state is the count."""

    ignores_order: bool = True
    ignores_arrival: bool = True


@dataclass(frozen=True, kw_only=True)
class TotalForm(CountForm):
    """Totals of ints; the state is the total, ``None`` without values.

    Attributes:
        combine: the function of two ints, associative and commutative. The magnitude of a total is
            at most the total of the greatest magnitude of its ints, taken as many times.
    """

    combine: np.ufunc = np.add


@dataclass(frozen=True, kw_only=True)
class SumForm(TotalForm):
    """Sums of ints and exact sums of floats."""


@dataclass(frozen=True, kw_only=True)
class MeanForm(TotalForm):
    """Means of ints and of floats; the state is the count and the exact sum."""


@dataclass(frozen=True, kw_only=True)
class ExtremeForm(Form):
    """The least or the greatest of ints or floats; the state is an arrival number and the value.

    Attributes:
        is_greatest: True for the greatest value, False for the least; NaN is the greatest.
    """

    is_greatest: bool
    ignores_order: bool = True


@dataclass(frozen=True, kw_only=True)
class EdgeForm(Form):
    """The first or the last of ints or floats; the state is its place in the order and the value.

    Attributes:
        is_by_time: True if the order is by timestamp, then by arrival; False if by arrival only.
        is_last: True for the last value of the order, False for the first.
    """

    is_by_time: bool
    is_last: bool
    ignores_order: bool = True


@dataclass(frozen=True, kw_only=True)
class ListForm(Form):
    """Lists of Python objects, to which `add` appends an entry, and `merge` the other's entries.

    Only `result` reads entries, so the first entries may be stored apart until then.
    """


V = TypeVar("V")
S = TypeVar("S")
R = TypeVar("R")

Field: TypeAlias = str | Callable[[Any], Any] | None
"""The part of a value to aggregate: a field's path, a function, or ``None``, the value itself."""


Where: TypeAlias = Expression | ColumnPredicate | Callable[[Any], bool] | None
"""The values to aggregate: an expression over their fields, a function, or ``None`` for all."""


AT_ONCE = Arrival(0, 0, 0)
"""The arrival of a value that `add` adds: after all values in the state."""


class Aggregator(KnownArguments, ABC, Generic[V, S, R]):
    """A function of a window's values: the contract for built-in and user-defined aggregates.

    The engine calls `add_at`, `merge` and `result`, never `add`: implement `add` to aggregate
    values alone, and override `add_at` to use their arrival too.

    Example:
        >>> class Product(Aggregator[float, float, float]):
        ...     def initialize(self):
        ...         return 1
        ...
        ...     def add(self, state, value):
        ...         return state * value
        ...
        ...     def merge(self, state, other):
        ...         return state * other
        ...
        ...     def result(self, state):
        ...         return state
        >>> aggregate(Product(), [2, 3, 4])
        24
    """

    FUNCTIONS: ClassVar[Mapping[str, str]] = {}
    """Names, for errors, of the user's functions behind methods: ``{"add": "the folder"}``."""

    # Read by `form_of`: the form of the class alone, as a subclass may compute another result.
    form: ClassVar[Form] = Form()
    # False if the result is by the order of arrival of all values, which does not span keys.
    spans_keys: ClassVar[bool] = True

    @abstractmethod
    def initialize(self) -> S:
        """Return a new state, that of a window without values."""

    @abstractmethod
    def add(self, state: S, value: V) -> S:
        """Return the state with a value added; it may be the given state, changed in place.

        Raises:
            RejectedValue: when the value cannot be aggregated; the flow stops, and the error names
                the value.
        """

    def add_at(self, state: S, value: V, at: Arrival) -> S:  # noqa: ARG002
        """Return the state with a value added that arrived at `at`; calls `add` by default."""
        return self.add(state, value)

    @abstractmethod
    def merge(self, state: S, other: S) -> S:
        """Return the state of two merged windows.

        The result may be either of the two states, changed in place; the caller does not use the
        two afterwards. The arrivals of the two windows' values may interleave.
        """

    @abstractmethod
    def result(self, state: S) -> R:
        """Return the result. Called once as a window closes, or more often to emit updates."""

    @property
    def depends_on_order(self) -> bool:
        """True if the result depends on the order in which values enter a window.

        Then `ordered` is true by default. A result that depends on `Arrival.timestamp_us` or
        `Arrival.number` alone, such as the earliest value, does not depend on that order.
        """
        return False

    @property
    def field_read(self) -> Field:
        """The part of each value that is aggregated; ``None`` for the value itself."""
        return None

    @property
    def paths_read(self) -> frozenset[str] | None:
        """The paths of the fields that are read of values; ``None`` if a function reads them."""
        field = self.field_read
        return None if callable(field) else frozenset(() if field is None else (field,))

    def column_in(self, records: pa.RecordBatch) -> pa.Array | None:
        """Return a column with the part of each record that is aggregated, null to skip a record.

        Returns:
            ``None`` if the records have no such column.
        """
        field = self.field_read
        return field_path(field).column_in(records) if isinstance(field, str) else None

    def result_type(self, field_type: Any) -> Any:  # noqa: ARG002
        """Return the Arrow type of all results, for the columns of a data frame.

        Args:
            field_type: the Arrow type of the part of each value that is aggregated; ``None`` if it
                is not known before a run.

        Returns:
            The type; ``None`` if it is not known before a run, as by default.
        """
        return None

    def empty_result(self) -> R | None:
        """Return the result of a window without values; by default, that of `initialize`."""
        return self.result(self.initialize())


class ArrivalAggregator(Aggregator[V, S, R]):
    """An aggregator of values with their arrival, which implements `add_at` in place of `add`."""

    @override
    def add(self, state: S, value: V) -> S:
        """Add a value without an arrival, as if it arrived after all values in the state."""
        return self.add_at(state, value, AT_ONCE)


def form_of(aggregator: Aggregator[Any, Any, Any]) -> Form:
    """Return the form that an aggregator's own class declares."""
    form: Form = vars(type(aggregator)).get("form", Aggregator.form)
    return form


def aggregate(
    aggregator: Aggregator[V, Any, R],
    values: Iterable[V],
    times: Iterable[Instant] | None = None,
) -> R:
    """Aggregate values without a flow, as one window does, to try or test an aggregator.

    Args:
        aggregator: the aggregator.
        values: the values, in order of arrival.
        times: a timestamp for each value: an aware datetime, Unix seconds or ISO 8601 text. Without
            times the values arrive a microsecond apart.

    Raises:
        FlowTypeError: when `aggregator` is not an `Aggregator`, such as a class.
        RejectedValue: when the aggregator rejects a value.
        ValueError: when the numbers of times and values differ.

    >>> from flow_windowing import Latest, Mean
    >>> aggregate(Mean("price"), [{"price": 1}, {"price": 2}, {}])
    1.5
    >>> aggregate(Latest(), ["a", "b", "c"], times=[10, 30, 20])
    'b'
    """
    if not isinstance(aggregator, Aggregator):
        raise FlowTypeError(
            f"aggregate needs an Aggregator such as Count(), got {shorten(aggregator)}"
        )
    listed = list(values)
    times_us = range(len(listed)) if times is None else map(instant_us, times)
    state = aggregator.initialize()
    for number, (value, timestamp_us) in enumerate(zip(listed, times_us, strict=True)):
        state = aggregator.add_at(state, value, Arrival(timestamp_us, number, number))
    return aggregator.result(state)


def called(aggregator: Aggregator[Any, Any, Any], method: str, *arguments: Any) -> Any:
    """Call a method of an aggregator, and name the method or the value if it raises.

    Raises:
        RejectedValue: when `add_at` raised: the value cannot be aggregated.
        FailedCall: when another method raised.
    """
    try:
        return getattr(aggregator, method)(*arguments)
    except RAISED as error:
        value = arguments[1:2] if method == "add_at" else ()
        failure = failure_of(aggregator, method, error, *value)
        raise failure from failure.__cause__


def failure_of(
    aggregator: Aggregator[Any, Any, Any], method: str, error: BaseException, *value: Any
) -> Exception:
    """Return the exception to raise after a method of an aggregator raised.

    Args:
        aggregator: the aggregator.
        method: the name of the method.
        error: the exception that the method raised; a `RejectedValue` is returned unchanged.
        value: the value that the method was called with, if any.
    """
    if isinstance(error, (RejectedValue, FailedCall, UnfitError)):
        return error
    name = method.removesuffix("_at")
    what = aggregator.FUNCTIONS.get(name, f"{type(aggregator).__name__}.{name}")
    failure = (
        RejectedValue(value[0], f"{what} raised {brief(error)}") if value else FailedCall(what)
    )
    failure.__cause__ = error
    return failure


class UnfitError(Exception):
    """A part of a value that cannot be aggregated; becomes a `RejectedValue`.

    Attributes:
        found: the part, such as the value of a field.
        problem: the problem, without a subject: ``"cannot add 'abc' (str)"``.
    """

    def __init__(self, found: object, problem: str) -> None:
        self.found = found
        self.problem = problem
        super().__init__(found, problem)


def described(found: object) -> str:
    """Return a value and its type as text, for an error.

    >>> described("abc")
    "'abc' (str)"
    """
    return f"{shorten(found)} ({type(found).__name__})"


@dataclass(frozen=True, repr=False)
class FieldAggregator(ArrivalAggregator[Any, S, R]):
    """An aggregate of one field of the values.

    Subclasses implement `_take`, which adds the field of a value, and `_join`, which merges; both
    may raise an `UnfitError`.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        where: the values to aggregate, by default all: an expression over their fields, such as
            ``pc.field("status") == "failed"`` (of `pyarrow.compute`), in which a field that a value
            lacks is null, or a function that returns a bool. A function reads Python objects; an
            expression is faster where values are columns, and slower where they are objects.
        missing: the handling of a value without the field, or with ``None`` in it. By default it is
            skipped; if no value of the run has the field, the run warns, and a `TestDriver` fails.
            ``"skip"``: the same without these. ``"fail"``: the flow stops. Any other value is
            aggregated in the place of the field.

    >>> import pyarrow.compute as pc
    >>> from flow_windowing import Count, Sum
    >>> orders = [{"paid": True, "amount": 5}, {"paid": False, "amount": 7}, {"paid": True}]
    >>> aggregate(Count(where=pc.field("paid")), orders)
    2
    >>> aggregate(Sum("amount", where=lambda order: order["paid"], missing=1), orders)
    6
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("expected", "where")
    # The number of arguments that a repr shows without their names.
    _positional: ClassVar[int] = 2
    # The Arrow type of all results, if it does not depend on that of the field.
    _result_type: ClassVar[Any] = None

    field: Field = None
    _: KW_ONLY
    where: Where = None
    missing: Any = None

    @property
    @override
    def field_read(self) -> Field:
        return self.field

    @property
    @override
    def paths_read(self) -> frozenset[str] | None:
        paths, where = super().paths_read, self.where
        if paths is None or callable(where):
            return None
        return paths | where.paths if isinstance(where, ColumnPredicate) else paths

    @property
    def expected(self) -> Field:
        """The field, unless `missing` says that no value may have it."""
        return self.field if self.missing is None else None

    @override
    def column_in(self, records: pa.RecordBatch) -> pa.Array | None:
        column, where = super().column_in(records), self.where
        if column is None or callable(where) or (where is None and self.missing is None):
            return None if callable(where) else column
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count and self.missing not in (None, "skip"):
            filler = self.filler(column.type)
            if filler is None:
                return None
            column = column.fill_null(filler)
        return column if where is None else self._selected(column, records)

    def _selected(self, column: pa.Array, records: pa.RecordBatch) -> pa.Array | None:
        """Return a column with nulls for records outside `where`; ``None`` if that is not known."""
        try:
            mask = self.where.selects(records)  # type: ignore[union-attr]
        except RAISED:  # The values are then aggregated one by one, and the error names one.
            return None
        return pc.if_else(pa.array(mask), column, pa.scalar(None, column.type))

    def filler(self, kind: Any) -> pa.Scalar | None:
        """Return `missing` as a scalar of the type of a column, if it is a value that fits."""
        try:
            filler = pa.scalar(self.missing, kind)
        except RAISED:
            return None
        is_value = self.missing not in (None, "skip", "fail")
        return filler if is_value and filler.as_py() == self.missing else None

    @override
    def result_type(self, field_type: Any) -> Any:
        return self._result_type

    @property
    def column_read(self) -> str | None:
        """The path of the field, if `add_found` adds values by their field alone."""
        is_added_alone = type(self).add_at is FieldAggregator.add_at and not callable(self.where)
        return self.field if is_added_alone and isinstance(self.field, str) else None

    def __post_init__(self) -> None:
        if self.field is not None:
            check_getter(f"{type(self).__name__}: field", self.field, "details.price")
        if self.where is not None and not isinstance(self.where, ColumnPredicate):
            where = as_predicate(f"{type(self).__name__}: where", self.where)
            object.__setattr__(self, "where", where)

    @override
    def __repr__(self) -> str:
        own = sorted(fields(self), key=lambda one: bool(one.kw_only))
        shown = list[str]()
        for at, (name, value) in enumerate(given_arguments(self).items()):
            is_plain = at < self._positional and own[at].name == name
            shown.append(_typed(value) if is_plain else f"{name}={_typed(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    @override
    def add_at(self, state: S, value: Any, at: Arrival) -> S:
        try:
            return self.add_found(state, self._find(value), at)
        except UnfitError as error:
            raise self.rejected(value, error) from error.__cause__

    def add_found(self, state: S, found: Any, at: Arrival) -> S:
        """Return the state with the field of a value that arrived at `at`, unless it is ``None``.

        Raises:
            UnfitError: when the field cannot be aggregated.
        """
        return state if found is None else self._take(state, found, at)

    def rejected(self, value: Any, error: UnfitError) -> RejectedValue:
        """Return the exception for a value with an unfit field."""
        return RejectedValue(value, f"{self!r} {error.problem}")

    @override
    def merge(self, state: S, other: S) -> S:
        try:
            return self._join(state, other)
        except UnfitError as error:
            raise self.rejected(error.found, error) from error.__cause__

    @abstractmethod
    def _take(self, state: S, found: Any, at: Arrival) -> S: ...

    @abstractmethod
    def _join(self, state: S, other: S) -> S: ...

    def _find(self, value: Any) -> Any:
        """Return the field of a value, or what takes its place; ``None`` to skip the value."""
        if self.where is not None and not self._selects(value):
            return None
        field = self.field
        if type(field) is str and type(value) is dict and field in value:  # Most values are.
            found = value[field]
        else:
            found = value if field is None else self._read(value, "reading the value", field)
        if found is not None or self.missing is None or self.missing == "skip":
            return found
        if self.missing == "fail":
            problem = f"{self!r} found no value: the field is absent or None"
            raise RejectedValue(value, problem)
        return self.missing

    def _selects(self, value: Any) -> bool:
        """Return True if `where` selects a value."""
        where = self.where
        if isinstance(where, ColumnPredicate):
            return bool(self._read([value], "where", where.selects)[0])
        chosen = self._read(value, "where", where)
        if type(chosen) not in (bool, np.bool_):
            problem = f"{self!r}: where must return True or False, got {described(chosen)}"
            raise RejectedValue(value, problem)
        return bool(chosen)

    def _read(self, value: Any, what: str, getter: Any) -> Any:
        try:
            return field_path(getter).find(value) if isinstance(getter, str) else getter(value)
        except RejectedValue:
            raise
        except RAISED as error:
            raise RejectedValue(value, f"{self!r}: {what} raised {brief(error)}") from error


def _typed(value: object) -> str:
    """Return an argument as source text; a function by its name."""
    return getattr(value, "__name__", repr(value)) if callable(value) else repr(value)
