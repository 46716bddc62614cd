"""The fingerprint of a flow: the properties of the flow that its state depends on.

The checkpoint stores the fingerprint beside the state, and the next run compares it with the
fingerprint of the current flow. A difference is harmless, or a step starts without state and the
run logs a message, or the run is refused and the error lists the solutions.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

from flow.connectors.source import Source
from flow.dataflow import Step
from flow.engine.plan.plan import Plan
from flow.errors import FlowTypeError, shorten
from flow.format_version import VERSION
from flow.keyed.step import Stateful
from flow.operators.edges import Input
from recovery.identity.description import describe, differences
from recovery.identity.sides import changed_sides, sides_of

Json: TypeAlias = Any


class Effect(Enum):
    """The effect of a change on a checkpoint.

    Attributes:
        STARTS_EMPTY: a new step or input has no state; the run continues.
        REMOVED: a step with state is no longer in the flow.
        WRONG_STATE: the state of a step no longer fits the step.
        MOVED: the level of a step has changed, and its state is at the old level.
        OTHER_FRAMES: Spark would use the offset of one data frame for another.
        GOES_ON: an input reads other data, and continues from its offsets.
    """

    STARTS_EMPTY = "starts empty"
    REMOVED = "removed"
    WRONG_STATE = "wrong state"
    MOVED = "moved"
    OTHER_FRAMES = "other data frames"
    GOES_ON = "goes on"


@dataclass(frozen=True)
class Change:
    """A difference between the flow that made a checkpoint and the current flow.

    Attributes:
        step_id: the step; empty for a change of the whole flow.
        effect: the effect of the change.
        what: the change, in words.
    """

    step_id: str
    effect: Effect
    what: str


def fingerprint(plan: Plan) -> Json:
    """Return the fingerprint of a compiled flow, as JSON."""
    levels = {name: level for level, names in enumerate(plan.levels, 1) for name in names}
    keyed = {
        name: _keyed(plan, step, levels[name])
        for name, step in plan.steps.items()
        if isinstance(step.operator, Stateful)
    }
    inputs = {
        name: _input(name, step.operator.source)
        for name, step in plan.steps.items()
        if isinstance(step.operator, Input)
    }
    return {
        "format": VERSION,
        "levels": len(plan.levels),
        "keyed": keyed,
        "inputs": inputs,
        "tables": {name: describe(plan.table(name)) for name in plan.tables},
        "frames": _streamed_by_spark(plan),
        "versions": {
            "flow-windows": _version("flow-windows"),
            "pyspark": _version("pyspark"),
            "python": platform.python_version(),
        },
    }


Continues: TypeAlias = Callable[[str, Json], "str | None"]
"""A function of an input and its earlier identity; see `Source.continues`."""


def compare(before: Json, now: Json, continues: Continues = lambda *_: None) -> list[Change]:
    """Return the changes between two fingerprints.

    Args:
        before: the fingerprint of the flow that made the checkpoint.
        now: the fingerprint of the current flow.
        continues: the decision how inputs with another identity continue.
    """
    return [
        *_compare_keyed(before, now),
        *_compare_inputs(before, now, continues),
        *_compare_tables(before["tables"], now["tables"]),
    ]


def input_continues(plan: Plan) -> Continues:
    """Return a function that calls `Source.continues` of an input for its earlier identity."""

    def continues(name: str, before: Json) -> str | None:
        operator = plan.steps[name].operator
        return operator.source.continues(before) if isinstance(operator, Input) else None

    return continues


def without_places(kept: Json) -> Json:
    """Return a fingerprint without levels, for state that fits its steps at any level."""
    keyed = {name: {**step, "level": None} for name, step in kept["keyed"].items()}
    return {**kept, "levels": None, "keyed": keyed}


def _input(name: str, source: Source[Any]) -> Json:
    identity = source.identity()
    try:
        kept = json.loads(json.dumps(identity))
    except (TypeError, ValueError) as error:
        raise FlowTypeError(
            f"step {name!r}: {type(source).__name__}.identity() must return JSON, got "
            f"{shorten(identity)}: {error}"
        ) from None
    return {"type": type(source).__qualname__, "identity": kept}


def _keyed(plan: Plan, step: Step, level: int) -> Json:
    operator = step.operator
    if not isinstance(operator, Stateful):
        raise TypeError(f"step {step.step_id!r} is not a keyed step")
    return {
        "kind": operator.kind,
        "level": level,
        "sides": operator.sides,
        "config": describe(operator.builder),
        "counted": operator.counter is not None,
        "from": sides_of(plan, step) if operator.sides > 1 else [],
    }


def _compare_keyed(before: Json, now: Json) -> Iterator[Change]:
    for name, old in before["keyed"].items():
        new = now["keyed"].get(name)
        if new is None:
            yield Change(name, Effect.REMOVED, "is not in the flow any more")
        else:
            yield from _compare_step(name, old, new, before["levels"], now["levels"])
    for name in now["keyed"]:
        if name not in before["keyed"]:
            yield Change(name, Effect.STARTS_EMPTY, "is new: it starts without state")
    if before["levels"] not in (None, now["levels"]):
        what = (
            f"the flow had {_levels(before['levels'])} of keyed steps, one after the other, and "
            f"has {now['levels']}"
        )
        yield Change("", Effect.MOVED, what)


def _compare_step(
    name: str, old: Json, new: Json, old_levels: int, new_levels: int
) -> Iterator[Change]:
    if old["kind"] != new["kind"]:
        what = f"was {old['kind']} and is {new['kind']}"
        yield Change(name, Effect.WRONG_STATE, what)
        return
    if old["sides"] != new["sides"]:
        what = f"read {old['sides']} streams and reads {new['sides']}"
        yield Change(name, Effect.WRONG_STATE, what)
    else:
        for what in changed_sides(old["from"], new["from"]):
            yield Change(name, Effect.WRONG_STATE, what)
    for what in differences(old["config"], new["config"]):
        yield Change(name, Effect.WRONG_STATE, what)
    if old["level"] not in (None, new["level"]) and old_levels == new_levels:
        what = f"was at level {old['level']} and is at level {new['level']}"
        yield Change(name, Effect.MOVED, what)


def _streamed_by_spark(plan: Plan) -> list[str]:
    """Return the inputs that are streaming data frames, in Spark's order."""
    from flow.connectors.dataframe import DataFrameSource

    sources = ((name, plan.steps[name].operator) for name in plan.inputs)
    return [
        name
        for name, operator in sources
        if isinstance(operator, Input)
        and isinstance(operator.source, DataFrameSource)
        and operator.source.streaming
    ]


def _compare_inputs(before: Json, now: Json, continues: Continues) -> Iterator[Change]:
    frames = before["frames"]
    if frames != now["frames"]:
        shown = [", ".join(map(repr, names)) or "none" for names in (frames, now["frames"])]
        what = (
            f"the streaming data frames that it reads were {shown[0]} and are {shown[1]}: Spark "
            "knows where each has come to by its place among them"
        )
        yield Change("", Effect.OTHER_FRAMES, what)
    for name, old in before["inputs"].items():
        new = now["inputs"].get(name)
        if new is not None and new["type"] != old["type"]:
            what = f"its source was a {old['type']} and is a {new['type']}"
            yield Change(name, Effect.WRONG_STATE, what)
        elif new is not None:
            yield from _compare_identity(name, old["identity"], new["identity"], continues)
    for name in now["inputs"]:
        if name not in before["inputs"]:
            yield Change(name, Effect.STARTS_EMPTY, "is new: it is read from its beginning")


def _compare_tables(before: Json, now: Json) -> Iterator[Change]:
    """Yield the changes of tables; the files of a removed table stay until it is back."""
    for name, new in now.items():
        if name not in before:
            yield Change(name, Effect.STARTS_EMPTY, "is new: it is read from its beginning")
            continue
        for what in differences(before[name], new):
            yield Change(name, Effect.WRONG_STATE, what)


def _compare_identity(
    name: str, before: Json | None, now: Json | None, continues: Continues
) -> Iterator[Change]:
    """Yield the change of an input that reads other data than before.

    Args:
        name: the input.
        before: the identity of the input's source in the checkpoint; ``None`` for none.
        now: the identity of the current source; ``None`` for none.
        continues: the decision how inputs with another identity continue.
    """
    if before is None or now is None or before == now:
        return
    what = f"reads something else: {'; '.join(differences(before, now))}"
    how = continues(name, before)
    if how is None:
        yield Change(name, Effect.WRONG_STATE, what)
    else:
        yield Change(name, Effect.GOES_ON, f"{what}: {how}")


def _levels(count: int) -> str:
    return f"{count} level" if count == 1 else f"{count} levels"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
