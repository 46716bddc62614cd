"""Sources of a plan, and their planners for a run."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from pyspark.sql import DataFrame

from flow.connectors.dataframe import DataFrameSource
from flow.connectors.files.reading.parquet_source import WrittenDownFrame
from flow.connectors.source import Planner
from flow.dataflow import Step
from flow.engine.checkpoint.storage import Storage
from flow.engine.plan.plan import Plan
from flow.engine.planning.planner_calls import planner_of
from flow.engine.spark.session.failures import spark_problem
from flow.engine.steps.reading import source_of
from flow.errors import SourceError
from flow.operators.edges import Input


def is_foreign(step: Step) -> bool:
    """Return True if Spark itself reads an input's source."""
    return isinstance(source_of(step), DataFrameSource)


def keep_static_frames(plan: Plan, storage: Storage) -> Plan:
    """Write static data frames below the checkpoint, so that every epoch can be replayed.

    Returns:
        The plan, in which the inputs of those frames read the files.

    Raises:
        SourceError: when Spark cannot read or write a frame; the error gives Spark's reason.
    """
    steps = dict(plan.steps)
    for step_id in plan.inputs:
        source = source_of(plan.steps[step_id])
        if isinstance(source, DataFrameSource) and not source.streaming:
            name = f"inputs/{_file_of(plan, step_id)}"
            if not storage.exists(f"{name}/_SUCCESS") and source.frame is not None:
                _keep(step_id, source.frame, f"{storage.root}/{name}")
            kept = WrittenDownFrame(f"{storage.root}/{name}")
            steps[step_id] = replace(plan.steps[step_id], operator=Input(kept))
    return plan.with_steps(steps)


def _keep(step_id: str, frame: DataFrame, path: str) -> None:
    try:
        frame.write.mode("overwrite").parquet(path)
    except Exception as error:
        problem = f"its data frame cannot be read and written to {path}: {spark_problem(error)}"
        raise SourceError(f"step {step_id!r}: {problem}") from error


def planners_of(plan: Plan, storage: Storage, parallelism: int) -> dict[str, Planner]:
    """Return a planner for each input that Python reads."""
    return {
        step_id: planner_of(step, storage.log(f"sources/{_file_of(plan, step_id)}"), parallelism)
        for step_id, step in plan.steps.items()
        if step_id in plan.sources and not is_foreign(step)
    }


def _file_of(plan: Plan, step_id: str) -> str:
    """Return an input's name in the checkpoint, quoted for a file name."""
    return quote(plan.state_name(step_id), safe="")
