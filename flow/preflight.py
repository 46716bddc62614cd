"""Preflight of a run: the checks of a flow's borders that need no Spark, before Spark starts."""

from __future__ import annotations

from flow.engine.checkpoint.identity import Recovery, is_resumed
from flow.engine.epoch.failures import user_code
from flow.engine.feed.slices import ask
from flow.engine.plan.plan import Plan
from flow.engine.steps.outputs import sink_of
from flow.engine.steps.reading import check_bounded, source_of
from flow.errors import FlowBuildError


def preflight(
    plan: Plan, recovery: Recovery | None, *, is_batch: bool, is_here: bool = True
) -> None:
    """Check that a flow can read, write and resume, as far as this shows without Spark.

    The engine makes the same checks again at their place, as the world may change until then.

    Args:
        plan: the flow.
        recovery: the recovery settings.
        is_batch: True for a batch.
        is_here: True if this process plans epochs and commits outputs, so that paths are its own.

    Raises:
        FlowBuildError: an input has no end in a batch, or two outputs write to the same target.
        CheckpointError: a local checkpoint is another flow's, or does not fit the flow.
        FlowError: an input has nothing to read, or an output cannot be written.
    """
    if is_batch:
        check_bounded(plan)
    _check_targets(plan)
    if not is_here:
        return
    resuming = recovery is not None and is_resumed(plan, recovery)
    for step_id in plan.inputs if not resuming else ():
        ask(step_id, source_of(plan.steps[step_id]).check)
    for edge in plan.outputs:
        with user_code(edge.step_id, "checking its sink"):
            sink_of(plan, edge).check(resuming)


def _check_targets(plan: Plan) -> None:
    """Check that no two outputs write to the same target."""
    steps: dict[str, str] = {}
    for edge in plan.outputs:
        target = sink_of(plan, edge).only_output
        if target is not None and steps.setdefault(target, edge.step_id) != edge.step_id:
            raise FlowBuildError(
                f"steps {steps[target]!r} and {edge.step_id!r} both write to "
                f"{target}: give each output a path of its own, or merge their streams before "
                "one output"
            )
