"""Relocation: rewriting the absolute paths in a checkpoint that was moved or copied.

Each file is replaced atomically. The files that a run checks first are replaced last, so that a run
is refused after an interrupted relocation; a second relocation replaces the remaining files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from flow.errors import CheckpointError
from recovery.reading.checkpoint import CheckpointReader, open_checkpoint
from recovery.reading.places import Rewritten, rewritten
from recovery.reading.problems import PathLike

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
    """Rewrite the paths in a checkpoint that was moved or copied, so that a run can continue on it.

    Some files name other files by absolute paths; the tool rewrites the files that name another
    directory. Offsets and state do not change.

    Args:
        path: the checkpoint's directory, as `RecoveryConfig` will have it.
        yes: True to make the changes; by default the tool only returns the plan.
        spark: the session to use; by default the active one, else a new local one.

    Raises:
        CheckpointError: when the directory is not a checkpoint, a file of it is not whole, or a run
            is using it; the checkpoint is then unchanged.
    """
    checkpoint = open_checkpoint(path, spark)
    with checkpoint.files.locked(changes=yes):
        checkpoint.files.check_settled()
        checkpoint = open_checkpoint(path, checkpoint.spark)  # Read again under the lock.
        changed = list(rewritten(checkpoint))
        relocation = _planned(checkpoint, changed, yes)
        if yes and changed:
            _write(checkpoint, changed, relocation)
    return relocation


def _planned(checkpoint: CheckpointReader, changed: list[Rewritten], done: bool) -> Relocation:
    return Relocation(
        path=checkpoint.root,
        places=tuple(dict.fromkeys(place for file in changed for place in file.places)),
        files=tuple(file.file for file in changed),
        backup=f"relocated-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}",
        done=done,
    )


def _write(checkpoint: CheckpointReader, changed: list[Rewritten], relocation: Relocation) -> None:
    """Write the backup of the old files, then the new files."""
    files = checkpoint.files
    if files.exists(relocation.backup):
        raise CheckpointError(f"{checkpoint.root}/{relocation.backup} exists already: try again")
    files.write_text(f"{relocation.backup}/{NOTE}", _note(relocation))
    for file in changed:
        files.write_text(f"{relocation.backup}/{file.file}", file.before)
    for file in changed:
        files.write_text(file.file, file.after)


def _note(relocation: Relocation) -> str:
    file_list = "\n".join(f"  {name}" for name in relocation.files)
    return (
        f"Files of the checkpoint {relocation.path} named its earlier directory,\n"
        f"{', '.join(relocation.places)}, and were rewritten. This directory has the old files.\n"
        "No run needs them: if the checkpoint is moved again, or back, relocate it again. This\n"
        f"directory can be removed.\n\n{file_list}\n"
    )


def _lines(relocation: Relocation) -> Iterator[str]:
    if not relocation.files:
        yield f"all paths in {relocation.path} are up to date: nothing to do"
        return
    count = len(relocation.files)
    yield f"{relocation.path} was in {', '.join(relocation.places)}; files that say so: {count}"
    if relocation.done:
        yield f"  these files are rewritten; the old files are in {relocation.backup}"
    else:
        yield f"  these files would be rewritten, and the old files copied to {relocation.backup}"
        yield "nothing has been changed: give --yes to do it"
