"""Admission of a flow to a checkpoint, by the flow's recovery settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from flow.connectors.source import Json
from flow.engine.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Admission:
    """Result of an admission.

    Attributes:
        kept: JSON that the checkpoint stores and passes to the next admission.
        names: names of steps in state and of inputs in offsets, by step id, where the two differ.
        dropped: names of state whose step was removed.
        warnings: warnings for the user.
    """

    kept: Json = None
    names: Mapping[str, str] = field(default_factory=dict)
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

    def state(self, step_id: str, key: str | None, spark: SparkSession) -> Json:
        """Return the state of a step's first keys, or of one key, after the last epoch, as JSON.

        Args:
            step_id: the step.
            key: the only key; ``None`` for the first keys.
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
