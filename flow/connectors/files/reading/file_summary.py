"""Summary of a source's list of files, which replaces the entries of its log.

The format is two consecutive Arrow streams: the table of `SeenFiles`, with a header in the metadata
of its schema; then the files that offsets may still refer to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from flow.connectors.files.reading.seen_files import SeenFiles
from flow.errors import SourceError, first_line
from flow.format_version import VERSION, check_format

_WHAT = "the summary of the files that were read"
_HEADER = b"flow.files"
_FILES = ("store", "path", "size", "mtime")


@dataclass(frozen=True)
class FileSummary:
    """List of files: the names of the finished ones, then the others in full.

    Attributes:
        first: number of the first file in `files`.
        seen: names of the files before that number.
        files: store, path, size in bytes and modification time in ns of each further file.
    """

    first: int = 0
    seen: SeenFiles = field(default_factory=SeenFiles)
    files: Sequence[tuple[str, str, int, int]] = ()

    def encode(self) -> bytes:
        """Return the summary as bytes that `decode` reads."""
        table, rest = self.seen.to_table()
        header = {"version": VERSION, "first": self.first, **rest}
        table = table.replace_schema_metadata({_HEADER: json.dumps(header).encode()})
        columns = [list(column) for column in zip(*self.files, strict=True)] or [[]] * 4
        types = (pa.string(), pa.string(), pa.int64(), pa.int64())
        files = pa.RecordBatch.from_arrays(list(map(pa.array, columns, types)), list(_FILES))
        sink = pa.BufferOutputStream()
        for batch in (table, files):
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
        return bytes(sink.getvalue())

    @classmethod
    def decode(cls, content: bytes) -> FileSummary:
        """Return the summary that `encode` encoded.

        Raises:
            SourceError: the content is no summary, or has another format.
        """
        try:
            reader = pa.BufferReader(content)
            table, files = (pa.ipc.open_stream(reader).read_all() for _ in range(2))
            header = json.loads(table.schema.metadata[_HEADER])
            check_format(_WHAT, header["version"], SourceError)
            rows = zip(*(files.column(name).to_pylist() for name in _FILES), strict=True)
            seen = SeenFiles.from_table(table, header)
            return cls(int(header["first"]), seen, list(rows))
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"{_WHAT} cannot be read: {first_line(error)}; put the checkpoint back from a "
                "copy, or start over on another one"
            ) from error
