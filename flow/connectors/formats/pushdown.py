"""Predicate pushdown: files and row groups that a filter's expression rules out are not read.

An expression is held against the values that a whole file has, as by its directory, and against the
bounds of columns in Parquet's footers. PyArrow decides; rows that are read are filtered as ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from copy import copy
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from flow.columns.predicate import ColumnPredicate

S = TypeVar("S")


def with_predicate(source: S, predicate: ColumnPredicate) -> S:
    """Return a copy of a source that may leave out records for which a predicate is not true.

    Args:
        source: a dataclass with the fields `columns`, and `_wanted` for the predicate.
        predicate: the predicate.
    """
    if not gives_rows_of_files(source):
        return source
    columns: Sequence[str] | None = source.columns  # type: ignore[attr-defined]
    if columns is not None and not _columns(predicate) <= set(columns):
        return source  # The filter fails, as it names a field that the records lack.
    found = copy(source)
    object.__setattr__(found, "_wanted", predicate)
    return found


def gives_rows_of_files(source: object) -> bool:
    """Return False for a user's subclass of a source, which may change what its files have."""
    return type(source).__module__.startswith("flow.connectors.")


def groups_with(
    predicate: ColumnPredicate, stream: Any, values: Mapping[str, Any]
) -> list[int] | None:
    """Return the numbers of the row groups that may have rows for which a predicate is true.

    Args:
        predicate: the predicate.
        stream: the open Parquet file.
        values: scalars of columns with one value, which the file may lack, by their names.

    Returns:
        The numbers, in order; ``None`` for all.
    """
    fragment = _fragment(stream, values)
    inside = fragment.physical_schema
    added = [pa.field(name, one.type) for name, one in values.items() if name not in inside.names]
    schema = pa.schema([*inside, *added])
    named = [schema.field(name).type for name in _columns(predicate) & {*schema.names}]
    # Bounds of floats do not tell whether there is a NaN, for which `x != 1` is true.
    if any(map(_has_floats, named)):
        return None
    with contextlib.suppress(pa.ArrowException):  # The filter fails itself, with its step.
        groups = fragment.subset(filter=predicate.expression, schema=schema).row_groups
        return [group.id for group in groups]
    return None


def may_hold(
    predicate: ColumnPredicate, schema: pa.Schema, files: Sequence[Mapping[str, Any]]
) -> list[bool]:
    """Return for each file if it may have rows for which a predicate is true.

    Args:
        predicate: the predicate.
        schema: the columns of the files, with those of `files`.
        files: for each file, the scalars of columns with one value.
    """
    from pyarrow import dataset, fs

    with contextlib.suppress(pa.ArrowException):
        local = fs.LocalFileSystem()
        fragments = [_fragment(str(n), values, local) for n, values in enumerate(files)]
        every = dataset.FileSystemDataset(fragments, schema, dataset.ParquetFileFormat(), local)
        found = {one.path for one in every.get_fragments(filter=predicate.expression)}
        return [str(n) in found for n in range(len(files))]
    return [True] * len(files)


def _fragment(file: Any, values: Mapping[str, Any], filesystem: Any = None) -> Any:
    """Return a file, which need not exist, with what is known of its rows."""
    from pyarrow import dataset

    known = [
        pc.field(name) == value if value.is_valid else pc.field(name).is_null()
        for name, value in values.items()
        if not _has_floats(value.type)
    ]
    all_known = reduce(and_, known) if known else None
    return dataset.ParquetFileFormat().make_fragment(file, filesystem, all_known)


def _columns(predicate: ColumnPredicate) -> set[str]:
    return {name for name, *_ in predicate.names}


def _has_floats(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return bool(pa.types.is_floating(kind)) or any(map(_has_floats, parts))
