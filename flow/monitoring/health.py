"""The health of a run: whether it has failed, or has not committed for too long."""

from __future__ import annotations

from typing import NamedTuple

from flow.monitoring.status import RunState, RunStatus

DEFAULT_PATIENCE_SECONDS = 60.0
"""The longest age of the last commit of a healthy run, without a trigger. A run without new items
commits an epoch about every ten seconds."""

TRIGGERS = 3
"""The number of intervals of the trigger that a healthy run may need for an epoch."""


class Health(NamedTuple):
    """A verdict.

    Attributes:
        is_healthy: True if the run is healthy.
        reason: the reason, as a sentence.
    """

    is_healthy: bool
    reason: str


def patience_of(status: RunStatus) -> float:
    """Return the default patience for a run, in seconds: longer with a long trigger."""
    return max(DEFAULT_PATIENCE_SECONDS, TRIGGERS * (status.trigger_seconds or 0.0))


def health_of(status: RunStatus, now: float, patience: float | None = None) -> Health:
    """Return the health of a run.

    Args:
        status: the status of the run.
        now: the present time, in seconds since 1970.
        patience: the longest age of the last commit, in seconds; by default that of `patience_of`.
            Before the first commit, the start of the run counts. A batch commits only at its end,
            so it is healthy until it fails.
    """
    limit = patience_of(status) if patience is None else patience
    if status.state is RunState.FAILED:
        message = status.error.message.splitlines()[0] if status.error else "no message"
        return Health(False, f"the run has failed: {message}")
    if status.state.is_over:
        return Health(True, f"the run has {status.state.value}")
    if status.engine == "batch":
        return Health(True, "the batch is running")
    since = status.started_at if status.last_commit_at is None else status.last_commit_at
    what = "the run has started" if status.last_commit_at is None else "the last commit was"
    age = max(0.0, now - since)
    if age > limit:
        return Health(False, f"{what} {age:.0f} s ago, more than {limit:.0f} s, and none followed")
    return Health(True, f"{what} {age:.0f} s ago")
