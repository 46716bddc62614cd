"""Ids of values, which tell a repeated value from a new one, and remembered ids in columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import pick
from flow.columns.record_batches import as_objects, rows_of, value_reader
from flow.errors import RAISED, brief, shorten
from flow.fields import field_path
from flow.keyed.logic import RejectedValue
from flow.keyed.shard_logic import KeyFailure, ShardRows


@dataclass(frozen=True)
class IdOf:
    """The id of a value.

    Attributes:
        getter: a function of the value, the path of a field, or ``None`` for the whole value.

    >>> IdOf("order.id")({"order": {"id": 7}})
    7
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("getter",)

    getter: Callable[[Any], Any] | str | None = None

    def __call__(self, value: Any) -> Hashable:
        """Return the id of a value in a form that can be hashed.

        Raises:
            RejectedValue: when the value has no id, or the id has no hash or differs from itself.
        """
        getter = self.getter
        try:
            if getter is None:
                found = value
            elif isinstance(getter, str):
                found = field_path(getter).value_in(value)
            else:
                found = getter(value)
            made = hashable(found)
        except RAISED as error:
            raise RejectedValue(value, f"{self._name} gave no id: {brief(error)}") from error
        if made != made:
            raise RejectedValue(
                value, f"{self._name} gave {shorten(found)}, which differs from itself"
            )
        return made

    @property
    def fields(self) -> frozenset[str] | None:
        """The fields of a record that hold the id; ``None`` if any field may."""
        return field_path(self.getter).record_fields if isinstance(self.getter, str) else None

    def column(self, values: pa.RecordBatch | list[Any]) -> pa.Array | list[Hashable] | None:
        """Return the ids of values; ``None`` if a value has no id, so that the caller finds it.

        Args:
            values: rows of an Arrow schema, or Python objects.

        Returns:
            Arrow large text or int64 for ids in a column of text or integers, otherwise a list.
        """
        try:
            is_batch, column = isinstance(values, pa.RecordBatch), None
            if is_batch and isinstance(self.getter, str):
                # A null struct has null fields as a column, and none as an object.
                parent = field_path(self.getter.rpartition(".")[0]).column_in(values)
                if parent is None or not parent.null_count:
                    column = field_path(self.getter).column_in(values)
            if column is not None:
                return _comparable(column)
            return column_of_ids(list(map(self, rows_of(values) if is_batch else values)))
        except RejectedValue:
            return None

    @property
    def _name(self) -> str:
        return "the whole value" if self.getter is None else f"id {shorten(self.getter)}"


def hashable(value: Any) -> Hashable:
    """Return a value that can be hashed, and equals those of equal values.

    Dicts, lists and sets, also inside of tuples, become tuples and frozen sets.

    >>> hashable({"a": [1]}) == hashable({"a": [1]}) != hashable({"a": (1,)})
    True

    Raises:
        TypeError: when another value without a hash is found.
    """
    try:
        hash(value)
    except TypeError:
        return _frozen(value)
    return value  # type: ignore[no-any-return]  # It has a hash.


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return "dict", frozenset((name, hashable(one)) for name, one in value.items())
    if isinstance(value, list):
        return "list", tuple(map(hashable, value))
    if isinstance(value, tuple):
        return tuple(map(hashable, value))
    if isinstance(value, AbstractSet):
        return frozenset(value)
    raise TypeError(f"{type(value).__name__} {shorten(value)} cannot be hashed")


def _comparable(column: pa.Array) -> pa.Array | list[Hashable]:
    """Return a column of ids in the type in which columns of ids are compared."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_string())
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(pa.int64())
    ids = [hashable(one) for one in as_objects(column)]
    # A NaN differs from itself.
    if any(one != one for one in ids):
        raise RejectedValue(None, "an id differs from itself")
    return ids


Ids: TypeAlias = "pa.Array | list[Hashable]"
"""Ids as Arrow large text or int64, or as Python objects."""


class SeenIds(NamedTuple):
    """Remembered ids; those of a key in the order in which their values passed.

    Attributes:
        slots: the slot of the key of each id, int64, shape (ids,).
        ids: the ids; ``None`` if each id is the key itself.
        first_us: the time of the value that passed, int64 µs, shape (ids,).
    """

    slots: Ints
    ids: Ids | None
    first_us: Ints

    def concat(self, other: SeenIds) -> SeenIds:
        """Return these ids followed by others: both columns of ids, or both ``None``."""
        if not len(self.slots):
            return other
        is_key = self.ids is None or other.ids is None
        return SeenIds(
            np.concatenate([self.slots, other.slots]),
            None if is_key else concat_ids(self.ids, other.ids),
            np.concatenate([self.first_us, other.first_us]),
        )

    def where(self, is_chosen: Mask) -> SeenIds:
        """Return the ids of the rows in a mask."""
        if is_chosen.all():
            return self
        rows = np.flatnonzero(is_chosen)
        ids = None if self.ids is None else take_ids(self.ids, rows)
        return SeenIds(self.slots[rows], ids, self.first_us[rows])


def take_ids(ids: Ids, rows: Ints) -> Ids:
    """Return the ids of rows."""
    return pick(ids, rows) if isinstance(ids, list) else ids.take(pa.array(rows))


def concat_ids(left: Ids, right: Ids) -> Ids:
    """Return ids followed by others: a column if both are columns of one type."""
    if not len(left) or not len(right):
        return left if len(left) else right
    if not isinstance(left, list) and not isinstance(right, list) and left.type == right.type:
        return pa.concat_arrays([left, right])
    return id_objects(left) + id_objects(right)


_TYPES = {str: pa.large_string(), int: pa.int64()}


def column_of_ids(ids: list[Any]) -> Ids:
    """Return ids as a column if all are text, or all are integers of 64 bits."""
    kinds = set(map(type, ids))
    kind = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is None:
        return ids
    try:
        return pa.array(ids, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return ids


def id_objects(ids: Ids) -> list[Any]:
    """Return ids as Python objects."""
    return ids if isinstance(ids, list) else ids.to_pylist()


def ids_of(id_of: IdOf, rows: ShardRows, chosen: Ints) -> Ids | None:
    """Return the id of each chosen row; ``None`` if each is found to be the row's key.

    Args:
        id_of: the id of a value.
        rows: the rows.
        chosen: the numbers of the rows, int64, shape (chosen,).

    Raises:
        KeyFailure: when a value has no id.
    """
    order = rows.order[chosen]
    found = id_of.column(rows.values)
    if found is not None:
        ids = take_ids(found, order)
        return None if _are_keys(ids, rows, chosen) else ids
    value_of, ids = value_reader(rows.values), list[Any]()
    for row, index in enumerate(order.tolist()):
        try:
            ids.append(id_of(value_of(index)))
        except RejectedValue as error:
            raise KeyFailure(rows.key_of(int(chosen[row])), error.value, error) from error
    return ids


def _are_keys(ids: Ids, rows: ShardRows, chosen: Ints) -> bool:
    """Return True if the ids are a column of text that repeats the keys of the chosen rows."""
    if isinstance(ids, list) or not pa.types.is_large_string(ids.type) or not len(ids):
        return False
    runs = np.repeat(np.arange(len(rows.counts)), rows.counts)[chosen]
    if ids[0].as_py() != rows.keys[int(runs[0])].as_py():
        return False  # Most ids differ from the first row on.
    return bool(rows.keys.take(pa.array(runs)).cast(pa.large_string()).equals(ids))


def groups_of(slots: Ints, ids: Ids) -> Ints:
    """Return a number for each row that rows of the same key and id share.

    >>> groups_of(np.array([0, 0, 1, 0]), ["a", "b", "a", "a"]).tolist()
    [0, 1, 2, 0]
    """
    if isinstance(ids, list):
        numbers: dict[Hashable, int] = {}
        codes = np.array([numbers.setdefault(one, len(numbers)) for one in ids], np.int64)
    else:
        coded = ids.dictionary_encode(null_encoding="encode")
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    combined = pa.array(slots * (int(codes.max(initial=0)) + 1) + codes)
    groups: Ints = combined.dictionary_encode().indices.to_numpy().astype(np.int64)
    return groups


def passing_ids(seen: SeenIds, new: SeenIds, ttl_us: int) -> Mask:
    """Return the mask of the new ids that pass, given the ids that passed before."""
    if len(seen.slots) > _MANY * len(new.slots):
        seen = seen.where(_may_repeat(seen, new))
    groups = np.concatenate([seen.slots, new.slots])
    if seen.ids is not None and new.ids is not None:
        groups = groups_of(groups, concat_ids(seen.ids, new.ids))
    times_us = np.concatenate([seen.first_us, new.first_us])
    return passing(groups, times_us, len(seen.slots), ttl_us)


_MANY = 8
"""The number of remembered ids for each new one from which those of other values are left out."""


def _may_repeat(seen: SeenIds, new: SeenIds) -> Mask:
    """Return the mask of the remembered ids that a new id may repeat."""
    mine, theirs = seen.ids, new.ids
    if mine is None or theirs is None:
        return np.isin(seen.slots, new.slots)
    if isinstance(mine, list) or isinstance(theirs, list) or mine.type != theirs.type:
        known = set(id_objects(theirs))
        return np.fromiter(map(known.__contains__, id_objects(mine)), np.bool_, len(mine))
    mask: Mask = pc.is_in(mine, value_set=theirs).to_numpy(zero_copy_only=False)
    return mask


def passing(groups: Ints, times_us: Ints, seen: int, ttl_us: int) -> Mask:
    """Return the mask of the new rows that pass.

    A row passes unless a row of its group that passed before has a time that differs by less than
    `ttl_us`. Each round decides on the first open row of every cluster, see `_clusters`.

    Args:
        groups: the group of each row, first those that passed in earlier epochs, then the new rows,
            those of a group in order of arrival; int64, shape (rows,).
        times_us: the time of each row, int64 µs, shape (rows,).
        seen: the number of rows that passed in earlier epochs.
        ttl_us: the time to live of an id.

    >>> passing(np.array([0, 0, 0, 1, 0]), np.array([5, 9, 15, 15, 24]), 1, 10).tolist()
    [False, True, True, False]
    """
    groups = _clusters(groups, times_us, ttl_us)
    passes = np.zeros(len(groups) - seen, np.bool_)
    open_rows = np.arange(seen, len(groups))
    passed = np.arange(seen)
    count = int(groups.max(initial=-1)) + 1
    while len(open_rows):
        while len(passed):
            # The last of a group's equal indices wins; the others follow in the next round.
            one_of_group = np.full(count, -1)
            one_of_group[groups[passed]] = passed
            other = one_of_group[groups[open_rows]]
            is_near = (other >= 0) & (np.abs(times_us[open_rows] - times_us[other]) < ttl_us)
            open_rows = open_rows[~is_near]
            passed = passed[one_of_group[groups[passed]] != passed]
        # The first row of each group: of equal indices in reverse order, the last one wins.
        first_of_group = np.full(count, -1)
        first_of_group[groups[open_rows[::-1]]] = open_rows[::-1]
        is_first = first_of_group[groups[open_rows]] == open_rows
        passed = open_rows[is_first]
        passes[passed - seen] = True
        open_rows = open_rows[~is_first]
    return passes


def _clusters(groups: Ints, times_us: Ints, ttl_us: int) -> Ints:
    """Return the number of each row's cluster: rows of a group in gaps of less than `ttl_us`.

    Rows of different clusters do not affect each other. Of the rows that passed, a cluster has at
    most one more than of new rows, however many a group has.
    """
    order = np.lexsort((times_us, groups))
    is_first = (np.diff(groups[order]) != 0) | (np.diff(times_us[order]) >= ttl_us)
    clusters = np.empty(len(groups), np.int64)
    clusters[order] = np.cumsum(np.append(False, is_first))[: len(groups)]
    return clusters
