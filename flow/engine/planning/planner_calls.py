"""Calls of planners, whose errors become errors that name the step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from flow.columns.chunks import MAX_SPLITS
from flow.connectors.source import Planner, Slice, SourceLog
from flow.dataflow import Step
from flow.engine.epoch.failures import naming
from flow.engine.steps.reading import source_of
from flow.errors import RAISED, FlowError, SourceError, StepError, brief, shorten

REST_SECONDS = 0.05
"""Pause, in seconds, before planners of sources without new data are called again."""

P = ParamSpec("P")
Answer = TypeVar("Answer")


def ask(step_id: str, question: Callable[P, Answer], *args: P.args, **named: P.kwargs) -> Answer:
    """Call a method of a planner or a source.

    Raises:
        FlowError: when the planner fails; the error names the step.
    """
    try:
        return question(*args, **named)
    except SourceError as error:
        raise naming(step_id, error) from error.__cause__
    except (FlowError, KeyboardInterrupt):  # The user interrupts the run, whose process this is.
        raise
    except RAISED as error:
        problem = f"planning what to read raised {brief(error)}"
        raise StepError(step_id, problem) from error


def check_slice(step_id: str, planned: Slice) -> Slice:
    """Return a slice whose positions and offsets fit a checkpoint.

    Raises:
        SourceError: when a partition has too many splits.
        StepError: when an offset or a split is not JSON.
    """
    if any(not 0 <= split.order < MAX_SPLITS for split in planned.splits):
        raise SourceError(
            f"step {step_id!r}: a slice may have at most {MAX_SPLITS} splits a partition"
        )
    for what, value in (("offset", planned.end), *(("split", one.what) for one in planned.splits)):
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"its source's {what} must be JSON, got {shorten(value)}: {error}"
            raise StepError(step_id, problem) from error
    return planned


def planner_of(step: Step, log: SourceLog, parallelism: int) -> Planner:
    """Return the planner of an input's source for a run.

    Raises:
        FlowError: when the source raises; the source's exception is the cause.
    """
    return ask(step.step_id, source_of(step).planner, log, parallelism)


def plan_everything(planners: Mapping[str, Planner]) -> dict[str, list[Slice]]:
    """Return all slices of bounded sources, in order, by input."""
    slices: dict[str, list[Slice]] = {}
    for step_id, planner in planners.items():
        offset: Any = None
        slices[step_id] = []
        while not ask(step_id, planner.finished, offset):
            planned = ask(step_id, planner.next, offset)
            if planned is None:  # The source has no data now, and ends later: it is bounded.
                time.sleep(REST_SECONDS)
                continue
            slices[step_id].append(check_slice(step_id, planned))
            offset = planned.end
    return slices
