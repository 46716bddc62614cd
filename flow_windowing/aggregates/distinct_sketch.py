"""The approximate number of different values, by theta sketches of Apache DataSketches.

A theta sketch of precision p holds at most 2^p of the least hashes of the values. In its compact
form, as the union of sketches returns it, these are exactly the 2^p least hashes of all values, and
the next hash. They follow from the set of values alone. So the result depends neither on the order
of values, nor on merges, nor on the epochs after which the state was written. The library's HLL and
CPC sketches are smaller, but their estimates depend on the order and on merges.

The library hashes a value as text: equal values have equal texts, on every machine and in every
process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any
from uuid import UUID

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_whole
from flow.errors import FlowBuildError, package_of_extra
from flow.instants import datetime_us
from flow_windowing.aggregates.aggregator import FieldAggregator, Form, UnfitError, described
from flow_windowing.aggregates.value_order import is_nan
from flow_windowing.rules.window_logic import Arrival


def canonical_text(value: Any) -> str:
    """Return a text that is equal for values that are the same, and differ for others.

    Numbers that are equal, such as 1, 1.0 and True, have equal texts, and so have all NaN.

    Raises:
        UnfitError: for a value of another type than text, bytes, numbers, times, UUIDs, and tuples
            of these.

    >>> canonical_text(1) == canonical_text(True) == canonical_text(1.0)
    True
    >>> canonical_text("1") == canonical_text(1)
    False
    """
    of_type = _BY_TYPE.get(type(value))
    if of_type is not None:
        return of_type(value)
    for kind, of_kind in _BY_TYPE.items():
        if isinstance(value, kind):
            return of_kind(value)
    if value is None:
        return "n"
    if isinstance(value, Integral):
        return _of_int(int(value))
    if isinstance(value, Real):
        return _of_number(float(value))
    raise UnfitError(
        value,
        f"cannot tell {described(value)} from others: use text, bytes, numbers, times, UUIDs or "
        "tuples of these",
    )


def _of_text(value: str) -> str:
    text = str.__str__(value)  # The members of some enums are texts with another `str`.
    # Half of a surrogate pair has no UTF-8, the bytes that the library hashes.
    return f"t{text}" if text.isascii() else f"T{text.encode('utf-8', 'surrogatepass').hex()}"


def _of_int(value: int) -> str:
    return f"i{int(value)}"


def _of_number(value: float | Decimal | Fraction) -> str:
    if is_nan(value):
        return "fnan"
    if isinstance(value, Fraction):
        ratio = value.numerator, value.denominator
    elif math.isinf(value):
        return "finf" if value > 0 else "f-inf"
    else:
        ratio = value.as_integer_ratio()
    return _of_int(ratio[0]) if ratio[1] == 1 else f"f{ratio[0]}/{ratio[1]}"


def _of_datetime(value: datetime) -> str:
    if value.tzinfo is None:
        return f"d{value.isoformat()}"
    return f"D{datetime_us(value)}"


def _of_tuple(value: tuple[Any, ...]) -> str:
    parts = [canonical_text(one) for one in value]
    return "(" + "".join(f"{len(part)}:{part}" for part in parts)


_BY_TYPE: dict[type, Callable[[Any], str]] = {
    str: _of_text,
    int: _of_int,
    bool: _of_int,
    float: _of_number,
    bytes: lambda value: f"b{value.hex()}",
    Decimal: _of_number,
    Fraction: _of_number,
    datetime: _of_datetime,
    date: lambda value: f"c{value.isoformat()}",
    time: lambda value: f"h{value.isoformat()}",
    timedelta: lambda value: f"l{value // timedelta(microseconds=1)}",
    UUID: lambda value: f"u{value.hex}",
    tuple: _of_tuple,
}
"""The function for each type; of a subclass, that of its first base in the table."""


LEAST_PRECISION, MOST_PRECISION = 5, 20


def datasketches() -> Any:
    """Return the package datasketches.

    Raises:
        EnvironmentProblem: the package is not installed.
    """
    with package_of_extra("sketches", "datasketches", "ApproxCountDistinct", on_workers=True):
        import datasketches as package
    return package


class DistinctSketch:
    """The values of a window: a compact sketch as bytes, and a sketch of the values since then.

    A copy, and a pickle, has compact bytes alone. The bytes have the format of the library, which
    all of its languages read. The pickles of checkpoints name this module.
    """

    __slots__ = ("_content", "_newer", "_precision")

    def __init__(self, precision: int, content: bytes = b"") -> None:
        self._precision = precision
        self._content = content
        self._newer: Any = None

    def add(self, value: str) -> None:
        """Add a value."""
        if self._newer is None:
            self._newer = datasketches().update_theta_sketch(self._precision)
        self._newer.update(value)

    def merge(self, other: DistinctSketch) -> None:
        """Add the values of another sketch."""
        self._content = self._union([*self._parts(), *other._parts()])
        self._newer = None

    def content(self) -> bytes:
        """Return the values as a compact sketch; empty without values."""
        return self._content if self._newer is None else self._union(self._parts())

    def estimate(self) -> float:
        """Return the estimated number of different values."""
        content = self.content()
        if not content:
            return 0.0
        number: float = _compact(content).get_estimate()
        return number

    def __copy__(self) -> DistinctSketch:
        return DistinctSketch(self._precision, self.content())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as bytes, as the objects of the library cannot be pickled."""
        return DistinctSketch, (self._precision, self.content())

    def _parts(self) -> list[Any]:
        parts = [_compact(self._content)] if self._content else []
        return parts if self._newer is None else [*parts, self._newer]

    def _union(self, parts: list[Any]) -> bytes:
        if not parts:
            return b""
        union = datasketches().theta_union(self._precision)
        for part in parts:
            union.update(part)
        content: bytes = union.get_result().serialize()
        return content


def _compact(content: bytes) -> Any:
    return datasketches().compact_theta_sketch.deserialize(content)


@dataclass(frozen=True, repr=False)
class ApproxCountDistinct(FieldAggregator[DistinctSketch, int]):
    """The approximate number of different values, in bounded memory.

    Exact up to 2^precision different values. With more, the relative standard error is at most
    1 / sqrt(2^precision - 1): 1.6 % by default; the error is within twice that for 95 % of the
    windows (A. Dasgupta et al., A framework for estimating stream expression cardinalities, ICDT
    2016, on which the theta sketches of Apache DataSketches are built). The result depends on the
    set of values alone, not on their order, and merged windows have the result of all their values.

    Equal values, such as 1, 1.0 and True, count once. Without values the result is 0. Memory: at
    most 8 * 2^precision bytes, 32 kB by default, and 8 bytes for each different value below that.
    Requires ``pip install 'flow-windows[sketches]'``.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself. A value
            must be text, bytes, a number, a time, a UUID or a tuple of these.
        precision: the base-2 logarithm of the number of hashes that are held, from 5 to 20.

    Raises:
        EnvironmentProblem: when the package datasketches is not installed.

    >>> from flow_windowing import aggregate
    >>> aggregate(ApproxCountDistinct("user"), [{"user": "ann"}, {"user": "bob"}, {"user": "ann"}])
    2
    """

    form = Form(ignores_order=True, ignores_arrival=True)
    _result_type = pa.int64()

    precision: int = 12

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("ApproxCountDistinct: precision", self.precision, LEAST_PRECISION)
        if self.precision > MOST_PRECISION:
            raise FlowBuildError(
                f"ApproxCountDistinct: precision must be at most {MOST_PRECISION}, "
                f"got {self.precision}"
            )
        datasketches()

    @override
    def initialize(self) -> DistinctSketch:
        return DistinctSketch(self.precision)

    @override
    def result(self, state: DistinctSketch) -> int:
        return round(state.estimate())

    @override
    def _take(self, state: DistinctSketch, found: Any, at: Arrival) -> DistinctSketch:
        state.add(canonical_text(found))
        return state

    @override
    def _join(self, state: DistinctSketch, other: DistinctSketch) -> DistinctSketch:
        state.merge(other)
        return state
