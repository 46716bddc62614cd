"""Access of the tools to a checkpoint: its identity, its epochs, and Spark's logs of them.

Spark writes offsets before an epoch and a commit after it. It counts the epochs of each generation
of a checkpoint from 0; these numbers are *batches* here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from flow.connectors.source import Json
from flow.engine.feed.offsets import EpochOffset
from flow.errors import CheckpointError, first_line
from flow.instants import NEVER, Moment
from recovery.reading.file_problems import FileProblem, PathLike, directory_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.engine.checkpoint.identity import Identity
    from flow.engine.spark.shipping import Layout
    from recovery.reading.checkpoint_files import CheckpointFiles, SparkFiles

StateIds: TypeAlias = Mapping[int, tuple[str, ...]]
"""The id of each partition's state, by Spark's number of the level's operator; "" in format 1."""

T = TypeVar("T")


@dataclass(frozen=True)
class CheckpointReader:
    """Reader of a checkpoint, for the tools.

    Attributes:
        files: the checkpoint's files.
        identity: the identity in ``flow.json``.
        session: the session that the caller has given; ``None`` for the active one.
    """

    files: CheckpointFiles
    identity: Identity
    session: SparkSession | None = None

    @cached_property
    def spark(self) -> SparkSession:
        """The session that reads Spark's state; a new local one if there is none."""
        return self.session or new_session()

    @cached_property
    def spark_files(self) -> SparkFiles:
        """The files of Spark's state."""
        from recovery.reading.checkpoint_files import SparkFiles

        return SparkFiles(self.spark, self.root)

    @property
    def root(self) -> str:
        """The checkpoint's directory."""
        return self.files.root

    @cached_property
    def committed(self) -> list[int]:
        """The finished epochs that have logs, in ascending order."""
        return sorted({*self._commits} & {*self._offsets})

    @cached_property
    def logged(self) -> list[int]:
        """The epochs that have any log, in ascending order."""
        return sorted({*self._commits} | {*self._offsets})

    @cached_property
    def begun(self) -> int | None:
        """The epoch that began and did not finish, which the next run replays; else ``None``."""
        last = max(self._offsets, default=None)
        return None if last in self._commits else last

    @property
    def newest(self) -> int:
        """The last finished epoch.

        Raises:
            CheckpointError: if no epoch is finished.
        """
        if not self.committed:
            raise CheckpointError(f"{self.root} has no finished epoch yet: there is no state")
        return self.committed[-1]

    def chosen(self, epoch: int | None) -> int:
        """Return a finished epoch: the given epoch, or else the last epoch.

        Raises:
            CheckpointError: if the epoch is not in the checkpoint; the error lists the epochs.
        """
        newest = self.newest
        if epoch is not None and epoch not in self.committed:
            raise CheckpointError(
                f"epoch {epoch} is not kept in {self.root}; kept are {spans(self.committed)}"
            )
        return newest if epoch is None else epoch

    @property
    def resumable(self) -> list[int]:
        """The finished epochs after which a run can continue, ascending.

        Spark reads the offsets of the epoch before as well, which are removed for the oldest one.
        """
        first, logged = self.identity.first_epoch, self._offsets
        return [epoch for epoch in self.committed if epoch == first or epoch - 1 in logged]

    def at(self, epoch: int) -> CheckpointReader:
        """Return a reader with the fingerprint, and the names of state, of the flow of an epoch."""
        recovery = self.identity.recovery_at(epoch)
        return replace(self, identity=replace(self.identity, recovery=recovery))

    def batch(self, epoch: int) -> int:
        """Return Spark's number of an epoch."""
        return epoch - self.identity.first_epoch

    def log(self, epoch: int) -> EpochLog:
        """Return the log that Spark wrote before an epoch ran.

        Raises:
            FileProblem: if the log is not whole.
        """
        return self._parsed(self.identity.log_file("offsets", epoch), EpochLog.parse)

    def commit(self, epoch: int) -> StateIds:
        """Return the ids of the state in the log that Spark wrote after an epoch.

        Raises:
            FileProblem: if the log is not whole.
        """
        ids = self._parsed(self.identity.log_file("commits", epoch), state_ids)
        if self.identity.state_format == 1:
            return dict.fromkeys(self.operators, ("",) * self.identity.partitions)
        return ids

    @cached_property
    def operators(self) -> list[int]:
        """Spark's numbers of the operators with state, one for each level."""
        return self._numbers("state")

    @property
    def layout(self) -> Layout:
        """The layout of the state."""
        from flow.engine.spark.shipping import Layout

        return Layout(self.identity.shards, self.identity.partitions, len(self.operators))

    @property
    def names(self) -> Mapping[str, str]:
        """The names of steps' state and of inputs' offsets that differ from their ids, by id."""
        return dict(self.identity.recovery["names"])

    @property
    def fingerprint(self) -> Json:
        """The fingerprint of the flow, with its keyed steps, inputs and tables, each by id."""
        return self.identity.recovery["fingerprint"]

    def state_name(self, step_id: str) -> str:
        """Return the name of a step's state, or of an input's offset, in the checkpoint."""
        return self.names.get(step_id, step_id)

    def step_of(self, name: str) -> str:
        """Return the step or the input of a name of state or of an offset."""
        return next((step for step, kept in self.names.items() if kept == name), name)

    @cached_property
    def _offsets(self) -> list[int]:
        return self.identity.epochs(self.files.storage, "offsets")

    @cached_property
    def _commits(self) -> list[int]:
        return self.identity.epochs(self.files.storage, "commits")

    def _numbers(self, folder: str) -> list[int]:
        names = self.files.storage.names(f"{self.identity.spark}/{folder}")
        return sorted(int(name) for name in names if name.isdecimal())

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T:
        text = self.files.text(name)
        try:
            return parse(text)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise FileProblem(name, f"cannot be read: {first_line(error)}") from error


def open_checkpoint(path: PathLike, spark: SparkSession | None = None) -> CheckpointReader:
    """Open a checkpoint to read it.

    Args:
        path: the checkpoint's directory, a path or a URI.
        spark: the session that reads state; by default the active one, else a new local one, which
            starts with the first reading of state.

    Raises:
        CheckpointError: if the directory is not a checkpoint, has another format, or was written
            by a newer Spark.
        EnvironmentProblem: if Spark is too old.
    """
    from flow.engine.checkpoint.checkpoint import check_spark_version, read_identity
    from flow.engine.spark.session.versions import installed_version

    files = open_files(path, spark)
    identity = read_identity(files.storage)
    check_spark_version(identity, spark.version if spark else installed_version(), files.root)
    return CheckpointReader(files, identity, spark)


def open_files(path: PathLike, spark: SparkSession | None = None) -> CheckpointFiles:
    """Open a directory, which need not hold a whole checkpoint.

    Raises:
        CheckpointError: if the directory does not exist.
        EnvironmentProblem: if Spark is too old.
    """
    text = directory_path(path, "a checkpoint")
    files = files_in(text, spark)
    if not files.storage.exists(""):
        raise CheckpointError(f"there is no directory {text}")
    return files


def files_in(directory: str, spark: SparkSession | None) -> CheckpointFiles:
    """Return the files in a directory, which need not exist.

    Raises:
        EnvironmentProblem: if Spark is too old.
    """
    from flow.engine.checkpoint.storage import needs_jvm, open_storage
    from flow.engine.spark.session.spark_capabilities import check_streaming
    from recovery.reading.checkpoint_files import CheckpointFiles

    check_streaming()
    if spark is None and needs_jvm(directory):
        spark = new_session()
    return CheckpointFiles(open_storage(directory, spark))


def new_session() -> SparkSession:
    """Return the active session, or a new local one."""
    from flow.engine.spark.session.session import SparkSettings, make_session

    return make_session("recovery", SparkSettings())


def spans(numbers: list[int]) -> str:
    """Return sorted numbers as text, with consecutive numbers as spans.

    >>> spans([3, 4, 5, 9]), spans([7]), spans([])
    ('3 to 5, 9', '7', 'none')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in runs) or "none"


_CODEC = "spark.sql.streaming.stateStore.compression.codec"


@dataclass(frozen=True)
class EpochLog:
    """The log of an epoch's offsets, which Spark writes before the epoch runs.

    Attributes:
        offset: the offset at the epoch's end, which the flow's feed planned.
        sparks: the offsets of sources that Spark itself reads.
        codec: the compression codec of the state's files.
    """

    offset: EpochOffset
    sparks: tuple[Json, ...]
    codec: str

    @property
    def moment(self) -> Moment:
        """The epoch's system time, and the time up to which all inputs were read."""
        control = self.offset.control
        if control is None:
            return Moment(0)
        read_us = min((clock.after_us for clock in control.read.values()), default=NEVER)
        has_backlog = read_us < control.moment.running_us
        return replace(control.moment, read_us=read_us) if has_backlog else control.moment

    @classmethod
    def parse(cls, text: str) -> EpochLog:
        """Read a file of Spark's ``offsets``.

        Raises:
            ValueError: if the text is no such log, or is not whole.
        """
        _, metadata, *sources = _log_lines(text)
        conf = json.loads(metadata)["conf"]
        offsets = [None if line == "-" else json.loads(line) for line in sources]
        if not offsets or not isinstance(offsets[0], dict):
            raise ValueError("no offset of the flow in the log")
        try:
            own = EpochOffset.from_json(offsets[0])
        except (KeyError, TypeError) as error:
            raise ValueError(f"the flow's own offset cannot be read: {error}") from error
        return cls(own, tuple(offsets[1:]), str(conf.get(_CODEC, "lz4")))


def state_ids(text: str) -> StateIds:
    """Read a file of Spark's ``commits``, the log of a finished epoch.

    Raises:
        ValueError: if the text is no such log, or is not whole.
    """
    _, content, *_ = _log_lines(text)
    ids = json.loads(content).get("stateUniqueIds") or {}
    return {
        int(operator): tuple(stores[0] for stores in partitions)
        for operator, partitions in ids.items()
    }


def _log_lines(text: str) -> list[str]:
    """Return the lines of a log of Spark, the first of which is the version.

    Raises:
        ValueError: if the version, or the line after it, is missing.
    """
    lines = text.splitlines()
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise ValueError("the log is not whole")
    return lines
