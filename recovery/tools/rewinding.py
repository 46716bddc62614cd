"""Setting a checkpoint back, so that the next run goes on after an earlier epoch.

What Spark logged of later epochs is moved away; the next run finds the earlier epoch to be the
last, and its commit names the state to load. State of later versions may stay: a version's files
have names of their own, and the runs after this one write others. But the *snapshots* among them
are moved away too: Spark counts back from the last it finds when it removes old state, and could
remove what the earlier epoch still needs.

A tool that is killed half-way must not leave what looks whole, so what is to be done is written
down first, in a journal. While that is there no run starts, and setting back again does the rest.

If steps have been reset, added or removed since, the checkpoint knows them again as it did then:
the state that was given up meanwhile is there at the earlier epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from flow.errors import CheckpointError
from recovery.reading.checkpoint import KeptCheckpoint, open_checkpoint, spans
from recovery.reading.lineage import check_state
from recovery.reading.paths import PathLike
from recovery.reading.rendering import command, time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.engine.checkpoint.checkpoint import Identity
    from recovery.reading.files import CheckpointFiles

Json: TypeAlias = Any

NOTE = "how-to-undo.txt"
IDENTITY = "flow.json"
_SNAPSHOT = re.compile(r"(\d+)_[^.]+\.zip(?:\.crc)?")


@dataclass(frozen=True)
class Rewind:
    """What setting a checkpoint back does, or has done.

    Attributes:
        path: the checkpoint's directory.
        epoch: the epoch after which the next run goes on.
        now: that epoch's system time, RFC 3339.
        undone: the epochs after it, which will be done again.
        moved: the files that are moved away, by their names in the checkpoint, in order.
        restores_steps: whether the flow was another one then, or kept its state elsewhere.
        backup: where to, in the checkpoint's directory.
        done: whether it has been done.
    """

    path: str
    epoch: int
    now: str | None
    undone: tuple[int, ...]
    moved: tuple[str, ...]
    restores_steps: bool
    backup: str
    done: bool

    def to_json(self) -> Json:
        """The rewind as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Json) -> Rewind:
        """The rewind in JSON made by `to_json`."""
        lists = {name: tuple(content[name]) for name in ("undone", "moved")}
        return cls(**{**content, **lists})

    def __str__(self) -> str:
        """What it does, for people."""
        return "\n".join(_lines(self))


def rewind(
    path: PathLike, epoch: int, *, yes: bool = False, spark: SparkSession | None = None
) -> Rewind:
    """Set a checkpoint back, so that the next run goes on after an earlier epoch.

    One that was cut off is finished first, whichever epoch it set the checkpoint back to.

    The sinks of files remove what they have published for later epochs as the next run finishes its
    first; what other sinks have written stays.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        epoch: the epoch after which the next run goes on, one that is kept.
        yes: whether to do it; otherwise nothing is changed, and what would be done is returned.
        spark: the session to use; else the one there is, else a local one is made.

    Raises:
        CheckpointError: when the epoch is not kept, its state is not whole, or a run is using the
            checkpoint; nothing has been changed then.
    """
    from flow.engine.checkpoint.checkpoint import CHANGE
    from flow.engine.checkpoint.lock import NAME, CheckpointLock

    checkpoint = open_checkpoint(path, spark)
    checkpoint.chosen(epoch)
    locking = yes or checkpoint.files.exists(NAME)
    with CheckpointLock(checkpoint.files) if locking else nullcontext():
        if checkpoint.files.exists(CHANGE):
            begun = _begun(checkpoint.files, yes)
            if begun.epoch == epoch:
                return begun
        checkpoint = open_checkpoint(path, checkpoint.spark)  # as it is now that nobody changes it
        planned = _planned(checkpoint, checkpoint.chosen(epoch), yes)
        check_state(checkpoint, epoch)
        if yes and planned.moved:
            _begin(checkpoint, planned)
            _finish(checkpoint.files)
    return planned


def _begun(files: CheckpointFiles, yes: bool) -> Rewind:
    """Return the rewind that was cut off, finished if that was asked for.

    Raises:
        CheckpointError: when it was not.
    """
    from flow.engine.checkpoint.checkpoint import CHANGE, check_settled

    if not yes:
        check_settled(files)
    begun = Rewind.from_json(files.read(CHANGE)["rewind"])
    _finish(files)
    return begun


def _planned(checkpoint: KeptCheckpoint, epoch: int, done: bool) -> Rewind:
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
            *((IDENTITY,) if undone or restores_steps else ()),
        ),
        restores_steps=restores_steps,
        backup=f"rewound-{datetime.now(UTC):%Y%m%dT%H%M%SZ}",
        done=done,
    )


def _steps_in(identity: Identity) -> Json:
    """What a checkpoint says of the flow's steps, and where these keep their state."""
    kept = identity.recovery if isinstance(identity.recovery, dict) else {}
    known = kept.get("fingerprint", {})
    return kept.get("names"), known.get("keyed"), known.get("inputs"), kept.get("left")


def _logs(checkpoint: KeptCheckpoint, undone: list[int]) -> Iterator[str]:
    """The logs of epochs, in an order such that Spark can go on from what is left at any time.

    An epoch without its commit is one to be done again; a commit without its offset is none.
    """
    for epoch in reversed(undone):
        for kind in ("commits", "offsets"):
            name = checkpoint.log_file(kind, epoch)
            if checkpoint.files.exists(name):
                yield name


def _snapshots(checkpoint: KeptCheckpoint, epoch: int) -> Iterator[str]:
    """The snapshots of the state of later epochs."""
    version = checkpoint.batch(epoch) + 1
    state = f"{checkpoint.identity.spark}/state"
    for operator in checkpoint.operators:
        for partition in range(checkpoint.identity.partitions):
            folder = f"{state}/{operator}/{partition}"
            for name in checkpoint.files.names(folder):
                match = _SNAPSHOT.fullmatch(name)
                if match and int(match[1]) > version:
                    yield f"{folder}/{name}"


def _begin(checkpoint: KeptCheckpoint, planned: Rewind) -> None:
    """Write down what is to be done."""
    from flow.engine.checkpoint.checkpoint import CHANGE

    files = checkpoint.files
    if files.exists(planned.backup):
        raise CheckpointError(f"{checkpoint.root}/{planned.backup} is there already: try again")
    epoch = planned.epoch
    journal = {
        "finish": command("rewind", checkpoint.root, "--epoch", epoch, "--yes"),
        "rewind": planned.to_json(),
        "identity": checkpoint.identity.set_back(epoch).to_json(),
    }
    files.write(CHANGE, journal)


def _finish(files: CheckpointFiles) -> None:
    """Do what is written down, or the rest of it; what is done already stays as it is."""
    from flow.engine.checkpoint.checkpoint import CHANGE

    journal = files.read(CHANGE)
    planned = Rewind.from_json(journal["rewind"])
    files.write_text(f"{planned.backup}/{NOTE}", _note(planned))
    for name in planned.moved:
        kept = f"{planned.backup}/{name}"
        if name == IDENTITY:
            if not files.exists(kept):
                files.write_text(kept, files.text(name))
            files.write(name, journal["identity"])
        elif files.exists(name):
            files.move(name, kept)
        else:
            files.remove_checksum(name)  # the file was moved, and what checks it was not
    files.remove(CHANGE)


def _note(planned: Rewind) -> str:
    listed = "\n".join(f"  {name}" for name in planned.moved)
    tops = list(dict.fromkeys(name.partition("/")[0] for name in planned.moved))
    if IDENTITY in tops:
        tops.append(f".{IDENTITY}.crc")  # by which Hadoop checks it on a local disk
    backups = " ".join(f"{planned.backup}/{top}" for top in tops)
    return (
        f"The checkpoint {planned.path} was set back to epoch {planned.epoch}; what it knew of "
        f"{_epochs(planned) if planned.undone else 'its steps'} was moved here.\n\n"
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
        yield f"  the next run {'does' if rewound.done else 'would do'} {_epochs(rewound)} again"
    if rewound.restores_steps:
        yield f"  steps {'are' if rewound.done else 'would be'} known again as they were then"
    count = f"{len(rewound.moved)} files"
    yield f"  {count} {'were' if rewound.done else 'would be'} moved to {rewound.backup}"
    if rewound.done:
        yield f"  {rewound.backup}/{NOTE} says how to undo this"
    else:
        yield "nothing has been changed: give --yes to do it"
    if not rewound.undone:
        return
    yield (
        "sinks of files take back what they published for these epochs when the next run has "
        "finished its first; what other sinks have written stays"
    )


def _epochs(rewound: Rewind) -> str:
    many = "epochs" if len(rewound.undone) > 1 else "epoch"
    return f"{many} {spans(list(rewound.undone))}"
