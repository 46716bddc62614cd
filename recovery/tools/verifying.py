"""Verification that a checkpoint is whole: the next run has all files, and can read them.

Spark stores each partition's state as *snapshots*, ``<version>_<id>.zip``, which list shared files
below ``SSTs``, and *changelogs*, ``<version>_<id>.changelog``, the changes from one version to the
next. A changelog begins with its *lineage*: the versions back to a snapshot. An epoch's commit
names the id of its version; versions count from 1, so that batch n makes version n + 1.

In format 1, that of Spark 4.0, there are no ids: names are ``<version>.zip`` and
``<version>.changelog``, and the lineage is all versions back to the newest snapshot.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from flow.engine.checkpoint.stored_log import LogFiles, entries_of, missing_page, summary_of
from flow.engine.feed.offsets import EpochOffset
from flow.engine.progress.stream_progress import StepProgress
from flow.engine.state.store import SEED_SUMS
from flow.engine.tables.table_files import SEAL, files_of, folder_of
from flow.errors import CheckpointError, first_line
from recovery.reading.checkpoint_reader import (
    CheckpointReader,
    StateIds,
    open_checkpoint,
    open_files,
)
from recovery.reading.epoch_state import (
    EpochState,
    KeySnapshot,
    decode_segment,
    load_snapshot,
)
from recovery.reading.file_problems import CHANGED, FileProblem, PathLike, command, java_reason
from recovery.tools.relocating import Here, lost, lost_inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recovery.reading.checkpoint_files import CheckpointFiles

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
    """Check that a checkpoint has all files that the next run needs, and that they can be read.

    The files are the identity, the logs of all retained epochs, the files of sources and inputs,
    and the state of the newest epoch, of which all keys are read.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        spark: the session that reads it; by default the active one, else a new local one.

    Returns:
        The problems; an empty list if the checkpoint is whole.

    Raises:
        CheckpointError: when the directory is not a checkpoint.
    """
    files = open_files(path, spark)
    if not files.storage.exists("flow.json") and not files.storage.names("spark/offsets"):
        raise CheckpointError(f"{files.root} is not a flow's checkpoint: it has no flow.json")
    try:
        checkpoint = open_checkpoint(path, spark)
        if checkpoint.files.storage.exists("flow.json"):
            checkpoint.files.text("flow.json")
    except CheckpointError as error:
        way_out = "put it back from a copy of the checkpoint; it says which flow this is"
        return [Problem("flow.json", _about(error, "flow.json", files), way_out)]
    return [
        *_journal(files),
        *_logs(checkpoint, {epoch: epoch != checkpoint.begun for epoch in checkpoint.logged}),
        *_beside(files),
        *_seed(checkpoint),
        *_tables(checkpoint, checkpoint.logged),
        *_state(checkpoint),
    ]


def _journal(files: CheckpointFiles) -> Iterator[Problem]:
    """Yield a problem if a tool was interrupted and has to finish its plan."""
    from flow.engine.checkpoint.checkpoint import finishing_command

    if files.storage.exists(files.CHANGE):
        problem = "says that a tool was cut off while it changed the checkpoint"
        way_out = f"do the rest with: {finishing_command(files.storage)}"
        yield Problem(files.CHANGE, problem, way_out)


def check(path: PathLike, spark: SparkSession) -> None:
    """Check that the files that the next run reads at its start are whole.

    The files are those of the newest epoch, and of an epoch that was begun. The check does not
    decode state.

    Raises:
        CheckpointError: when a file is missing, truncated or changed; the error has the solution.
    """
    checkpoint = open_checkpoint(path, spark)
    # Of logs, Spark reads those of the last two epochs. It begins an epoch after the commit of the
    # epoch before.
    newest, begun = _newest(checkpoint), checkpoint.begun or 0
    problems = [
        *_logs(checkpoint, {epoch: newest < epoch < begun for epoch in checkpoint.logged[-2:]}),
        *_lost(checkpoint.files),
        *_seed(checkpoint),
        *_tables(checkpoint, checkpoint.logged[-1:]),
        *_state_files(checkpoint),
    ]
    if problems:
        lines = [f"checkpoint {checkpoint.root} is not whole:", *(f"  {one}" for one in problems)]
        raise CheckpointError("\n".join(lines))


def _about(error: CheckpointError, name: str, files: CheckpointFiles) -> str:
    """Return the first line of an error, without the file's name."""
    line = first_line(error)
    for before in (f"file:{files.root}/{name} ", f"{files.root}/{name} ", f"{name} "):
        line = line.removeprefix(before)
    return line.removesuffix(f": {FROM_A_COPY}")


def _newest(checkpoint: CheckpointReader) -> int:
    """Return the newest finished epoch; -1 if no epoch is finished."""
    return checkpoint.committed[-1] if checkpoint.committed else -1


def _logs(checkpoint: CheckpointReader, epochs: Mapping[int, bool]) -> Iterator[Problem]:
    """Yield the problems of the logs of epochs.

    The logs of the newest finished epoch are left out: they are checked together with its state.

    Args:
        checkpoint: the checkpoint.
        epochs: the epochs, each with True if the commit is checked too.
    """
    newest = _newest(checkpoint)
    for epoch, has_commit in epochs.items():
        if epoch == newest:
            continue
        for read in (checkpoint.log, checkpoint.commit) if has_commit else (checkpoint.log,):
            try:
                read(epoch)
            except CheckpointError as error:
                yield _log_problem(checkpoint, error, epoch, newest)


def _log_problem(checkpoint: CheckpointReader, error: Any, epoch: int, newest: int) -> Problem:
    """Return the problem of an epoch's log, with a solution.

    A run needs the log of an epoch after `newest`, the newest finished epoch; `newest` is negative
    if no epoch is finished. Only a rewind needs the log of an earlier epoch.
    """
    way_out = f"only setting the checkpoint back to epoch {epoch} needs it"
    if epoch > newest >= 0:
        way_out = _rewind_to(checkpoint, newest)
    elif epoch > newest:
        way_out = "no epoch is finished: remove the directory and start over"
    return Problem(error.file, error.problem, way_out)


def _beside(files: CheckpointFiles) -> Iterator[Problem]:
    """Yield the problems of the files of sources and inputs."""
    for source in files.storage.names("sources"):
        yield from _source_log(files, f"sources/{source}")
    for name in files.storage.names("inputs"):
        for part in files.storage.names(f"inputs/{name}"):
            yield from _checked(files, f"inputs/{name}/{part}")
    yield from _lost(files)


def _lost(files: CheckpointFiles) -> Iterator[Problem]:
    """Yield the problems of lists of files that name another directory."""
    for problem in lost_inputs(files):
        yield Problem(problem.file, problem.problem, problem.way_out or FROM_A_COPY)


def _seed(checkpoint: CheckpointReader) -> Iterator[Problem]:
    """Yield the problems of the seed of a later generation, until its first epoch is finished."""
    sums: dict[str, int] = {}

    def read_sums(files: CheckpointFiles, name: str) -> None:
        sums.update(files.storage.read(name))

    def read(files: CheckpointFiles, name: str) -> None:
        if zlib.crc32(files.storage.read_bytes(name)) != sums[name]:
            raise FileProblem(name, CHANGED)

    if checkpoint.identity.generation and not checkpoint.committed:
        yield from _checked(checkpoint.files, f"{checkpoint.identity.seed}/{SEED_SUMS}", read_sums)
        for name in sums:
            yield from _checked(checkpoint.files, name, read)


def _tables(checkpoint: CheckpointReader, epochs: list[int]) -> Iterator[Problem]:
    """Yield the problems of the files of tables that epochs see.

    The versions at the start of a generation, and those of the epoch that was interrupted before
    it, are needed until an epoch of the generation is logged.
    """

    def read(files: CheckpointFiles, name: str) -> None:
        SEAL.open(name, files.storage.read_bytes(name))

    identity = checkpoint.identity
    starts = [] if checkpoint.logged else [identity.start, identity.begun]
    offsets = [EpochOffset.from_json(start) for start in starts if start]
    for epoch in epochs:
        with contextlib.suppress(CheckpointError):  # Problems of logs are reported by themselves.
            offsets.append(checkpoint.log(epoch).offset)
    names = [
        f"{folder_of(table)}/{file}"
        for offset in offsets
        if offset.control is not None
        for table, version in offset.control.tables.items()
        for file in files_of(version)
    ]
    for name in dict.fromkeys(names):
        yield from _checked(checkpoint.files, name, read)


def _source_log(files: CheckpointFiles, folder: str) -> Iterator[Problem]:
    """Yield the problems of a source's log: of its summary, and of the pages after the summary."""
    log = LogFiles.of(files.storage.names(folder))
    if log.summary is not None:
        yield from _checked(files, f"{folder}/{log.summary.name}", _read_summary)
    number: int | None = log.start
    for page in log.pages:
        if number is not None and page.number > number:
            yield Problem(f"{folder}/{missing_page(number)}", "is missing", FROM_A_COPY)
        count = yield from _checked(files, f"{folder}/{page.name}", _count_entries)
        # The number of entries of an unreadable page is unknown, so a gap after it is not reported.
        number = None if count is None else page.number + count


def _read_summary(files: CheckpointFiles, name: str) -> None:
    summary_of(name, files.storage.read_bytes(name))


def _count_entries(files: CheckpointFiles, name: str) -> int:
    return len(entries_of(name, files.storage.read(name)))


def _checked(
    files: CheckpointFiles,
    name: str,
    read: Callable[[CheckpointFiles, str], int | None] = lambda *_: None,
) -> Generator[Problem, None, int | None]:
    """Yield the problems of a file; return the result of `read`, ``None`` if it fails."""
    try:
        files.content(name)
        return read(files, name)
    except FileProblem as problem:
        yield Problem(name, problem.problem, FROM_A_COPY)
    except CheckpointError as error:
        yield Problem(name, _about(error, name, files), FROM_A_COPY)
    return None


def _state_files(checkpoint: CheckpointReader) -> list[Problem]:
    """Return the problems of the files of the newest epoch's state."""
    if not checkpoint.committed:
        return []
    newest = checkpoint.newest
    broken = StateFiles(checkpoint).problems(newest)
    way_out = _way_back(checkpoint, newest) if broken else ""
    return [Problem(one.file, one.problem, one.way_out or way_out) for one in broken]


def _state(checkpoint: CheckpointReader) -> Iterator[Problem]:
    """Yield the problems of the newest epoch's state: of its files, then of their contents."""
    broken = _state_files(checkpoint)
    yield from broken
    if broken or not checkpoint.committed:
        return
    newest = checkpoint.newest
    try:
        yield from _contents(EpochState(checkpoint, newest))
    except CheckpointError as error:
        way_out = _way_back(checkpoint, newest)
        reason = first_line(error) if error.__cause__ is None else java_reason(error.__cause__)
        yield Problem("", f"the state of epoch {newest} cannot be read: {reason}", way_out)


def _contents(state: EpochState) -> Iterator[Problem]:
    """Yield the problems of headers, segments and snapshots, and of their counts."""
    counted = {name: sum(one.keys for one in of.values()) for name, of in state.headers().items()}
    totals = dict.fromkeys(counted, 0)
    for name, shard, number, content in state.rows():
        step_id = state.checkpoint.step_of(name)
        try:
            keys = _keys(content, shard, number, step_id)
            totals[name] = totals.get(name, 0) + len(keys)
            for kept in keys:
                load_snapshot(kept, step_id)
        except CheckpointError as error:
            yield Problem("", first_line(error), _reset(step_id))
    for name, total in totals.items():
        if total != counted.get(name):
            step_id = state.checkpoint.step_of(name)
            problem = f"the state of step {step_id!r}: {counted.get(name, 0)} keys are counted, "
            yield Problem("", f"{problem}{total} are there", _reset(step_id))


def _keys(content: bytes, shard: int, number: int, step_id: str) -> list[KeySnapshot]:
    """Return the keys in a segment; the segment of stream progress is decoded and has none.

    Raises:
        CheckpointError: if the segment cannot be read.
    """
    if number >= 0:
        return decode_segment(content, shard, number, step_id)
    StepProgress.decode(content, step_id)
    return []


def _way_back(checkpoint: CheckpointReader, epoch: int) -> str:
    """Return the solution for an epoch whose state is not whole."""
    other = newest_whole(checkpoint, epoch)
    return FROM_A_COPY if other is None else _rewind_to(checkpoint, other)


def _rewind_to(checkpoint: CheckpointReader, epoch: int) -> str:
    back = command("rewind", checkpoint.root, "--epoch", epoch)
    return f"set the checkpoint back to epoch {epoch}: {back}"


def _reset(step_id: str) -> str:
    return f"reset the step: RecoveryConfig(..., reset_steps=[{step_id!r}])"


@dataclass
class StateFiles:
    """The files of a checkpoint's state, each of which is checked once.

    Attributes:
        checkpoint: the checkpoint.
    """

    checkpoint: CheckpointReader
    _whole: dict[str, FileProblem | None] = field(default_factory=dict)

    def problems(self, epoch: int) -> list[FileProblem]:
        """Return the problems of the epoch's logs and of the files of its state."""
        found: list[FileProblem] = []
        try:
            codec = self.checkpoint.log(epoch).codec
        except FileProblem as problem:
            found.append(problem)
            codec = "lz4"
        try:
            commit = self.checkpoint.commit(epoch)
        except FileProblem as problem:
            return [*found, problem]
        return [*found, *self._states(commit, self.checkpoint.batch(epoch) + 1, codec)]

    def _states(self, of: StateIds, version: int, codec: str) -> Iterator[FileProblem]:
        for operator, ids in sorted(of.items()):
            yield from self._operator(operator)
            for partition, id_ in enumerate(ids):
                folder = f"{self.checkpoint.identity.spark}/state/{operator}/{partition}"
                try:
                    needed = self._needed(folder, (version, id_), codec)
                except FileProblem as problem:
                    yield problem
                else:
                    yield from self._seen(needed, codec)

    def _operator(self, operator: int) -> Iterator[FileProblem]:
        """Yield the problems of an operator's metadata."""
        folder = f"{self.checkpoint.identity.spark}/state/{operator}/_metadata/v2"
        names = [f"{folder}/{name}" for name in self.checkpoint.files.storage.names(folder)]
        return self._found(names or [f"{folder}/0"], self._schema_problem)

    def _schema_problem(self, name: str) -> FileProblem | None:
        """Return the problem of an operator's metadata, or of the schemas that the metadata names.

        Metadata names schemas by absolute paths, which are wrong once the checkpoint was moved.
        """
        files = self.checkpoint.files
        try:
            content = json.loads(files.text(name).partition("\n")[2])
            for store in content["stateStoreInfo"]:
                for uri in store["stateSchemaFilePaths"]:
                    if not self.checkpoint.spark_files.has(uri):
                        return lost(files, name, uri, moved=Here(files).path(uri) != uri)
        except FileProblem as problem:
            return problem
        except (ValueError, KeyError, TypeError) as error:
            return FileProblem(name, f"cannot be read: {first_line(error)}")
        return None

    def _needed(self, folder: str, wanted: tuple[int, str], codec: str) -> list[str]:
        """Return the files from which Spark loads a version, the pair of its number and its id.

        Raises:
            FileProblem: if a file that names others is missing or not whole.
        """

        def file(version: tuple[int, str]) -> str:
            return f"{folder}/{version[0]}_{version[1]}" if version[1] else f"{folder}/{version[0]}"

        def changelog(version: tuple[int, str]) -> str:
            return f"{file(version)}.changelog"

        def snapshot(version: tuple[int, str]) -> str:
            return f"{file(version)}.zip"

        files = self.checkpoint.files
        if files.storage.exists(snapshot(wanted)):
            return self._with_parts(folder, snapshot(wanted), codec)
        for problem in self._seen([changelog(wanted)], codec):
            raise problem
        if wanted[1]:
            lineage = self.checkpoint.spark_files.changelog_lineage(changelog(wanted), codec)
        else:
            names = files.storage.names(folder)
            there = [n for n in range(1, wanted[0]) if f"{n}.zip" in names]
            lineage = [(n, "") for n in range(max(there, default=1), wanted[0])]
        before = [version for version in lineage if version[0] < wanted[0]]
        changes = [changelog(wanted)]
        for version in reversed(before):
            if files.storage.exists(snapshot(version)):
                return [*self._with_parts(folder, snapshot(version), codec), *reversed(changes)]
            changes.append(changelog(version))
        # Changelogs back to version 1 are not enough: only snapshots hold the ids of variables.
        raise FileProblem(snapshot(before[0] if before else wanted), "is missing")

    def _with_parts(self, folder: str, snapshot: str, codec: str) -> list[str]:
        """Return a snapshot and the files that it lists, after a check of their sizes."""
        for problem in self._seen([snapshot], codec):
            raise problem
        files, sparks, needed = self.checkpoint.files, self.checkpoint.spark_files, [snapshot]
        for part, size in files.snapshot_parts(snapshot):
            name = f"{folder}/SSTs/{part}"
            if files.storage.exists(name) and sparks.size(name) != size:
                raise FileProblem(name, f"has {sparks.size(name)} bytes, and had {size}")
            needed.append(name)
        return needed

    def _seen(self, names: list[str], codec: str) -> Iterator[FileProblem]:
        """Yield the problems of files of the state; each file is read once."""
        return self._found(names, partial(self._problem_of, codec=codec))

    def _found(
        self, names: list[str], check: Callable[[str], FileProblem | None]
    ) -> Iterator[FileProblem]:
        for name in names:
            if name not in self._whole:
                self._whole[name] = check(name)
            problem = self._whole[name]
            if problem is not None:
                yield problem

    def _problem_of(self, name: str, codec: str) -> FileProblem | None:
        files = self.checkpoint.spark_files
        try:
            files.check(name)
            if name.endswith(".changelog"):
                files.changelog_lineage(name, codec)
            elif name.endswith(".zip"):
                self.checkpoint.files.snapshot_parts(name)
        except FileProblem as problem:
            return problem
        return None


def newest_whole(checkpoint: CheckpointReader, before: int) -> int | None:
    """Return the last epoch before `before` whose state is whole; ``None`` if none is whole."""
    state = StateFiles(checkpoint)
    for epoch in reversed(checkpoint.committed):
        if epoch < before and not state.problems(epoch):
            return epoch
    return None


def check_state(checkpoint: CheckpointReader, epoch: int) -> None:
    """Check that an epoch's state is whole.

    Raises:
        CheckpointError: if not; the error names the first file, and the last epoch that is whole.
    """
    problems = StateFiles(checkpoint).problems(epoch)
    if not problems:
        return
    other = newest_whole(checkpoint, epoch)
    instead = "" if other is None else f"; the last epoch before it that is whole is {other}"
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    raise CheckpointError(
        f"the state of epoch {epoch} is not whole: {problems[0]}{more} in {checkpoint.root}"
        f"{instead}"
    )
