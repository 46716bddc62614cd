"""What a checkpoint holds, at a glance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from flow.engine.feed.feed import EpochOffset
from flow.errors import CheckpointError
from flow.instants import NEVER
from flow_windowing.rules.key_state import DriverState
from recovery.reading.checkpoint import KeptCheckpoint, open_checkpoint, spans
from recovery.reading.epochs import EpochLog
from recovery.reading.kept_state import KeptState, StepTotals, load_snapshot, totals
from recovery.reading.paths import PathLike
from recovery.reading.rendering import time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json: TypeAlias = Any

_NOTHING = StepTotals(0, 0, 0, NEVER)


@dataclass(frozen=True)
class SourceStatus:
    """How far an input has come.

    Attributes:
        step: the input.
        offset: its offset, as its source writes it; ``None`` when nothing has been read.
    """

    step: str
    offset: Json


@dataclass(frozen=True)
class StepStatus:
    """What a keyed step keeps.

    Attributes:
        step: the step.
        keys: how many keys it keeps something of.
        bytes: about how many bytes that is.
        segments: in how many segments it is kept.
        open_windows: how many windows are open; ``None`` for a step without windows.
        due: the least time at which a key is due, RFC 3339; ``None`` when none is. By the step's
            stream where the step has one watermark for all keys, and else by system time.
    """

    step: str
    keys: int
    bytes: int
    segments: int
    open_windows: int | None
    due: str | None


@dataclass(frozen=True)
class CheckpointStatus:
    """What a checkpoint holds.

    Attributes:
        path: its directory.
        flow: the flow's name.
        run_id: what its sinks know it by.
        shards: how many slices the key space has.
        partitions: how many partitions each level has.
        generation: how often its state has moved to another layout.
        epochs: the epochs that are kept: the next run can be set back to any of them.
        last: the last epoch that is done; ``None`` before the first.
        now: that epoch's system time, RFC 3339.
        ended: whether the input ended with it.
        begun: the epoch that was begun and not finished; the next run does it again.
        in_use: who runs on it, in words; ``None`` when nobody has said so.
        sources: how far each input has come.
        steps: what each keyed step keeps.
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

    def to_json(self) -> Json:
        """The status as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """The status as a table for people."""
        return "\n".join(_lines(self))


def status(path: PathLike, *, spark: SparkSession | None = None) -> CheckpointStatus:
    """Say what a checkpoint holds.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        spark: the session to read it with; else the one there is, else a local one is made.

    Raises:
        CheckpointError: when the directory is not a checkpoint, or cannot be read.
    """
    checkpoint = open_checkpoint(path, spark)
    identity = checkpoint.identity
    last = checkpoint.committed[-1] if checkpoint.committed else None
    log = None if last is None else checkpoint.log(last)
    control = None if log is None else log.offset.control
    return CheckpointStatus(
        path=checkpoint.root,
        flow=identity.flow_id,
        run_id=identity.run_id,
        shards=identity.shards,
        partitions=identity.partitions,
        generation=identity.generation,
        epochs=tuple(checkpoint.committed),
        last=last,
        now=None if control is None else time_text(control.moment.now_us),
        ended=control is not None and control.end_of_input,
        begun=checkpoint.begun,
        in_use=_in_use(checkpoint),
        sources=tuple(_sources(checkpoint, log)),
        steps=() if last is None else tuple(_steps(KeptState(checkpoint, last))),
    )


def _sources(checkpoint: KeptCheckpoint, log: EpochLog | None) -> Iterator[SourceStatus]:
    """The inputs in the order of the flow, then those that it does not tell of."""
    start = EpochOffset.from_json(checkpoint.identity.start or {}) if log is None else log.offset
    at = {checkpoint.step_of(name): offset for name, offset in start.at.items()}
    sparks = [] if log is None else list(log.sparks)
    unread = [name for name in checkpoint.inputs if name not in at]
    if sparks and len(unread) == len(sparks):
        at.update(zip(unread, sparks, strict=True))
        sparks = []
    for name in dict.fromkeys([*checkpoint.inputs, *at]):
        yield SourceStatus(name, at.get(name))
    for number, offset in enumerate(sparks):
        yield SourceStatus(f"Spark's source {number + 1}", offset)


def _steps(state: KeptState) -> Iterator[StepStatus]:
    """The keyed steps in the order of the flow, then those that the flow has no more."""
    checkpoint = state.checkpoint
    by_step = {checkpoint.step_of(name): totals(one) for name, one in state.headers().items()}
    for step_id in dict.fromkeys([*checkpoint.keyed, *sorted(by_step)]):
        kept = by_step.get(step_id, _NOTHING)
        windows = open_windows(state, step_id) if kept.keys or step_id in checkpoint.keyed else None
        yield StepStatus(
            step_id, kept.keys, kept.size, kept.segments, windows, time_text(kept.due_us)
        )


def open_windows(state: KeptState, step_id: str) -> int | None:
    """How many windows of a step are open; ``None`` for a step without windows."""
    checkpoint = state.checkpoint
    described = checkpoint.keyed.get(step_id)
    windowing = None if described is None else is_windowing(described["config"])
    if windowing is False:
        return None
    count = 0
    for kept in state.keys(checkpoint.kept_as(step_id)):
        snapshot = load_snapshot(kept, step_id)
        if not isinstance(snapshot, DriverState):
            return None
        windowing = True
        count += len(snapshot.windows)
    return count if windowing else None


def is_windowing(config: Json) -> bool:
    """Whether a step's configuration, as its checkpoint describes it, is a windowing step's."""
    return isinstance(config, dict) and config.get("type") == "DriverBuilder"


def _in_use(checkpoint: KeptCheckpoint) -> str | None:
    """Who has locked the checkpoint."""
    from flow.engine.checkpoint.lock import NAME

    if not checkpoint.files.exists(NAME):
        return None
    try:
        holder = checkpoint.files.read(NAME)
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (CheckpointError, KeyError, TypeError):
        return f"{NAME}, which cannot be read"


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


_COLUMNS = ("step", "keys", "bytes", "segments", "open windows", "next due")


def _step_row(one: StepStatus) -> tuple[str, ...]:
    windows = "" if one.open_windows is None else f"{one.open_windows:,}"
    return (
        one.step,
        f"{one.keys:,}",
        f"{one.bytes:,}",
        f"{one.segments:,}",
        windows,
        one.due or "never",
    )


def _epochs_line(found: CheckpointStatus) -> str:
    if found.last is None:
        return "no epoch is finished"
    ended = ", with which the input ended" if found.ended else ""
    kept = spans(list(found.epochs))
    return f"last epoch {found.last} at {found.now}{ended}; epochs kept: {kept}"


def _short(offset: Json) -> str:
    text = "nothing read" if offset is None else json.dumps(offset, ensure_ascii=False)
    return text if len(text) <= 100 else text[:99] + "…"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    r"""Rows below a head, in columns: numbers to the right, all else to the left.

    >>> print("\n".join(table(("step", "keys"), [("total", "1,000"), ("sum", "7")])))
    step    keys
    total  1,000
    sum        7
    """
    every = [head, *rows]
    widths = [max(len(row[at]) for row in every) for at in range(len(head))]
    right = [all(_is_number(row[at]) for row in rows) for at in range(len(head))]
    for row in every:
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _is_number(cell: str) -> bool:
    return not cell or cell.replace(",", "").isdecimal()
