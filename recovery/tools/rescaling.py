"""Rescaling: the move of a checkpoint's state to another layout, while no run uses it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flow.errors import CheckpointError
from recovery.identity.fingerprint import without_places
from recovery.reading.checkpoint import CheckpointReader, open_checkpoint
from recovery.reading.epoch_state import EpochState
from recovery.reading.problems import PathLike
from recovery.tools.seeding import UnplacedState, check_layout, store_seeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Rescaled:
    """The result of a rescaling.

    Attributes:
        epoch: the epoch whose state was moved; the next run continues after this epoch.
        shards: the new number of shards of the key space.
        partitions: the new number of partitions of each level.
        keys: the number of keys.
        left: the directory of the old state, which is not needed after the next run has started.
    """

    epoch: int
    shards: int
    partitions: int
    keys: int
    left: str

    def __str__(self) -> str:
        """Return the result as text for people."""
        return (
            f"{self.keys:,} keys are in {self.shards} shards and {self.partitions} partitions a "
            f"level now; the next run goes on after epoch {self.epoch}.\n"
            f"Once it has, {self.left} is not needed any more."
        )


def rescale(
    path: PathLike,
    *,
    shards: int | None = None,
    partitions: int | None = None,
    spark: SparkSession | None = None,
) -> Rescaled:
    """Move a checkpoint's state to another layout, with which the next run continues.

    The next run may have another number of levels as well, because moved state is bound to steps,
    not to levels. The old state remains in its directory.

    Args:
        path: the checkpoint's directory, a path or a URI.
        shards: the new number of shards of the key space; by default unchanged.
        partitions: the new number of partitions of each level; by default unchanged.
        spark: the session to use; by default the active one, else a new local one.

    Raises:
        CheckpointError: when a run uses the checkpoint, when its state cannot be read, or when its
            inputs are read by Spark itself, whose offsets cannot be moved.
        FlowBuildError: when a number is not a positive whole number.
    """
    check_layout(shards, partitions)
    kept = open_checkpoint(path, spark)
    with kept.files.locked():
        kept.files.check_settled()
        return _rescale(kept, shards, partitions)


def _rescale(kept: CheckpointReader, shards: int | None, partitions: int | None) -> Rescaled:
    epoch, before = kept.newest, kept.identity
    log = kept.log(epoch)
    if log.sparks:
        raise CheckpointError(
            f"{kept.root} has inputs that Spark itself reads (data frames): their offsets are in "
            "Spark's checkpoint only, and cannot be moved to another"
        )
    states = read_states(kept, epoch)
    after = replace(
        before,
        shards=shards or before.shards,
        partitions=partitions or before.partitions,
        generation=before.generation + 1,
        first_epoch=epoch + 1,
        start=log.offset.to_json(),
        begun=None if kept.begun is None else kept.log(kept.begun).offset.to_json(),
        dropping=(),
        earlier=(),
        recovery={**before.recovery, "fingerprint": without_places(kept.fingerprint)},
    )
    kept.files.remove(after.spark)  # An interrupted attempt may have left it.
    store_seeds(kept.files, after, states)
    keys = sum(len(state.keys) for state in states)
    left = f"{kept.root}/{before.spark}"
    return Rescaled(epoch, after.shards, after.partitions, keys, left)


def read_states(kept: CheckpointReader, epoch: int) -> list[UnplacedState]:
    """Return the state of all steps at the end of an epoch."""
    state = EpochState(kept, epoch)
    states: list[UnplacedState] = []
    headers = state.headers()
    names = dict.fromkeys([*headers, *map(kept.state_name, kept.fingerprint["keyed"])])
    for name in names:
        if name in kept.identity.dropping:
            continue
        progress = state.progress(name)
        encoded = None if progress is None else progress.encode()
        settings = {one.settings for one in headers.get(name, {}).values()}
        agreed = settings.pop() if len(settings) == 1 else ""
        keys = list(state.keys(name))
        states.append(UnplacedState(kept.step_of(name), name, keys, encoded, agreed))
    return states
