"""Which kind of state a keyed step has: of keys one by one, or of many keys at once."""

from __future__ import annotations

from flow.dataflow import Step
from flow.engine.state.shard_table import LiveTable, SegmentedTable, ShardTable
from flow.engine.state.state import KeyStates, LiveStates, SegmentedStates, StateStore
from flow.errors import EngineError
from flow.keyed.logic import Stateful


def states_in(store: StateStore, step: Step) -> KeyStates | ShardTable:
    """The state of a keyed step that is kept in a store."""
    operator = _keyed(step)
    if operator.shard_logic is not None:
        return SegmentedTable(store, step.step_id, operator.shard_logic, operator.settings)
    return SegmentedStates(store, step.step_id, operator.builder, operator.settings)


def live_states(step: Step) -> KeyStates | ShardTable:
    """The state of a keyed step that stays in memory."""
    operator = _keyed(step)
    return LiveStates() if operator.shard_logic is None else LiveTable(operator.shard_logic)


def _keyed(step: Step) -> Stateful:
    if not isinstance(step.operator, Stateful):
        raise EngineError(f"step {step.step_id!r} is not a keyed step")
    return step.operator
