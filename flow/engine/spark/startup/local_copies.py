"""Copies of segments on a worker's own disk, which are read in the place of Spark's state.

Spark hands bytes to Python as a pickle that it writes one character at a time, which takes longer
than all else that is done for state. So where a good part of a shard's segments are written, a copy
of them stays with the worker, in one file, and the header that goes to Spark with them names it by
a stamp of its own. Whoever reads that header can read the copy: both come from the same attempt at
a task, and whatever is written later takes the stamp away. A copy that is not there, as the shard
has moved to another machine, or not whole, is done without.

Spark removes the folder as it ends, and there is one copy at most of each step's shard.
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
"""A copy of fewer segments than this is not worth a file."""
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
    """The copy of a shard's segments of a step.

    A file is called by its stamp. It holds a checksum of the rest, how many segments there are,
    their numbers and lengths, and the segments.

    Args:
        folder: where a run's copies are on this machine.
        name: what the step's state is kept under.
        shard: the shard.
    """

    def __init__(self, folder: Path, name: str, shard: int) -> None:
        self._folder = folder / str(shard) / blake2b(name.encode(), digest_size=12).hexdigest()

    def keep(self, contents: Mapping[int, bytes | None]) -> bytes:
        """Replace the copy by a copy of these segments, and return its stamp.

        The stamp is empty, and no copy exists, if the write fails or all segments are removed.
        """
        self.drop()
        there = {number: content for number, content in contents.items() if content is not None}
        if not there:
            return b""
        stamp = uuid.uuid4().bytes
        numbers = np.array(list(there), "<i8").tobytes()
        lengths = np.fromiter(map(len, there.values()), "<i8", len(there)).tobytes()
        content = b"".join([_NUMBER.pack(len(there)), numbers, lengths, *there.values()])
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
        """Remove the copy, if there is one."""
        rmtree(self._folder, ignore_errors=True)

    def _file(self, stamp: bytes) -> Path:
        return self._folder / stamp.hex()
