r"""Lines of a file by byte range, in blocks of bounded size, with true line numbers.

A range owns the lines that *start* in it, so that ranges that lie end to end give each line once. A
line ends with ``\n``, or with the file; in a block each line ends with ``\n``. A compressed file is
one range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from typing_extensions import override

from flow.connectors.files.listing import File, opened
from flow.connectors.files.planning import Cuts, Piece
from flow.errors import SourceError

BLOCK = 4 << 20
"""Bytes read at a time."""
LONGEST_LINE = 64 << 20
BEGINNING = 1_000
"""Bytes that are kept of a line that is longer than that."""
"""Bytes; something longer is not a line, and would have to be in memory as a whole."""
LEAST_SPLIT = 1 << 20
"""Bytes; reading fewer takes less time than starting a task."""
LEAST_PIECE = 128 << 10
"""Bytes; reading fewer takes less time than opening a file."""

BOM = b"\xef\xbb\xbf"
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""The endings of compressed files."""
_ENDLESS = 1 << 62
_AHEAD = 64 << 10  # Bytes read past the end of a range, in which its last line most likely ends.


def codec_of(file: File) -> str | None:
    """How a file is compressed, by its name."""
    return next((codec for end, codec in CODECS.items() if file.path.endswith(end)), None)


class LineCuts(Cuts):
    """Files counted in bytes; cut anywhere, since a range's ends need not be those of lines."""

    def __init__(self, *, whole: bool) -> None:
        self.least_split = LEAST_SPLIT
        self.least_piece = LEAST_PIECE
        self._whole = whole

    @override
    def length(self, file: File) -> int:
        return file.size

    @override
    def near(self, file: File, ideal: int, least: int, most: int) -> int:
        return file.size if self._whole or codec_of(file) else ideal


@dataclass(frozen=True)
class Block:
    """Whole lines.

    Attributes:
        data: the lines.
        before: how many lines of the range come before them.
        is_cut: whether it is the beginning of a line that is too long to be read.
    """

    data: bytes
    before: int
    is_cut: bool = False


class LineRange:
    """The lines that one piece of a file owns.

    Args:
        filesystem: a `pyarrow.fs.FileSystem`.
        piece: which bytes of which file.
        skip: where the lines of the file begin, after its header.
    """

    def __init__(self, filesystem: Any, piece: Piece, skip: int = 0) -> None:
        self._filesystem = filesystem
        self._file = piece.file
        self._start = max(piece.start, skip)
        self._end = _ENDLESS if codec_of(piece.file) else piece.end
        self._lines_before: int | None = None

    def blocks(self) -> Iterator[Block]:
        """Read the lines, a block at a time.

        Raises:
            SourceError: the file has changed, or cannot be read.
        """
        count = 0
        for data, is_cut in self._whole_lines():
            yield Block(data, count, is_cut)
            count += data.count(b"\n")

    def line_number(self, index: int) -> int:
        """The number in the file, from 1, of the range's line at `index`, from 0.

        Asked for the first time it reads the file up to the range.
        """
        if self._lines_before is None:
            self._lines_before = self._count_lines_before()
        return self._lines_before + index + 1

    def first_line(self, blank: bytes) -> tuple[bytes, int]:
        """The file's first line that does not consist of `blank`, and the position after it.

        Empty if there is none.
        """
        data, start = b"", 0
        for _, chunk in self._chunks(0):
            data += chunk
            start = len(BOM) if data.startswith(BOM) else 0
            while (end := data.find(b"\n", start)) >= 0:
                if data[start:end].strip(blank):
                    return data[start:end], end + 1
                start = end + 1
            self._check_length([data])
        return data[start:], len(data)

    def _whole_lines(self) -> Iterator[tuple[bytes, bool]]:
        """The lines of the range, some at a time, without a byte order mark.

        Of a line that is too long only the beginning, alone, and True beside it.
        """
        rest: list[bytes] = []
        is_cut = False
        for at, data in self._owned_chunks():
            # The line that holds the range's last byte is the last.
            last = data.find(b"\n", max(self._end - 1 - at, 0))
            is_last = last >= 0 and at + len(data) >= self._end
            cut = last if is_last else data.rfind(b"\n")
            if cut >= 0:
                yield from _ended(rest, data[: cut + 1], is_cut)
                if is_last:
                    return
                rest, is_cut = [], False
            if not is_cut:
                rest.append(data[cut + 1 :])
                if sum(map(len, rest)) > LONGEST_LINE:
                    rest, is_cut = [b"".join(rest)[:BEGINNING]], True
        if any(rest):
            yield from _ended(rest, b"\n", is_cut)

    def _owned_chunks(self) -> Iterator[tuple[int, bytes]]:
        """Chunks with their positions, from the start of the first line that the range owns."""
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
        """What the file holds from `start` on, with the position of each chunk."""
        codec = codec_of(self._file)
        with opened(self._filesystem, self._file) as plain:
            at = start
            if codec is None:
                plain.seek(start)
                stream = plain
            else:
                stream = pa.CompressedInputStream(plain, codec)
                at = _skip(stream, start)
            while chunk := stream.read(min(BLOCK, max(self._end - at, 0) + _AHEAD)):
                yield at, chunk
                at += len(chunk)
            if codec is None and at != self._file.size:
                raise SourceError(f"{self._file} has changed while it was read")

    def _check_length(self, rest: list[bytes]) -> None:
        if sum(map(len, rest)) > LONGEST_LINE:
            raise SourceError(self.too_long())

    def too_long(self) -> str:
        """Say that the file has a line that is too long to be read."""
        return f"{self._file} has {too_long()}"

    def _count_lines_before(self) -> int:
        if self._start == 0:
            return 0
        # The range's first line comes after the first line end from the byte before it on.
        left, count = self._start - 1, 1
        for at, chunk in self._chunks(0):
            count += chunk.count(b"\n", 0, max(left - at, 0))
            if at + len(chunk) >= left:
                break
        return count


def too_long() -> str:
    """Say what a line is that is too long to be read."""
    return f"a line of more than {LONGEST_LINE >> 20} MiB: is it a file of lines?"


def _ended(rest: list[bytes], data: bytes, is_cut: bool) -> Iterator[tuple[bytes, bool]]:
    """Whole lines, of which the first began with `rest`; alone where that was cut."""
    if is_cut:
        yield b"".join([*rest, b"\n"]), True
        data = data[data.find(b"\n") + 1 :]
        rest = []
    if data:
        yield b"".join([*rest, data]), False


def _skip(stream: Any, count: int) -> int:
    """Read `count` bytes and forget them; how many there were."""
    left = count
    while left and (data := stream.read(min(BLOCK, left))):
        left -= len(data)
    return count - left
