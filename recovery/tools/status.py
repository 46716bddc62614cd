"""The status of a checkpoint: epochs, inputs and steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flow.connectors.source import Json
from flow.engine.feed.offsets import EpochOffset
from flow.errors import cut_text
from flow.instants import NEVER
from flow.keyed.state import StateCounts
from recovery.reading.checkpoint_reader import CheckpointReader, EpochLog, open_checkpoint, spans
from recovery.reading.epoch_state import EpochState, StepTotals, totals
from recovery.reading.file_problems import PathLike
from recovery.reading.rendering import time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SourceStatus:
    """The offset of an input.

    Attributes:
        step: the input.
        offset: the offset, as the source writes it; ``None`` before the first read.
    """

    step: str
    offset: Json


@dataclass(frozen=True)
class StepStatus:
    """The size of a keyed step's state.

    Attributes:
        step: the step.
        keys: the number of keys.
        bytes: the approximate size in bytes.
        segments: the number of segments.
        open_windows: the number of open windows; ``None`` for a step that is not counted. It is 0
            for joins by time.
        buffered_values: the number of values that wait for the watermark, or that a join by time
            retains; ``None`` as for `open_windows`.
        due: the least due time of a key, RFC 3339; ``None`` without timers. The time is event time
            for a step with one watermark for all keys, and else system time.
        hold: the least timestamp that a result may still have, RFC 3339; ``None`` for a step that
            holds no other.
    """

    step: str
    keys: int
    bytes: int
    segments: int
    open_windows: int | None
    buffered_values: int | None
    due: str | None
    hold: str | None = None


@dataclass(frozen=True)
class TableStatus:
    """The size of a table.

    Attributes:
        step: the table.
        version: the number of the version that the last epoch saw.
        keys: the number of keys.
        bytes: the size of the pickled values and their keys.
        read: the system time at which a lookup table was last read, RFC 3339; else ``None``.
    """

    step: str
    version: int
    keys: int
    bytes: int
    read: str | None


@dataclass(frozen=True)
class CheckpointStatus:
    """The status of a checkpoint.

    Attributes:
        path: the checkpoint's directory.
        flow: the flow's name.
        run_id: the id of the flow in sinks.
        shards: the number of shards of the key space.
        partitions: the number of partitions after each shuffle.
        generation: the number of times that the state has moved to another layout.
        epochs: the finished epochs to which the checkpoint can be set back.
        last: the last finished epoch; ``None`` before the first.
        now: the last epoch's system time, RFC 3339.
        ended: True if the input ended with the last epoch.
        begun: the epoch that began and did not finish; the next run replays it.
        in_use: the process that holds the lock, in words; ``None`` without a lock.
        sources: the offset of each input.
        steps: the size of each keyed step's state; none in a brief status.
        tables: the size of each table.
    """

    path: str
    flow: str
    run_id: str
    shards: int
    partitions: int
    generation: int
    epochs: tuple[int, ...]
    last: int | None
    now: str | None
    ended: bool
    begun: int | None
    in_use: str | None
    sources: tuple[SourceStatus, ...]
    steps: tuple[StepStatus, ...]
    tables: tuple[TableStatus, ...] = ()

    def __str__(self) -> str:
        """Return the status as a table for people."""
        return "\n".join(_lines(self))


def status(
    path: PathLike, *, brief: bool = False, spark: SparkSession | None = None
) -> CheckpointStatus:
    """Return the status of a checkpoint.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        brief: True to leave out the sizes of steps, which alone need Spark.
        spark: the session that reads it; by default the active one, else a new local one.

    Raises:
        CheckpointError: when the directory is not a checkpoint, or cannot be read.
    """
    checkpoint = open_checkpoint(path, spark)
    identity = checkpoint.identity
    last = checkpoint.committed[-1] if checkpoint.committed else None
    log = None if last is None else checkpoint.log(last)
    control = None if log is None else log.offset.control
    holder = checkpoint.files.holder()
    return CheckpointStatus(
        path=checkpoint.root,
        flow=identity.flow_id,
        run_id=identity.run_id,
        shards=identity.shards,
        partitions=identity.partitions,
        generation=identity.generation,
        epochs=tuple(checkpoint.resumable),
        last=last,
        now=None if control is None else time_text(control.moment.now_us),
        ended=control is not None and control.end_of_input,
        begun=checkpoint.begun,
        in_use=None if holder is None else str(holder),
        sources=tuple(_sources(checkpoint, log)),
        steps=() if brief or last is None else tuple(_steps(EpochState(checkpoint, last))),
        tables=() if last is None else tuple(_tables(EpochState(checkpoint, last))),
    )


def _sources(checkpoint: CheckpointReader, log: EpochLog | None) -> Iterator[SourceStatus]:
    """Yield the inputs in the order of the flow, then all other offsets of the epoch."""
    start = EpochOffset.from_json(checkpoint.identity.start or {}) if log is None else log.offset
    at = {checkpoint.step_of(name): offset for name, offset in start.at.items()}
    sparks = [] if log is None else list(log.sparks)
    inputs = checkpoint.fingerprint["inputs"]
    unread = [name for name in inputs if name not in at]
    if sparks and len(unread) == len(sparks):
        at.update(zip(unread, sparks, strict=True))
        sparks = []
    for name in dict.fromkeys([*inputs, *at]):
        yield SourceStatus(name, at.get(name))
    for number, offset in enumerate(sparks):
        yield SourceStatus(f"Spark's source {number + 1}", offset)


def _tables(state: EpochState) -> Iterator[TableStatus]:
    for step_id, version in state.tables().items():
        found = state.table_at(step_id, version)
        read = None if version.read_at_us is None else time_text(version.read_at_us)
        yield TableStatus(step_id, version.number, len(found.contents), found.size, read)


def _steps(state: EpochState) -> Iterator[StepStatus]:
    """Yield the keyed steps in the order of the flow, then the steps that were removed."""
    checkpoint = state.checkpoint
    by_step = {checkpoint.step_of(name): totals(one) for name, one in state.headers().items()}
    keyed = checkpoint.fingerprint["keyed"]
    for step_id in dict.fromkeys([*keyed, *sorted(by_step)]):
        kept = by_step.get(step_id)
        if kept is None:  # A step without keys has no headers.
            counts = StateCounts() if keyed[step_id]["counted"] else None
            kept = StepTotals(0, 0, 0, NEVER, counts)
        windows, values = (None, None) if kept.counts is None else kept.counts
        sizes = kept.keys, kept.size, kept.segments
        times = time_text(kept.due_us), time_text(kept.hold_us)
        yield StepStatus(step_id, *sizes, windows, values, *times)


def _lines(found: CheckpointStatus) -> Iterator[str]:
    yield f"flow {found.flow}, checkpoint {found.path}"
    moved = f", generation {found.generation}" if found.generation else ""
    yield f"run {found.run_id}, {found.shards} shards, {found.partitions} partitions{moved}"
    yield _epochs_line(found)
    if found.begun is not None:
        yield f"epoch {found.begun} was begun and not finished: the next run does it again"
    if found.in_use is not None:
        yield f"in use by {found.in_use}"
    if found.sources:
        yield ""
        yield from table(
            ("source", "offset"), [(one.step, _short(one.offset)) for one in found.sources]
        )
    if found.steps:
        yield ""
        yield from table(_COLUMNS, [_step_row(one) for one in found.steps])
        for one in found.steps:
            if one.hold is not None:
                yield f"step {one.step} holds the steps that read its results at {one.hold}"
    if found.tables:
        yield ""
        yield from table(
            ("table", "version", "keys", "bytes", "read at"),
            [
                (one.step, *map(_number, (one.version, one.keys, one.bytes)), one.read or "")
                for one in found.tables
            ],
        )


_COLUMNS = ("step", "keys", "bytes", "segments", "open windows", "buffered values", "next due")


def _step_row(one: StepStatus) -> tuple[str, ...]:
    counts = (one.keys, one.bytes, one.segments, one.open_windows, one.buffered_values)
    return (one.step, *map(_number, counts), one.due or "never")


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _epochs_line(found: CheckpointStatus) -> str:
    if found.last is None:
        return "no epoch is finished"
    ended = ", with which the input ended" if found.ended else ""
    kept = spans(list(found.epochs))
    return f"last epoch {found.last} at {found.now}{ended}; epochs kept: {kept}"


def _short(offset: Json) -> str:
    return (
        "nothing read" if offset is None else cut_text(json.dumps(offset, ensure_ascii=False), 100)
    )


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    r"""Yield the lines of a table: numbers aligned to the right, other cells to the left.

    >>> print("\n".join(table(("step", "keys"), [("total", "1,000"), ("sum", "7")])))
    step    keys
    total  1,000
    sum        7
    """
    columns = []
    for title, *cells in zip(head, *rows, strict=True):
        width = max(map(len, (title, *cells)))
        align = str.rjust if all(map(_is_number, cells)) else str.ljust
        columns.append([align(cell, width) for cell in (title, *cells)])
    for line in zip(*columns, strict=True):
        yield "  ".join(line).rstrip()


def _is_number(cell: str) -> bool:
    return not cell or cell.replace(",", "").isdecimal()
