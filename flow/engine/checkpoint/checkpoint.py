"""A flow's checkpoint directory: its identity, its layout and the start of a run on it.

    <path>/flow.json      the identity: flow, run id, layout, fingerprint; replaced atomically
    <path>/lock.<n>.json  the run that holds the lock; ``lock-<token>.json`` its last renewal
    <path>/change.json    the changes that a tool is making
    <path>/spark          Spark's own checkpoint: offsets, commits and state; ``spark-<n>`` in a
                          later generation
    <path>/seed-<n>       the state that generation n starts with
    <path>/sources/…      logs of sources, such as the files that they have read
    <path>/progress/…     progress of the inputs after each retained epoch, of flows that compare it
    <path>/inputs/…       static data frames as files

A change of layout starts a new *generation*: a Spark checkpoint of its own, whose first epoch
restores the seed and continues at the last offset of the generation before.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from flow.connectors.sink import CheckpointContext
from flow.engine.checkpoint.identity import NAME, Admission, Identity, Recovery
from flow.engine.checkpoint.storage import Storage
from flow.engine.plan.plan import Plan
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.session.versions import installed_version, parse_version, state_format
from flow.errors import CheckpointError

CHANGE = "change.json"
"""Journal of a tool: its changes, and the tool and the options that finish them."""

logger = logging.getLogger("flow")


def read_identity(storage: Storage) -> Identity:
    """Read the identity of a checkpoint.

    Raises:
        CheckpointError: when the directory is not a checkpoint, or has another format.
    """
    if not storage.exists(NAME):
        raise CheckpointError(f"{storage.root} is not a flow's checkpoint: it has no {NAME}")
    return Identity.from_json(storage.read(NAME), storage.root)


def check_settled(storage: Storage) -> None:
    """Check that no interrupted tool has left a checkpoint changed in part.

    Raises:
        CheckpointError: when a tool has; the error has the command that finishes the change.
    """
    if storage.exists(CHANGE):
        raise CheckpointError(
            f"{storage.root}: a tool was cut off while it changed the checkpoint; do the rest "
            f"with: {finishing_command(storage)}"
        )


def finishing_command(storage: Storage) -> str:
    """Return the shell command that finishes the changes of an interrupted tool, here."""
    tool, *rest = storage.read(CHANGE)["finish"]
    return shlex.join(["python", "-m", "recovery", tool, storage.root, *rest])


def check_spark_version(
    identity: Identity, spark_version: str, root: str, *, is_remote: bool = False
) -> None:
    """Check that no newer version of Spark has written a checkpoint, and that it can be resumed.

    Versions count here, because an older Spark may misread the files of a newer one.

    Args:
        identity: the identity of the checkpoint.
        spark_version: version of Spark in the session.
        root: the checkpoint's directory, a path or a URI.
        is_remote: True for a session of Spark Connect.

    Raises:
        CheckpointError: when a newer minor version has, PySpark lacks the checkpoint's adapter, or
            the session cannot continue the checkpoint's format of state.
    """
    written, reading = parse_version(identity.spark_version), parse_version(spark_version)
    if written > reading:
        raise CheckpointError(
            f"{root} was last written with Spark {identity.spark_version}, and Spark "
            f"{spark_version} is older: use Spark {written[0]}.{written[1]} or newer, or start "
            "again with an empty directory"
        )
    if identity.adapter not in (adapter.value for adapter in spark_capabilities().adapters):
        raise CheckpointError(
            f"{root} was made with {identity.adapter} of PySpark, which PySpark "
            f"{installed_version()} lacks: use the Spark that wrote it, {identity.spark_version}"
        )
    if identity.state_format > state_format(spark_version, is_remote=is_remote):
        raise CheckpointError(
            f"{root} has state of format {identity.state_format}, as it was made in a classic "
            f"session, and Spark {spark_version} cannot continue it over Spark Connect: continue "
            "it in a classic session, or with Spark 4.3"
        )


@dataclass
class Checkpoint:
    """A checkpoint that a run has opened.

    Attributes:
        storage: the checkpoint's directory.
        identity: the checkpoint's identity.
        resuming: True if an earlier run made the checkpoint.
        warnings: warnings for the user.
    """

    storage: Storage
    identity: Identity
    resuming: bool
    warnings: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        storage: Storage,
        plan: Plan,
        recovery: Recovery | None,
        cores: int,
        shards: int | None,
        partitions: int | None,
        spark_version: str,
        *,
        is_remote: bool = False,
    ) -> Checkpoint:
        """Open a checkpoint for a run, or create it.

        Args:
            storage: the checkpoint's directory.
            plan: the flow.
            recovery: settings that check the flow against the checkpoint.
            cores: number of tasks that run at a time.
            shards: requested number of shards; ``None`` for the default.
            partitions: requested number of partitions of a level; ``None`` for the default.
            spark_version: version of Spark in the run's session.
            is_remote: True for a session of Spark Connect.

        Raises:
            CheckpointError: when the checkpoint is another flow's, does not fit the flow, or cannot
                be continued by this Spark.
        """
        check_settled(storage)
        resuming = storage.exists(NAME)
        if resuming:
            identity = read_identity(storage)
            identity.check_flow(plan, storage.root)
            check_spark_version(identity, spark_version, storage.root, is_remote=is_remote)
            _warn_of_layout(identity, shards, partitions, storage.root)
        else:
            _check_empty(storage)
            asked = (shards, partitions, spark_version)
            identity = Identity.new(plan.flow_id, cores, *asked, is_remote=is_remote)
        admission = Admission()
        if recovery is not None:
            admission = recovery.admit(identity.recovery, plan, identity.dropping)
        dropping = tuple(dict.fromkeys([*identity.dropping, *admission.dropped]))
        epochs = identity.epochs(storage, "commits")
        admitted = identity.admitting(admission.kept, dropping, epochs)
        admitted = replace(admitted, spark_version=spark_version)
        if not resuming or admitted != identity:
            storage.write(NAME, admitted.to_json())
        if admitted.state_format == 1:
            remove_unfinished_state(storage, admitted)
        return cls(storage, admitted, resuming, admission.warnings)

    def context(self, keep_epochs: int) -> CheckpointContext:
        """Return the checkpoint for sinks.

        Args:
            keep_epochs: number of epochs by which the checkpoint can be set back.
        """
        identity, storage = self.identity, self.storage
        done = identity.epochs(storage, "commits")
        return CheckpointContext(
            storage.root,
            storage.local_path,
            done[-1] if done else identity.first_epoch - 1,
            identity.rewinds,
            keep_epochs,
        )

    def committed(self) -> None:
        """Clear the names of removed state; called after each epoch."""
        if self.identity.dropping:
            self.identity = replace(self.identity, dropping=())
            self.storage.write(NAME, self.identity.to_json())


def _check_empty(storage: Storage) -> None:
    """Raise an error for a directory that has a Spark checkpoint and no identity."""
    if storage.names("spark/offsets"):
        raise CheckpointError(
            f"{storage.root} has a Spark checkpoint but no {NAME}: put that file back from a "
            "copy, or use an empty directory to start over"
        )


_STATE_FILE = re.compile(r"(\d+)\.(?:zip|changelog)(?:\.crc)?")
"""Files of a version of state in format 1."""


def remove_unfinished_state(storage: Storage, identity: Identity) -> None:
    """Remove the state of epochs that are not finished, in a checkpoint of format 1.

    The epoch that is run next writes files of the same names, but no snapshot where an attempt, or
    an epoch that a rewind has undone, left one, which Spark would load in the place of its changes.

    Args:
        storage: the checkpoint's directory.
        identity: the checkpoint's identity.
    """
    first = identity.first_epoch
    newest = max(identity.epochs(storage, "commits"), default=first - 1) - first + 1
    state = f"{identity.spark}/state"
    for operator in storage.names(state):
        for partition in range(identity.partitions):
            folder = f"{state}/{operator}/{partition}"
            for name in storage.names(folder):
                match = _STATE_FILE.fullmatch(name)
                if match and int(match[1]) > newest:
                    storage.remove(f"{folder}/{name}")


def _warn_of_layout(
    identity: Identity, shards: int | None, partitions: int | None, root: str
) -> None:
    """Log a warning if a checkpoint has another layout than requested."""
    for name, requested, actual in (
        ("shards", shards, identity.shards),
        ("partitions", partitions, identity.partitions),
    ):
        if requested not in (None, actual):
            message = (
                "%s=%s was asked for, but checkpoint %s was made with %s and keeps it "
                "(`python -m recovery rescale` moves it to another layout)"
            )
            logger.warning(message, name, requested, root, actual)


MAX_CHANGES = 20
"""Epochs after the newest snapshot after which a run makes a snapshot in its first epoch: twice
Spark's own minimum, so that runs with regular maintenance make none."""

_IN_TASKS = "spark.sql.streaming.stateStore.unloadOnCommit"
"""Setting with which a task maintains and closes a store after its commit."""

_VERSION = re.compile(r"(\d+)(?:_[^.]*)?\.(zip|changelog)")


class Upkeep:
    """Maintenance in the first epoch of a run, if it is overdue.

    Args:
        storage: the checkpoint's directory.
        spark_checkpoint: the directory of Spark's own checkpoint in it.
    """

    def __init__(self, storage: Storage, spark_checkpoint: str) -> None:
        # All partitions of all levels write a version in each epoch, so reading one is enough.
        names = storage.names(f"{spark_checkpoint}/state/0/0")
        self._in_tasks = changes_since_snapshot(names) >= MAX_CHANGES

    @property
    def conf(self) -> dict[str, str]:
        """Spark configuration for the start of the query."""
        return {_IN_TASKS: "true"} if self._in_tasks else {}

    def end_first_epoch(self, frame: DataFrame) -> None:
        """Leave the maintenance of later epochs to Spark's thread.

        Args:
            frame: rows of an epoch that Spark has planned; its session is the session in which the
                query plans all its epochs.
        """
        if self._in_tasks:
            self._in_tasks = False
            frame.sparkSession.conf.unset(_IN_TASKS)


def changes_since_snapshot(names: Iterable[str]) -> int:
    """Return the number of versions after the newest snapshot, from the files of a store."""
    newest = {"zip": 0, "changelog": 0}
    for match in filter(None, map(_VERSION.fullmatch, names)):
        newest[match[2]] = max(newest[match[2]], int(match[1]))
    return max(0, newest["changelog"] - newest["zip"])
