"""The network of tasks: a check, before the first epoch, that they reach servers of a flow.

On some clusters Python in tasks has no network, while the driver has. A task there waits for its
server until the wait ends, and the error does not name the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from flow.engine.plan.plan import Plan
from flow.engine.spark.session.session_settings import is_local
from flow.engine.steps.outputs import sink_of
from flow.engine.steps.reading import source_of
from flow.errors import EnvironmentProblem
from flow.network import address, refusal


def check_network_of_tasks(plan: Plan, spark: Any) -> None:
    """Check that tasks reach the servers that they read from and write to.

    One task opens a connection to each server, or to the first of several that answers. Tasks of a
    local session have the network of this process, and are not asked. Servers that this process
    does not reach either are left to their connector, which may wait for them.

    Args:
        plan: the flow.
        spark: the session.

    Raises:
        EnvironmentProblem: if tasks do not reach a server that this process reaches.
    """
    if is_local(spark):
        return
    needs = [
        *((name, one) for name in plan.inputs for one in source_of(plan.steps[name]).task_servers),
        *((edge.step_id, one) for edge in plan.outputs for one in sink_of(plan, edge).task_servers),
    ]
    if not needs:
        return
    groups = [servers.addresses for _, servers in needs]
    asked = spark.range(0, 1, 1, 1).mapInArrow(partial(_ask, groups), "reason string")
    for (step_id, servers), row in zip(needs, asked.collect(), strict=True):
        if row.reason is not None and first_refusal(servers.addresses) is None:
            places = ", ".join(servers.addresses)
            raise EnvironmentProblem(
                f"step {step_id!r}: tasks of this cluster do not reach {places} ({row.reason}), "
                f"and this process does: {servers.otherwise}"
            )


def _ask(
    groups: Sequence[Sequence[str]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield for each group of servers the reason why none is reached, or null."""
    for _ in batches:
        reasons = pa.array([first_refusal(group) for group in groups], pa.string())
        yield pa.RecordBatch.from_arrays([reasons], ["reason"])


def first_refusal(addresses: Iterable[str]) -> str | None:
    """Return the reason why the first server is not reached; ``None`` if any of them is."""
    reasons = []
    for text in addresses:
        place = address(text)
        reason = refusal(*place) if place else None  # Other forms are left to the connector.
        if reason is None:
            return None
        reasons.append(reason)
    return next(iter(reasons), None)
