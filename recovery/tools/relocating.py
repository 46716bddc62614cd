"""Relocation: rewriting the absolute paths in a checkpoint that was moved or copied.

Each file is replaced atomically. The files that a run checks first come last, so that a run is
refused after an interrupted relocation; relocating again does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from flow.errors import CheckpointError
from recovery.reading.checkpoint import KeptCheckpoint, open_checkpoint
from recovery.reading.paths import PathLike
from recovery.reading.places import Rewritten, rewritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json: TypeAlias = Any

NOTE = "why-this-is-here.txt"


@dataclass(frozen=True)
class Relocation:
    """A relocation, planned or done.

    Attributes:
        path: the checkpoint's directory.
        places: the other directories that the files name, in order.
        files: the names of the files that name other directories, in order.
        backup: the folder in the checkpoint's directory with the old files.
        done: True if the relocation is done, False if planned.
    """

    path: str
    places: tuple[str, ...]
    files: tuple[str, ...]
    backup: str
    done: bool

    def to_json(self) -> Json:
        """Return the relocation as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the relocation as text for people."""
        return "\n".join(_lines(self))


def relocate(path: PathLike, *, yes: bool = False, spark: SparkSession | None = None) -> Relocation:
    """Rewrite the paths in a checkpoint that was moved or copied, so that a run can go on from it.

    Some files name others by absolute paths; the tool rewrites the files that name another
    directory. Offsets and state do not change.

    Args:
        path: the checkpoint's directory, as it will be given to `RecoveryConfig`.
        yes: True to make the changes; by default the tool only returns the plan.
        spark: the session to use; by default the active one, else a new local one.

    Raises:
        CheckpointError: when the directory is not a checkpoint, a file of it is not whole, or a run
            is using it; nothing has been changed then.
    """
    from flow.engine.checkpoint.checkpoint import check_settled
    from flow.engine.checkpoint.lock import NAME, CheckpointLock

    checkpoint = open_checkpoint(path, spark)
    locking = yes or checkpoint.files.exists(NAME)
    with CheckpointLock(checkpoint.files) if locking else nullcontext():
        check_settled(checkpoint.files)
        checkpoint = open_checkpoint(path, checkpoint.spark)  # Read again under the lock.
        changed = list(rewritten(checkpoint))
        found = _planned(checkpoint, changed, yes)
        if yes and changed:
            _write(checkpoint, changed, found)
    return found


def _planned(checkpoint: KeptCheckpoint, changed: list[Rewritten], done: bool) -> Relocation:
    return Relocation(
        path=checkpoint.root,
        places=tuple(dict.fromkeys(place for one in changed for place in one.places)),
        files=tuple(one.file for one in changed),
        backup=f"relocated-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}",
        done=done,
    )


def _write(checkpoint: KeptCheckpoint, changed: list[Rewritten], found: Relocation) -> None:
    files = checkpoint.files
    if files.exists(found.backup):
        raise CheckpointError(f"{checkpoint.root}/{found.backup} is there already: try again")
    files.write_text(f"{found.backup}/{NOTE}", _note(found))
    for one in changed:
        files.write_text(f"{found.backup}/{one.file}", one.before)
    for one in changed:
        files.write_text(one.file, one.after)


def _note(found: Relocation) -> str:
    listed = "\n".join(f"  {name}" for name in found.files)
    return (
        f"The checkpoint {found.path} was told that it is there; its files named\n"
        f"{', '.join(found.places)}. Those that did are kept here as they were. Nothing needs\n"
        "them: if the checkpoint is moved again, or back, relocate it again. This directory can\n"
        f"be removed.\n\n{listed}\n"
    )


def _lines(found: Relocation) -> Iterator[str]:
    if not found.files:
        yield f"all files of {found.path} say that it is there already: nothing to do"
        return
    yield f"{found.path} was in {', '.join(found.places)}; files that say so: {len(found.files)}"
    if found.done:
        yield f"  they have been written anew; as they were, they are in {found.backup}"
    else:
        yield f"  they would be written anew, and kept as they were in {found.backup}"
        yield "nothing has been changed: give --yes to do it"
