"""Seeding: a new checkpoint for a flow, from state that the caller provides."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flow.checks import check_whole
from flow.dataflow import Dataflow
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.errors import CheckpointError, FlowBuildError, FlowTypeError, brief, shorten, step_error
from flow.keyed.state_counts import StateCounts
from flow.keyed.step import Stateful
from recovery.identity.admitting import admit
from recovery.reading.paths import directory_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recovery.reading.epoch_state import KeySnapshot
    from recovery.tools.relayout import UnplacedState


def seed(
    path: str | os.PathLike[str],
    flow: Dataflow,
    states: Mapping[str, Mapping[str, Any]],
    *,
    shards: int | None = None,
    partitions: int | None = None,
    spark: SparkSession | None = None,
) -> int:
    """Make a checkpoint for a flow that starts with given state.

    The flow's first run on the checkpoint reads its inputs from their beginning.

    Args:
        path: the checkpoint's directory, which must not have a checkpoint yet.
        flow: the flow.
        states: for each keyed step the state of each key, in the form of a snapshot of the step's
            logic: for `stateful_map` the state itself, for `reduce_final` and `fold_final` a tuple
            with the state.
        shards: the number of shards of the key space; by default 16.
        partitions: the number of partitions of each level; by default the number of Spark's cores.
        spark: the session to use; by default the active one, else a new local one.

    Returns:
        The number of keys.

    Raises:
        FlowBuildError: when a step has no state, or an argument is wrong.
        StepError: when a step's logic does not accept a state.
        CheckpointError: when the directory has a checkpoint already.
    """
    if not isinstance(flow, Dataflow):
        raise FlowTypeError(f"seed needs a Dataflow, got {type(flow).__name__} {shorten(flow)}")
    for name, count in (("shards", shards), ("partitions", partitions)):
        if count is not None:
            check_whole(name, count, 1)
    root, plan = directory_path(path, "seed"), compile_flow(flow)
    unplaced = [_state_of(plan, step_id, keys) for step_id, keys in states.items()]
    return _seed(root, plan, unplaced, shards, partitions, spark)


def _seed(
    path: str,
    plan: Plan,
    states: list[UnplacedState],
    shards: int | None,
    partitions: int | None,
    spark: SparkSession | None,
) -> int:
    from flow.engine.checkpoint.checkpoint import NAME, Identity
    from flow.engine.checkpoint.lock import CheckpointLock
    from flow.engine.checkpoint.storage import Storage
    from flow.engine.packets.shards import DEFAULT_SHARDS
    from flow.engine.spark.session.session import SparkSettings, make_session
    from flow.engine.spark.session.versions import check_streaming
    from recovery.tools.relayout import check_seeds, seeds_of, write_seeds

    check_streaming()
    session = spark or make_session("recovery", SparkSettings())
    storage = Storage(session, path)
    with CheckpointLock(storage):
        if storage.exists(NAME) or storage.names("spark"):
            raise CheckpointError(f"{storage.root} holds a checkpoint already: seed another one")
        dealt = partitions or min(session.sparkContext.defaultParallelism, 32)
        identity = Identity(
            plan.flow_id,
            uuid.uuid4().hex,
            shards or max(DEFAULT_SHARDS, dealt),
            dealt,
            generation=1,
            spark_version=session.version,
            recovery=admit(None, plan, path, (), drop_removed=False).kept,
        )
        storage.remove(identity.seed)  # An interrupted attempt may have left it.
        root = f"{storage.root}/{identity.seed}"
        write_seeds(root, (one for state in states for one in seeds_of(state, identity.shards)))
        check_seeds(root, states, identity.shards)
        storage.write(NAME, identity.to_json())
    return sum(len(state.keys) for state in states)


def _state_of(plan: Plan, step_id: str, keys: Mapping[str, Any]) -> UnplacedState:
    from recovery.tools.relayout import UnplacedState

    step = plan.steps.get(step_id)
    if step is None or not isinstance(step.operator, Stateful):
        keyed = (name for name, one in plan.steps.items() if isinstance(one.operator, Stateful))
        known = ", ".join(map(repr, keyed)) or "none"
        raise FlowBuildError(f"step {step_id!r} keeps no state; those that do: {known}")
    operator = step.operator
    kept = [_snapshot(step_id, operator, key, state) for key, state in keys.items()]
    return UnplacedState(step_id, step_id, kept)


def _snapshot(step_id: str, operator: Stateful, key: str, state: Any) -> KeySnapshot:
    """Return a key's pickled snapshot, due time and counts, from a logic built from the state."""
    from recovery.reading.epoch_state import KeySnapshot

    try:
        logic = operator.builder(state)
        made, due_us = logic.snapshot(), int(logic.notify_at_us())
        counts = None if operator.counter is None else StateCounts(*operator.counter(made))
        return KeySnapshot(key, pickle.dumps(made, 5), due_us, 0, counts)
    except Exception as error:
        problem = f"cannot go on from a state that it is seeded with: {brief(error)}"
        raise step_error(step_id, problem, key=key, item=state) from error
