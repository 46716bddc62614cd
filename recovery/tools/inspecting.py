"""Inspection of a step's state, or of a table, key by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from flow.connectors.source import Json
from flow.dataflow import Dataflow
from flow.errors import CheckpointError
from flow_windowing.rules.key_state import DriverState, IntervalState
from recovery.reading.checkpoint_reader import open_checkpoint
from recovery.reading.epoch_state import EpochState, TableState, TableValue, load_snapshot
from recovery.reading.file_problems import PathLike
from recovery.reading.rendering import WindowingStep, due_text, indented, plain, time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT = 20


@dataclass(frozen=True)
class KeyState:
    """The state of a key.

    Attributes:
        key: the key.
        due: the due time, RFC 3339; ``None`` without a timer; a sentence for a held watermark.
        state: the snapshot as JSON; for a windowing step the watermark, the open windows and the
            buffered values; for a join by time the watermark and the retained values of each
            side; for a table the value, or the values with the times from which they hold. An
            object whose class is not rebuilt is shown by the class's name and the contents of
            its pickle.
    """

    key: str
    due: str | None
    state: Json


@dataclass(frozen=True)
class StepState:
    """A step's state at the end of an epoch.

    Attributes:
        step: the step.
        epoch: the epoch.
        now: the epoch's system time, RFC 3339.
        total: the number of the step's keys.
        keys: the states of the keys that are shown.
        version: the number of the version of a table; ``None`` for a keyed step.
    """

    step: str
    epoch: int
    now: str | None
    total: int
    keys: tuple[KeyState, ...]
    version: int | None = None

    def __str__(self) -> str:
        """Return the state as text for people."""
        return "\n".join(_lines(self))


def inspect(
    path: PathLike,
    step: str,
    *,
    key: str | None = None,
    epoch: int | None = None,
    limit: int = LIMIT,
    flow: Dataflow | None = None,
    spark: SparkSession | None = None,
) -> StepState:
    """Return a step's state, without running code that pickles name or importing their classes.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        step: the id of a keyed step, or of a table.
        key: the only key to show; by default, all keys up to `limit`.
        epoch: a retained epoch, at whose end to read the state; by default the newest.
        limit: the greatest number of keys to return.
        flow: the flow, which computes the results of open windows of your own aggregates; by
            default their accumulators are shown.
        spark: the session that reads it; by default the active one, else a new local one.

    Raises:
        CheckpointError: when the checkpoint, step, key or epoch does not exist.
    """
    checkpoint = open_checkpoint(path, spark)
    state = EpochState(checkpoint, checkpoint.chosen(epoch))
    table = state.table(step)
    if table is None:
        total, number = state.key_count(step), None
        found = _step_keys(state, step, key, flow)
    else:
        total, number = len(table.contents), table.version.number
        found = _table_keys(table, key)
    keys = tuple(islice(found, limit))
    if key is not None and not keys:
        raise CheckpointError(f"step {step!r} keeps nothing of key {key!r} at epoch {state.epoch}")
    now = time_text(checkpoint.log(state.epoch).moment.now_us)
    return StepState(step, state.epoch, now, total, keys, number)


def _step_keys(
    state: EpochState, step_id: str, key: str | None, flow: Dataflow | None
) -> Iterator[KeyState]:
    """Yield the keys of a step with their states; a given key alone."""
    windowing = WindowingStep.of(state, step_id, flow)
    for kept in state.keys(state.checkpoint.state_name(step_id), key):
        snapshot = load_snapshot(kept, step_id)
        if isinstance(snapshot, DriverState):
            shown = windowing.view(snapshot, kept.due_us)
        elif isinstance(snapshot, IntervalState):
            shown = windowing.interval_view(snapshot, kept.due_us)
        else:
            shown = plain(snapshot)
        yield KeyState(kept.key, due_text(kept.due_us), shown)


def _table_keys(table: TableState, key: str | None) -> Iterator[KeyState]:
    """Yield the keys of a table with their values; a given key alone."""
    for each, values in groupby(table.values(), lambda value: value.key):
        if key in (None, each):
            shown = [_table_value(table, value) for value in values]
            yield KeyState(each, None, shown if table.has_history else shown[0])


def _table_value(table: TableState, value: TableValue) -> Json:
    shown = plain(value.value)
    return {"from": time_text(value.at_us), "value": shown} if table.has_history else shown


def _lines(found: StepState) -> Iterator[str]:
    keys = "1 key" if found.total == 1 else f"{found.total:,} keys"
    shown = f", of which {len(found.keys)} are shown" if len(found.keys) < found.total else ""
    is_table = found.version is not None
    what = f"version {found.version} of table {found.step}" if is_table else f"step {found.step}"
    yield f"{what} after epoch {found.epoch}, at {found.now}: {keys}{shown}"
    for one in found.keys:
        due = {} if is_table else {"due": one.due or "never"}
        yield ""
        yield from indented({"key": one.key, **due, "value" if is_table else "state": one.state})
