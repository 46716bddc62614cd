"""The files that a version of the state consists of.

Spark stores each partition's state as *snapshots*, ``<version>_<id>.zip``, which list shared files
below ``SSTs``, and *changelogs*, ``<version>_<id>.changelog``, the changes from one version to the
next. A changelog begins with its *lineage*: the versions back to a snapshot. An epoch's commit
names the id of its version; versions count from 1, so that batch n makes version n + 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from flow.errors import CheckpointError, first_line
from recovery.reading.checkpoint import CheckpointReader, StateIds
from recovery.reading.places import Here, lost
from recovery.reading.problems import FileProblem


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
                yield from self._partition(_Partition(self, folder, codec), version, id_)

    def _operator(self, operator: int) -> Iterator[FileProblem]:
        """Yield the problems of an operator's metadata."""
        folder = f"{self.checkpoint.identity.spark}/state/{operator}/_metadata/v2"
        names = [f"{folder}/{name}" for name in self.checkpoint.files.names(folder)]
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
        state: the files of the whole state, with the results of checks.
        folder: the folder of the partition's files.
        codec: the compression codec of changelogs.
    """

    state: StateFiles
    folder: str
    codec: str

    def needed(self, version: int, id_: str) -> list[str]:
        """Return the files from which Spark loads a version.

        Raises:
            FileProblem: if a file that names others is missing or not whole.
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
        # Changelogs back to version 1 are not enough: only snapshots hold the ids of variables.
        first = before[0] if before else (version, id_)
        raise FileProblem(self._snapshot(*first), "is missing")

    def _with_parts(self, snapshot: str) -> list[str]:
        """Return a snapshot and the files that it lists, after a check of their sizes."""
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
