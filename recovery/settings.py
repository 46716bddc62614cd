"""Where a flow keeps what it needs to go on after a stop."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flow.checks import check_choice, check_whole
from flow.engine.checkpoint.admission import Admission
from flow.engine.plan.plan import Plan
from flow.errors import FlowBuildError, FlowTypeError, shorten
from recovery.identity.admitting import admit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnRemoved: TypeAlias = Literal["refuse", "drop"]
"""What becomes of the state of a step that is not in the flow any more."""

KEEP_EPOCHS = 100


@dataclass(frozen=True, init=False)
class RecoveryConfig:
    """The directory that a flow recovers from, for ``run(flow, recovery=...)``.

    All that a stopped or failed flow needs to go on is kept there, and nothing else is: the offsets
    that its inputs have reached, with the system time of each epoch; the state of every key; the
    lists that sources keep, such as the files they have seen; and ``flow.json``, which says which
    flow it is and how its key space is cut. The directory is made by the first run. Each flow needs
    one of its own, and one that outlives the machine if the flow is to.

    Args:
        path: the directory, a path or a URI of any file system that Spark can reach, such as
            ``s3a://bucket/checkpoints/departures``.
        reset_steps: steps that start afresh, without the state they have there, because it does not
            fit them any more, or is wrong; and inputs that are read from their beginning. Each is
            reset once: leaving it here for later runs does no harm.
        on_removed: ``"drop"`` gives up the state of steps that are not in the flow any more; by
            default such a flow is refused.
        keep_epochs: how many finished epochs the checkpoint can be set back by. More take more
            room: each keeps what it changed of the state.

    Raises:
        FlowTypeError: when the path is not text, or the steps are not a list of ids.
        FlowBuildError: when an argument is not fit; it says which.

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
        set_field(self, "path", _checked_path(path))
        set_field(self, "reset_steps", _checked_steps(reset_steps))
        set_field(self, "on_removed", on_removed)
        set_field(self, "keep_epochs", keep_epochs)

    def __repr__(self) -> str:
        parts = [f"path={self.path!r}"]
        if self.reset_steps:
            parts.append(f"reset_steps={list(self.reset_steps)!r}")
        if self.on_removed != "refuse":
            parts.append(f"on_removed={self.on_removed!r}")
        if self.keep_epochs != KEEP_EPOCHS:
            parts.append(f"keep_epochs={self.keep_epochs!r}")
        return f"RecoveryConfig({', '.join(parts)})"

    def admit(self, kept: Any, plan: Plan, dropping: Sequence[str] = ()) -> Admission:
        """Let a flow go on from this checkpoint; called by `flow.run`.

        Args:
            kept: what an earlier run's `Admission.kept` was; ``None`` for a new checkpoint.
            plan: the flow, compiled.
            dropping: the names of state that is to go, and may be there still.

        Raises:
            CheckpointError: when the checkpoint's state does not fit the flow; it says what has
                changed, what that means, and what may be done.
            FlowBuildError: when `reset_steps` names a step that the flow has not.
        """
        drop_removed = self.on_removed == "drop"
        return admit(kept, plan, self.path, self.reset_steps, drop_removed, dropping)

    def check(self, spark: SparkSession) -> None:
        """Make sure that the checkpoint's newest files are whole; called by `flow.run`.

        Args:
            spark: the session to read them with.

        Raises:
            CheckpointError: when one is missing, cut off or changed; it says what may be done.
        """
        from recovery.tools.verifying import check

        check(self.path, spark)


def _checked_path(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise FlowTypeError(
            f"RecoveryConfig needs a directory's path, got {type(path).__name__} {shorten(path)}"
        )
    if not text.strip():
        raise FlowBuildError(
            "RecoveryConfig needs a directory's path, got an empty one: "
            "name a directory that no other flow uses"
        )
    return text


def _checked_steps(steps: object) -> tuple[str, ...]:
    if isinstance(steps, str) or not isinstance(steps, Sequence):
        raise FlowTypeError(
            f"RecoveryConfig: reset_steps must be a list of step ids, got {shorten(steps)}"
        )
    for step_id in steps:
        if not isinstance(step_id, str):
            raise FlowTypeError(
                f"RecoveryConfig: reset_steps must be a list of step ids, got {shorten(steps)}"
            )
    return tuple(steps)
