"""Start and end of reading: the earliest, the latest, a time, or given offsets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from flow.errors import FlowBuildError, FlowTypeError, TimestampError, shorten
from flow.instants import instant_us

Offsets: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""Offsets by topic and partition: ``{"orders": {0: 17, 1: 23}}``."""

Position: TypeAlias = "str | datetime | Offsets"
"""``"earliest"``, ``"latest"``, an aware datetime, or offsets."""

EARLIEST, LATEST = "earliest", "latest"


def checked_position(name: str, position: object, words: tuple[str, ...]) -> Position:
    """Return the argument `start` or `end` after a check.

    Raises:
        FlowTypeError, FlowBuildError: the argument is not a position.
    """
    if isinstance(position, str):
        if position not in words:
            listed = ", ".join(map(repr, words))
            raise FlowBuildError(
                f"KafkaSource: {name} must be {listed}, an aware datetime, or offsets such as "
                f"{{'orders': {{0: 17}}}}, got {position!r}"
            )
        return position
    if isinstance(position, datetime):
        try:
            instant_us(position)
        except TimestampError as error:
            raise FlowBuildError(f"KafkaSource: {name}: {error}") from None
        return position
    if not isinstance(position, Mapping):
        raise FlowTypeError(
            f"KafkaSource: {name} must be text, an aware datetime or offsets, "
            f"got {type(position).__name__} {shorten(position)}"
        )
    return {str(topic): _checked_offsets(name, of_topic) for topic, of_topic in position.items()}


def _checked_offsets(name: str, offsets: object) -> dict[int, int]:
    fits = isinstance(offsets, Mapping) and all(
        isinstance(number, int) and not isinstance(number, bool) and number >= 0
        for pair in offsets.items()
        for number in pair
    )
    if not fits or not isinstance(offsets, Mapping):
        raise FlowBuildError(
            f"KafkaSource: {name}: offsets of a topic must map partitions to offsets, "
            f"both 0 or more, such as {{0: 17, 1: 23}}, got {shorten(offsets)}"
        )
    return dict(offsets)


def milliseconds(position: datetime) -> int:
    """Return the first whole millisecond at or after a time, since the Unix epoch."""
    return -(-instant_us(position) // 1000)
