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
    rule, settings = plan.hold_rule(step_id), operator.declared.settings
    if isinstance(lowering, OverColumns):
        is_counted = operator.declared.counter is not None
        return SegmentedTable(store, step_id, lowering.shard_logic, settings, is_counted, rule)
    return key_states_in(store, plan, step_id)


def key_states_in(store: StateStore, plan: Plan, step_id: str) -> SegmentedStates:
    """Return the state of a keyed step in a store, key by key."""
    operator, rule = plan.keyed(step_id), plan.hold_rule(step_id)
    holding = plan.holding.get(step_id, frozenset())
    return SegmentedStates(
        store, step_id, operator.builder, operator.declared.settings, rule, holding
    )


def live_states(plan: Plan, step_id: str) -> KeyStates | ShardTable:
    """Return the state of a keyed step in memory, for a batch run."""
    lowering = plan.lowering_of(step_id)
    if isinstance(lowering, OverColumns):
        return LiveTable(lowering.shard_logic)
    return LiveStates(plan.holding.get(step_id, frozenset()))
