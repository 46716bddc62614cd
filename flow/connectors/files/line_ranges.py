r"""Lines of a file by byte range, in blocks of bounded size, with line numbers in the file.

A range owns the lines that *start* in it, so adjacent ranges yield each line once. A line ends with
``\n``, or with the file; in a block each line ends with ``\n``. A compressed file is one range.
"""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from typing_extensions import override

from flow.connectors.files.file_planning import Cuts, Piece
from flow.connectors.files.filesystems import File, open_file
from flow.errors import SourceError

BLOCK = 4 << 20
"""Bytes of one read."""
LONGEST_LINE = 64 << 20
"""Bytes of a line, at most: a line is in memory as a whole. A longer line is a bad line."""
BEGINNING = 1_000
"""Bytes of a longer line that are read for its `BadInput`."""
LEAST_SPLIT = 1 << 20
"""Bytes of a split, at least; reading fewer takes less time than starting a task."""
LEAST_PIECE = 128 << 10
"""Bytes of a piece, at least; reading fewer takes less time than opening a file."""

BOM = b"\xef\xbb\xbf"
CODECS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".zst": lambda file: pa.CompressedInputStream(file, "zstd"),
}
"""Readers of compressed files by the end of the name.

Arrow's own refuse zeros after a .gz file, and empty streams in a .bz2 file, which the tools accept.
"""
_ENDLESS = 1 << 62
_AHEAD = 64 << 10  # Bytes read beyond a range, which most likely hold the end of its last line.


def codec_of(file: File) -> Callable[[Any], Any] | None:
    """Return the reader of a compressed file, by its name; ``None`` for any other file."""
    return next((codec for end, codec in CODECS.items() if file.path.endswith(end)), None)


class LineCuts(Cuts):
    """Cuts of line files, in bytes: anywhere, since a range need not end with a line.

    Args:
        is_whole: True if no file can be cut, and not only compressed files.
    """

    def __init__(self, *, is_whole: bool = False) -> None:
        self.least_split = LEAST_SPLIT
        self.least_piece = LEAST_PIECE
        self._is_whole = is_whole

    @override
    def length(self, file: File) -> int:
        return file.size

    @override
    def near(self, file: File, ideal: int, least: int, most: int) -> int:
        return file.size if self._is_whole or codec_of(file) else ideal


@dataclass(frozen=True)
class Block:
    """Consecutive whole lines of a range.

    Attributes:
        data: the lines, each with its line end.
        before: number of lines of the range before the block.
        is_cut: True if the block is the beginning of a line longer than `LONGEST_LINE`.
    """

    data: bytes
    before: int
    is_cut: bool = False


class LineRange:
    """Lines that a piece of a file owns.

    Attributes:
        file: the file.

    Args:
        filesystem: the `pyarrow.fs.FileSystem` of the file.
        piece: a range of bytes of a file.
        skip: position of the first line after the header of the file.
    """

    def __init__(self, filesystem: Any, piece: Piece, skip: int = 0) -> None:
        self.filesystem = filesystem
        self.file = piece.file
        self._start = max(piece.start, skip)
        self._end = _ENDLESS if codec_of(piece.file) else piece.end
        self._lines_before: int | None = None

    def blocks(self) -> Iterator[Block]:
        """Yield the lines in blocks.

        Raises:
            SourceError: the file has changed, or cannot be read.
        """
        count = 0
        for data, is_cut in self._whole_lines():
            yield Block(data, count, is_cut)
            count += data.count(b"\n")

    def line_number(self, index: int) -> int:
        """Return the number in the file, from 1, of the line at `index` in the range, from 0.

        The first call reads the file up to the range.
        """
        if self._lines_before is None:
            self._lines_before = self._count_lines_before()
        return self._lines_before + index + 1

    def first_line(self, blank: bytes) -> tuple[bytes, int]:
        """Return the first line of the file that is not blank, and the position after the line.

        The line is empty if all lines are blank.

        Args:
            blank: the characters of blank lines.
        """
        data, start = b"", 0
        for _, chunk in self._chunks(0):
            data += chunk
            start = len(BOM) if data.startswith(BOM) else 0
            while (end := data.find(b"\n", start)) >= 0:
                if data[start:end].strip(blank):
                    return data[start:end], end + 1
                start = end + 1
            if len(data) > LONGEST_LINE:
                raise self.too_long()
        return data[start:], len(data)

    def _whole_lines(self) -> Iterator[tuple[bytes, bool]]:
        """Yield consecutive whole lines without a byte order mark, with False.

        Of a line longer than `LONGEST_LINE`, yield the beginning alone, with True.
        """
        rest: list[bytes] = []
        is_cut = False
        for at, data in self._owned_chunks():
            # The line that holds the range's last byte is the last.
            last = data.find(b"\n", max(self._end - 1 - at, 0))
            is_last = last >= 0 and at + len(data) >= self._end
            cut = last if is_last else data.rfind(b"\n")
            if cut >= 0:
                yield from _joined(rest, data[: cut + 1], is_cut)
                if is_last:
                    return
                rest, is_cut = [], False
            if not is_cut:
                rest.append(data[cut + 1 :])
                if sum(map(len, rest)) > LONGEST_LINE:
                    rest, is_cut = [b"".join(rest)[:BEGINNING]], True
        if any(rest):
            yield from _joined(rest, b"\n", is_cut)

    def _owned_chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield chunks with their positions, from the first line that the range owns."""
        chunks = self._chunks(max(self._start - 1, 0))
        if self._start == 0:
            for at, chunk in chunks:
                data = chunk.removeprefix(BOM) if at == 0 else chunk
                yield at + len(chunk) - len(data), data
            return
        for at, chunk in chunks:
            cut = chunk.find(b"\n") + 1
            if at + (cut or len(chunk)) >= self._end:
                return
            if cut:
                yield at + cut, chunk[cut:]
                yield from chunks

    def _chunks(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield the decompressed content from `start` on, in chunks with their positions."""
        codec = codec_of(self.file)
        with open_file(self.filesystem, self.file) as plain:
            at = start
            if codec is None:
                plain.seek(start)
                stream = plain
            else:
                stream = codec(plain)
                at = _skip(stream, start)
            while chunk := stream.read(min(BLOCK, max(self._end - at, 0) + _AHEAD)):
                yield at, chunk
                at += len(chunk)
            if (at if codec is None else plain.tell()) != self.file.size:
                raise SourceError(f"{self.file} has changed while it was read, or is damaged")

    def too_long(self) -> SourceError:
        """Return the error of a file with a line longer than `LONGEST_LINE`."""
        return SourceError(f"{self.file} has {too_long()}")

    def _count_lines_before(self) -> int:
        if self._start == 0:
            return 0
        # The first line of a range follows the first line end at or after the byte before the
        # range.
        end, count = self._start - 1, 1
        for at, chunk in self._chunks(0):
            count += chunk.count(b"\n", 0, max(end - at, 0))
            if at + len(chunk) >= end:
                break
        return count


def too_long() -> str:
    """Return the reason why a line longer than `LONGEST_LINE` is bad."""
    return f"a line of more than {LONGEST_LINE >> 20} MiB: is it a file of lines?"


def _joined(rest: list[bytes], data: bytes, is_cut: bool) -> Iterator[tuple[bytes, bool]]:
    """Yield whole lines: `rest`, the beginning of the first, and `data`.

    If `rest` was cut, the first line is yielded alone, without the remainder in `data`.
    """
    if is_cut:
        yield b"".join([*rest, b"\n"]), True
        data = data[data.find(b"\n") + 1 :]
        rest = []
    if data:
        yield b"".join([*rest, data]), False


def _skip(stream: Any, count: int) -> int:
    """Skip at most `count` bytes of a stream; return the number of bytes skipped."""
    remaining = count
    while remaining and (data := stream.read(min(BLOCK, remaining))):
        remaining -= len(data)
    return count - remaining
