"""`to_dataframe`: a stream of a flow as a Spark data frame, between the queries of a Spark job."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from flow.checks import wrong_type
from flow.config.effective_config import (
    EffectiveConfig,
    Layer,
    of_arguments,
    of_environment,
    recovery_of_program,
)
from flow.config.flow_config import FIELD, FIELDS, FlowConfig
from flow.config.spark_session import session_for
from flow.dataflow import Dataflow, Stream
from flow.engine.epoch.statistics import Stats
from flow.engine.feed.clocks import FixedTime, wall_time
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.declared_columns import check_fields
from flow.engine.plan.plan import Plan
from flow.engine.plan.portability import check_portable
from flow.instants import Instant, instant_us
from flow.operators.edges import output
from flow.operators.stateless import Raises
from flow.reports.loss_warnings import DropWarnings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger("flow")

_FIELDS = ("drain", "shards", "partitions", "log_level", *(f.name for f in FIELDS if f.new_session))
"""The fields of the configuration that concern a data frame or its session."""
_COUNTERS_OF = {"late": ("late",), "errors": ("errors", "invalid")}
"""The counters of the values in a stream, by the stream's port."""
_NOT_IN_FRAME = (
    "step %r: values of stream %r are not in the data frame: to_dataframe(..., counts=...) counts "
    "them, and to_dataframe of that stream has them as rows"
)


def to_dataframe(
    stream: Stream[Any],
    *,
    spark: SparkSession | None = None,
    schema: StructType | str | None = None,
    counts: Counter[tuple[str, str]] | None = None,
    drain: bool | None = None,
    system_time: Instant | None = None,
    shards: int | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """Return a stream of a flow as a lazy Spark data frame, whose inputs must end.

    The inputs are listed now, as ``spark.read`` does. The steps that the stream needs, and those
    that `op.raises` needs, run as a part of Spark's job each time that Spark computes the frame;
    ``frame.cache()`` saves that. Other steps do not run, and no sink of the flow is written.

    Rows have the columns of `flow.connectors.sink.to_record`, as in the files of a `ParquetSink`. A
    window's result has ``key``, ``window_id``, ``open_time``, ``close_time``, ``merged_ids``,
    ``is_retraction``, and a column for each aggregate. The types are known if the sources know the
    columns of their records (data frames, Parquet, and sources with a schema), no step before the
    windows makes items with a function, and the aggregates read fields.

    A failure of a step fails Spark's job, and its error contains the text of the `StepError`. Late
    and dropped values are counted in `counts` and logged as a warning. The lines of `op.inspect`
    go to the output of Spark's workers.

    Args:
        stream: the stream, such as ``hourly.down``.
        spark: the session; by default that of a data frame which the flow reads, else the active
            one, also of Spark Connect, else a new one.
        schema: the columns, as a `StructType` or DDL text such as ``"key string, total double"``. A
            column that an item lacks is null, and other fields are left out.
        counts: a counter to which every computation of the frame adds the counts of its steps, by
            (step, name), as in `Summary.counts`. A part of the frame that Spark does not compute,
            such as after ``limit``, is not counted, and a part that Spark computes again is counted
            again. Spark Connect cannot count.
        drain: True, the default, to close all windows at the end of the input; False leaves open
            windows out.
        system_time: for tests: the system time; by default, the time of this call.
        shards: the number of shards of the key space.
        partitions: the number of partitions of the data frame, if it has a keyed step.

    Where they are left out, `drain`, `shards`, `partitions` and the settings of a new session come
    from environment variables such as ``FLOW_MASTER``, as in `run`.

    Raises:
        FlowBuildError: an input does not end, the columns are not known, or the schema or another
            argument is invalid.
        EnvironmentProblem: Spark or Java is missing or too old; `counts` is given and the session
            is one of Spark Connect.
        SourceError, StepError: a source cannot be listed.

    Example:
        >>> import flow.operators as op
        >>> from flow import Dataflow
        >>> from flow.connectors.dataframe import DataFrameSource
        >>> def tall(spark):
        ...     people = DataFrameSource(spark.sql("select 'ann' name, 1.82D height"))
        ...     read = op.input("people", Dataflow("tall"), people)
        ...     return to_dataframe(op.filter("tall", read, lambda row: row["height"] > 1.8))
    """
    from flow.engine.spark.session.versions import installed_version

    installed_version()
    from flow.connectors.dataframe import check_schema
    from flow.engine.spark.batch import BatchSettings, FrameSink, lazy_frame
    from flow.engine.spark.session.session import check_session, ready_for_a_run
    from flow.engine.spark.session.session_settings import java_of

    _check_arguments(stream, counts)
    arguments = {"drain": drain, "shards": shards, "partitions": partitions}
    own = of_arguments(arguments, "to_dataframe")
    effective = EffectiveConfig(own, _environment(own))
    if schema is not None:
        check_schema("to_dataframe", schema)
    time_of_day = wall_time if system_time is None else FixedTime(instant_us(system_time))
    part = _needed_for(stream)
    output(f"to_dataframe({stream.stream_id})", Stream(part, stream.stream_id), FrameSink())
    plan = compile_flow(part)
    check_fields(plan)
    check_portable(plan.for_workers().steps)
    session = session_for(plan, effective, spark)
    check_session(session)
    if counts is not None:
        java_of(session, "the counter of counts=")
    settings = BatchSettings(
        effective.value("drain") is not False,
        time_of_day,
        effective.value("shards"),
        effective.value("partitions"),
    )
    with ready_for_a_run(session):
        return lazy_frame(plan, session, settings, schema, _Losses(plan, counts))


def _environment(above: Layer) -> Layer:
    """Return the settings of environment variables that concern a data frame or its session."""
    variables = {FIELD[name].variable for name in _FIELDS}
    environ = {name: text for name, text in os.environ.items() if name in variables}
    return of_environment(environ, recovery_of_program(FlowConfig()), above)


def _check_arguments(stream: object, counts: object) -> None:
    if not isinstance(stream, Stream):
        hint = ", such as hourly.down of a windowing step" if hasattr(stream, "down") else ""
        if isinstance(stream, Dataflow):
            hint = ", such as the stream that an op.output step of the flow reads"
        raise wrong_type(f"to_dataframe needs a Stream{hint}", stream)
    if counts is not None and not isinstance(counts, Counter):
        raise wrong_type("counts must be a collections.Counter", counts)


def _needed_for(stream: Stream[Any]) -> Dataflow:
    """Return the part of a flow that a stream and the `op.raises` steps need."""
    needed = {stream.stream_id.step_id}
    for step in reversed(stream.flow.steps):
        if isinstance(step.operator, Raises) or step.step_id in needed:
            needed.add(step.step_id)
            needed.update(up.step_id for up in step.ups)
    return stream.flow.with_only(needed)


class _Losses:
    """The counts of a data frame's computations, and a warning for each step that loses values.

    The tasks of a computation report one by one, and none of them is known to be the last. So the
    warning has no number.

    Args:
        plan: the flow.
        counts: the user's counter.
    """

    def __init__(self, plan: Plan, counts: Counter[tuple[str, str]] | None) -> None:
        self._warn_of_drops = DropWarnings()
        self._counts = counts
        self._not_read = [
            down
            for step in plan.steps.values()
            for down in step.downs
            if down.port in _COUNTERS_OF and not plan.hops_of(down)
        ]

    def __call__(self, stats: Stats) -> None:
        """Add the statistics of a task."""
        if self._counts is not None:
            self._counts.update(stats.counts)
        self._warn_of_drops(stats)
        for stream in list(self._not_read):
            if any(stats.counts[stream.step_id, name] for name in _COUNTERS_OF[stream.port]):
                self._not_read.remove(stream)
                logger.warning(_NOT_IN_FRAME, stream.step_id, str(stream))
