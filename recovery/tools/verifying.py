"""Verification that a checkpoint is whole: the next run has all files, and can read them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from flow.errors import CheckpointError, first_line
from recovery.reading.checkpoint import KeptCheckpoint, open_checkpoint, open_files
from recovery.reading.kept_state import KeptKey, KeptState, decode_segment, load_snapshot
from recovery.reading.lineage import StateFiles, newest_whole
from recovery.reading.paths import PathLike
from recovery.reading.places import lost_inputs
from recovery.reading.problems import FileProblem, java_reason
from recovery.reading.rendering import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recovery.reading.files import CheckpointFiles

Json: TypeAlias = Any

FROM_A_COPY = "put it back from a copy of the checkpoint, or start over on another one"


@dataclass(frozen=True)
class Problem:
    """A problem of a checkpoint.

    Attributes:
        file: the name of the broken file; empty for a problem of several files.
        problem: the problem.
        way_out: the action that solves the problem.
    """

    file: str
    problem: str
    way_out: str

    def __str__(self) -> str:
        """Return the problem in one line."""
        return f"{f'{self.file} ' if self.file else ''}{self.problem}: {self.way_out}"


def verify(path: PathLike, *, spark: SparkSession | None = None) -> list[Problem]:
    """Look whether all that the next run needs is in a checkpoint, and can be read.

    That is: what it says of itself, the logs of all epochs that are kept, what sources and inputs
    keep, and the state of the newest epoch, which is read whole.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        spark: the session that reads it; by default the active one, else a new local one.

    Returns:
        What is wrong; nothing if the checkpoint is whole.

    Raises:
        CheckpointError: when the directory is not a checkpoint at all.
    """
    files = open_files(path, spark)
    if not files.exists("flow.json") and not files.names("spark/offsets"):
        raise CheckpointError(f"{files.root} is not a flow's checkpoint: it has no flow.json")
    try:
        checkpoint = open_checkpoint(path, files.session)
        if checkpoint.files.exists("flow.json"):
            checkpoint.files.text("flow.json")
    except CheckpointError as error:
        way_out = "put it back from a copy of the checkpoint; it says which flow this is"
        return [Problem("flow.json", _about(error, "flow.json", files), way_out)]
    return [
        *_journal(files),
        *_logs(checkpoint),
        *_beside(files),
        *_seed(checkpoint),
        *_state(checkpoint),
    ]


def _journal(files: CheckpointFiles) -> Iterator[Problem]:
    """Yield a problem if an interrupted tool has work left."""
    from flow.engine.checkpoint.checkpoint import CHANGE

    if files.exists(CHANGE):
        problem = "says that a tool was cut off while it changed the checkpoint"
        yield Problem(CHANGE, problem, f"do the rest with: {files.read(CHANGE)['finish']}")


def check(path: PathLike, spark: SparkSession) -> None:
    """Make sure that the files are whole that the next run starts from.

    Those are the newest epoch's, and those of one that was begun; no state is unpacked.

    Raises:
        CheckpointError: when one is missing, cut off or changed; it says what may be done.
    """
    checkpoint = open_checkpoint(path, spark)
    problems = [
        *_last_logs(checkpoint),
        *_lost(checkpoint.files),
        *_seed(checkpoint),
        *_state_files(checkpoint),
    ]
    if problems:
        lines = [f"checkpoint {checkpoint.root} is not whole:", *(f"  {one}" for one in problems)]
        raise CheckpointError("\n".join(lines))


def _last_logs(checkpoint: KeptCheckpoint) -> Iterator[Problem]:
    """The logs of the last two epochs, which Spark reads to go on; but for the newest that is done.

    That one is looked at with its state.
    """
    newest = checkpoint.committed[-1] if checkpoint.committed else -1
    for epoch in checkpoint.logged[-2:]:
        if epoch != newest:
            # Spark begins an epoch when the one before is done: that one has a commit.
            done = newest < epoch < (checkpoint.begun or 0)
            for read in (checkpoint.log, checkpoint.commit) if done else (checkpoint.log,):
                try:
                    read(epoch)
                except CheckpointError as error:
                    yield _of_log(checkpoint, error, epoch, newest)


def _about(error: CheckpointError, name: str, files: CheckpointFiles) -> str:
    """Return the first line of an error, without the file's name."""
    said = first_line(error)
    for before in (f"file:{files.root}/{name} ", f"{files.root}/{name} ", f"{name} "):
        said = said.removeprefix(before)
    return said.removesuffix(f": {FROM_A_COPY}")


def _logs(checkpoint: KeptCheckpoint) -> Iterator[Problem]:
    """The logs of epochs: those of the newest are looked at with its state."""
    newest = checkpoint.committed[-1] if checkpoint.committed else -1
    for epoch in checkpoint.logged:
        if epoch == newest:
            continue
        begun = epoch == checkpoint.begun
        for read in (checkpoint.log,) if begun else (checkpoint.log, checkpoint.commit):
            try:
                read(epoch)
            except CheckpointError as error:
                yield _of_log(checkpoint, error, epoch, newest)


def _of_log(checkpoint: KeptCheckpoint, error: Any, epoch: int, newest: int) -> Problem:
    way_out = f"only setting the checkpoint back to epoch {epoch} needs it"
    if epoch > newest >= 0:
        way_out = _rewind_to(checkpoint, newest)
    elif epoch > newest:
        way_out = "no epoch is finished: remove the directory and start over"
    return Problem(error.file, error.problem, way_out)


def _beside(files: CheckpointFiles) -> Iterator[Problem]:
    """Yield the problems of the files of sources and inputs."""
    for source in files.names("sources"):
        yield from _source_log(files, f"sources/{source}")
    for name in files.names("inputs"):
        for part in files.names(f"inputs/{name}"):
            yield from _checked(files, f"inputs/{name}/{part}")
    yield from _lost(files)


def _lost(files: CheckpointFiles) -> Iterator[Problem]:
    """Lists of files that name another place."""
    for one in lost_inputs(files):
        yield Problem(one.file, one.problem, one.way_out or FROM_A_COPY)


def _seed(checkpoint: KeptCheckpoint) -> Iterator[Problem]:
    """The state that a later generation starts with, until it has started."""
    identity = checkpoint.identity
    if identity.start is None or checkpoint.committed:
        return
    names = checkpoint.files.names(identity.seed)
    if not names:
        yield Problem(identity.seed, "is missing", FROM_A_COPY)
    for name in names:
        yield from _checked(checkpoint.files, f"{identity.seed}/{name}")


def _source_log(files: CheckpointFiles, folder: str) -> Iterator[Problem]:
    """A source's log: its summary, and the pages after it, none of which may be left out."""
    from flow.engine.checkpoint.source_log import LogFiles, missing_page

    log = LogFiles.of(files.names(folder))
    if log.summary is not None:
        yield from _checked(files, f"{folder}/{log.summary.name}", _read_summary)
    number: int | None = log.start
    for page in log.pages:
        if number is not None and page.number > number:
            yield Problem(f"{folder}/{missing_page(number)}", "is missing", FROM_A_COPY)
        count = yield from _checked(files, f"{folder}/{page.name}", _count_entries)
        # Where a page that cannot be read ended, only the next one says.
        number = None if count is None else page.number + count


def _read_summary(files: CheckpointFiles, name: str) -> None:
    from flow.engine.checkpoint.source_log import summary_of

    summary_of(name, files.read_bytes(name))


def _count_entries(files: CheckpointFiles, name: str) -> int:
    from flow.engine.checkpoint.source_log import entries_of

    return len(entries_of(name, files.read(name)))


def _checked(
    files: CheckpointFiles,
    name: str,
    read: Callable[[CheckpointFiles, str], int | None] = lambda *_: None,
) -> Generator[Problem, None, int | None]:
    """Problems of a file; returns what `read` returns, ``None`` if that fails."""
    try:
        files.check(name)
        return read(files, name)
    except FileProblem as problem:
        yield Problem(name, problem.problem, FROM_A_COPY)
    except CheckpointError as error:
        yield Problem(name, _about(error, name, files), FROM_A_COPY)
    return None


def _state_files(checkpoint: KeptCheckpoint) -> list[Problem]:
    """The files that the state of the newest epoch is made of."""
    if not checkpoint.committed:
        return []
    newest = checkpoint.newest
    broken = StateFiles(checkpoint).problems(newest)
    other = newest_whole(checkpoint, newest) if broken else None
    way_out = FROM_A_COPY if other is None else _rewind_to(checkpoint, other)
    return [Problem(one.file, one.problem, one.way_out or way_out) for one in broken]


def _state(checkpoint: KeptCheckpoint) -> Iterator[Problem]:
    """The state of the newest epoch: its files, and if these are whole, all that is in them."""
    broken = _state_files(checkpoint)
    yield from broken
    if broken or not checkpoint.committed:
        return
    newest = checkpoint.newest
    try:
        yield from _contents(KeptState(checkpoint, newest))
    except CheckpointError as error:
        other = newest_whole(checkpoint, newest)
        way_out = FROM_A_COPY if other is None else _rewind_to(checkpoint, other)
        said = first_line(error) if error.__cause__ is None else java_reason(error.__cause__)
        yield Problem("", f"the state of epoch {newest} cannot be read: {said}", way_out)


def _contents(state: KeptState) -> Iterator[Problem]:
    """Yield the problems of headers, segments and snapshots, and of their counts."""
    counted = {name: sum(one.keys for one in of.values()) for name, of in state.headers().items()}
    found = dict.fromkeys(counted, 0)
    for name, shard, number, content in state.rows():
        step_id = state.checkpoint.step_of(name)
        try:
            keys = _keys(content, shard, number, step_id)
            found[name] = found.get(name, 0) + len(keys)
            for kept in keys:
                load_snapshot(kept, step_id)
        except CheckpointError as error:
            yield Problem("", first_line(error), _reset(step_id))
    for name, keys_there in found.items():
        if keys_there != counted.get(name):
            step_id = state.checkpoint.step_of(name)
            said = f"the state of step {step_id!r}: {counted.get(name, 0)} keys are counted, "
            yield Problem("", f"{said}{keys_there} are there", _reset(step_id))


def _keys(content: bytes, shard: int, number: int, step_id: str) -> list[KeptKey]:
    if number >= 0:
        return decode_segment(content, shard, number, step_id)
    from flow.engine.progress.stream_progress import StepProgress

    StepProgress.decode(content, step_id)
    return []


def _rewind_to(checkpoint: KeptCheckpoint, epoch: int) -> str:
    back = command("rewind", checkpoint.root, "--epoch", epoch)
    return f"set the checkpoint back to epoch {epoch}: {back}"


def _reset(step_id: str) -> str:
    return f"start the step afresh: RecoveryConfig(..., reset_steps=[{step_id!r}])"
