"""The order and the equality of any values, with a fixed rule for NaN.

As in Spark SQL, PostgreSQL and DuckDB, NaN is greater than every other number and the same as any
other NaN. In Python it is neither, which would make a result depend on the order of arrival.
pandas and polars skip NaN, which hides a fault in the data.
"""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from enum import Enum
from numbers import Real
from typing import Any

from flow.errors import RAISED
from flow_windowing.aggregates.aggregator import UnfitError, described


class _Same(Enum):
    """Keys of values that do not equal themselves; an enum member stays the same when pickled."""

    NAN = "nan"


def is_nan(value: Any) -> bool:
    """Return True if a value is a float or Decimal NaN, quiet or signaling.

    >>> is_nan(float("nan")), is_nan(Decimal("nan")), is_nan("nan")
    (True, True, False)
    """
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, Real) and bool(value != value)


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1 as `left` is less than, the same as, or greater than `right`.

    Raises:
        UnfitError: when the two have no order, such as a text and a number.

    >>> compare(1, 2.5), compare("b", "b"), compare(float("nan"), float("inf"))
    (-1, 0, 1)
    """
    try:
        if left < right:
            return -1
        if left > right:
            return 1
        if left == right:
            return 0
    except RAISED as error:
        return _compare_nan(left, right, error)
    return _compare_nan(left, right, None)


def key_of(value: Any) -> Hashable:
    """Return a key that is equal for values that are the same, and differs for others.

    Raises:
        UnfitError: when a value has no hash, such as a list.
    """
    try:
        hash(value)
        differs_from_itself = bool(value != value)
    except RAISED as error:
        # A signaling NaN has no hash.
        if is_nan(value):
            return _Same.NAN
        problem = f"cannot tell {described(value)} from others: it has no hash"
        raise UnfitError(value, problem) from error
    return _Same.NAN if differs_from_itself and is_nan(value) else value


def _compare_nan(left: Any, right: Any, cause: BaseException | None) -> int:
    if all(isinstance(one, Real | Decimal) for one in (left, right)):
        left_nan, right_nan = is_nan(left), is_nan(right)
        if left_nan or right_nan:
            return left_nan - right_nan
    problem = f"cannot compare {described(left)} with {described(right)}"
    raise UnfitError(left, problem) from cause
