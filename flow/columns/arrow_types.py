"""PyArrow in annotations, predicates over columns, and types with other leaf types.

PyArrow ships no types, so a type checker of a user's code does not know its classes: it reports
public signatures that name one of them, and a union with one accepts every argument. For checkers
`RecordBatch` is ``Any``, and `Expression` is a protocol with a method that only expressions have;
at run time they are the classes of PyArrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

if TYPE_CHECKING:
    RecordBatch: TypeAlias = Any

    class Expression(Protocol):
        """An expression over the columns of a record batch."""

        def is_valid(self) -> Any:
            """Return an expression that is true where this one is not null."""
            ...
else:
    RecordBatch = pa.RecordBatch
    Expression = pc.Expression


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

    expression: Any

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnPredicate) and bool(self.expression.equals(other.expression))

    @override
    def __hash__(self) -> int:
        return hash(str(self.expression))


def is_instant(kind: Any) -> bool:
    """Return True for the types of timestamps with a time zone."""
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def with_leaves(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return a type with `change` applied to each leaf of its structs, lists and maps, in order.

    >>> texts = pa.list_(pa.struct([("a", pa.string()), ("n", pa.int64())]))
    >>> str(with_leaves(texts, lambda leaf: pa.binary() if leaf == pa.string() else leaf))
    'list<item: struct<a: binary, n: int64>>'
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, change)) for field in kind])
    if pa.types.is_map(kind):
        key = with_leaves(kind.key_type, change)
        return pa.map_(key, kind.item_field.with_type(with_leaves(kind.item_type, change)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_leaves(kind.value_type, change)))
    return change(kind)
