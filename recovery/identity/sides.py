"""The sides of a join: the streams that made its state, and their changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

from flow.dataflow import Step, StreamId
from flow.engine.plan.plan import Plan
from flow.keyed.step import Stateful
from flow.operators.edges import Input

Json: TypeAlias = Any


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
