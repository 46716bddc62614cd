"""Segments as Spark keeps them: packed, as moving bytes to and from its state takes longer.

Spark hands state to Python at some 40 MB a second; LZ4 takes apart what it has packed at 2 GB a
second, and what steps keep is less than half the size then. A packed segment is a version byte, the
length of what is packed, and an LZ4 frame of it; small ones stay as they are.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from flow.errors import CheckpointError

FORMAT_PACKED = 3
"""The version byte of a segment that is packed; what is in it begins with one of its own."""

_HEAD = struct.Struct("<BI")
_SMALL = 256
_CODEC = pa.Codec("lz4")


def pack(content: bytes) -> bytes:
    """A segment packed, or itself where that would not make it smaller.

    >>> unpack(pack(bytes(1000))) == bytes(1000), len(pack(bytes(1000))) < 100
    (True, True)
    """
    if len(content) < _SMALL:
        return content
    packed = _HEAD.pack(FORMAT_PACKED, len(content)) + _CODEC.compress(content, asbytes=True)
    return packed if len(packed) < len(content) else content


def unpack(content: bytes, where: str = "the state") -> bytes:
    """What was packed.

    Args:
        content: what `pack` made.
        where: what it is, for errors.

    Raises:
        CheckpointError: when it cannot be unpacked.
    """
    if content[:1] != bytes([FORMAT_PACKED]):
        return content
    try:
        _, size = _HEAD.unpack_from(content)
        return bytes(_CODEC.decompress(content[_HEAD.size :], size, asbytes=True))
    except (OSError, struct.error) as error:  # pyarrow.lib.ArrowException is among the first
        raise CheckpointError(f"{where} cannot be unpacked: {error}") from error
