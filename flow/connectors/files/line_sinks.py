"""Writing lines: plain text, and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from flow.connectors.files.directory_sink import DirectorySink
from flow.connectors.files.epoch_directory import Part
from flow.connectors.formats.columns import merge_small
from flow.connectors.formats.plain_values import json_line
from flow.connectors.sink import WriteContext, Written
from flow.errors import SinkError, shorten


@dataclass(frozen=True, repr=False)
class TextSink(DirectorySink[str]):
    """Write `str` items to text files, a line each; an item with line ends in it takes several.

    The output is a directory. Each epoch with items makes a directory in it, such as
    ``epoch=00000012-1a2b3c4d``, with a file for each task that had some; the name holds the number
    of the epoch and a short name of the run. An epoch becomes visible as a whole, and exactly once:
    an epoch that is run again replaces itself. Readers such as Spark, pandas and pyarrow
    read the whole directory, with an additional column ``epoch``. (An object store such as
    S3 cannot rename a directory: there the files of an epoch appear one after another.)

    Args:
        path: the directory, new or empty; on this machine or as a URI that
            `pyarrow.fs.FileSystem.from_uri` takes, such as ``hdfs://host:8020/out``.
        if_exists: what to do when another run's output is in the directory: ``"error"``;
            ``"replace"`` deletes it, but never what no flow wrote; ``"append"`` writes beside it,
            and beside any other files. A flow that goes on after a stop always writes on.

    Raises:
        SinkError: when the flow runs, for a directory that cannot be used, and an item that cannot
            be written.

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
    """Write items to files with one JSON object a line.

    An item becomes an object as `flow.connectors.sink.to_record` says: a mapping or a dataclass its
    fields, a ``(key, value)`` pair ``key`` and the fields of the value. Inside, dataclasses become
    objects, tuples lists, and sets sorted lists; aware datetimes become RFC 3339 text, with ``Z``
    for UTC, durations seconds, and decimals text. See `TextSink` for the files that are made.

    Args:
        path: the directory, see `TextSink`.
        if_exists: what to do when something is there, see `TextSink`.

    Raises:
        SinkError: when the flow runs; see `TextSink`. Naive datetimes and floats that are not
            finite are among what cannot be written, and so is a field called ``epoch``.

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
