"""Whether a flow may go on from a checkpoint: what has changed, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flow.engine.checkpoint.admission import Admission
from flow.engine.plan.plan import Plan
from flow.errors import CheckpointError, FlowBuildError
from recovery.identity.fingerprint import (
    FORMAT,
    Change,
    Effect,
    compare,
    fingerprint,
    input_continues,
)
from recovery.reading.rendering import command

Json: TypeAlias = Any


def admit(
    kept: Json,
    plan: Plan,
    path: str,
    reset_steps: Sequence[str],
    drop_removed: bool,
    dropping: Sequence[str] = (),
) -> Admission:
    """Compare a flow with the one that made a checkpoint, and say how the run may go on.

    Raises:
        CheckpointError: when it may not.
        FlowBuildError: when `reset_steps` names what cannot be reset.
    """
    now = fingerprint(plan)
    _check_resets(reset_steps, now)
    if kept is None:
        content = {"fingerprint": now, "names": {}, "reset": sorted(reset_steps), "left": {}}
        return Admission(content)
    if kept["fingerprint"]["format"] > FORMAT:
        raise CheckpointError(
            f"{path}: the flow's fingerprint is in format {kept['fingerprint']['format']}, this "
            f"version reads {FORMAT}: run the version that wrote it"
        )
    met = {**kept.get("left", {}), **kept["fingerprint"]["inputs"]}
    before = {**kept["fingerprint"], "inputs": met}
    changes = compare(before, now, input_continues(plan))
    decided = _decide(changes, kept, now, reset_steps, drop_removed)
    if decided.refused:
        raise CheckpointError(_refusal(path, decided.refused))
    _keep_apart(changes, kept, dropping, decided)
    names = {**kept["names"], **decided.names}
    known = {*now["keyed"], *now["inputs"], *met}
    content = {
        "fingerprint": now,
        "names": {step: name for step, name in names.items() if step in known},
        "reset": sorted(reset_steps),
        # Inputs that are gone, whose offsets stay: one that comes back goes on where it was.
        "left": {name: one for name, one in met.items() if name not in now["inputs"]},
    }
    return Admission(content, content["names"], tuple(decided.dropped), tuple(decided.said))


@dataclass
class _Decided:
    refused: list[Change] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def _decide(
    changes: list[Change],
    kept: Json,
    now: Json,
    reset_steps: Sequence[str],
    drop_removed: bool,
) -> _Decided:
    decided = _Decided()
    wrong = {change.step_id for change in changes if change.effect is Effect.WRONG_STATE}
    for step_id in reset_steps:
        if step_id in wrong or step_id not in kept["reset"]:
            _reset(step_id, kept, decided)
    for name in now["inputs"]:
        if name in kept.get("left", {}) and name not in decided.names:
            decided.said.append(f"step {name!r} is back: it is read from where it was left")
    for change in changes:
        if change.effect in (Effect.STARTS_EMPTY, Effect.GOES_ON):
            decided.said.append(f"step {change.step_id!r} {change.what}")
        elif change.effect is Effect.REMOVED and drop_removed:
            decided.dropped.append(kept["names"].get(change.step_id, change.step_id))
            decided.said.append(f"step {change.step_id!r} {change.what}: its state is dropped")
        elif change.effect is Effect.MOVED or change.step_id not in decided.names:
            decided.refused.append(change)
    return decided


def _reset(step_id: str, kept: Json, decided: _Decided) -> None:
    """Give a step a new name to keep its state under; what is kept under the old one goes."""
    before = kept["names"].get(step_id, step_id)
    decided.names[step_id] = _next_name(step_id, before)
    decided.dropped.append(before)
    decided.said.append(f"step {step_id!r} starts afresh, as reset_steps says")


def _keep_apart(
    changes: list[Change], kept: Json, dropping: Sequence[str], decided: _Decided
) -> None:
    """Give a step that comes back another name while its old state is still being dropped."""
    for step_id in (one.step_id for one in changes if one.effect is Effect.STARTS_EMPTY):
        name = decided.names.get(step_id, kept["names"].get(step_id, step_id))
        while name in dropping:
            name = decided.names[step_id] = _next_name(step_id, name)


def _next_name(step_id: str, before: str) -> str:
    number = 0 if before == step_id else json.loads(before)[1]
    return json.dumps([step_id, number + 1])


def _check_resets(reset_steps: Sequence[str], now: Json) -> None:
    for step_id in reset_steps:
        if step_id not in now["keyed"] and step_id not in now["inputs"]:
            known = ", ".join(repr(name) for name in [*now["inputs"], *now["keyed"]])
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
        yield f"start these steps afresh: RecoveryConfig(..., reset_steps={list(wrong)!r})"
    if any(change.effect is Effect.REMOVED for change in refused):
        yield "give up the state of removed steps: RecoveryConfig(..., on_removed='drop')"
    if any(change.effect is Effect.MOVED for change in refused):
        yield f"carry the state over to a new layout: {command('rescale', path)}"
    yield "start over, on another checkpoint"
