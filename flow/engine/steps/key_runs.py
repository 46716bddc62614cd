"""Values of each key in an epoch, for a step that runs key by key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from flow.engine.packets.packets import Packet, Run, decode_runs
from flow.engine.plan.plan import Edge
from flow.engine.progress.step_time import StepTime
from flow.keyed.logic import Bounded, Stamped


def gather(
    edges: tuple[Edge, ...], packets: list[Packet], time: StepTime | None = None
) -> dict[str, Run]:
    """Return the values of each key from all packets bound for a step, in order of position.

    With several edges each value becomes ``(side, value)``; `time` stamps each value.
    """
    runs_of: dict[str, list[Run]] = {}
    for packet in sorted(packets, key=lambda packet: (packet.origin, packet.seq)):
        for run in _received(edges, packet, time):
            runs_of.setdefault(run.key, []).append(run)
    return {key: runs[0] if len(runs) == 1 else _merged(key, runs) for key, runs in runs_of.items()}


def _received(edges: tuple[Edge, ...], packet: Packet, time: StepTime | None) -> Iterable[Run]:
    runs: Iterable[Run] = decode_runs(packet.payload, edges[0].step_id)
    if time is not None:
        runs = time.stamped(packet.dest, packet.origin, list(runs))
    if len(edges) == 1:
        return runs
    (side,) = (edge.side for edge in edges if edge.dest == packet.dest)
    return (run._replace(values=[_sided(value, side) for value in run.values]) for run in runs)


def _sided(value: Any, side: int) -> Any:
    if isinstance(value, (Stamped, Bounded)):
        return value._replace(value=(side, value.value))
    return (side, value)


def _merged(key: str, runs: list[Run]) -> Run:
    values = [value for run in runs for value in run.values]
    pos = [at for run in runs for at in run.pos]
    if any(left.pos[-1] > right.pos[0] for left, right in itertools.pairwise(runs)):
        order = sorted(range(len(pos)), key=pos.__getitem__)
        values, pos = [values[at] for at in order], [pos[at] for at in order]
    return Run(key, _monotonic(values) if isinstance(values[0], Stamped) else values, pos)


def _monotonic(values: list[Stamped]) -> list[Stamped]:
    """Return a key's values with stamps that never decrease.

    Items of several partitions can share a position; each is stamped by its own partition.
    """
    progress = itertools.accumulate((value.progress_us for value in values), max)
    return [Stamped(one.value, reached) for one, reached in zip(values, progress, strict=True)]
