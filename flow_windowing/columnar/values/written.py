"""Python values as a segment holds them: in columns where they are plain, else a pickle of each.

A value that was written down is read when it is needed first; until then it is `Stored` or
`Pickled`, and can be written down again as it is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from flow.columns.plain_columns import Plain, PlainColumns
from flow.keyed.pickles import load_pickle

Written: TypeAlias = "list[bytes] | Plain"
"""Values as plain data."""


class Pickled:
    """A value as it was pickled."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content

    def value(self) -> Any:
        """The value, read anew."""
        return load_pickle(self.content)


class Stored:
    """A value that is a row of columns."""

    __slots__ = ("columns", "row")

    def __init__(self, columns: PlainColumns, row: int) -> None:
        self.columns = columns
        self.row = row

    def value(self) -> Any:
        """The value, made anew."""
        return self.columns.value(self.row)


def written(values: Sequence[Any]) -> Written:
    """Values as plain data; some of them may have been written before."""
    columns = in_columns(values)
    return pickles(values) if columns is None else columns.encoded()


def pickles(values: Sequence[Any]) -> list[bytes]:
    """A pickle of each value."""
    return [
        one.content
        if type(one) is Pickled
        else pickle.dumps(one.value() if type(one) is Stored else one, 5)
        for one in values
    ]


def in_columns(values: Sequence[Any]) -> PlainColumns | None:
    """Values as columns; ``None`` where they are not alike, or not plain."""
    fresh = [at for at, value in enumerate(values) if type(value) is not Stored]
    lots = [(PlainColumns.of([values[at] for at in fresh]), fresh)] if fresh else []
    for columns, places, rows in _by_columns(values):
        lots.append((columns.take(np.array(rows)), places))
    parts = [columns for columns, _ in lots if columns is not None]
    if not parts or len(parts) < len(lots):
        return None
    first, *others = parts
    if not all(map(first.like, others)):  # all of them together may be of one shape
        return PlainColumns.of(known(values))
    order = np.concatenate([np.array(places, np.int64) for _, places in lots])
    return first.joined(others).take(np.argsort(order, kind="stable"))


def held(content: Written) -> list[Any]:
    """Values that were written down, each to be read when it is needed."""
    if isinstance(content, list):
        return [Pickled(one) for one in content]
    columns = PlainColumns.decoded(content)
    return [Stored(columns, row) for row in range(len(columns))]


def known(values: Sequence[Any]) -> list[Any]:
    """Values as they are, those that were written down read."""
    kinds = set(map(type, values))
    if Pickled not in kinds and Stored not in kinds:
        return list(values)
    found = [one.value() if type(one) is Pickled else one for one in values]
    for columns, places, rows in _by_columns(values):
        for at, value in zip(places, columns.take(np.array(rows)).values(), strict=True):
            found[at] = value
    return found


def read(content: Written, load: Callable[[bytes], Any] = load_pickle) -> list[Any]:
    """All values that were written down.

    Args:
        content: what `written` has made.
        load: what reads a pickle.
    """
    if isinstance(content, list):
        return [load(one) for one in content]
    return PlainColumns.decoded(content).values()


def cut(content: Written, rows: slice) -> Written:
    """Some of the values that were written down, none of which is read."""
    if isinstance(content, list):
        return content[rows]
    if rows.start == rows.stop:
        return []
    return PlainColumns.decoded(content).take(rows).encoded()


def _by_columns(values: Sequence[Any]) -> list[tuple[PlainColumns, list[int], list[int]]]:
    """The values that are rows of columns: for each of these, which they are, and their rows."""
    found: dict[int, tuple[PlainColumns, list[int], list[int]]] = {}
    for at, value in enumerate(values):
        if type(value) is Stored:
            entry = found.get(id(value.columns))
            if entry is None:
                entry = found[id(value.columns)] = (value.columns, [], [])
            entry[1].append(at)
            entry[2].append(value.row)
    return list(found.values())
