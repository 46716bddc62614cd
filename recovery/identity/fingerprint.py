"""The fingerprint of a flow: the properties of the flow that its state depends on.

The checkpoint stores the fingerprint beside the state, and the next run compares it with the
fingerprint of the current flow. A difference is harmless, or a step starts without state and the
run logs a message, or the run is refused and the error lists the solutions.
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

from flow.columns.predicate import ColumnPredicate
from flow.connectors.source import Json, Source
from flow.dataflow import Step, StreamId
from flow.durations import duration_text, duration_us
from flow.engine.plan.plan import Plan
from flow.errors import FlowTypeError, shorten
from flow.format_version import VERSION
from flow.instants import datetime_us
from flow.keyed.step import Stateful
from flow.operators.edges import Input


class Effect(Enum):
    """The effect of a change on a checkpoint.

    Attributes:
        STARTS_EMPTY: a new step or input has no state; the run continues.
        REMOVED: a step with state is no longer in the flow.
        WRONG_STATE: the state of a step no longer fits the step.
        MOVED: the level of a step has changed, and its state is at the old level.
        OTHER_FRAMES: Spark would use the offset of one data frame for another.
        CONTINUES: an input reads other data, and continues from its offsets.
    """

    STARTS_EMPTY = "starts empty"
    REMOVED = "removed"
    WRONG_STATE = "wrong state"
    MOVED = "moved"
    OTHER_FRAMES = "other data frames"
    CONTINUES = "continues"


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
        name: _keyed_step(plan, step, step.operator, levels[name])
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


def without_levels(kept: Json) -> Json:
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


def _keyed_step(plan: Plan, step: Step, operator: Stateful, level: int) -> Json:
    return {
        "kind": operator.kind,
        "level": level,
        "sides": operator.sides,
        "config": describe(operator.builder),
        "counted": operator.capabilities.counter is not None,
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
        had = f"{before['levels']} shuffle{'' if before['levels'] == 1 else 's'} by key"
        what = f"the flow had {had}, one after the other, and has {now['levels']}"
        yield Change("", Effect.MOVED, what)


def _compare_step(
    name: str, old: Json, new: Json, old_levels: int, new_levels: int
) -> Iterator[Change]:
    if old["kind"] != new["kind"]:
        yield Change(name, Effect.WRONG_STATE, f"was {old['kind']} and is {new['kind']}")
        return
    if old["sides"] != new["sides"]:
        misfits = [f"read {old['sides']} streams and reads {new['sides']}"]
    else:
        misfits = list(changed_sides(old["from"], new["from"]))
    for what in misfits + differences(old["config"], new["config"]):
        yield Change(name, Effect.WRONG_STATE, what)
    if old["level"] not in (None, new["level"]) and old_levels == new_levels:
        what = f"was after shuffle {old['level']} and is after shuffle {new['level']}"
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
    if before["frames"] != now["frames"]:
        old, new = (", ".join(map(repr, one["frames"])) or "none" for one in (before, now))
        what = (
            f"the streaming data frames that it reads were {old} and are {new}: Spark finds the "
            "offset of each by its position among them"
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
        yield Change(name, Effect.CONTINUES, f"{what}: {how}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def sides_of(plan: Plan, step: Step) -> Json:
    """Describe the sides of a step that reads several streams.

    Returns:
        For each side its ``origins``, the inputs and keyed steps that it comes from, and its
        ``way``, all streams from the origins to the step; a stream is ``[step, port]``.
    """
    return [_side(plan, up) for up in step.ups]


def changed_sides(before: Json, now: Json) -> Iterator[str]:
    """Yield the sides of a step that read other streams than the streams that made its state.

    A side has moved if a stream that was only on its way is now only on the way of another side.
    Otherwise a side has changed if it has none of its earlier origins. Stateless steps on the way
    may change.

    Args:
        before: the result of `sides_of` in the checkpoint.
        now: the result of `sides_of` for the current flow.

    >>> a, b = ({"origins": [[name, "down"]], "way": [[name, "down"]]} for name in "ab")
    >>> list(changed_sides([a, b], [b, a]))
    ["side 0 read step 'a', which is side 1 now", "side 1 read step 'b', which is side 0 now"]
    """
    old, new = _own_streams(before), _own_streams(now)
    for side, streams in enumerate(old):
        moved = [
            (other, streams & others)
            for other, others in enumerate(new)
            if other != side and streams & others and not streams & new[side]
        ]
        origins, origins_now = _streams(before[side]["origins"]), _streams(now[side]["origins"])
        if moved:
            other, shared = moved[0]
            yield f"side {side} read {_named(shared)}, which is side {other} now"
        elif not origins & origins_now:
            yield f"side {side} read {_named(origins)} and reads {_named(origins_now)}"


def _side(plan: Plan, up: StreamId) -> Json:
    origins, way, left = list[StreamId](), dict[StreamId, None](), [up]
    while left:
        stream = left.pop()
        if stream in way:
            continue
        way[stream] = None
        step = plan.steps[stream.step_id]
        if isinstance(step.operator, (Input, Stateful)):
            origins.append(stream)
        else:
            left += step.ups
    return {"origins": sorted(map(_pair, origins)), "way": sorted(map(_pair, way))}


def _pair(stream: StreamId) -> list[str]:
    return [stream.step_id, stream.port]


def _streams(described: Json) -> set[tuple[str, str]]:
    return {(step_id, port) for step_id, port in described}


def _own_streams(sides: Json) -> list[set[tuple[str, str]]]:
    """Return for each side the streams that are only on its way."""
    ways = [_streams(side["way"]) for side in sides]
    counts = Counter(stream for way in ways for stream in way)
    return [{stream for stream in way if counts[stream] == 1} for way in ways]


def _named(streams: set[tuple[str, str]]) -> str:
    names = [
        repr(step_id) if port == "down" else f"{step_id!r} ({port})"
        for step_id, port in sorted(streams)
    ]
    return f"step {names[0]}" if len(names) == 1 else f"steps {', '.join(names)}"


CODE = "code"
"""The description of a function, or of a class that is not a dataclass of configuration."""


def describe(value: Any) -> Json:
    """Return the description of a value of a step's configuration.

    >>> from flow_windowing import TumblingWindower
    >>> describe(TumblingWindower("60m", grace="5m"))
    {'type': 'TumblingWindower', 'length': '1h', 'align_to': 0, 'closed': 'left'}
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, timedelta):
        return duration_text(duration_us(value))
    if isinstance(value, datetime):
        return datetime_us(value)
    if isinstance(value, tzinfo):
        return getattr(value, "key", None) or str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [describe(one) for one in value]
    if isinstance(value, dict):
        return {str(name): describe(one) for name, one in value.items()}
    if isinstance(value, ColumnPredicate):
        return repr(value)
    if isinstance(value, type) or not is_dataclass(value):
        return CODE if callable(value) else {"type": type(value).__qualname__}
    return _described_fields(value)


def _described_fields(config: Any) -> Json:
    harmless: frozenset[str] = getattr(config, "HARMLESS", frozenset())
    described: dict[str, Json] = {"type": type(config).__qualname__}
    for field in fields(config):
        if field.name not in harmless:
            value = getattr(config, field.name)
            if value is not None and "Duration" in str(field.type):
                described[field.name] = duration_text(duration_us(value))
            else:
                described[field.name] = describe(value)
    return described


def differences(before: Json, now: Json, where: str = "") -> list[str]:
    """Return the differences of two descriptions, in words.

    >>> differences({"windower": {"length": "1h"}}, {"windower": {"length": "30m"}})
    ["windower.length was '1h' and is '30m'"]
    """
    if isinstance(before, dict) and isinstance(now, dict):
        if before.get("type") != now.get("type"):
            return [_changed(where or "it", before.get("type"), now.get("type"))]
        found: list[str] = []
        for name in {**before, **now}:
            path = f"{where}.{name}" if where else name
            found += differences(before.get(name), now.get(name), path)
        return found
    return [] if before == now else [_changed(where or "it", before, now)]


def _changed(where: str, before: Json, now: Json) -> str:
    return f"{where} was {_shown(before)} and is {_shown(now)}"


def _shown(value: Json) -> str:
    if value == CODE:
        return "a function"
    return "not given" if value is None else repr(value)
