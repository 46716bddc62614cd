"""How a run goes on from a checkpoint: what it and a flow's recovery settings agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from flow.engine.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json: TypeAlias = Any


@dataclass(frozen=True)
class Admission:
    """What a run starts with.

    Attributes:
        kept: what to keep in the checkpoint, to be handed in when the next run asks.
        names: the names under which steps keep their state and inputs their offsets, where these
            are not the steps' ids.
        dropped: the names of state that no step has any more.
        said: what the user is told.
    """

    kept: Json = None
    names: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


class Recovery(Protocol):
    """Where a flow keeps what it needs to go on after a stop; see `recovery.RecoveryConfig`."""

    @property
    def path(self) -> str:
        """The checkpoint's directory, a path or a URI."""

    @property
    def keep_epochs(self) -> int:
        """How many finished epochs the checkpoint can be set back by."""

    def check(self, spark: SparkSession) -> None:
        """Make sure, before anything is changed, that a checkpoint's newest files are whole.

        Raises:
            CheckpointError: when they are not.
        """

    def admit(self, kept: Json, plan: Plan, dropping: Sequence[str] = ()) -> Admission:
        """Let a flow go on from a checkpoint, or start on a new one: `kept` is ``None`` then.

        Args:
            kept: what an earlier `Admission.kept` was.
            plan: the flow.
            dropping: names whose state is to go, and may be there still.

        Raises:
            CheckpointError: when the checkpoint's state does not fit the flow.
        """
