"""Which of two values is greater, and which values are the same, for any values.

As in Spark SQL, PostgreSQL and DuckDB, NaN is greater than every other number and the same as any
other NaN: Python's own answers, which are no to both, would make a figure depend on the order in
which values came. pandas and polars leave NaN out instead; a NaN that is left out is a fault in the
data that nobody sees.
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
    """Keys for values that do not equal themselves. An enum's member is one even when pickled."""

    NAN = "nan"


def is_nan(value: Any) -> bool:
    """Whether a value is a number that is not a number.

    >>> is_nan(float("nan")), is_nan(Decimal("nan")), is_nan("nan")
    (True, True, False)
    """
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, Real) and bool(value != value)


def compare(left: Any, right: Any) -> int:
    """Less than 0, 0 or more than 0, as `left` is less than, the same as, or greater than `right`.

    Raises:
        UnfitError: when there is no order between the two, such as a text and a number.

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
    """What tells values apart: equal for those that are the same.

    Raises:
        UnfitError: when a value has no hash, such as a list.
    """
    try:
        hash(value)
        strange = bool(value != value)
    except RAISED as error:
        # A signaling NaN has no hash either.
        if is_nan(value):
            return _Same.NAN
        problem = f"cannot tell {described(value)} from others: it has no hash"
        raise UnfitError(value, problem) from error
    return _Same.NAN if strange and is_nan(value) else value


def _compare_nan(left: Any, right: Any, cause: BaseException | None) -> int:
    if all(isinstance(one, Real | Decimal) for one in (left, right)):
        left_is, right_is = is_nan(left), is_nan(right)
        if left_is or right_is:
            return left_is - right_is
    problem = f"cannot compare {described(left)} with {described(right)}"
    raise UnfitError(left, problem) from cause
