"""The header of a step's state in a shard: the due times of its segments, and totals."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from flow.engine.state.segment_counts import SegmentCounts
from flow.errors import CheckpointError
from flow.instants import NEVER

FORMAT = 1
FORMAT_WITH_SETTINGS = 2
"""The version byte of a header that ends with the step's settings."""
FORMAT_WITH_HELD = 4
"""The version byte of a header that also has the watermarks of held keys; 3 marks packing."""
FORMAT_WITH_COUNTS = 5
"""The version byte of a header with settings that also has the counts of its segments."""
FORMAT_WITH_HELD_AND_COUNTS = 6
_FORMATS = (
    FORMAT,
    FORMAT_WITH_SETTINGS,
    FORMAT_WITH_HELD,
    FORMAT_WITH_COUNTS,
    FORMAT_WITH_HELD_AND_COUNTS,
)
_HELD_FORMATS = (FORMAT_WITH_HELD, FORMAT_WITH_HELD_AND_COUNTS)
_COUNTS_FORMATS = (FORMAT_WITH_COUNTS, FORMAT_WITH_HELD_AND_COUNTS)


@dataclass
class Header:
    """Layout and totals of a step's state in a shard.

    Attributes:
        dues: the least due time of the keys of each segment, int64 µs, shape (segments,).
        held: the least watermark at which a held key of each segment is due, int64 µs, shape
            (segments,); `NEVER` for a segment without a held key.
        keys: the number of keys.
        size: the weight of all keys, in bytes.
        settings: the step's settings that the due times depend on, see `Stateful`.
        counts: the open windows and buffered values of each segment; ``None`` if they are not
            counted: the step has none, or an earlier version wrote the header.
    """

    _FIXED: ClassVar = struct.Struct("<BqqI")
    _LENGTH: ClassVar = struct.Struct("<I")

    dues: npt.NDArray[np.int64]
    keys: int = 0
    size: int = 0
    settings: str = ""
    held: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: SegmentCounts | None = None

    def __post_init__(self) -> None:
        if not len(self.held):
            self.held = np.full(len(self.dues), NEVER, np.int64)

    @classmethod
    def empty(cls) -> Header:
        """The header of a step that has no state: one empty segment."""
        return cls(np.full(1, NEVER, np.int64))

    @property
    def segments(self) -> int:
        """The number of segments."""
        return len(self.dues)

    def resize(self, segments: int) -> None:
        """Change the number of segments; new segments have no due time."""
        new = np.full(max(0, segments - self.segments), NEVER, np.int64)
        self.dues = np.concatenate([self.dues[:segments], new])
        self.held = np.concatenate([self.held[:segments], new])
        if self.counts is not None:
            self.counts.resize(segments)

    def encode(self) -> bytes:
        """Return the header as bytes."""
        has_held = bool((self.held < NEVER).any())
        version = self._version(has_held)
        content = self._FIXED.pack(version, self.keys, self.size, self.segments)
        content += self.dues.astype("<i8").tobytes()
        if version == FORMAT:
            return content
        if has_held:
            content += self.held.astype("<i8").tobytes()
        if self.counts is not None:
            content += self.counts.encode()
        settings = self.settings.encode()
        return content + self._LENGTH.pack(len(settings)) + settings

    def _version(self, has_held: bool) -> int:
        if self.counts is not None:
            return FORMAT_WITH_HELD_AND_COUNTS if has_held else FORMAT_WITH_COUNTS
        if has_held:
            return FORMAT_WITH_HELD
        return FORMAT_WITH_SETTINGS if self.settings else FORMAT

    @classmethod
    def decode(cls, content: bytes, step_id: str) -> Header:
        """Return the header in bytes made by `encode`, which a store may have extended.

        Raises:
            CheckpointError: when the bytes were written in a format this version does not know.
        """
        check_format(content, step_id, _FORMATS)
        version, keys, size, segments = cls._FIXED.unpack_from(content)
        dues = np.frombuffer(content, "<i8", segments, cls._FIXED.size).astype(np.int64)
        # A store may have appended bytes of its own.
        settings = content[cls._before_settings(content) : cls.length_in(content)]
        header, at = cls(dues, keys, size, settings.decode()), cls._FIXED.size + dues.nbytes
        if version in _HELD_FORMATS:
            header.held = np.frombuffer(content, "<i8", segments, at).astype(np.int64)
            at += dues.nbytes
        if version in _COUNTS_FORMATS:
            header.counts = SegmentCounts.decode(content, at, segments)
        return header

    @classmethod
    def segments_in(cls, content: bytes) -> int:
        """Return the number of segments that an encoded header describes."""
        return int(cls._FIXED.unpack_from(content)[3]) if len(content) >= cls._FIXED.size else 0

    @classmethod
    def length_in(cls, content: bytes) -> int:
        """Return the length in bytes of the header that these bytes begin with."""
        length = cls._before_settings(content)
        if not cls._has_settings(content):
            return length
        return length + int(cls._LENGTH.unpack_from(content, length - cls._LENGTH.size)[0])

    @classmethod
    def _before_settings(cls, content: bytes) -> int:
        """Return the number of bytes before the text of the settings."""
        segments, version = cls.segments_in(content), content[0] if content else FORMAT
        length = cls._FIXED.size + 8 * segments
        if version in _HELD_FORMATS:
            length += 8 * segments
        if version in _COUNTS_FORMATS:
            length += SegmentCounts.length_of(segments)
        return length + cls._LENGTH.size if cls._has_settings(content) else length

    @staticmethod
    def _has_settings(content: bytes) -> bool:
        return bool(content) and content[0] in _FORMATS and content[0] != FORMAT


def check_format(content: bytes, step_id: str, known: tuple[int, ...] = (FORMAT,)) -> None:
    """Raise a `CheckpointError` for state of a format that this version does not know."""
    if not content or content[0] not in known:
        raise CheckpointError(
            f"the state of step {step_id!r} is in format {content[0] if content else 'none'}, "
            f"this version reads format {' and '.join(map(str, known))}: "
            "run the version that wrote it"
        )


def read_header(
    content: bytes | None, step_id: str, settings: str, *, is_counted: bool = False
) -> tuple[Header, str | None]:
    """Return the header of a step with the step's present settings.

    Args:
        content: the bytes of the header; ``None`` for a step without state.
        step_id: the step, for errors.
        settings: the step's settings.
        is_counted: True for a step whose open windows and buffered values are counted.

    Returns:
        The header, and the settings that it was written with if they differ from the present ones,
        else ``None``; empty settings if the header has none.
    """
    header = Header.empty() if content is None else Header.decode(content, step_id)
    if not is_counted:
        header.counts = None
    elif header.counts is None:
        header.counts = SegmentCounts.unknown(header.segments, header.keys)
    before, header.settings = header.settings, settings
    if content is None:
        return header, None
    return header, before if settings and before != settings else None
