"""A level in one shard, and the packets of an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

import flow.operators as op
from flow import Dataflow, EngineError
from flow.columns.chunks import Pairs
from flow.engine.epoch.context import Control
from flow.engine.epoch.failures import decode_failure
from flow.engine.packets.packets import ERROR, Packet, encode_whole
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.engine.state.key_states import KeyStates
from flow.engine.state.keyed_state import states_in
from flow.engine.state.shard_table import ShardTable
from flow.engine.state.store import MemoryStore
from flow.engine.steps.level import run_level
from flow.testing import TestingSink, TestingSource


def counting() -> tuple[Plan, Packet]:
    """A plan of one level, and a packet with an item for it."""
    flow = Dataflow("counting")
    stream = op.input("in", flow, TestingSource([]))
    counted = op.stateful_map("count", stream, lambda n, _: ((n or 0) + 1, n or 0))
    op.output("out", counted, TestingSink([]))
    payload = encode_whole(Pairs(["k"], ["v"], np.zeros(1, np.int64)), "in")
    return compile_flow(flow), Packet(0, 0, 0, 0, payload)


def play(plan: Plan, packets: list[Packet], control: Control | None) -> list[Packet]:
    store = MemoryStore()

    def states_of(step: Any) -> KeyStates | ShardTable:
        return states_in(store, plan, step.step_id)

    return list(run_level(plan, 1, 1, 0, packets, states_of, control=control))


def test_items_without_the_time_of_their_epoch_are_an_error() -> None:
    plan, packet = counting()
    (made,) = play(plan, [packet], control=None)
    assert made.dest == ERROR
    error = decode_failure(made.payload)
    assert isinstance(error, EngineError)
    assert str(error) == "an epoch sent items to level 1 without its system time"
