"""Holds: the least timestamps that results of steps in event time may still have.

A step holds the steps in event time that read its results. Each shard determines the hold of its
keys at the end of an epoch. A reader needs the least over all shards: a task combines the holds of
its shards, and sends the result to all shards of the next level.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from flow.dataflow import StreamId
from flow.engine.packets.packets import HOLDS, SLICE_BITS, Packet
from flow.instants import NEVER, NO_PROGRESS

Holds: TypeAlias = Mapping[StreamId, int]
"""The hold of each stream of results that a step in event time reads, in µs."""


def hold_us(bound_us: int, reach_us: int, of_keys_us: int) -> int:
    """Return the hold of a step.

    Args:
        bound_us: the bound of the step's watermarks, below which no value on time will lie.
        reach_us: the greatest time before a value at which a result that it begins may lie.
        of_keys_us: the least hold of the state of the step's keys.
    """
    if NO_PROGRESS < bound_us < NEVER:
        bound_us = max(NO_PROGRESS, bound_us - reach_us)
    return min(bound_us, of_keys_us)


def least_of(several: Iterable[Holds]) -> dict[StreamId, int]:
    """Return the least hold of each stream."""
    least: dict[StreamId, int] = {}
    for holds in several:
        for stream, us in holds.items():
            least[stream] = min(us, least.get(stream, NEVER))
    return least


def holds_packet(holds: Holds, shard: int, origin: int, seq: int) -> Packet:
    """Return the packet that carries holds to a shard."""
    rows = [[stream.step_id, stream.port, us] for stream, us in holds.items()]
    return Packet(HOLDS, shard, origin, seq, json.dumps(rows).encode())


def holds_in(packet: Packet) -> dict[StreamId, int]:
    """Return the holds in a packet made by `holds_packet`."""
    return {StreamId(step_id, port): us for step_id, port, us in json.loads(packet.payload)}


class KnownHolds:
    """The last holds that each task of the level before has sent to a shard."""

    def __init__(self) -> None:
        self._of_origin: dict[int, Holds] = {}

    def add(self, packet: Packet) -> None:
        """Take the holds in a packet."""
        self._of_origin[packet.origin] = holds_in(packet)

    def least(self) -> Holds:
        """Return the least hold of each stream."""
        return least_of(self._of_origin.values())


class HoldRelay:
    """The holds of a task's shards, on their way to all shards of the next level.

    Args:
        shards: the number of shards.
        origin: the number of the task.
    """

    def __init__(self, shards: int, origin: int) -> None:
        self._shards, self._origin = shards, origin
        self._of_slices: dict[int, dict[int, Holds]] = {}

    def forward(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Yield the packets of a shard, except those of its holds, which the relay keeps."""
        for packet in packets:
            if packet.dest == HOLDS:
                of_shards = self._of_slices.setdefault(packet.seq >> SLICE_BITS, {})
                of_shards[packet.shard] = holds_in(packet)
            else:
                yield packet

    def finish(self) -> Iterator[Packet]:
        """Yield the packets of holds for all shards, slice by slice, after the last shard."""
        of_shards: dict[int, Holds] = {}
        before: Holds = {}
        for slice_number, changed in sorted(self._of_slices.items()):
            # A shard that a slice of a batch does not call holds as before.
            of_shards.update(changed)
            least = least_of(of_shards.values())
            if least != before:
                for shard in range(self._shards):
                    yield holds_packet(least, shard, self._origin, slice_number << SLICE_BITS)
            before = least
