"""Source of lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from flow.connectors.files.reading.line_ranges import LineRange
from flow.connectors.files.reading.line_source import LineSource, read_lines
from flow.connectors.files.reading.pieces import Piece
from flow.connectors.formats.line_parser import LineParser, Parsed, utf8_problem
from flow.connectors.source import Batch


@dataclass(frozen=True, repr=False)
class TextSource(LineSource[str]):
    r"""Source of the lines of text files; each item is a line as `str`, without its line end.

    Lines end with ``\n`` or ``\r\n``; the last line may end with the file. Empty lines are items. A
    byte order mark is skipped. Files that end in ``.gz``, ``.bz2`` or ``.zst`` are decompressed,
    each by one task. Items are ordered by file, see `order`, and by line in the file.

    Args:
        path: a file, a directory (all files below it), a glob (``*``, ``?``, ``[abc]``, and ``**``
            for any directories), or a list of these; on this machine or as a URI that
            `pyarrow.fs.FileSystem.from_uri` takes, such as ``s3://bucket/logs``. Names that start
            with ``_`` or ``.`` are skipped, unless the path names them explicitly.
        on_invalid: what to do with a line that is not UTF-8.
        bytes_per_epoch: bytes that an epoch reads, at most. A compressed file is read in one epoch,
            whatever its size.
        follow: ``False`` lists the files once, as a run starts, and ends after the last. ``True``
            also reads files that appear later, and never ends. Each file is read once and must be
            complete when it appears: write it elsewhere, then move it into place.
        order: ``"sequence"`` reads one file after another, by path, as one source partition; use it
            for files that each hold a span of time, such as a file a day. ``"parallel"`` reads the
            files side by side, each as a source partition with event time of its own; use it for
            files that each hold one producer, such as a file a device. See
            ``docs/reference/files.md``.
        late_files: age up to which a new file is still read: how much older its modification time
            may be than that of the newest file. The source also remembers the name of a file that
            was read and removed for that long, so that the file is not read again if it comes back.
            An older file in a directory with removed files is logged and not read.

    Raises:
        SourceError: when the flow runs: a path matches no file, or a file cannot be read or has
            changed since it was listed.

    >>> TextSource("logs/*.log", bytes_per_epoch=1_000_000).bounded
    True
    """

    @override
    def item_type(self) -> type:
        return str

    @override
    def read_piece(
        self, filesystem: Any, piece: Piece, fields: frozenset[str] | None
    ) -> Iterator[Batch]:
        return read_lines(LineRange(filesystem, piece), piece, _TextParser())


class _TextParser(LineParser):
    def parse(self, data: bytes, count: int | None = None) -> Parsed | None:  # noqa: ARG002
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return None
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        return text.split("\n")[:-1]

    def reason(self, line: bytes) -> str:
        return utf8_problem(line) or "not a line of text"
