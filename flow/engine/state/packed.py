"""Compression of segments in Spark's state.

Spark passes state to Python at some 40 MB/s. LZ4 decompresses at 2 GB/s, and compresses typical
state to less than half. After its kind, a packed segment is the length of the content and an LZ4
frame; small segments stay uncompressed.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from flow.errors import CheckpointError
from flow.keyed.segments import PACKED, kind_of

_HEAD = struct.Struct("<2sI")
_SMALL = 256
_CODEC = pa.Codec("lz4")


def pack(content: bytes) -> bytes:
    """Return a segment packed, or unchanged if packing would not make it smaller.

    >>> unpack(pack(bytes(1000))) == bytes(1000), len(pack(bytes(1000))) < 100
    (True, True)
    """
    if len(content) < _SMALL:
        return content
    packed = _HEAD.pack(PACKED, len(content)) + _CODEC.compress(content, asbytes=True)
    return packed if len(packed) < len(content) else content


def unpack(content: bytes, where: str = "the state") -> bytes:
    """Return the content of a packed segment.

    Args:
        content: bytes that `pack` returned.
        where: name of the content, for errors.

    Raises:
        CheckpointError: when the content cannot be unpacked.
    """
    if kind_of(content) != PACKED:
        return content
    try:
        _, size = _HEAD.unpack_from(content)
        return bytes(_CODEC.decompress(content[_HEAD.size :], size, asbytes=True))
    except (OSError, struct.error) as error:  # Arrow raises an OSError for a damaged frame.
        raise CheckpointError(f"{where} cannot be unpacked: {error}") from error
