"""A level over Spark's rows: packets come and leave as rows, and state is Spark's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from flow.dataflow import Step
from flow.engine.keyed_state import states_in
from flow.engine.level import run_level
from flow.engine.packets import Packet
from flow.engine.rows import Layout
from flow.engine.seeding import put_seeds
from flow.engine.shard_table import ShardTable
from flow.engine.shipping import ShippedPlan
from flow.engine.spark_store import SparkStore
from flow.engine.state import KeyStates


class SparkLevel:
    """A level of a plan, for all shards of a task."""

    def __init__(self, shipped: ShippedPlan, layout: Layout, number: int) -> None:
        self._shipped = shipped
        self._layout = layout
        self._number = number

    def open(self, headers: Any, segments: Any) -> None:
        """Take the state variables of the task."""
        self._store = SparkStore(headers, segments, self._shipped.plan().kept_as)

    def run(self, group: int, rows: Iterator[Row]) -> Iterator[Row]:
        """Run the level on the packets of a shard, which Spark knows by its grouping key."""
        shard = self._layout.shard_of(group)
        plan = self._shipped.plan()
        packets = [Packet(row.dest, shard, row.origin, row.seq, bytes(row.payload)) for row in rows]
        for name in plan.dropped:
            self._store.drop(name)
        packets = put_seeds(packets, plan, self._number, self._store.put)

        def states_of(step: Step) -> KeyStates | ShardTable:
            return states_in(self._store, step)

        made = run_level(plan, self._number, self._layout.shards, shard, packets, states_of)
        for dest, to_shard, origin, seq, payload in made:
            yield _PACKET_ROW(dest, self._layout.group_of(to_shard), origin, seq, payload)


_PACKET_ROW = Row("dest", "shard", "origin", "seq", "payload")
