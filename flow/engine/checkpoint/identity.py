"""The identity of a checkpoint, and the admission of a flow to it by recovery settings."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flow.connectors.source import Json
from flow.dataflow import Dataflow
from flow.engine.packets.shards import DEFAULT_SHARDS
from flow.engine.plan.plan import Plan
from flow.engine.spark.session.session_settings import STATE_FORMAT
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.session.versions import state_format
from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.engine.checkpoint.storage import Storage


NAME = "flow.json"
"""The file of the identity."""


@dataclass(frozen=True)
class Identity:
    """Identity of a checkpoint: content of `flow.json`.

    Attributes:
        flow_id: the flow's name.
        run_id: id of the checkpoint in sinks; every new checkpoint has another.
        shards: number of shards of the key space.
        partitions: number of partitions of each level.
        generation: number of changes of layout.
        first_epoch: the number of the generation's first epoch.
        start: the offset that the generation starts from, as JSON; ``None`` for a fresh start.
        begun: offset of the interrupted epoch of the generation before, as JSON.
        recovery: JSON that the flow's recovery settings store: its fingerprint.
        dropping: names of state to be removed.
        rewinds: number of rewinds.
        earlier: former values of `recovery`, each with the last epoch (inclusive) that it is valid
            for, ordered by epoch; a rewind to such an epoch restores the value.
        spark_version: the version of Spark that wrote last.
        adapter: value of the `LevelAdapter` of Spark's checkpoint.
        undone: offsets as JSON that a rewind has undone, in order, after the offset of its epoch:
            the plans of the epochs that the next run replays.
        state_format: format of Spark's state: 1 without unique names of files, or 2.
    """

    flow_id: str
    run_id: str
    shards: int
    partitions: int
    spark_version: str
    adapter: str
    generation: int = 0
    first_epoch: int = 0
    start: Json = None
    begun: Json = None
    recovery: Json = None
    dropping: tuple[str, ...] = ()
    rewinds: int = 0
    earlier: tuple[tuple[int, Json], ...] = ()
    undone: tuple[Json, ...] = ()
    state_format: int = 2

    @property
    def spark(self) -> str:
        """Directory of Spark's own checkpoint."""
        return f"spark-{self.generation}" if self.generation else "spark"

    @property
    def seed(self) -> str:
        """Directory of the state that the generation starts with."""
        return f"seed-{self.generation}"

    @classmethod
    def new(
        cls,
        flow_id: str,
        cores: int,
        shards: int | None,
        partitions: int | None,
        version: str,
        *,
        is_remote: bool = False,
    ) -> Identity:
        """Return the identity of a new checkpoint, with the adapter of the installed PySpark.

        Args:
            flow_id: the id of the flow.
            cores: number of tasks that run at a time.
            shards: requested number of shards; ``None`` for the default.
            partitions: requested number of partitions of a level; ``None`` for the default.
            version: version of Spark in the run's session.
            is_remote: True for a session of Spark Connect.
        """
        dealt = partitions or min(cores, 32)
        shards = shards or max(DEFAULT_SHARDS, dealt)
        identity = cls(flow_id, uuid.uuid4().hex, shards, dealt, version, "")
        return identity.for_spark(version, is_remote=is_remote)

    def for_spark(self, version: str, *, is_remote: bool = False) -> Identity:
        """Return the identity of a generation that the installed PySpark makes.

        Args:
            version: version of Spark in the session.
            is_remote: True for a session of Spark Connect.
        """
        return replace(
            self,
            spark_version=version,
            adapter=spark_capabilities().adapter().value,
            state_format=state_format(version, is_remote=is_remote),
        )

    @property
    def conf(self) -> dict[str, str]:
        """Spark's settings for a query or a reader of the state in the checkpoint."""
        return {STATE_FORMAT: str(self.state_format)}

    def epochs(self, storage: Storage, log: str) -> list[int]:
        """Return the epochs in Spark's log ``offsets`` or ``commits``, in ascending order."""
        names = storage.names(f"{self.spark}/{log}")
        return sorted(self.first_epoch + int(name) for name in names if name.isdecimal())

    def log_file(self, log: str, epoch: int) -> str:
        """Return the name of an epoch's file in Spark's log ``offsets`` or ``commits``."""
        return f"{self.spark}/{log}/{epoch - self.first_epoch}"

    def check_flow(self, plan: Plan, root: str) -> None:
        """Raise a `CheckpointError` if the checkpoint in the directory `root` is another flow's."""
        if self.flow_id != plan.flow_id:
            raise CheckpointError(
                f"{root} is the checkpoint of flow {self.flow_id!r}, not of {plan.flow_id!r}: "
                "give each flow a directory of its own"
            )

    def fitted(self, plan: Plan) -> Plan:
        """Return a flow's plan with the names of its steps' state in this checkpoint."""
        kept = self.recovery or {}
        names = kept.get("names", {}) if isinstance(kept, dict) else {}
        return replace(plan, state_names=dict(names), dropped=self.dropping)

    def to_json(self) -> Json:
        """Return the identity as JSON."""
        return {"version": VERSION, **self.__dict__}

    def admitting(self, recovery: Json, dropping: tuple[str, ...], epochs: list[int]) -> Identity:
        """Return the identity for the next run.

        Args:
            recovery: JSON that the flow's recovery settings store from now on.
            dropping: names of state to be removed from now on.
            epochs: committed epochs that the checkpoint retains, sorted.
        """
        earlier = [entry for entry in self.earlier if epochs and entry[0] >= epochs[0]]
        last_epoch = earlier[-1][0] if earlier else -1
        if recovery != self.recovery and epochs and epochs[-1] > last_epoch:
            earlier.append((epochs[-1], self.recovery))
        admitted = replace(self, dropping=dropping, earlier=tuple(earlier))
        return admitted._with_recovery(recovery)

    def recovery_at(self, epoch: int) -> Json:
        """Return the value of `recovery` that is valid for an epoch."""
        return next((value for until, value in self.earlier if until >= epoch), self.recovery)

    def set_back(self, epoch: int, undone: tuple[Json, ...] = ()) -> Identity:
        """Return the identity after a rewind to the end of an epoch.

        Args:
            epoch: the epoch.
            undone: the value of `undone`.
        """
        now = replace(self, rewinds=self.rewinds + 1, undone=undone)
        recovery = self.recovery_at(epoch)
        if recovery is self.recovery:
            return now
        earlier = tuple(entry for entry in self.earlier if entry[0] < epoch)
        return replace(now, dropping=(), earlier=earlier)._with_recovery(recovery)

    def _with_recovery(self, recovery: Json) -> Identity:
        """Return the identity with other settings, without plans that no longer fit the flow."""
        is_same = _planned_for(recovery) == _planned_for(self.recovery)
        return replace(self, recovery=recovery, undone=self.undone if is_same else ())

    @classmethod
    def from_json(cls, content: Json, root: str) -> Identity:
        """Return the identity in JSON made by `to_json`.

        Raises:
            CheckpointError: when the content is no identity, or has another format.
        """
        where = f"{root}/{NAME}"
        try:
            version, _ = content["version"], content["flow_id"]
            check_format(where, version)
            fields = {name: content[name] for name in cls.__dataclass_fields__}
            fields["dropping"] = tuple(fields["dropping"])
            fields["undone"] = tuple(fields["undone"])
            fields["earlier"] = tuple((int(until), value) for until, value in fields["earlier"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{where} is not a flow's checkpoint") from error


def is_resumed(plan: Plan, recovery: Recovery) -> bool:
    """Check a local checkpoint against a flow, without Spark; return True if a run continues it.

    True also stands for a checkpoint that this process cannot read: the run explains the cause.

    Raises:
        CheckpointError: the checkpoint is another flow's, does not fit it, or has another format.
    """
    if ":" in recovery.path:
        return True
    try:
        content = json.loads(Path(recovery.path, NAME).read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    identity = Identity.from_json(content, recovery.path)
    identity.check_flow(plan, recovery.path)
    recovery.admit(identity.recovery, plan, identity.dropping)
    return True


def _planned_for(recovery: Json) -> Json:
    """Return what plans of epochs depend on, of the JSON of a flow's recovery settings.

    A plan has no version of a table that was added later, and no numbers of source partitions for
    a keyed step that was.
    """
    kept = recovery if isinstance(recovery, dict) else {}
    known = kept.get("fingerprint", {})
    return kept.get("names"), known.get("inputs"), known.get("tables"), set(known.get("keyed", ()))


@dataclass(frozen=True)
class Admission:
    """Result of an admission.

    Attributes:
        kept: JSON that the checkpoint stores and passes to the next admission.
        dropped: names of state whose step was removed.
        warnings: warnings for the user.
    """

    kept: Json = None
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Recovery(Protocol):
    """Recovery settings of a flow; see `recovery.RecoveryConfig`."""

    @property
    def path(self) -> str:
        """The checkpoint's directory, a path or a URI."""

    @property
    def keep_epochs(self) -> int:
        """Number of finished epochs that the checkpoint retains for a rewind."""

    def check(self, spark: SparkSession) -> None:
        """Check that a checkpoint's newest files are complete, before a run changes any.

        Raises:
            CheckpointError: when a file is missing or damaged.
        """

    def state(self, step_id: str, key: str | None, flow: Dataflow, spark: SparkSession) -> Json:
        """Return the state of a step's first keys, or of one key, after the last epoch, as JSON.

        Args:
            step_id: the step.
            key: the only key; ``None`` for the first keys.
            flow: the flow that runs.
            spark: the session that reads the checkpoint.

        Raises:
            CheckpointError: when the checkpoint has no epoch, or no state of the step or the key.
        """

    def admit(self, kept: Json, plan: Plan, dropping: Sequence[str] = ()) -> Admission:
        """Check that a flow fits a checkpoint.

        Args:
            kept: `Admission.kept` of the run before; ``None`` for a new checkpoint.
            plan: the flow.
            dropping: names of state whose removal may not have finished.

        Raises:
            CheckpointError: when the checkpoint's state does not fit the flow.
        """
