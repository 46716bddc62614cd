"""Predicates that Arrow computes over columns, and `Expression` for annotations.

PyArrow ships no types, so `pyarrow.compute.Expression` is ``Any`` to a type checker, and a union
with it accepts every argument. For checkers `Expression` is a protocol with a method that only
expressions have; at run time it is the class of PyArrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow.compute as pc
from typing_extensions import override

if TYPE_CHECKING:

    class Expression(Protocol):
        """An expression over the columns of a record batch."""

        def is_valid(self) -> Any:
            """Return an expression that is true where this one is not null."""
            ...
else:
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
