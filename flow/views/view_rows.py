"""Rows of a view, made in the workers from items, with values as JSON by one rule for each type.

======================================  ============================================
value                                   JSON
======================================  ============================================
None, bool, str, int, finite float      itself
aware datetime                          text, RFC 3339: ``"2024-01-01T00:00:00Z"``
date, time                              text, ISO 8601
timedelta                               number of seconds
Decimal, UUID                           text
Enum                                    its value
list, tuple, array of NumPy             array
set, frozenset                          array, sorted
mapping, dataclass, named tuple         object; names are text, and whole numbers become text
======================================  ============================================

A dataclass with a method ``as_record``, such as the metadata of a window, is the object that this
method returns. No other value can be in a view.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np

from flow.columns.record_batches import is_pair, is_retraction, is_window, rows_as_dicts
from flow.columns.text_keys import key_reader
from flow.connectors.formats.json_encoding import instant_text
from flow.connectors.sink import SinkBatch
from flow.errors import RAISED, brief, shorten, step_error
from flow.instants import datetime_us

_dump = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode

REFUSED = (TypeError, ValueError, OverflowError, RecursionError)
"""The exceptions of `encode`."""


def encode(value: Any) -> str:
    """Return a value as JSON text.

    Raises:
        TypeError, ValueError, RecursionError: the value, or a part of it, has no form in JSON.

    >>> encode({"at": timedelta(minutes=1), "seen": {3, 1}})
    '{"at":60.0,"seen":[1,3]}'
    """
    text = _dump(_laid_out(value))
    if not text.isascii():
        text.encode()
    return text


def decode(text: str) -> Any:
    """Return the value of JSON text: dicts, lists, text, numbers, True, False and None."""
    return json.loads(text)


def _laid_out(value: Any) -> Any:
    """Return a value as the types that JSON has."""
    if type(value) in _UNCHANGED:
        return value
    for kind, lay_out in _RULES:
        if isinstance(value, kind):
            return lay_out(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object(_record_of(value))
    raise TypeError(
        f"{type(value).__name__} {shorten(value, 80)} has no form in JSON: map it to text, "
        "numbers, lists or dicts"
    )


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value!r} has no form in JSON: map it to None or to text")
    return float(value)


def _instant(value: datetime) -> str:
    if value != value:  # NaT of pandas is an instance of datetime.
        raise ValueError("NaT has no form in JSON: map it to None")
    return instant_text(value)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value!r} has no form in JSON: map it to None or to text")
    return str(value)


def _array(values: Any) -> list[Any]:
    return [_laid_out(value) for value in values]


def _tuple(values: tuple[Any, ...]) -> Any:
    if hasattr(values, "_asdict"):
        return _object(values._asdict())
    return _array(values)


def _sorted_array(values: Any) -> list[Any]:
    laid_out = _array(values)
    try:
        return sorted(laid_out)
    except TypeError:
        return sorted(laid_out, key=_dump)


def _object(record: Mapping[Any, Any]) -> dict[str, Any]:
    laid_out = {_name(name): _laid_out(value) for name, value in record.items()}
    if len(laid_out) < len(record):
        raise ValueError(
            f"the names {shorten(list(record), 80)} of an object are not distinct as text"
        )
    return laid_out


def _name(name: Any) -> str:
    """Return the name of a field as text: a text, a whole number, or an enum of them."""
    plain = name.value if isinstance(name, Enum) else name
    if isinstance(plain, str):
        return str(plain)
    if isinstance(plain, (int, np.integer)) and not isinstance(plain, bool):
        return str(int(plain))
    raise TypeError(
        f"the name {shorten(name, 80)} of an object is a {type(name).__name__}: names must be "
        "text or whole numbers"
    )


def _record_of(value: Any) -> Mapping[Any, Any]:
    if hasattr(value, "as_record"):
        record: Mapping[Any, Any] = value.as_record()
        return record
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _numpy(value: Any) -> Any:
    if value.dtype.kind in "mM":
        raise TypeError(f"{value.dtype} has no time zone or unit: map it to datetime or timedelta")
    return _laid_out(value.tolist())


_UNCHANGED = frozenset((type(None), bool, int, str))

_RULES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda value: _laid_out(value.value)),
    ((np.generic, np.ndarray), _numpy),
    (str, str),
    (int, int),
    (float, _finite),
    (datetime, _instant),
    ((date, time), lambda value: value.isoformat()),
    (timedelta, timedelta.total_seconds),
    (Decimal, _decimal),
    (UUID, str),
    (Mapping, _object),
    (tuple, _tuple),
    (list, _array),
    ((set, frozenset), _sorted_array),
)
"""The rule of each type; a subclass comes before its base."""


By: TypeAlias = Literal["key", "window"]
"""The identity of an entry of a view: its key, or its key and window."""

KeyReader: TypeAlias = Callable[[Any], Any]


class ViewRow(NamedTuple):
    """A new value of an entry of a view, or its removal.

    Attributes:
        key: the key.
        slot: the id of the window in a view by window, 0 in a view by key.
        window_id: the id of the value's window; ``None`` if the value has no window.
        open_us: the open time of the window, in µs.
        close_us: the close time of the window, in µs.
        value: the value as JSON; ``None`` removes the entry.
        is_retraction: True if only a value of this window is removed.
    """

    key: str
    slot: int
    window_id: int | None
    open_us: int | None
    close_us: int | None
    value: str | None
    is_retraction: bool = False


def last_rows(rows: Iterable[ViewRow]) -> list[ViewRow]:
    """Return the last row of each entry; without one, the retractions, one for each window.

    A retraction of the window of a row before it removes the entry, whatever its window was before.
    """
    found: dict[tuple[str, int], ViewRow] = {}
    retracted: dict[tuple[str, int], dict[int | None, ViewRow]] = {}
    for row in rows:
        place = row.key, row.slot
        if not row.is_retraction:
            found[place] = row
        elif place not in found:
            retracted.setdefault(place, {})[row.window_id] = row
        elif found[place].window_id == row.window_id:
            found[place] = row._replace(is_retraction=False)
    alone = (windows for place, windows in retracted.items() if place not in found)
    return [*found.values(), *chain.from_iterable(map(dict.values, alone))]


@dataclass(frozen=True)
class RowMaker:
    """Conversion of the items of an output to rows of its view.

    Attributes:
        step_id: id of the output's step.
        by: the identity of an entry.
        key: a function or a field's path that gives the key of an item; ``None`` for items that are
            ``(key, value)`` pairs.
    """

    step_id: str
    by: By
    key: KeyReader | str | None

    def rows(self, batches: Iterable[SinkBatch]) -> list[ViewRow]:
        """Return the last row of each entry.

        Raises:
            StepError: when an item has no key, or its value cannot be in a view.
        """
        return last_rows(self._row(*of_item) for of_item in self._pairs(batches))

    def _pairs(self, batches: Iterable[SinkBatch]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the key, the value and the item of each item."""
        for batch in batches:
            for item in batch if isinstance(batch, list) else rows_as_dicts(batch):
                if self.key is not None:
                    yield self._checked(self._key_of(item), item), item, item
                elif isinstance(item, tuple) and len(item) == 2:
                    yield self._checked(item[0], item), item[1], item
                else:
                    problem = (
                        "items of a view must be (key, value) pairs, but this item is a "
                        f"{type(item).__name__}: use op.key_on before the output, or "
                        "ViewSink(key=...)"
                    )
                    raise step_error(self.step_id, problem, item=item)

    def _key_of(self, item: Any) -> Any:
        read = key_reader((self.key,)) if isinstance(self.key, str) else self.key
        try:
            return None if read is None else read(item)
        except RAISED as error:
            problem = f"reading the key of the view raised {brief(error)}"
            raise step_error(self.step_id, problem, item=item) from error

    def _checked(self, key: Any, item: Any) -> str:
        if not isinstance(key, str):
            problem = f"a key of a view must be text, got {type(key).__name__} {key!r}"
            raise step_error(self.step_id, problem, item=item)
        try:
            key.encode()
        except UnicodeEncodeError as error:
            problem = f"a key of a view must be text that UTF-8 can encode, got {key!a}"
            raise step_error(self.step_id, problem, item=item) from error
        return str(key)

    def _row(self, key: str, value: Any, item: Any) -> ViewRow:
        window, inner = _split(value)
        if window is None and self.by == "window":
            problem = (
                "by='window' needs results of windows, (key, (metadata, value)), but the value is "
                f"a {type(value).__name__}: give the output a windowing step's stream, or use "
                "by='key'"
            )
            raise step_error(self.step_id, problem, key=key, item=item)
        retracts = is_retraction(inner)
        text = None if inner is None or retracts else self._encoded(key, inner)
        if window is None:
            return ViewRow(key, 0, None, None, None, text, retracts)
        slot = window.window_id if self.by == "window" else 0
        bounds = datetime_us(window.open_time), datetime_us(window.close_time)
        return ViewRow(key, slot, window.window_id, *bounds, text, retracts)

    def _encoded(self, key: str, value: Any) -> str:
        try:
            return encode(value)
        except REFUSED as error:
            problem = f"the view cannot hold a value of type {type(value).__name__}: {error}"
            raise step_error(self.step_id, problem, key=key, item=value) from error


def _split(value: Any) -> tuple[Any, Any]:
    """Return the window and the inner value of a windowing step's result; else no window."""
    return value if is_pair(value) and is_window(value[0]) else (None, value)
