"""The limits of a run: a step that takes most of each epoch, silent inputs, and held watermarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flow.engine.plan.plan import Plan
from flow.instants import from_us
from flow.monitoring.run_status import Limit, RunStatus

LEAST_SHARE = 0.7
"""The least share of the epochs' duration that makes a step the bottleneck."""

MOST_WAITING = 0.3
"""The greatest share of the time that a run waits between epochs if something limits it."""

SILENT_SECONDS = 10.0
"""The time without items after which an input is silent."""

PATIENCE_SECONDS = 60.0
"""The time for which one step holds the watermarks of another as a matter of course."""


class Work(NamedTuple):
    """The work of a run, since its start or since an earlier moment.

    Attributes:
        counts: the counters of steps, by (step, name).
        busy: the time that workers worked in each step, in seconds.
        phases: the duration of each phase of the epochs, in seconds.
    """

    counts: Mapping[tuple[str, str], float] = {}
    busy: Mapping[str, float] = {}
    phases: Mapping[str, float] = {}

    def since(self, before: Work) -> Work:
        """Return the work since an earlier moment."""
        return Work(*map(_difference, self, before))


def _difference(totals: Any, before: Any) -> dict[Any, float]:
    """Return the growth of totals by name."""
    return {name: total - before.get(name, 0.0) for name, total in totals.items()}


def limits_of(status: RunStatus, plan: Plan, work: Work, now: float) -> tuple[Limit, ...]:
    """Return what limits a run, the bottleneck first; empty for a run that keeps up.

    Args:
        status: the status of the run.
        plan: the compiled flow.
        work: the work of the last seconds.
        now: the machine's clock, in seconds since 1970.
    """
    return (*_bottleneck(status, plan, work), *_silent(status, plan, now), *_held(status, now))


_PHASES = {"input": ("reading",), "output": ("sinks", "commit")}
"""The phases in which the steps of a role work; all others work in ``steps``."""

_EFFECT = {"input": "the run waits for its source", "output": "the run waits for its sink"}


def _bottleneck(status: RunStatus, plan: Plan, work: Work) -> Iterator[Limit]:
    """Yield the step that takes most of each epoch, if the run is behind or never waits."""
    waiting = work.phases.get("waiting", 0.0)
    is_behind = any(one.is_behind for one in status.backlogs.values())
    total = sum(work.phases.values())
    if not is_behind and waiting > MOST_WAITING * total:
        return
    shares = _shares(status, work, max(total - waiting, 1e-9))
    step_id = max(shares, key=shares.__getitem__, default="")
    if shares.get(step_id, 0.0) >= LEAST_SHARE:
        role = next(one.role for one in status.graph.steps if one.step_id == step_id)
        what = role if role in _EFFECT else "step"
        rate = sum(status.steps[name].rates.get("out", 0.0) for name in plan.inputs)
        effect = _EFFECT.get(role, f"it limits the run to {rate:,.0f} items/s")
        text = f"{what} {step_id!r} takes {shares[step_id]:.0%} of each epoch: {effect}"
        yield Limit("bottleneck", (step_id,), text)


def _shares(status: RunStatus, work: Work, seconds: float) -> dict[str, float]:
    """Return the share of the epochs' duration that each step takes.

    A phase lasts as long as its busiest worker works, so a step that keeps one worker of many busy
    has the phase as its share too: the phase is divided as all workers' time in its steps is.
    """
    of_phases: dict[tuple[str, ...], dict[str, float]] = {}
    for step in status.graph.steps:
        of_role = of_phases.setdefault(_PHASES.get(step.role, ("steps",)), {})
        of_role[step.step_id] = work.busy.get(step.step_id, 0.0)
    return {
        step_id: sum(work.phases.get(name, 0.0) for name in names) / seconds * busy / total
        for names, of_steps in of_phases.items()
        for total in [sum(of_steps.values())]
        for step_id, busy in of_steps.items()
        if busy > 0
    }


def _silent(status: RunStatus, plan: Plan, now: float) -> Iterator[Limit]:
    """Yield the inputs without items: all of them, or those that a step reads beside others."""
    active = {name: status.steps[name].active_at or status.started_at for name in plan.inputs}
    behind = {name for name, one in status.backlogs.items() if one.is_behind}
    silent = {name for name, at in active.items() if now - at >= SILENT_SECONDS} - behind
    if silent == active.keys():
        text = "all data is read: the run waits for new items"
        yield Limit("idle", (), text, max(active.values()))
        return
    for name in sorted(silent):
        for step_id, inputs in plan.feeds.items():
            if name in inputs and not silent.issuperset({*inputs} & active.keys()):
                text = f"input {name!r} has no new items, and step {step_id!r} reads it with others"
                yield Limit("starved", (name,), text, active[name])
                break


def _held(status: RunStatus, now: float) -> Iterator[Limit]:
    """Yield what holds watermarks that have not moved, with the steps that it holds."""
    held: dict[tuple[str, float | None, float], list[str]] = {}
    for step_id, one in status.steps.items():
        patience = PATIENCE_SECONDS if one.held_by.startswith("step") else SILENT_SECONDS
        if one.held_since is not None and now - one.held_since >= patience:
            held.setdefault((one.held_by, one.held_at, one.held_since), []).append(step_id)
    for (setter, at, since), steps in held.items():
        time = "their beginning" if at is None else f"{from_us(round(at * 1e6)):%F %T} UTC"
        text = f"{setter} holds the watermarks of {', '.join(map(repr, steps))} at {time}"
        yield Limit("held", tuple(steps), text, since)
