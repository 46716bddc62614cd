"""Predicates that are expressions over columns: the fields that they name, and their values."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.checks import check_function, wrong_type
from flow.columns.arrays import Mask
from flow.columns.arrow_types import array_of, with_leaves
from flow.errors import FlowTypeError, cut_text

_LONGEST = 160
"""Greatest length of the text of an expression."""

_INSTANT, _LOCAL_TIME = pa.timestamp("us", "UTC"), pa.timestamp("us")
_KINDS_OF_NULLS = (pa.null(), pa.bool_(), pa.string(), _INSTANT, _LOCAL_TIME)
"""Types of columns of nulls alone; functions of numbers take nulls of any type."""

_NAME = re.compile(r"^(nested_field_ref|field_ref): '(.*)'$", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class ColumnPredicate:
    """A predicate that is an expression over the columns of items.

    Expressions override ``==`` and have no hash. Operators compare by value, so this class compares
    the expressions as a whole.

    >>> ColumnPredicate(pc.field("n") > 1) == ColumnPredicate(pc.field("n") > 1)
    True
    >>> ColumnPredicate(pc.field("n") > 1) == ColumnPredicate(pc.field("n") > 2)
    False
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("paths",)

    expression: Any

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnPredicate) and bool(self.expression.equals(other.expression))

    @override
    def __hash__(self) -> int:
        return hash(str(self.expression))

    @override
    def __repr__(self) -> str:
        return cut_text(str(self.expression), _LONGEST)

    @cached_property
    def names(self) -> frozenset[tuple[str, ...]]:
        """The fields that the expression names, each by the names on the way to it.

        >>> large = (pc.field("amount") > 9) & pc.field("shop", "is_open")
        >>> sorted(ColumnPredicate(large).names)
        [('amount',), ('shop', 'is_open')]
        """
        # PyArrow has no other way to look into an expression than the form in which it is pickled.
        _, (content,) = self.expression.__reduce__()
        schema = pa.ipc.open_file(content).schema
        text = schema.to_string(truncate_metadata=False, show_schema_metadata=True)
        return frozenset(_paths_in(iter(_NAME.findall(text))))

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the fields that the expression names."""
        return frozenset(map(".".join, self.names))

    def over(self, batch: pa.RecordBatch) -> pa.ChunkedArray:
        """Return the value of the expression for each row of a batch that is not empty.

        Columns of nulls alone, as a few objects give them, take a type that the expression takes.

        Raises:
            pyarrow.ArrowException: when the expression cannot be computed over the columns.
        """
        try:
            return _computed(self.expression, batch)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
            for kind in _KINDS_OF_NULLS:
                typed = self._with_nulls_of(batch, kind)
                if not typed.schema.equals(batch.schema):
                    with contextlib.suppress(pa.ArrowException):
                        return _computed(self.expression, typed)
            raise

    def selects(self, values: pa.RecordBatch | Sequence[Any]) -> Mask:
        """Return the mask of the values for which the expression is true, shape (values,).

        A field that a value lacks is null.

        Args:
            values: records in columns, or Python objects.

        Raises:
            ValueError: when the expression cannot be computed, or is not true or false.
        """
        if not len(values):
            return np.zeros(0, np.bool_)
        batch = self._fields_of(values)
        result = self.over(batch)
        if not pa.types.is_boolean(result.type) and not pa.types.is_null(result.type):
            raise ValueError(f"{self} must be true or false, and is of type {result.type}")
        mask: Mask = result.cast(pa.bool_()).fill_null(False).to_numpy()
        return mask

    def _fields_of(self, values: pa.RecordBatch | Sequence[Any]) -> pa.RecordBatch:
        """Return the columns that the expression names."""
        columns: dict[str, pa.Array] = {}
        for name, within in _by_name(self.names).items():
            if not isinstance(values, pa.RecordBatch):
                columns[name] = _column([_field_of(value, name) for value in values], within)
            elif name in values.schema.names:
                columns[name] = values.column(name)
            else:
                columns[name] = pa.nulls(len(values))
        return pa.RecordBatch.from_pydict(columns or {"": pa.nulls(len(values))})

    def _with_nulls_of(self, batch: pa.RecordBatch, kind: Any) -> pa.RecordBatch:
        """Return a batch whose columns, or parts, of nulls alone have a type."""
        columns, paths = [], _by_name(self.names)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            nested = _nested(column.type, paths.get(name, ()))
            typed = with_leaves(nested, lambda leaf: kind if pa.types.is_null(leaf) else leaf)
            columns.append(column.cast(typed))
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def as_predicate(name: str, value: Any) -> Callable[[Any], bool] | ColumnPredicate:
    """Return an argument that is a function or an expression, which becomes a `ColumnPredicate`.

    Raises:
        FlowTypeError: when it is neither, or an expression that has no form for workers; `name`
            names the argument.
    """
    if isinstance(value, pc.Expression):
        predicate = ColumnPredicate(value)
        try:
            predicate.names  # noqa: B018  (Fields by number, and few others, cannot be sent.)
        except pa.ArrowException as error:
            rule = f"{name} must name fields by text, as pc.field('amount') does"
            raise FlowTypeError(f"{rule}, got {predicate}: {error}") from error
        return predicate
    if not callable(value):
        raise wrong_type(
            f"{name} must be a function or an expression over columns such as "
            "pc.field('amount') >= 100 (of pyarrow.compute)",
            value,
        )
    check_function(name, value)
    function: Callable[[Any], bool] = value
    return function


def _paths_in(found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    for kind, text in found:
        is_nested = kind == "nested_field_ref"
        yield tuple(next(found)[1] for _ in range(int(text))) if is_nested else (text,)


def _field_of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _by_name(paths: Iterable[tuple[str, ...]]) -> dict[str, list[tuple[str, ...]]]:
    """Return the rest of each path by its first name; an empty path has none."""
    parts: dict[str, list[tuple[str, ...]]] = {}
    for name, *within in sorted(filter(None, paths)):
        parts.setdefault(name, []).append(tuple(within))
    return parts


def _column(values: list[Any], paths: list[tuple[str, ...]]) -> pa.Array:
    """Return objects as a column, of which an expression names the parts at paths."""
    parts = {
        name: _column([_field_of(value, name) for value in values], within)
        for name, within in _by_name(paths).items()
    }
    if not parts:
        return array_of(values)
    is_null = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(parts.values(), names=list(parts), mask=is_null)


def _nested(kind: Any, paths: Iterable[tuple[str, ...]]) -> Any:
    """Return a type in which nulls have the parts at paths."""
    parts = _by_name(paths)
    if pa.types.is_null(kind) and parts:
        return pa.struct([(name, _nested(kind, within)) for name, within in parts.items()])
    if not pa.types.is_struct(kind):
        return kind
    inside = [one.with_type(_nested(one.type, parts.get(one.name, ()))) for one in kind]
    return pa.struct(inside)


def _computed(expression: Any, batch: pa.RecordBatch) -> pa.ChunkedArray:
    try:
        return _projected(expression, batch)
    except pa.ArrowNotImplementedError:
        # Many functions of text do not take the dictionaries that encode text.
        decoded = _decoded(batch)
        if decoded.schema.equals(batch.schema):
            raise
        return _projected(expression, decoded)


def _projected(expression: Any, batch: pa.RecordBatch) -> pa.ChunkedArray:
    # The module imports pandas, so it is loaded only where a flow has an expression.
    from pyarrow import acero

    source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", source),
            acero.Declaration("project", acero.ProjectNodeOptions([expression], ["result"])),
        ]
    )
    # A chunk is small, and the other cores have tasks of their own. One thread keeps the order.
    return plan.to_table(use_threads=False).column(0)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
