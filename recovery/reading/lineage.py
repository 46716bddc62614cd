"""The files that a version of the state is made of.

Spark keeps each partition's state as *snapshots*, ``<version>_<id>.zip``, which list shared files
below ``SSTs``, and *changelogs*, ``<version>_<id>.changelog``, what each version changed of the one
before. A changelog begins with its *lineage*: the versions back to a snapshot. An epoch's commit
names the id of the version that it made; versions count from 1, so that batch n makes n + 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flow.errors import CheckpointError, first_line
from recovery.reading.checkpoint import KeptCheckpoint
from recovery.reading.places import Here, lost
from recovery.reading.problems import FileProblem

if TYPE_CHECKING:
    from recovery.reading.epochs import CommitLog


@dataclass
class StateFiles:
    """Looks up, and checks, the files of a checkpoint's state; what it has seen it remembers.

    Attributes:
        checkpoint: the checkpoint.
    """

    checkpoint: KeptCheckpoint
    _whole: dict[str, FileProblem | None] = field(default_factory=dict)

    def problems(self, epoch: int) -> list[FileProblem]:
        """What is wrong with the files that an epoch's state is made of; nothing if it is whole.

        The logs of the epoch are among them.
        """
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

    def _states(self, commit: CommitLog, version: int, codec: str) -> Iterator[FileProblem]:
        for operator, ids in sorted(commit.state.items()):
            yield from self._operator(operator)
            for partition, id_ in enumerate(ids):
                folder = f"{self.checkpoint.identity.spark}/state/{operator}/{partition}"
                yield from self._partition(_Partition(self, folder, codec), version, id_)

    def _operator(self, operator: int) -> Iterator[FileProblem]:
        """What is wrong with the files that say what an operator keeps."""
        folder = f"{self.checkpoint.identity.spark}/state/{operator}/_metadata/v2"
        names = [f"{folder}/{name}" for name in self.checkpoint.files.names(folder)]
        for name in names or [f"{folder}/0"]:
            if name not in self._whole:
                self._whole[name] = self._schema_problem(name)
            problem = self._whole[name]
            if problem is not None:
                yield problem

    def _schema_problem(self, name: str) -> FileProblem | None:
        """What is wrong with an operator's metadata, or with the schemas that it names.

        It names them by their whole paths, which are others once the checkpoint has been moved.
        """
        files = self.checkpoint.files
        try:
            content = json.loads(files.text(name).partition("\n")[2])
            for store in content["stateStoreInfo"]:
                for uri in store["stateSchemaFilePaths"]:
                    if not files.has(uri):
                        return lost(files, name, uri, moved=Here(files).path(uri) != uri)
        except FileProblem as problem:
            return problem
        except (ValueError, KeyError, TypeError) as error:
            return FileProblem(name, f"cannot be read: {first_line(error)}")
        return None

    def _partition(self, state: _Partition, version: int, id_: str) -> Iterator[FileProblem]:
        try:
            needed = state.needed(version, id_)
        except FileProblem as problem:
            yield problem
            return
        yield from self.seen(needed, state.codec)

    def seen(self, names: list[str], codec: str) -> Iterator[FileProblem]:
        """What is wrong with files of the state; each is read only once."""
        for name in names:
            if name not in self._whole:
                self._whole[name] = self._problem_of(name, codec)
            problem = self._whole[name]
            if problem is not None:
                yield problem

    def _problem_of(self, name: str, codec: str) -> FileProblem | None:
        files = self.checkpoint.files
        try:
            files.check(name)
            if name.endswith(".changelog"):
                files.changelog_lineage(name, codec)
            elif name.endswith(".zip"):
                files.snapshot_parts(name)
        except FileProblem as problem:
            return problem
        return None


@dataclass(frozen=True)
class _Partition:
    """The state of one partition of one level.

    Attributes:
        state: what looks it up.
        folder: where its files are.
        codec: how they are compressed.
    """

    state: StateFiles
    folder: str
    codec: str

    def needed(self, version: int, id_: str) -> list[str]:
        """The files that a version is loaded from.

        Raises:
            FileProblem: when that cannot be told, because of a file that is missing or not whole.
        """
        files = self.state.checkpoint.files
        newest = self._changelog(version, id_)
        if files.exists(self._snapshot(version, id_)):
            return self._with_parts(self._snapshot(version, id_))
        for problem in self.state.seen([newest], self.codec):
            raise problem
        lineage = files.changelog_lineage(newest, self.codec)
        before = [one for one in lineage if one[0] < version]
        changes = [newest]
        for one in reversed(before):
            if files.exists(self._snapshot(*one)):
                return [*self._with_parts(self._snapshot(*one)), *reversed(changes)]
            changes.append(self._changelog(*one))
        # Not even changelogs back to version 1 do without: it is snapshots that say which variable
        # is which.
        first = before[0] if before else (version, id_)
        raise FileProblem(self._snapshot(*first), "is missing")

    def _with_parts(self, snapshot: str) -> list[str]:
        """A snapshot and the files it lists, none of which has another size than it says."""
        for problem in self.state.seen([snapshot], self.codec):
            raise problem
        files = self.state.checkpoint.files
        needed = [snapshot]
        for part, size in files.snapshot_parts(snapshot):
            name = f"{self.folder}/SSTs/{part}"
            if files.exists(name) and files.size(name) != size:
                raise FileProblem(name, f"has {files.size(name)} bytes, and had {size}")
            needed.append(name)
        return needed

    def _snapshot(self, version: int, id_: str) -> str:
        return f"{self.folder}/{version}_{id_}.zip"

    def _changelog(self, version: int, id_: str) -> str:
        return f"{self.folder}/{version}_{id_}.changelog"


def newest_whole(checkpoint: KeptCheckpoint, before: int) -> int | None:
    """The last epoch before another whose state is whole; ``None`` when there is none."""
    state = StateFiles(checkpoint)
    for epoch in reversed(checkpoint.committed):
        if epoch < before and not state.problems(epoch):
            return epoch
    return None


def check_state(checkpoint: KeptCheckpoint, epoch: int) -> None:
    """Make sure that an epoch's state is whole.

    Raises:
        CheckpointError: when it is not; it names the first file, and the epoch before that is.
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
