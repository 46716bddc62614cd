"""Sinks of lines: text, and JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from flow.connectors.files.writing.directory_sink import DirectorySink
from flow.connectors.files.writing.epoch_directory import Part
from flow.connectors.formats.columns import merge_small
from flow.connectors.formats.plain_values import json_line
from flow.connectors.sink import WriteContext, Written
from flow.errors import SinkError, shorten


@dataclass(frozen=True, repr=False)
class TextSink(DirectorySink[str]):
    """Sink of `str` items in text files, one line each; an item with line ends takes several lines.

    The output is a directory. Each epoch with items adds a directory such as
    ``epoch=00000012-1a2b3c4d``, named by the number of the epoch and a short name of the run, with
    a file for each task that had items. An epoch becomes visible as a whole, and exactly once: a
    replay of the epoch replaces its files. Readers such as Spark, pandas and pyarrow read the whole
    directory, with an additional column ``epoch``. (Object stores such as S3 cannot rename a
    directory: there the files of an epoch appear one after another.)

    Args:
        path: the directory, new or empty; on this machine or as a URI that
            `pyarrow.fs.FileSystem.from_uri` takes, such as ``hdfs://host:8020/out``.
        if_exists: what to do when the directory has content: ``"error"``; ``"replace"`` deletes
            the output of another run, but never files that no flow wrote; ``"append"`` writes
            beside any content. A run that continues from a checkpoint always continues its output.

    Raises:
        SinkError: when the flow runs: the directory cannot be used, or an item cannot be written.

    >>> TextSink("out/").if_exists
    'error'
    """

    suffix = ".txt"

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        with self.part_file(context) as file:
            for batch in merge_small(batches):
                file.stream.write(_text_lines(batch, context.step_id))
                file.rows += len(batch)
        return file.parts()


@dataclass(frozen=True, repr=False)
class JsonLinesSink(DirectorySink[Any]):
    """Sink of items in files with one JSON object on each line.

    `flow.connectors.sink.to_record` defines the fields of the object: those of a mapping or
    dataclass; of a ``(key, value)`` pair, ``key`` and the fields of the value. In fields,
    dataclasses become objects, tuples become lists, and sets become sorted lists; aware datetimes
    become RFC 3339 text, with ``Z`` for UTC, durations become seconds, and decimals become text.
    See `TextSink` for the files in the directory.

    Args:
        path: the directory; see `TextSink`.
        if_exists: ``"error"``, ``"replace"`` or ``"append"``, for a directory with content; see
            `TextSink`.

    Raises:
        SinkError: when the flow runs: the directory cannot be used, or an item cannot be written,
            such as a naive datetime, a float that is not finite, or a field called ``epoch``.

    >>> JsonLinesSink("out/", if_exists="replace")
    JsonLinesSink(path='out/', if_exists='replace')
    """

    suffix = ".jsonl"

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        with self.part_file(context) as file:
            for batch in merge_small(batches):
                rows = batch if isinstance(batch, list) else batch.to_pylist()
                lines = [json_line(row, context.step_id) for row in rows]
                file.stream.write(b"\n".join([*lines, b""]))
                file.rows += len(rows)
        return file.parts()


def _text_lines(batch: Written, step_id: str) -> bytes:
    if not isinstance(batch, list):
        raise SinkError(
            f"step {step_id!r}: TextSink writes text, and these items are records with the columns "
            f"{shorten(batch.schema.names)}: map them to text, or write JSON lines, CSV or Parquet"
        )
    for item in batch:
        if not isinstance(item, str):
            raise SinkError(
                f"step {step_id!r}: TextSink writes text, got {type(item).__name__} "
                f"{shorten(item)}: map the items to text before the output"
            )
    try:
        return "\n".join([*batch, ""]).encode()
    except UnicodeEncodeError as error:
        raise SinkError(f"step {step_id!r}: text cannot be written as UTF-8: {error}") from error
