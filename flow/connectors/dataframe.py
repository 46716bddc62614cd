"""Spark data frames as sources and sinks: whatever Spark reads or writes, a flow does too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from typing_extensions import override

from flow.connectors.sink import Guarantee, Sink, WriteContext, Written
from flow.connectors.source import Batch, Json, Planner, Source, SourceLog, Split
from flow.errors import FlowBuildError, FlowTypeError, SinkError, SourceError, shorten


class DataFrameSource(Source[dict[str, Any]]):
    """The rows of a Spark data frame, as records: what Spark reads, a flow can read.

    A static data frame is bounded, and its rows come in the order in which ``collect()`` gives
    them. In a streaming run it is first written below the checkpoint, so that every epoch can be
    read again. A streaming data frame keeps its own offsets in the checkpoint; Spark's partitions
    of an epoch come side by side, the first row of each, then the second. Either counts as one
    source partition, however many Spark reads it in.

    A streaming data frame may select, filter, explode, set a watermark, unite streams and join what
    is static. What keeps state on a stream (an aggregation, ``dropDuplicates``, ``limit``, a join
    of two streams, ``transformWithState``) is for steps of the flow: Spark's own state among the
    flow's could neither be continued nor drained.

    Args:
        frame: the data frame, static or streaming.

    Raises:
        FlowTypeError: when it is not a Spark data frame.
        FlowBuildError: when the flow runs: a streaming data frame that keeps state of its own.
    """

    is_frame = True

    def __init__(self, frame: DataFrame) -> None:
        if not isinstance(frame, DataFrame):
            raise FlowTypeError(
                f"DataFrameSource needs a Spark data frame, got {type(frame).__name__} "
                f"{shorten(frame)}"
            )
        self.frame: DataFrame | None = frame
        self.streaming = bool(frame.isStreaming)
        self.bounded = not self.streaming

    def __repr__(self) -> str:
        return f"DataFrameSource({'streaming' if self.streaming else 'static'})"

    def __getstate__(self) -> dict[str, Any]:
        """What travels to workers: not the data frame, which lives where the flow was started."""
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
        if before.keys() != now.keys():  # one was streaming, and the other is static
            return None
        if self.streaming:
            kinds = [[_kind_of(one) for one in each["streams"]] for each in (before, now)]
            return "Spark goes on where it was left" if kinds[0] == kinds[1] else None
        (old,), (new,) = before["folders"], now["folders"]
        same = {**before, "folders": None} == {**now, "folders": None}
        if same and (f"{new}/".startswith(f"{old}/") or f"{old}/".startswith(f"{new}/")):
            return "it goes on with the rows that were there when it was first read"
        return None

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        raise SourceError("a data frame is read by Spark itself")

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        raise SourceError("a data frame is read by Spark itself")


def _sources_of(frame: DataFrame) -> list[str]:
    """Return the names that Spark gives what a data frame reads, without numbers of columns."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    names = [str(leaves.apply(number).toString()) for number in range(leaves.size())]
    return [re.sub(r"#\d+L?", "", name).strip() for name in names]


def _check_columns(schema: StructType | str) -> None:
    """Refuse a schema that names a column twice; Spark takes names without regard to case.

    Raises:
        FlowBuildError: when it does.
    """
    names = schema.names if isinstance(schema, StructType) else _names_in(schema)
    folded = [name.casefold() for name in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            raise FlowBuildError(
                f"DataFrameSink's schema must name each column once, and names {name!r} more than "
                f"once: {shorten(names)}"
            )


def _names_in(schema: str) -> list[str]:
    """The names of the columns in DDL text.

    >>> _names_in("key string, `a, b` struct<x: int, y: int>, total decimal(10, 2)")
    ['key', 'a, b', 'total']
    """
    text = re.sub(r"`[^`]*`", lambda quoted: quoted[0].replace(",", "\0"), schema)
    while (plain := re.sub(r"[<(][^<>()]*[>)]", "", text)) != text:
        text = plain
    firsts = (re.match(r"\s*(`[^`]*`|[^\s:]+)", column) for column in text.split(","))
    return [first[1].strip("`").replace("\0", ",") for first in firsts if first]


def _kind_of(name: str) -> str:
    """The kind of what Spark reads, such as ``FileSource`` for ``FileSource[/data]``."""
    return name.partition("[")[0]


def _folder_of(files: Sequence[str]) -> str:
    """The folder that all files are in; empty where there are none.

    >>> _folder_of(["file:///data/a/1.csv", "file:///data/a/b/1.csv"])
    'file:/data/a'
    """
    return os.path.commonpath([file.rpartition("/")[0] for file in files]) if files else ""


class DataFrameSink(Sink[Any]):
    """Hands each epoch to a function as a Spark data frame, as ``foreachBatch`` does.

    The function is called where the flow was started, once an epoch that has items, and again with
    the same epoch and the same rows when the epoch is run again: at least once, and exactly once
    where the function writes the epoch's number together with its rows.

    Args:
        write: called with the data frame and the epoch's number.
        schema: the data frame's schema, as a `StructType` or DDL text such as
            ``"key string, total double"``. Items are laid out by `to_record`: null where an item
            lacks a column, and without what else it holds.

    Raises:
        FlowTypeError: when `write` is not a function, or the schema is neither form.
        FlowBuildError: when the schema names a column twice.
        SinkError: when the flow runs: a value that does not fit its column.
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self, write: Callable[[DataFrame, int], None], schema: StructType | str) -> None:
        if not callable(write):
            raise FlowTypeError(f"DataFrameSink needs a function, got {shorten(write)}")
        if not isinstance(schema, (StructType, str)):
            raise FlowTypeError(
                f"DataFrameSink's schema must be a StructType or text, got {shorten(schema)}"
            )
        _check_columns(schema)
        self.function: Callable[[DataFrame, int], None] | None = write
        self.schema = schema

    def __repr__(self) -> str:
        return f"DataFrameSink(..., {self.schema!r})"

    def __getstate__(self) -> dict[str, Any]:
        """What travels to workers: not the function, which runs where the flow was started."""
        return {**self.__dict__, "function": None}

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> Any:
        raise SinkError("a data frame sink is written by Spark itself")

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        pass
