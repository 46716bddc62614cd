"""State of a keyed step, key by key or over columns, by the step's lowering in the plan."""

from __future__ import annotations

from flow.engine.plan.plan import Plan
from flow.engine.state.key_states import KeyStates, LiveStates, SegmentedStates
from flow.engine.state.shard_table import LiveTable, SegmentedTable, ShardTable
from flow.engine.state.store import StateStore
from flow.keyed.step import OverColumns


def states_in(store: StateStore, plan: Plan, step_id: str) -> KeyStates | ShardTable:
    """Return the state of a keyed step in a store."""
    operator, lowering = plan.keyed(step_id), plan.lowering_of(step_id)
    if isinstance(lowering, OverColumns):
        is_counted = operator.counter is not None
        return SegmentedTable(store, step_id, lowering.shard_logic, operator.settings, is_counted)
    return SegmentedStates(store, step_id, operator.builder, operator.settings)


def live_states(plan: Plan, step_id: str) -> KeyStates | ShardTable:
    """Return the state of a keyed step in memory, for a batch run."""
    lowering = plan.lowering_of(step_id)
    return LiveTable(lowering.shard_logic) if isinstance(lowering, OverColumns) else LiveStates()
