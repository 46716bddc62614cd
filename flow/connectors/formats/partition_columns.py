"""Columns whose values are in the names of directories, such as ``dt=2026-11-26/shop=4``.

The layout is that of Hive, which Spark, DuckDB, Polars and pyarrow read. A file in such a directory
lacks the columns. The characters that Spark escapes are escaped (``%3A`` for a colon), and null has
the name that Hive gives it. Readers take an empty text for null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from flow.checks import checked_texts
from flow.connectors.formats.columns import as_schema, check_no_epoch
from flow.errors import FlowBuildError, FlowError, SinkError, SourceError, shorten

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value of a directory for rows in which the column is null."""
LONGEST_NAME = 255
"""Bytes in the name of a file, at most, in the file systems of all supported systems."""
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


def groups_of(
    batch: pa.RecordBatch, keys: Sequence[Any], columns: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of each combination of values.

    Args:
        batch: the rows.
        keys: the columns of values.
        columns: the columns of the yielded rows.
    """
    # By numbers, as Arrow takes a name that begins with a period or a bracket for a path.
    names = list(map(str, range(len(keys))))
    rows = pa.array(range(batch.num_rows), pa.int64())
    numbered = pa.Table.from_arrays([*keys, rows], [*names, "rows"])
    grouped = numbered.group_by(names, use_threads=False).aggregate([("rows", "list")])
    rest = batch.select(columns)
    for row in grouped.to_pylist():
        yield tuple(row[name] for name in names), rest.take(pa.array(row["rows_list"]))


def as_names(partition_by: object) -> tuple[str, ...]:
    """Return an argument, one name or a list of names, as names of columns."""
    given = [partition_by] if isinstance(partition_by, str) else partition_by
    names = checked_texts("partition_by must name columns", given)
    check_no_epoch("partition_by", names)
    if len(set(names)) < len(names):
        raise FlowBuildError(f"partition_by must name each column once, got {shorten(names)}")
    hidden = [name for name in names if name.startswith(("_", "."))]
    if hidden:
        raise FlowBuildError(
            f"partition_by names {hidden[0]!r}, and readers skip directories whose names start "
            "with '_' or '.': give the column another name"
        )
    return names


def check_partition_types(
    schema: pa.Schema, names: Sequence[str], where: str, error: type[FlowError] = SinkError
) -> None:
    """Check that columns can be written as names of directories, and leave one for the files.

    Args:
        schema: the columns.
        names: the names of the columns for directories.
        where: the place of the schema, for errors.
        error: class of the errors: a column is missing, or has a type whose text readers read
            differently.
    """
    for name in names:
        if name not in schema.names:
            raise error(
                f"{where}: partition_by names {name!r}, and the fields with values are "
                f"{shorten(schema.names)}: name one of them, or give the sink a schema"
            )
        kind, types = schema.field(name).type, pa.types
        kind = kind.value_type if types.is_dictionary(kind) else kind
        plain = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean)
        if not any(fits(kind) for fits in (*plain, types.is_date, types.is_null)):
            raise error(
                f"{where}: partition_by names {name!r} of type {kind}: name a column of "
                "text, whole numbers, booleans or dates, such as the date of a time"
            )
    if len(names) == len(schema.names):
        raise error(
            f"{where}: partition_by names all fields, {shorten(schema.names)}: the files "
            "need one more"
        )


def directory_of(names: Sequence[str], values: Sequence[Any], step_id: str) -> str:
    """Return the directory of a combination of values.

    Raises:
        SinkError: a value is the empty text, which readers take for null, or is too long.

    >>> from datetime import date
    >>> directory_of(["dt", "open"], [date(2026, 11, 26), True], "out")
    'dt=2026-11-26/open=true'
    >>> directory_of(["at", "shop"], ["10:30", None], "out")
    'at=10%3A30/shop=__HIVE_DEFAULT_PARTITION__'
    """
    if "" in values:
        raise SinkError(
            f"step {step_id!r}: {names[values.index('')]!r} of partition_by is an empty text, "
            "which a directory cannot tell from None: map it to None or to another text"
        )
    directories = [
        f"{_escaped(name)}={_escaped(_text(value))}"
        for name, value in zip(names, values, strict=True)
    ]
    for name, value, directory in zip(names, values, directories, strict=True):
        if len(directory.encode()) > LONGEST_NAME:
            raise SinkError(
                f"step {step_id!r}: the value of {name!r} in partition_by is too long for the name "
                f"of a directory, {LONGEST_NAME} bytes: got {shorten(value)}"
            )
    return "/".join(directories)


def _text(value: Any) -> str:
    if value is None:
        return NULL
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def as_partition_columns(columns: object) -> pa.Schema:
    """Return an argument, names or a mapping of names to types, as columns; text by default."""
    if not isinstance(columns, Mapping | pa.Schema):
        texts = [columns] if isinstance(columns, str) else columns
        names = checked_texts("partition_columns must name directories", texts)
        columns = dict.fromkeys(names, pa.string())
    return as_schema(columns, "partition_columns") if columns else pa.schema([])


def values_of_directories(path: str, columns: Iterable[pa.Field], file: object) -> dict[str, Any]:
    """Return the scalars that the directories of a file give for columns.

    Args:
        path: path of the file.
        columns: the columns.
        file: name of the file, for errors.

    Raises:
        SourceError: a directory is missing, or its value is not of the type.
    """
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    texts = {unquote(name): unquote(value) for name, mark, value in pairs if mark}
    values = {}
    for name, kind in ((column.name, column.type) for column in columns):
        if name not in texts:
            raise SourceError(
                f"{file} lies in no directory {name}=..., which partition_columns names"
            )
        text = None if texts[name] == NULL else texts[name]
        try:
            values[name] = pa.scalar(text, pa.string()).cast(kind)
        except pa.ArrowException as error:
            raise SourceError(f"{file} lies in {name}={text}, which is no {kind}") from error
    return values


def with_values(batch: pa.RecordBatch, values: Mapping[str, Any], file: object) -> pa.RecordBatch:
    """Return the rows of a file with the columns of its directories.

    Args:
        batch: the rows.
        values: the scalars by the names of the columns to add.
        file: name of the file, for errors.

    Raises:
        SourceError: the file has such a column itself.
    """
    for name, value in values.items():
        if name in batch.schema.names:
            raise SourceError(f"{file} has a column {name!r}, and lies in {name}={value}")
        batch = batch.append_column(pa.field(name, value.type), pa.repeat(value, batch.num_rows))
    return batch
