"""Copies of segments on a worker's own disk, which are read instead of Spark's state.

Spark passes bytes to Python as a pickle that it writes character by character, which takes longer
than all other work on state. So a task that writes many segments of a shard also writes a copy of
them to one file. The header in Spark's state has the copy's stamp. A header and the copy with its
stamp are from the same attempt at a task, and a later write of segments replaces or removes the
stamp. If the copy is damaged, or missing because the shard has moved to another machine, a task
reads Spark's state.

A shard of a step has at most one copy. Spark removes the folder at its end.
"""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree

import numpy as np

STAMP_BYTES = 16
_LEAST = 8
"""The least number of segments for which a copy pays."""
_NUMBER = struct.Struct("<I")


def worker_folder(run_id: str) -> Path | None:
    """Return the folder of a run's copies on this worker; ``None`` without local folders of Spark.

    Args:
        run_id: id of the checkpoint in sinks.
    """
    folders = local_folders()
    return Path(folders[0], "flow-segments", run_id) if folders else None


def local_folders() -> tuple[str, ...]:
    """Return Spark's folders for temporary files on this worker's machine."""
    return tuple(filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")))


def pays(count: int, segments: int) -> bool:
    """Return True if a copy of `count` segments pays: at least 8, and a quarter of the shard's.

    >>> pays(20, 60), pays(20, 100), pays(2, 2)
    (True, False, False)
    """
    return count >= _LEAST and 4 * count >= segments


class LocalCopies:
    """The copy of a step's segments in a shard.

    The name of the file is the stamp. The file has a CRC32 of the rest, the number of segments,
    their numbers and lengths, and the segments.

    Args:
        folder: the folder of a run's copies on this machine.
        name: the name of the step's state.
        shard: the shard.
    """

    def __init__(self, folder: Path, name: str, shard: int) -> None:
        self._folder = folder / str(shard) / blake2b(name.encode(), digest_size=12).hexdigest()

    def keep(self, contents: Mapping[int, bytes | None]) -> bytes:
        """Replace the copy by a copy of these segments, and return its stamp.

        The stamp is empty, and no copy exists, if the write fails or all segments are removed.
        """
        self.drop()
        present = {number: content for number, content in contents.items() if content is not None}
        if not present:
            return b""
        stamp = uuid.uuid4().bytes
        numbers = np.array(list(present), "<i8").tobytes()
        lengths = np.fromiter(map(len, present.values()), "<i8", len(present)).tobytes()
        content = b"".join([_NUMBER.pack(len(present)), numbers, lengths, *present.values()])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._file(stamp).open("wb") as file:
                file.writelines((_NUMBER.pack(zlib.crc32(content)), content))
        except OSError:
            return b""
        return stamp

    def find(self, stamp: bytes) -> dict[int, bytes]:
        """Return the segments in the copy with a stamp, by number; empty if unreadable."""
        try:
            content = self._file(stamp).read_bytes()
        except OSError:
            return {}
        body = memoryview(content)[_NUMBER.size :]
        if len(body) < _NUMBER.size or zlib.crc32(body) != _NUMBER.unpack_from(content)[0]:
            return {}
        (count,) = _NUMBER.unpack_from(body)
        numbers, lengths = np.frombuffer(body, "<i8", 2 * count, _NUMBER.size).reshape(2, count)
        ends = 2 * _NUMBER.size + 16 * count + np.cumsum(lengths)
        pieces = zip(numbers.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True)
        return {number: content[start:end] for number, start, end in pieces}

    def drop(self) -> None:
        """Remove the copy, if it exists."""
        rmtree(self._folder, ignore_errors=True)

    def _file(self, stamp: bytes) -> Path:
        return self._folder / stamp.hex()
