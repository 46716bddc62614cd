"""Admission of a flow to a checkpoint: the changes since the last run, and their effects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flow.connectors.source import Json
from flow.engine.checkpoint.identity import Admission
from flow.engine.plan.plan import Plan
from flow.errors import CheckpointError, FlowBuildError
from flow.format_version import check_format
from flow.monitoring.run_status import plan_json
from recovery.identity.fingerprint import Change, Effect, compare, fingerprint, input_continues
from recovery.reading.file_problems import command


def admit(
    kept: Json,
    plan: Plan,
    path: str,
    reset_steps: Sequence[str],
    drop_removed: bool,
    dropping: Sequence[str] = (),
) -> Admission:
    """Compare a flow with the flow that made a checkpoint, and decide how the run continues.

    Raises:
        CheckpointError: if the flow does not fit the checkpoint.
        FlowBuildError: if `reset_steps` names a step that cannot be reset.
    """
    now = fingerprint(plan)
    _check_resets(reset_steps, now)
    if kept is None:
        content = {"fingerprint": now, "names": {}, "reset": sorted(reset_steps), "left": {}}
        return Admission({**content, "graph": plan_json(plan)})
    check_format(f"{path}: the flow's fingerprint", kept["fingerprint"]["format"])
    met = {**kept["left"], **kept["fingerprint"]["inputs"]}
    before = {**kept["fingerprint"], "inputs": met}
    changes = compare(before, now, input_continues(plan))
    decision = _decide(changes, kept, now, reset_steps, drop_removed)
    if decision.refused:
        raise CheckpointError(_refusal(path, decision.refused))
    _keep_apart(changes, kept, dropping, decision)
    names = {**kept["names"], **decision.names}
    known = {*now["keyed"], *now["inputs"], *now["tables"], *met}
    content = {
        "fingerprint": now,
        "names": {step: name for step, name in names.items() if step in known},
        "reset": sorted(reset_steps),
        # Offsets of removed inputs are retained, so that an input that is added again continues
        # from its offset.
        "left": {name: one for name, one in met.items() if name not in now["inputs"]},
        "graph": plan_json(plan),
    }
    return Admission(content, tuple(decision.dropped), tuple(decision.messages))


@dataclass
class _Decision:
    refused: list[Change] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def _decide(
    changes: list[Change], kept: Json, now: Json, reset_steps: Sequence[str], drop_removed: bool
) -> _Decision:
    decision = _Decision()
    wrong = {change.step_id for change in changes if change.effect is Effect.WRONG_STATE}
    for step_id in reset_steps:
        if step_id in wrong or step_id not in kept["reset"]:
            _reset(step_id, kept, decision)
    for name in now["inputs"]:
        if name in kept["left"] and name not in decision.names:
            decision.messages.append(f"step {name!r} is back: it is read from where it was left")
    for change in changes:
        if change.effect in (Effect.STARTS_EMPTY, Effect.CONTINUES):
            decision.messages.append(f"step {change.step_id!r} {change.what}")
        elif change.effect is Effect.REMOVED and drop_removed:
            decision.dropped.append(kept["names"].get(change.step_id, change.step_id))
            decision.messages.append(f"step {change.step_id!r} {change.what}: its state is dropped")
        elif change.effect is Effect.MOVED or change.step_id not in decision.names:
            decision.refused.append(change)
    return decision


def _reset(step_id: str, kept: Json, decision: _Decision) -> None:
    """Give a step's state a new name, and drop the state of the old name."""
    before = kept["names"].get(step_id, step_id)
    decision.names[step_id] = _next_name(step_id, before)
    decision.dropped.append(before)
    decision.messages.append(f"step {step_id!r} starts without its state, as reset_steps asks")


def _keep_apart(
    changes: list[Change], kept: Json, dropping: Sequence[str], decision: _Decision
) -> None:
    """Rename the state of each step that is added again before its old state is dropped."""
    for step_id in (one.step_id for one in changes if one.effect is Effect.STARTS_EMPTY):
        name = decision.names.get(step_id, kept["names"].get(step_id, step_id))
        while name in dropping:
            name = decision.names[step_id] = _next_name(step_id, name)


def _next_name(step_id: str, before: str) -> str:
    """Return the name of a step's state after a reset, from the name before the reset."""
    number = 0 if before == step_id else json.loads(before)[1]
    return json.dumps([step_id, number + 1])


def _check_resets(reset_steps: Sequence[str], now: Json) -> None:
    for step_id in reset_steps:
        resettable = [*now["inputs"], *now["tables"], *now["keyed"]]
        if step_id not in resettable:
            known = ", ".join(map(repr, resettable))
            raise FlowBuildError(
                f"RecoveryConfig: reset_steps names {step_id!r}, which keeps nothing; "
                f"what can be reset: {known}"
            )


def _refusal(path: str, refused: list[Change]) -> str:
    lines = [f"checkpoint {path} does not fit the flow as it is now:"]
    for change in refused:
        where = f"step {change.step_id!r}: " if change.step_id else ""
        lines.append(f"  {where}{change.what}")
    lines += ["what may be done:", *(f"  - {line}" for line in _ways_out(path, refused))]
    return "\n".join(lines)


def _ways_out(path: str, refused: list[Change]) -> Iterator[str]:
    yield "run the flow as it was"
    wrong = dict.fromkeys(one.step_id for one in refused if one.effect is Effect.WRONG_STATE)
    if wrong:
        yield f"reset these steps: RecoveryConfig(..., reset_steps={list(wrong)!r})"
    if any(change.effect is Effect.REMOVED for change in refused):
        yield "give up the state of removed steps: RecoveryConfig(..., on_removed='drop')"
    if any(change.effect is Effect.MOVED for change in refused):
        yield f"carry the state over to a new layout: {command('rescale', path)}"
    yield "start over, on another checkpoint"
