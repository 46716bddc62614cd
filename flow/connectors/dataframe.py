"""Spark data frames as sources and sinks, and Spark schemas as Arrow schemas and back."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas import types as spark_types
from pyspark.sql.types import StructField, StructType
from typing_extensions import override

from flow.checks import wrong_type
from flow.columns.arrow_types import COMMON_TYPES, with_leaves
from flow.connectors.driver_copies import pickles_for_driver
from flow.connectors.sink import Guarantee, Sink, SinkBatch, WriteContext
from flow.connectors.source import Batch, Json, Planner, Source, SourceLog, Split
from flow.errors import FlowBuildError, FlowTypeError, SinkError, SourceError, first_line, shorten

__all__ = ["DataFrameSink", "DataFrameSource"]


class DataFrameSource(Source[dict[str, Any]]):
    """Source of the rows of a Spark data frame, as records.

    A static data frame is bounded, and its rows have the order of ``collect()``. In a streaming run
    the rows are first written below the checkpoint, so that every epoch can be replayed. A
    streaming data frame keeps its own offsets in the checkpoint; Spark's partitions of an epoch
    interleave row by row. Either kind counts as one source partition, however many partitions Spark
    reads.

    A streaming data frame may select, filter, explode, set a watermark, unite streams and join
    static data. Operations with state on a stream (aggregations, ``dropDuplicates``, ``limit``, a
    join of two streams, ``transformWithState``) belong into steps of the flow, which could neither
    continue nor drain Spark's own state.

    Args:
        frame: the data frame, static or streaming.

    Raises:
        FlowTypeError: `frame` is not a Spark data frame.
        FlowBuildError: when the flow runs, a streaming data frame has state of its own.
    """

    is_frame = True

    def __init__(self, frame: DataFrame) -> None:
        if not isinstance(frame, DataFrame):
            raise wrong_type("DataFrameSource needs a Spark data frame", frame)
        self.frame: DataFrame | None = frame
        self.streaming = bool(frame.isStreaming)
        self.bounded = not self.streaming

    def __repr__(self) -> str:
        return f"DataFrameSource({'streaming' if self.streaming else 'static'})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the data frame, which lives on the driver, from the copies of workers."""
        return {**self.__dict__, "frame": None}

    @override
    def identity(self) -> Json:
        if self.frame is None:
            return None
        reads = sorted(_sources_of(self.frame))
        if self.streaming:
            return {"streams": reads}
        folders = [_folder_of(self.frame.inputFiles())]
        return {"schema": self.frame.schema.simpleString(), "reads": reads, "folders": folders}

    @override
    def continues(self, before: Json) -> str | None:
        now = self.identity()
        if before.keys() != now.keys():  # One of the frames is streaming, the other static.
            return None
        if self.streaming:
            kinds = [[name.partition("[")[0] for name in side["streams"]] for side in (before, now)]
            return "Spark continues where it stopped" if kinds[0] == kinds[1] else None
        (old,), (new,) = before["folders"], now["folders"]
        same = {**before, "folders": None} == {**now, "folders": None}
        if same and (f"{new}/".startswith(f"{old}/") or f"{old}/".startswith(f"{new}/")):
            return "it continues with the rows that were there when it was first read"
        return None

    @override
    def record_columns(self) -> Any:
        return None if self.frame is None else to_arrow(self.frame.schema)

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        raise SourceError("a data frame is read by Spark itself")

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        raise SourceError("a data frame is read by Spark itself")


def _sources_of(frame: DataFrame) -> list[str]:
    """Return Spark's names of the relations that a data frame reads, without column numbers."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    names = [str(leaves.apply(number).toString()) for number in range(leaves.size())]
    return [re.sub(r"#\d+L?", "", name).strip() for name in names]


def _folder_of(files: Sequence[str]) -> str:
    """Return the folder that holds all files; empty text if there are none.

    >>> _folder_of(["file:///data/a/1.csv", "file:///data/a/b/1.csv"])
    'file:/data/a'
    """
    return os.path.commonpath([file.rpartition("/")[0] for file in files]) if files else ""


class DataFrameSink(Sink[Any]):
    """Sink that passes each epoch to a function as a Spark data frame, like ``foreachBatch``.

    The function is called on the driver, once for each epoch that has items. A replayed epoch calls
    it again with the same number and the same rows: delivery is at least once, and exactly once if
    the function writes the number in one transaction with the rows.

    Args:
        write: function of the data frame and the epoch's number.
        schema: schema of the data frame, as a `StructType` or DDL text such as
            ``"key string, total double"``. Items are laid out by `to_record`: a column that an item
            lacks is null, and other fields are left out. By default, all columns, with the types
            that the flow gives them, if they are known before it runs; see `flow.to_dataframe`.

    Raises:
        FlowTypeError: `write` is not a function, or `schema` is neither of the two.
        FlowBuildError: the schema names a column twice; when the flow runs, there is no schema, and
            the types of the columns are not known.
        SinkError: when the flow runs, a value does not fit its column.
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(
        self, write: Callable[[DataFrame, int], None], schema: StructType | str | None = None
    ) -> None:
        if not callable(write):
            raise FlowTypeError(f"DataFrameSink needs a function, got {shorten(write)}")
        if schema is not None:
            check_schema("DataFrameSink", schema)
        self.function: Callable[[DataFrame, int], None] | None = write
        self.schema = schema

    def __repr__(self) -> str:
        return (
            "DataFrameSink(...)" if self.schema is None else f"DataFrameSink(..., {self.schema!r})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the function, which runs on the driver, from the copies of workers."""
        function = self.function if pickles_for_driver() else None
        return {**self.__dict__, "function": function}

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> Any:
        raise SinkError("a data frame sink is written by Spark itself")

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        pass


_TO_ARROW: Any = spark_types.to_arrow_schema

_FROM_ARROW: Any = spark_types.from_arrow_type

# Up to Spark 4.1 the schema of a data frame has timestamps in UTC, and no argument for the zone.
_IN_UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(_TO_ARROW).parameters else {}


def check_schema(owner: str, schema: object) -> None:
    """Check a schema that a user gives.

    Args:
        owner: the class or function that takes the schema, for errors.
        schema: the schema.

    Raises:
        FlowTypeError: it is neither a `StructType` nor text.
        FlowBuildError: it names a column twice; Spark ignores case.
    """
    if not isinstance(schema, (StructType, str)):
        raise FlowTypeError(f"{owner}'s schema must be a StructType or text, got {shorten(schema)}")
    names = schema.names if isinstance(schema, StructType) else _names_in(schema)
    folded = [name.casefold() for name in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            raise FlowBuildError(
                f"{owner}'s schema must name each column once, and names {name!r} more than "
                f"once: {shorten(names)}"
            )


def _names_in(schema: str) -> list[str]:
    """Return the names of the columns in DDL text.

    >>> _names_in("key string COMMENT 'a, key', `a, b` struct<x: int, y: int>, total decimal(9, 2)")
    ['key', 'a, b', 'total']
    """
    quoted = r"""(`[^`]*`)|(["'])(\\.|(?!\2).)*\2"""  # Names, and comments, which go.
    text = re.sub(quoted, lambda found: (found[1] or "").replace(",", "\0"), schema)
    while (plain := re.sub(r"[<(][^<>()]*[>)]", "", text)) != text:
        text = plain
    firsts = (re.match(r"\s*(`[^`]*`|[^\s:]+)", column) for column in text.split(","))
    return [first[1].strip("`").replace("\0", ",") for first in firsts if first]


def to_arrow(schema: StructType | str) -> pa.Schema:
    """Return a Spark schema as Arrow's, with timestamps in UTC.

    Args:
        schema: the schema, or DDL text, which only a process with a Spark session can parse.

    Raises:
        FlowBuildError: the text is not DDL, or a column has a type that Arrow cannot represent.
    """
    kind = _parsed(schema)
    try:
        return _TO_ARROW(kind, **_IN_UTC)
    except PySparkException as error:
        raise FlowBuildError(
            f"the schema {kind.simpleString()} has a column of a type that Python cannot exchange "
            f"with Spark: {first_line(error)}"
        ) from error


def _parsed(schema: StructType | str) -> Any:
    if isinstance(schema, StructType):
        return schema
    try:
        return StructType.fromDDL(schema)
    except PySparkException as error:
        raise FlowBuildError(
            f"a schema must be DDL text such as 'key string, total double', got {schema!r}: "
            f"{first_line(error)}"
        ) from error


def to_spark(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as Spark's: times without a zone become ``timestamp_ntz``.

    Raises:
        FlowBuildError: a column has a type that Spark lacks.
    """
    return StructType([StructField(field.name, _spark_type(field)) for field in schema])


def _spark_type(field: pa.Field) -> Any:
    try:
        return _FROM_ARROW(with_leaves(field.type, _shared_type), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise FlowBuildError(
            f"column {field.name!r} is {field.type}, a type that Spark lacks: map the items, or "
            "give a schema with the columns that are needed"
        ) from error


def _shared_type(kind: Any) -> Any:
    """Return the type that Spark has for a type of Arrow, as Spark reads it from a Parquet file."""
    return kind.value_type if pa.types.is_dictionary(kind) else _SPARK_HAS.get(kind, kind)


_SPARK_HAS = {**COMMON_TYPES, pa.uint64(): pa.decimal128(20, 0)}
