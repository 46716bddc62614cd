"""Reading text, a line an item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from flow.connectors.files.line_source import LineSource, read_lines
from flow.connectors.files.lines import LineRange
from flow.connectors.files.planning import Piece
from flow.connectors.formats.line_parser import LineParser, Parsed, utf8_problem
from flow.connectors.source import Batch


@dataclass(frozen=True, repr=False)
class TextSource(LineSource[str]):
    r"""Read the lines of text files; each item is a line as `str`, without its end.

    A line ends with ``\n`` or ``\r\n``, the last one also with the file. Empty lines are items. A
    byte order mark is left out. Files that end in ``.gz``, ``.bz2`` or ``.zst`` are decompressed,
    each by one task. The items come in the order of the files' paths, and of lines in a file; see
    `order`.

    Args:
        path: a file, a directory (all files below it), a glob (``*``, ``?``, ``[abc]``, and ``**``
            for any directories), or a list of those; on this machine or as a URI that
            `pyarrow.fs.FileSystem.from_uri` takes, such as ``s3://bucket/logs``. Names that start
            with ``_`` or ``.`` are skipped, unless they are written out.
        on_invalid: what to do with a line that is not UTF-8.
        bytes_per_epoch: how many bytes an epoch reads, at most; a file that is read by one task
            is read in one epoch.
        follow: whether to go on with the files that appear later, and never end. A file must be
            complete when it appears, so write it elsewhere and move it into place; it is read once.
            Without it, files are listed once, as a run starts.
        order: ``"sequence"``: the files are one source partition, read one after another in order
            (a file a day). ``"parallel"``: each file is a source partition of its own, read side by
            side (a file a device); ``docs/files.md`` shows both.
        late_files: how much older than the newest file a file may be when it appears, by their
            modification times; see ``docs/files.md``. A file that is removed from the directory
            once it is read is remembered for that long.

    Raises:
        SourceError: when the flow runs, for a path that stands for no file, and a file that cannot
            be read, or has changed since it was listed.

    >>> TextSource("logs/*.log", bytes_per_epoch=1_000_000).bounded
    True
    """

    @override
    def read_piece(self, filesystem: Any, piece: Piece) -> Iterator[Batch]:
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
