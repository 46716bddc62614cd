"""A query of two inputs that crashes, is stopped and ends, and one that runs to its end at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from flow import Dataflow, run
from flow.testing import ABORT, EOF
from recovery import RecoveryConfig

Results: TypeAlias = dict[str, list[Any]]
"""The items of each output, by its name."""

Make: TypeAlias = Callable[[list[Any], list[Any], Results], Dataflow]
"""A function that makes the flow of two inputs, whose outputs append to the results."""

START = "1970-01-01T00:01:00Z"


def run_both_ways(
    make: Make,
    inputs: Sequence[list[Any]],
    breaks: tuple[int, int],
    spark: SparkSession,
    path: Path,
) -> tuple[Results, Results]:
    """Run a flow interrupted and undisturbed, and return the outputs of both.

    Args:
        make: makes the flow.
        inputs: the items of the two inputs.
        breaks: the numbers of items of each input before the crash and before the stop.
        spark: the session.
        path: the directory of the checkpoints.
    """
    crash, stop = breaks
    interrupted: Results = {}
    left, right = (
        [*items[:crash], ABORT(), *items[crash:stop], EOF(), *items[stop:]] for items in inputs
    )
    flow, checkpoint = make(left, right, interrupted), RecoveryConfig(path / "interrupted")
    runs = [
        run(flow, spark=spark, recovery=checkpoint, system_time=START, drain=is_last)
        for is_last in (False, False, True)
    ]
    assert [one.aborted for one in runs] == [True, False, False]
    undisturbed: Results = {}
    left, right = inputs
    whole = make(left, right, undisturbed)
    run(whole, spark=spark, recovery=RecoveryConfig(path / "undisturbed"), system_time=START)
    return interrupted, undisturbed


def by_key(results: Results) -> Results:
    """Return the items of each output, those of each key in order."""
    return {name: sorted(items, key=lambda item: item[0]) for name, items in results.items()}
