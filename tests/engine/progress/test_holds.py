"""Holds on their way from the shards of a task to all shards of the next level."""

from __future__ import annotations

from collections.abc import Iterator

from flow.dataflow import StreamId
from flow.engine.packets.packets import STATS, Packet
from flow.engine.progress.step_time import HoldRelay, KnownHolds, hold_us, holds_in, holds_packet
from flow.instants import NEVER, NO_PROGRESS

SLICE = 1 << 24
A, B = StreamId("a", "down"), StreamId("b", "late")


def sent(relay: HoldRelay, *packets: Packet) -> Iterator[Packet]:
    assert list(relay.forward(packets)) == []
    return relay.finish()


def test_a_task_sends_the_least_hold_of_its_shards_to_every_shard() -> None:
    relay = HoldRelay(shards=3, origin=7)
    other = Packet(STATS, 0, 0, 0, b"")
    first = holds_packet({A: 5, B: 9}, shard=0, origin=0, seq=0)
    assert list(relay.forward([other, first])) == [other]
    made = list(sent(relay, holds_packet({A: 8, B: 2}, shard=2, origin=2, seq=0)))
    assert [(one.shard, one.origin) for one in made] == [(0, 7), (1, 7), (2, 7)]
    assert all(holds_in(one) == {A: 5, B: 2} for one in made)


def test_a_shard_that_a_slice_does_not_call_holds_as_before() -> None:
    relay = HoldRelay(shards=1, origin=0)
    made = sent(
        relay,
        holds_packet({A: 5}, 0, 0, 0),
        holds_packet({A: 8}, 0, 0, 2 * SLICE),
        holds_packet({A: 6}, 1, 1, 0),
        holds_packet({A: 5}, 1, 1, SLICE),  # The least stays 5, so the slice sends nothing.
        holds_packet({A: 9}, 1, 1, 2 * SLICE),
        holds_packet({A: NEVER}, 1, 1, 3 * SLICE),
        holds_packet({A: NEVER}, 0, 0, 4 * SLICE),
    )
    assert [(one.seq // SLICE, holds_in(one)[A]) for one in made] == [(0, 5), (2, 8), (4, NEVER)]


def test_a_shard_knows_the_last_holds_of_each_task() -> None:
    known = KnownHolds()
    assert known.least() == {}
    for origin, us in ((0, 5), (1, 3), (1, 8)):
        known.add(holds_packet({A: us}, 0, origin, 0))
    assert known.least() == {A: 5}


def test_a_step_holds_at_its_bound_less_its_reach_or_at_its_state() -> None:
    assert hold_us(bound_us=100, reach_us=30, of_keys_us=NEVER) == 70
    assert hold_us(bound_us=100, reach_us=30, of_keys_us=60) == 60
    assert hold_us(bound_us=NEVER, reach_us=30, of_keys_us=60) == 60
    assert hold_us(bound_us=NO_PROGRESS, reach_us=30, of_keys_us=60) == NO_PROGRESS
