"""Samples of late values, for the live page of a run that shows values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from flow.columns.chunks import Chunk, Pairs
from flow.dataflow import Step
from flow.errors import shorten
from flow.instants import datetime_us
from flow.keyed.logic import LATE_PORT

MAX_ITEMS = 20
"""The most late values of a step in a sample."""

MAX_WINDOWS = 5
"""The most windows that are listed of one late value."""

MAX_KEY_LENGTH = 400
"""The most characters of a key."""


class LateItem(NamedTuple):
    """A late value as text and numbers.

    Attributes:
        step_id: the step.
        key: the key, cut to `MAX_KEY_LENGTH`.
        value: the value, shortened.
        reason: ``late``, ``gap`` or ``too_far_ahead``.
        timestamp_us: the timestamp, in µs.
        watermark_us: the watermark as the value arrived, in µs; ``None`` before the first.
        windows: the id and the bounds in µs of the first `MAX_WINDOWS` windows that the value
            missed.
        missed: the number of windows that the value missed.
    """

    step_id: str
    key: str
    value: str
    reason: str
    timestamp_us: int
    watermark_us: int | None
    windows: tuple[tuple[int, int, int], ...] = ()
    missed: int = 0


@runtime_checkable
class _Late(Protocol):
    """An item of a late stream, as `flow_windowing.LateValue` is one."""

    @property
    def value(self) -> Any: ...
    @property
    def timestamp(self) -> datetime: ...
    @property
    def watermark(self) -> datetime | None: ...
    @property
    def windows(self) -> Sequence[Any]: ...
    @property
    def reason(self) -> Enum: ...


def late_sample(step: Step, chunks: Sequence[Sequence[Chunk]]) -> list[LateItem]:
    """Return the last late values among a step's output, at most `MAX_ITEMS`.

    Args:
        step: the step.
        chunks: the chunks of each of the step's streams.
    """
    sample: list[LateItem] = []
    for down, of_stream in zip(step.downs, chunks, strict=False):
        if down.port == LATE_PORT:
            for chunk in of_stream:
                sample += _items(step.step_id, chunk)
    return sample[-MAX_ITEMS:]


def newest(items: Sequence[LateItem]) -> list[LateItem]:
    """Return the last `MAX_ITEMS` late values of each step, in their order."""
    kept: dict[str, list[LateItem]] = {}
    for item in items:
        kept.setdefault(item.step_id, []).append(item)
    return [item for of_step in kept.values() for item in of_step[-MAX_ITEMS:]]


def _items(step_id: str, chunk: Chunk) -> list[LateItem]:
    if not isinstance(chunk, Pairs):
        return []
    rows = list(zip(chunk.keys, chunk.values, strict=True))[-MAX_ITEMS:]
    return [_item(step_id, key, late) for key, late in rows if isinstance(late, _Late)]


def _item(step_id: str, key: str, late: _Late) -> LateItem:
    windows = tuple(
        (int(one.window_id), datetime_us(one.open_time), datetime_us(one.close_time))
        for one in late.windows[:MAX_WINDOWS]
    )
    watermark_us = None if late.watermark is None else datetime_us(late.watermark)
    return LateItem(
        step_id,
        key if len(key) <= MAX_KEY_LENGTH else f"{key[: MAX_KEY_LENGTH - 1]}…",
        shorten(late.value),
        str(late.reason.value),
        datetime_us(late.timestamp),
        watermark_us,
        windows,
        len(late.windows),
    )
