"""Rewinding: setting a checkpoint back, so that the next run continues after an earlier epoch.

The tool moves Spark's logs of later epochs away. The earlier epoch is then the last, and its commit
names the state to load. Changelogs of later versions may remain, as the files of each version have
unique names; without unique names, the next run removes them. But the *snapshots* of later versions
are moved away too: Spark removes old state by counting back from the last snapshot, and could
remove files that the earlier epoch needs.

A killed tool must not leave a checkpoint that looks whole, so the tool first writes its plan into a
journal. While the journal exists, no run starts, and a second rewind finishes the plan.

The fingerprint in the checkpoint is set back too: steps that were reset, added or removed after the
earlier epoch have the state of that epoch again. It keeps the plans of the later epochs, which the
next run replays.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flow.connectors.source import Json
from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format
from recovery.reading.checkpoint_reader import CheckpointReader, open_checkpoint, spans
from recovery.reading.file_problems import FileProblem, PathLike
from recovery.reading.rendering import time_text
from recovery.tools.verifying import check_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.engine.checkpoint.identity import Identity
    from recovery.reading.checkpoint_files import CheckpointFiles

NOTE = "how-to-undo.txt"
_SNAPSHOT = re.compile(r"(\d+)(?:_[^.]+)?\.zip(?:\.crc)?")


@dataclass(frozen=True)
class Rewind:
    """A rewind, planned or done.

    Attributes:
        path: the checkpoint's directory.
        epoch: the epoch after which the next run continues.
        now: the epoch's system time, RFC 3339.
        undone: the later epochs, which the next run replays.
        moved: the names of the files that are moved away, in order.
        restores_steps: True if steps, or the names of their state, change back.
        backup: the folder in the checkpoint's directory to which files are moved.
        done: True if the rewind is done, False if planned.
    """

    path: str
    epoch: int
    now: str | None
    undone: tuple[int, ...]
    moved: tuple[str, ...]
    restores_steps: bool
    backup: str
    done: bool

    @classmethod
    def from_json(cls, content: Json) -> Rewind:
        """Read a rewind from a journal."""
        lists = {name: tuple(content[name]) for name in ("undone", "moved")}
        return cls(**{**content, **lists})

    def __str__(self) -> str:
        """Return the rewind as text for people."""
        return "\n".join(_lines(self))


def rewind(
    path: PathLike, epoch: int, *, yes: bool = False, spark: SparkSession | None = None
) -> Rewind:
    """Set a checkpoint back, so that the next run continues after an earlier epoch.

    The function first finishes an interrupted rewind, even a rewind to another epoch.

    File sinks remove the output of later epochs when the next run finishes its first epoch; other
    sinks do not.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        epoch: the retained epoch after which the next run continues.
        yes: True to make the changes; by default the tool only returns the plan.
        spark: the session to use; by default the active one, else a new local one.

    Raises:
        CheckpointError: when the epoch is not retained, its state is not whole, or a run is using
            the checkpoint; the checkpoint is then unchanged.
    """
    checkpoint = open_checkpoint(path, spark)
    _check_resumable(checkpoint, epoch)
    files = checkpoint.files
    with files.locked(changes=yes):
        if files.storage.exists(files.CHANGE):
            begun = _begun(files, yes)
            if begun.epoch == epoch:
                return begun
        checkpoint = open_checkpoint(path, checkpoint.spark)  # Read again under the lock.
        _check_resumable(checkpoint, epoch)
        planned = _planned(checkpoint, epoch, yes)
        check_state(checkpoint, epoch)
        if yes and planned.moved:
            _begin(checkpoint, planned)
            _finish(files)
    return planned


def _check_resumable(checkpoint: CheckpointReader, epoch: int) -> None:
    """Raise a `CheckpointError` unless a run can continue after an epoch."""
    if checkpoint.chosen(epoch) not in checkpoint.resumable:
        raise CheckpointError(
            f"no run can continue after epoch {epoch} of {checkpoint.root}, as the log of the "
            f"epoch before it is removed already: choose one of {spans(checkpoint.resumable)}"
        )


def _begun(files: CheckpointFiles, yes: bool) -> Rewind:
    """Finish an interrupted rewind, and return it.

    Raises:
        CheckpointError: when `yes` is False; the error has the command that finishes the rewind.
    """
    if not yes:
        files.check_settled()
    begun = Rewind.from_json(_journal(files)["rewind"])
    _finish(files)
    return begun


def _journal(files: CheckpointFiles) -> Json:
    journal = files.storage.read(files.CHANGE)
    check_format(f"{files.root}/{files.CHANGE}", journal.get("version"))
    journal["rewind"]["path"] = files.root  # It may have been copied since.
    return journal


def _planned(checkpoint: CheckpointReader, epoch: int, done: bool) -> Rewind:
    undone = [one for one in checkpoint.logged if one > epoch]
    now, then = checkpoint.identity, checkpoint.identity.set_back(epoch)
    restores_steps = _steps_in(then) != _steps_in(now)
    return Rewind(
        path=checkpoint.root,
        epoch=epoch,
        now=time_text(checkpoint.log(epoch).moment.now_us),
        undone=tuple(undone),
        moved=(
            *_logs(checkpoint, undone),
            *_snapshots(checkpoint, epoch),
            *((checkpoint.files.IDENTITY,) if undone or restores_steps else ()),
        ),
        restores_steps=restores_steps,
        backup=f"rewound-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}",
        done=done,
    )


def _steps_in(identity: Identity) -> Json:
    """Return an identity's content about steps, inputs and the names of their state."""
    kept, known = identity.recovery, identity.recovery["fingerprint"]
    return kept["names"], known["keyed"], known["inputs"], kept["left"]


def _logs(checkpoint: CheckpointReader, undone: list[int]) -> Iterator[str]:
    """Yield the logs of epochs, in an order that leaves a valid checkpoint after each removal.

    The commit of an epoch is removed before its offset: Spark replays an epoch without a commit,
    but a commit without an offset is not an epoch.
    """
    for epoch in reversed(undone):
        for kind in ("commits", "offsets"):
            name = checkpoint.identity.log_file(kind, epoch)
            if checkpoint.files.storage.exists(name):
                yield name


def _snapshots(checkpoint: CheckpointReader, epoch: int) -> Iterator[str]:
    """Yield the snapshots of the state of later epochs."""
    version = checkpoint.batch(epoch) + 1
    state = f"{checkpoint.identity.spark}/state"
    for operator in checkpoint.operators:
        for partition in range(checkpoint.identity.partitions):
            folder = f"{state}/{operator}/{partition}"
            for name in checkpoint.files.storage.names(folder):
                match = _SNAPSHOT.fullmatch(name)
                if match and int(match[1]) > version:
                    yield f"{folder}/{name}"


def _begin(checkpoint: CheckpointReader, planned: Rewind) -> None:
    """Write the journal: the plan, the new identity, and the options that finish the rewind.

    Raises:
        CheckpointError: if the backup folder exists.
    """
    files = checkpoint.files
    identity = checkpoint.identity.set_back(planned.epoch, _plans(checkpoint, planned))
    journal = {
        "version": VERSION,
        "finish": ["rewind", "--epoch", str(planned.epoch), "--yes"],
        "rewind": asdict(planned),
        "identity": identity.to_json(),
    }
    files.storage.write(files.CHANGE, journal)


def _plans(checkpoint: CheckpointReader, planned: Rewind) -> tuple[Json, ...]:
    """Return the offsets of the epoch and of those undone, also by a rewind before this one."""
    plans = []
    with contextlib.suppress(FileProblem):  # The epochs from a damaged log on are planned anew.
        for epoch in (planned.epoch, *planned.undone):
            plans.append(checkpoint.log(epoch).offset.to_json())
    before = checkpoint.identity.undone
    later = before[before.index(plans[-1]) + 1 :] if plans[-1] in before else ()
    return (*plans, *later)


def _finish(files: CheckpointFiles) -> None:
    """Finish the plan in the journal; an interrupted rewind may have done a part."""
    journal = _journal(files)
    planned = Rewind.from_json(journal["rewind"])
    files.write_text(f"{planned.backup}/{NOTE}", _note(planned))
    for name in planned.moved:
        kept = f"{planned.backup}/{name}"
        if name == files.IDENTITY:
            if not files.storage.exists(kept):
                files.write_text(kept, files.text(name))
            files.storage.write(name, journal["identity"])
        elif files.storage.exists(name):
            files.storage.move(name, kept)
    files.storage.remove(files.CHANGE)


def _note(planned: Rewind) -> str:
    listed = "\n".join(f"  {name}" for name in planned.moved)
    tops = list(dict.fromkeys(name.partition("/")[0] for name in planned.moved))
    backups = " ".join(f"{planned.backup}/{top}" for top in tops)
    return (
        f"The checkpoint {planned.path} was set back to epoch {planned.epoch}; its files of "
        f"{_epochs_text(planned) if planned.undone else 'its steps'} were moved here.\n\n"
        "To undo this, before the flow has run again: move all of these files back to where they\n"
        "were, under the same names relative to the checkpoint's directory. On a local disk, in\n"
        f"that directory:\n\n  cp -r {backups} .\n\n"
        "Once the flow has run again there is no way back, and this directory can be removed.\n\n"
        f"{listed}\n"
    )


def _lines(rewound: Rewind) -> Iterator[str]:
    if not rewound.undone and not rewound.restores_steps:
        yield f"epoch {rewound.epoch} is the last of {rewound.path} already: nothing to do"
        return
    verb = "is set" if rewound.done else "would be set"
    yield f"{rewound.path} {verb} back to epoch {rewound.epoch}, at {rewound.now}"
    if rewound.undone:
        replays = "does" if rewound.done else "would do"
        yield f"  the next run {replays} {_epochs_text(rewound)} again"
    if rewound.restores_steps:
        verb = "have" if rewound.done else "would have"
        yield f"  steps that were reset, added or dropped since {verb} their earlier state"
    count = f"{len(rewound.moved)} files"
    yield f"  {count} {'were' if rewound.done else 'would be'} moved to {rewound.backup}"
    if rewound.done:
        yield f"  {rewound.backup}/{NOTE} says how to undo this"
    else:
        yield "nothing has been changed: give --yes to do it"
    if not rewound.undone:
        return
    yield (
        "file sinks remove their output of these epochs when the next run has finished its first "
        "epoch; the output of other sinks stays"
    )


def _epochs_text(rewound: Rewind) -> str:
    """Return the undone epochs as text, such as ``epochs 3 to 5``."""
    many = "epochs" if len(rewound.undone) > 1 else "epoch"
    return f"{many} {spans(list(rewound.undone))}"
