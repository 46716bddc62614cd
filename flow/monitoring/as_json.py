"""The status of a run as JSON, for ``/api/flow``, ``/api/epochs`` and the live page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flow.engine.epoch.late_items import LateItem
from flow.monitoring.graph import Graph
from flow.monitoring.metrics import capped
from flow.monitoring.status import EpochStatus, RunStatus, StepStatus

MAX_WORKERS = 64
"""The number of workers that are listed, those with the most memory."""


def flow_json(status: RunStatus) -> dict[str, Any]:
    """Return the status with its graph, without the epochs."""
    return {**status_json(status), "graph": graph_json(status.graph)}


def status_json(status: RunStatus) -> dict[str, Any]:
    """Return the status without its graph and its epochs."""
    error = status.error
    return {
        "flow_id": status.flow_id,
        "run_id": status.run_id,
        "engine": status.engine,
        "state": status.state.value,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
        "trigger_seconds": status.trigger_seconds,
        "epochs": status.epochs,
        "last_commit_at": status.last_commit_at,
        "system_time": status.system_time,
        "steps": {step_id: _step(step) for step_id, step in status.steps.items()},
        "edges": [_edge(status, edge.counter) for edge in status.graph.edges],
        "lag": dict(status.lag),
        "behind": {step_id: capped(counts) for step_id, counts in status.behind.items()},
        "phase_seconds": _rounded(status.phase_seconds),
        "workers": capped(status.workers, MAX_WORKERS),
        "error": None if error is None else dict(vars(error)),
    }


def epochs_json(history: Iterable[EpochStatus]) -> list[dict[str, Any]]:
    """Return epochs, oldest first."""
    return [{**vars(epoch), "phases": _rounded(epoch.phases)} for epoch in history]


def late_json(items: Iterable[LateItem]) -> list[dict[str, Any]]:
    """Return late values, with times in seconds since 1970."""
    return [
        {
            "key": item.key,
            "value": item.value,
            "reason": item.reason,
            "timestamp": item.timestamp_us / 1e6,
            "watermark": None if item.watermark_us is None else item.watermark_us / 1e6,
            "windows": [
                {"id": window_id, "open": open_us / 1e6, "close": close_us / 1e6}
                for window_id, open_us, close_us in item.windows
            ],
            "missed": item.missed,
        }
        for item in items
    ]


def graph_json(graph: Graph) -> dict[str, Any]:
    """Return a graph: the fields of its steps, and the ends of its streams."""
    edges = [{"up": edge.up, "port": edge.port, "down": edge.down} for edge in graph.edges]
    return {"steps": [dict(vars(step)) for step in graph.steps], "edges": edges}


def _step(step: StepStatus) -> dict[str, Any]:
    return {
        "counts": dict(step.counts),
        "gauges": dict(step.gauges),
        "rates": _rounded(step.rates),
        "busy_seconds": round(step.busy_seconds, 6),
        "busy_share": round(step.busy_share, 6),
        "active_at": step.active_at,
        "lag": None if step.lag is None else step.lag._asdict(),
        "late_advice": step.late_advice,
    }


def _edge(status: RunStatus, counter: tuple[str, str] | None) -> dict[str, Any]:
    """Return the items of a stream and their rate; ``None`` for both without a counter."""
    if counter is None:
        return {"items": None, "rate": None}
    step = status.steps[counter[0]]
    return {
        "items": step.counts.get(counter[1], 0),
        "rate": round(step.rates.get(counter[1], 0.0), 6),
    }


def _rounded(values: Any) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}
