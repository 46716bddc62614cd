"""The command ``python -m recovery web DIR``: the page of a run on its checkpoint.

The checkpoint has the graph, the sizes of state and the offsets of inputs, but no counters: the
page of a run that has ended shows no items and no times of epochs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from flow.config.flow_config import web_address
from flow.dataflow import Dataflow
from flow.engine.checkpoint.lock import Claim, Lease
from flow.engine.epoch.statistics import BUFFERED_VALUES, OPEN_WINDOWS
from flow.errors import CheckpointError
from flow.monitoring.run_status import ErrorStatus, RunState, RunStatus, StepStatus, graph_from_json
from flow.web.hub import Hub
from flow.web.inside import Inside
from flow.web.page_access import Access
from flow.web.server import PageServer
from recovery import CheckpointStatus, inspect, status
from recovery import StepStatus as CheckpointedStep
from recovery.reading.checkpoint_reader import CheckpointReader, open_checkpoint

HOW_TO_SHOW = "Keys and values are not shown. To show them, start this command with --values."

ENGINE = "checkpoint"
"""The name of the engine in the status of a checkpoint."""

logger = logging.getLogger("flow")

LOOK_SECONDS = 5.0
"""The time between two looks for epochs that a run has added."""


def serve(
    path: str,
    address: str,
    shows_values: bool,
    say: Callable[[str], None],
    wait: Callable[[float], object] = time.sleep,
    flow: Dataflow | None = None,
) -> None:
    """Serve the page of a checkpoint until `wait` raises, and follow a run that still adds to it.

    Args:
        path: the checkpoint's directory.
        address: the address, ``HOST:PORT``.
        shows_values: True to show keys, the contents of windows and other state.
        say: called with the URL of the page.
        wait: waits for a number of seconds.
        flow: the flow, for results of the user's own aggregates.

    Raises:
        CheckpointError: if the directory is not a checkpoint.
        FlowBuildError: if the address cannot be used.
    """
    access = Access.to(web_address(address))
    checkpoint = open_checkpoint(path)
    spark = checkpoint.spark
    inside = Inside(shows_values, HOW_TO_SHOW)
    inside.reader = lambda step_id, key: asdict(
        inspect(path, step_id, key=key, flow=flow, spark=spark)
    )
    lease = Lease(checkpoint.files.storage)
    mark = _mark(checkpoint, lease)
    hub = Hub(run_status(checkpoint, *mark[2:]))
    server = PageServer(access, hub, inside=inside)
    try:
        say(f"page of {path}: {server.url}")
        while True:
            wait(LOOK_SECONDS)
            try:
                now = open_checkpoint(path, spark)
                seen = _mark(now, lease)
                if seen != mark:
                    hub.publish(run_status(now, *seen[2:]))
                    mark = seen
            except CheckpointError as error:  # A run, or a tool, may remove what a look reads.
                logger.warning("the page shows the look before, as this one failed: %s", error)
    finally:
        server.close()


def _mark(
    checkpoint: CheckpointReader, lease: Lease
) -> tuple[list[int], int | None, Claim | None, bool]:
    """Look at the lease, and return what changes with each epoch and with the end of a run.

    The result is the last finished epoch, the epoch that began and did not finish, the holder of
    the lease, and True if the holder has ended.
    """
    is_over = lease.is_over() is True
    return checkpoint.committed[-1:], checkpoint.begun, lease.holder, is_over


def run_status(checkpoint: CheckpointReader, holder: Claim | None, is_over: bool) -> RunStatus:
    """Return the status of the run that a checkpoint belongs to, as of its last epoch.

    Args:
        checkpoint: the checkpoint.
        holder: the process that holds the checkpoint's lock.
        is_over: True if no process runs on the checkpoint.
    """
    found = status(checkpoint.root, spark=checkpoint.spark)
    last = found.last
    seconds = None if last is None else checkpoint.log(last).moment.now_us / 1e6
    graph = graph_from_json(checkpoint.identity.recovery["graph"])
    sizes: dict[str, dict[str, int]] = {step.step_id: {} for step in graph.steps}
    sizes |= {one.step: _sizes(one) for one in found.steps}
    state, error = _end(found, holder, seconds) if is_over else (RunState.RUNNING, None)
    return RunStatus(
        found.flow,
        found.run_id,
        ENGINE,
        graph,
        seconds or 0.0,
        state=state,
        steps={step_id: StepStatus(gauges=gauges) for step_id, gauges in sizes.items()},
        epochs=0 if last is None else last + 1,
        last_commit_at=seconds,
        system_time=seconds,
        lag={one.step: _offset(one.offset) for one in found.sources},
        ended_at=seconds if state.is_over else None,
        error=error,
    )


def _end(
    found: CheckpointStatus, holder: Claim | None, seconds: float | None
) -> tuple[RunState, ErrorStatus | None]:
    """Return the state of a run that is over, and an error for a run that was killed."""
    again = "" if found.begun is None else f"; the next run does epoch {found.begun} again"
    if holder is not None:
        message = (
            f"{holder.process}, which ran the flow, has ended without an end of the run{again}"
        )
        return RunState.FAILED, ErrorStatus(seconds or 0.0, message)
    if found.ended:
        return RunState.ENDED, None
    return RunState.STOPPED, None


def _sizes(step: CheckpointedStep) -> dict[str, int]:
    sizes = {
        "keys": step.keys,
        "state_bytes": step.bytes,
        OPEN_WINDOWS: step.open_windows,
        BUFFERED_VALUES: step.buffered_values,
    }
    return {name: size for name, size in sizes.items() if size is not None}


def _offset(offset: Any) -> str:
    return "nothing read" if offset is None else f"read up to {json.dumps(offset)}"
