"""A step's state, key by key, in a form that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from flow.errors import CheckpointError
from flow_windowing.rules.key_state import DriverState
from recovery.reading.checkpoint import open_checkpoint
from recovery.reading.kept_state import KeptKey, KeptState, load_snapshot, totals
from recovery.reading.paths import PathLike
from recovery.reading.rendering import due_text, indented, plain, time_text
from recovery.reading.windows import WindowingStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json: TypeAlias = Any

LIMIT = 20


@dataclass(frozen=True)
class KeyState:
    """What is kept of a key.

    Attributes:
        key: the key.
        due: when it is due, RFC 3339; ``None`` when it is not; a sentence when it is held.
        state: its snapshot as JSON; of a windowing step its watermark, its open windows and the
            values that wait. An object of a class that is not rebuilt is shown by the class's name
            and what it was made from.
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
        now: its system time, RFC 3339.
        total: how many keys the step keeps.
        keys: what is kept of some of them.
    """

    step: str
    epoch: int
    now: str | None
    total: int
    keys: tuple[KeyState, ...]

    def to_json(self) -> Json:
        """The state as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """The state as text for people."""
        return "\n".join(_lines(self))


def inspect(
    path: PathLike,
    step: str,
    *,
    key: str | None = None,
    epoch: int | None = None,
    limit: int = LIMIT,
    spark: SparkSession | None = None,
) -> StepState:
    """Show what a step keeps. Nothing of what its pickles name is run, and no class is needed.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        step: the step's id.
        key: the one key to show.
        epoch: the epoch at whose end to look, one that is kept; else the newest.
        limit: how many keys to show at most.
        spark: the session to read it with; else the one there is, else a local one is made.

    Raises:
        CheckpointError: when there is no such checkpoint, step, key or epoch.
    """
    checkpoint = open_checkpoint(path, spark)
    state = KeptState(checkpoint, checkpoint.chosen(epoch))
    total = keys_of_step(state, step)
    view = KeyView(state, step)
    found = state.keys(checkpoint.kept_as(step), key)
    keys = tuple(view.shown(kept) for kept in islice(found, limit))
    if key is not None and not keys:
        raise CheckpointError(f"step {step!r} keeps nothing of key {key!r} at epoch {state.epoch}")
    now = time_text(checkpoint.log(state.epoch).moment.now_us)
    return StepState(step, state.epoch, now, total, keys)


def keys_of_step(state: KeptState, step_id: str) -> int:
    """How many keys a step keeps something of.

    Raises:
        CheckpointError: when there is no such step; it lists those there are.
    """
    checkpoint = state.checkpoint
    headers = state.headers()
    name = checkpoint.kept_as(step_id)
    if name in headers:
        return totals(headers[name]).keys
    there = list(dict.fromkeys([*checkpoint.keyed, *map(checkpoint.step_of, sorted(headers))]))
    if step_id in there:
        return 0
    listed = f"steps that do: {', '.join(map(repr, there))}" if there else "no step does"
    raise CheckpointError(
        f"{checkpoint.root}: step {step_id!r} keeps no state at epoch {state.epoch}; {listed}"
    )


class KeyView:
    """How the keys of a step are shown."""

    def __init__(self, state: KeptState, step_id: str) -> None:
        self._step_id = step_id
        self._windowing = windowing_step(state, step_id)

    def shown(self, kept: KeptKey) -> KeyState:
        """What is kept of a key."""
        snapshot = load_snapshot(kept, self._step_id)
        if isinstance(snapshot, DriverState):
            shown = self._windowing.view(snapshot, kept.due_us)
        else:
            shown = plain(snapshot)
        return KeyState(kept.key, due_text(kept.due_us), shown)


def windowing_step(state: KeptState, step_id: str) -> WindowingStep:
    """What is known of a step that may be a windowing step."""
    checkpoint = state.checkpoint
    config = checkpoint.keyed.get(step_id, {}).get("config")
    return WindowingStep(
        config if isinstance(config, dict) else {},
        checkpoint.log(state.epoch).moment,
        state.progress(checkpoint.kept_as(step_id)),
    )


def _lines(found: StepState) -> Iterator[str]:
    keys = "1 key" if found.total == 1 else f"{found.total:,} keys"
    shown = f", of which {len(found.keys)} are shown" if len(found.keys) < found.total else ""
    yield f"step {found.step} after epoch {found.epoch}, at {found.now}: {keys}{shown}"
    for one in found.keys:
        yield ""
        yield from indented({"key": one.key, "due": one.due or "never", "state": one.state})
