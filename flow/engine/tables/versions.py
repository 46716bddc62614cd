"""Versions of tables, which the log of an epoch names."""

from __future__ import annotations

from typing import Any, NamedTuple


class TableVersion(NamedTuple):
    """A version of a table.

    Attributes:
        number: the number of sets of changes since the table was empty.
        base: the number of the newest version that was written whole; the changes of each later
            version are written by themselves.
        read_at_us: the system time at which a lookup table was last read, in µs; ``None`` before
            the first reading, and for other tables.
    """

    number: int = 0
    base: int = 0
    read_at_us: int | None = None

    def to_json(self) -> Any:
        """Return the version as JSON."""
        return list(self)

    @classmethod
    def from_json(cls, content: Any) -> TableVersion:
        """Return the version in JSON made by `to_json`."""
        number, base, read_at_us = content
        return cls(int(number), int(base), None if read_at_us is None else int(read_at_us))
