"""`RecoveryConfig`: the checkpoint of a flow, and the settings of its recovery."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flow.checks import check_choice, check_whole, checked_texts
from flow.dataflow import Dataflow
from flow.engine.checkpoint.identity import Admission
from flow.engine.plan.plan import Plan
from recovery.identity.admitting import admit
from recovery.reading.file_problems import directory_path
from recovery.tools import inspecting, verifying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnRemoved: TypeAlias = Literal["refuse", "drop"]
"""The treatment of the state of a step that the flow no longer has."""

KEEP_EPOCHS = 100


@dataclass(frozen=True, init=False)
class RecoveryConfig:
    """The checkpoint that a flow recovers from, for ``run(flow, recovery=...)``.

    A checkpoint is a directory with the data that a stopped or failed flow needs to continue: the
    offsets of inputs and the system time of each epoch; the state of every key; the logs of
    sources, such as lists of files; and ``flow.json``, the identity of the flow and the layout of
    its state. The
    first run makes the directory. Each flow needs a separate directory, on storage that outlives
    the machine if the flow has to.

    Args:
        path: the directory, a path or a URI of any file system that Spark can reach, such as
            ``s3a://bucket/checkpoints/departures``.
        reset_steps: steps that drop their state and start without state, because the state is
            wrong or no longer fits the step; and inputs that are read from their beginning. Each is
            reset once: the same setting in later runs has no effect.
        on_removed: ``"drop"`` drops the state of steps that the flow no longer has; by default, a
            run of such a flow is refused.
        keep_epochs: the number of finished epochs by which the checkpoint can be set back. Each
            epoch takes the space of its changes to the state.

    Raises:
        FlowTypeError: if the path is not text, or the steps are not a list of ids.
        FlowBuildError: if an argument is wrong; the error names the argument.

    >>> RecoveryConfig("checkpoints/departures")
    RecoveryConfig(path='checkpoints/departures')
    """

    path: str
    reset_steps: tuple[str, ...] = ()
    on_removed: OnRemoved = "refuse"
    keep_epochs: int = KEEP_EPOCHS

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        reset_steps: Sequence[str] = (),
        on_removed: OnRemoved = "refuse",
        keep_epochs: int = KEEP_EPOCHS,
    ) -> None:
        check_choice("RecoveryConfig: on_removed", on_removed, ("refuse", "drop"))
        check_whole("RecoveryConfig: keep_epochs", keep_epochs, 1)
        set_field = object.__setattr__
        set_field(self, "path", directory_path(path, "RecoveryConfig"))
        rule = "RecoveryConfig: reset_steps must be a list of step ids"
        set_field(self, "reset_steps", checked_texts(rule, reset_steps))
        set_field(self, "on_removed", on_removed)
        set_field(self, "keep_epochs", keep_epochs)

    def __repr__(self) -> str:
        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        values = {**vars(self), "reset_steps": list(self.reset_steps)}
        return f"RecoveryConfig({', '.join(f'{name}={values[name]!r}' for name in given)})"

    def admit(self, kept: Any, plan: Plan, dropping: Sequence[str] = ()) -> Admission:
        """Admit a flow to this checkpoint; called by `flow.run`.

        Args:
            kept: `Admission.kept` of the run before; ``None`` for a new checkpoint.
            plan: the compiled flow.
            dropping: the names of dropped state that may still be in the checkpoint.

        Raises:
            CheckpointError: if the checkpoint's state does not fit the flow; the error lists the
                changes and the solutions.
            FlowBuildError: if `reset_steps` names a step that the flow does not have.
        """
        drop_removed = self.on_removed == "drop"
        return admit(kept, plan, self.path, self.reset_steps, drop_removed, dropping)

    def check(self, spark: SparkSession) -> None:
        """Check that the checkpoint's newest files are whole; called by `flow.run`.

        Args:
            spark: the session that reads the files.

        Raises:
            CheckpointError: if a file is missing, truncated or changed; the error has the solution.
        """
        verifying.check(self.path, spark)

    def state(self, step_id: str, key: str | None, flow: Dataflow, spark: SparkSession) -> Any:
        """Return the state of a step's first keys, or of one key, as JSON; called by the live page.

        Args:
            step_id: the step.
            key: the only key; ``None`` for the first keys.
            flow: the flow that runs.
            spark: the session that reads the checkpoint.

        Raises:
            CheckpointError: if the checkpoint has no epoch, or no state of the step or the key.
        """
        return asdict(inspecting.inspect(self.path, step_id, key=key, flow=flow, spark=spark))
