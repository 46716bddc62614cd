"""Contents of a table: the newest value of each key, or the values of each key by time."""

from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from typing_extensions import override

from flow.instants import NEVER
from flow.keyed.logic import CONSTANTS


class Change(NamedTuple):
    """A change of a table.

    Attributes:
        key: the key.
        value: the value: pickled bytes in files and while an epoch is planned; ``None`` removes
            the key.
        at_us: the time of the change, in µs; 0 for a table without history.
    """

    key: str
    value: Any
    at_us: int = 0


class Template(NamedTuple):
    """A value of which each look-up makes a copy, as the function that looks it up may change it.

    Attributes:
        copy: makes a copy.
    """

    copy: Callable[[], Any]


def value_of(content: bytes) -> Any:
    """Return a pickled value, as a `Template` if it can be changed."""
    value = pickle.loads(content)
    if _is_constant(value):
        return value
    parts = (*value, *value.values()) if type(value) is dict else value
    if type(value) in (dict, list, set) and all(map(_is_constant, parts)):
        return Template(value.copy)
    return Template(partial(pickle.loads, content))


def _is_constant(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_constant, value))
    return type(value) in CONSTANTS or isinstance(value, Enum)


@dataclass
class Newest:
    """The newest value of each key.

    Attributes:
        values: the values.
        has_templates: True if a value has been a `Template`.
    """

    values: dict[str, Any] = field(default_factory=dict)
    has_templates: bool = field(default=False, compare=False)

    def apply(self, changes: Iterable[Change]) -> int:
        """Apply changes in order; return by how much the sizes of the bytes among values grew."""
        grown = 0
        for key, value, _ in changes:
            if key in self.values:
                grown -= _size(key, self.values[key])
            if value is not None:
                self.values[key] = value
                self.has_templates |= type(value) is Template
                grown += _size(key, value)
            else:
                self.values.pop(key, None)
        return grown

    def changes(self) -> Iterator[Change]:
        """Yield changes that make these contents of empty ones."""
        return (Change(key, value) for key, value in self.values.items())

    def view(self, at_us: int = NEVER) -> Mapping[str, Any]:  # noqa: ARG002
        """Return a read-only mapping of the newest values."""
        values = self.values
        return _View(values, values.get) if self.has_templates else MappingProxyType(values)

    def copy(self) -> Newest:
        return Newest(dict(self.values), self.has_templates)

    def __len__(self) -> int:
        return len(self.values)


@dataclass
class History:
    """The values of each key by time.

    Attributes:
        keep_us: how long a replaced value is kept before the newest time of its key, in µs,
            inclusive; ``None`` for no limit.
        times: the times of each key's values, in µs, ascending; of equal times the later arrival
            is last.
        values: the values of each key; ``None`` from the time at which the key was removed.
    """

    keep_us: int | None = None
    times: dict[str, list[int]] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)

    def apply(self, changes: Iterable[Change]) -> int:
        """Apply changes in order; return by how much the sizes of the bytes among values grew."""
        grown = 0
        for key, value, at_us in changes:
            times = self.times.setdefault(key, [])
            values = self.values.setdefault(key, [])
            index = bisect_right(times, at_us)
            # An input is read again from its beginning for another table that is new.
            if index and times[index - 1] == at_us and _is_same(values[index - 1], value):
                continue
            times.insert(index, at_us)
            values.insert(index, value)
            grown += _size(key, value) - self._trim(key, times, values)
        return grown

    def _trim(self, key: str, times: list[int], values: list[Any]) -> int:
        """Remove values of a key that were replaced too long ago; return their size."""
        if self.keep_us is None:
            return 0
        count = bisect_left(times, times[-1] - self.keep_us) - 1
        if count <= 0:
            return 0
        size = sum(_size(key, value) for value in values[:count])
        del times[:count], values[:count]
        return size

    def changes(self) -> Iterator[Change]:
        """Yield changes that make these contents of empty ones."""
        for key, times in self.times.items():
            for at_us, value in zip(times, self.values[key], strict=True):
                yield Change(key, value, at_us)

    def view(self, at_us: int = NEVER) -> Mapping[str, Any]:
        """Return a read-only mapping of the values at a time; by default the newest values."""
        return _View(self.times, partial(self._value_at, at_us))

    def _value_at(self, at_us: int, key: Any) -> Any:
        times = self.times.get(key, ())
        index = bisect_right(times, at_us)
        return self.values[key][index - 1] if index else None

    def copy(self) -> History:
        times = {key: list(of_key) for key, of_key in self.times.items()}
        values = {key: list(of_key) for key, of_key in self.values.items()}
        return History(self.keep_us, times, values)

    def __len__(self) -> int:
        return len(self.times)


Contents: TypeAlias = Newest | History
"""The values of a table by key. Copies share no mutable parts."""


class _View(Mapping[str, Any]):
    """The values of a table at a time; each look-up returns an object of its own.

    Args:
        keys: the keys that have values at any time.
        value_at: returns the value of a key, or its `Template`; ``None`` without one.
    """

    def __init__(self, keys: Iterable[str], value_at: Callable[[Any], Any]) -> None:
        self._keys = keys
        self._value_at = value_at

    def __getitem__(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    @override
    def get(self, key: Any, default: Any = None) -> Any:
        value = self._value_at(key)
        if value is None:
            return default
        return value.copy() if type(value) is Template else value

    def __contains__(self, key: object) -> bool:
        return self._value_at(key) is not None

    def __iter__(self) -> Iterator[str]:
        return filter(self.__contains__, self._keys)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


def _is_same(before: Any, value: Any) -> bool:
    """Return True for equal pickled values, or two removals."""
    return before is value or (type(before) is type(value) is bytes and before == value)


def _size(key: str, value: Any) -> int:
    """Return the size of a pickled value and its key; of other values only that of the key."""
    return len(key) + len(value) if isinstance(value, bytes) else len(key)
