"""Contents of a table: the newest value of each key, or the values of each key by time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from flow.instants import NEVER


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


@dataclass
class Newest:
    """The newest value of each key."""

    values: dict[str, Any] = field(default_factory=dict)

    def apply(self, changes: Iterable[Change]) -> int:
        """Apply changes in order; return by how much the sizes of the bytes among values grew."""
        grown = 0
        for key, value, _ in changes:
            if key in self.values:
                grown -= _size(key, self.values[key])
            if value is not None:
                self.values[key] = value
                grown += _size(key, value)
            else:
                self.values.pop(key, None)
        return grown

    def changes(self) -> Iterator[Change]:
        """Yield changes that make these contents of empty ones."""
        return (Change(key, value) for key, value in self.values.items())

    def view(self, at_us: int = NEVER) -> Mapping[str, Any]:  # noqa: ARG002
        """Return a read-only mapping of the newest values."""
        return MappingProxyType(self.values)

    def copy(self) -> Newest:
        return Newest(dict(self.values))

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
        return _AsOf(self, at_us)

    def copy(self) -> History:
        times = {key: list(of_key) for key, of_key in self.times.items()}
        values = {key: list(of_key) for key, of_key in self.values.items()}
        return History(self.keep_us, times, values)

    def __len__(self) -> int:
        return len(self.times)


Contents: TypeAlias = Newest | History
"""The values of a table by key. Copies share no mutable parts."""


class _AsOf(Mapping[str, Any]):
    """The values of a history at a time."""

    def __init__(self, history: History, at_us: int) -> None:
        self._history = history
        self._at_us = at_us

    def _value(self, key: object) -> Any:
        times = self._history.times.get(key, ())  # type: ignore[call-overload]  # Any object may be asked for.
        index = bisect_right(times, self._at_us)
        return self._history.values[key][index - 1] if index else None  # type: ignore[index]

    def __getitem__(self, key: str) -> Any:
        value = self._value(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._value(key) is not None

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._history.times if self._value(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


def _size(key: str, value: Any) -> int:
    """Return the size of a pickled value and its key; of other values only that of the key."""
    return len(key) + len(value) if isinstance(value, bytes) else len(key)
