"""A flow with one output, with what a test builds between it and the inputs, in process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import flow.operators as op
from flow import Dataflow, Stream
from flow.columns.chunks import Chunk
from flow.dataflow import Operator
from flow.engine.epoch.context import TaskContext
from flow.engine.steps.kernels import run_step
from flow.instants import Moment
from flow.testing import TestDriver, TestingSink, TestingSource

TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)

Build: TypeAlias = Callable[[Stream[Any]], Stream[Any]]


def step(operator: Callable[..., Any], *arguments: Any, **options: Any) -> Build:
    """Return what builds one step of an operator, with the id "step"."""
    return lambda s: operator("step", s, *arguments, **options)


def running_total(total: int | None, value: int) -> tuple[int, int]:
    return (total or 0) + value, (total or 0) + value


def a_flow(
    build: Callable[..., Stream[Any]], *inputs: str, source: Any = None, sink: Any = None
) -> Dataflow:
    """Return a flow whose output "out" is built of its inputs, by default of "in" alone.

    Without a source the inputs are empty.
    """
    flow = Dataflow("example")
    streams = [op.input(name, flow, source or TestingSource([])) for name in inputs or ("in",)]
    op.output("out", build(*streams), sink or TestingSink([]))
    return flow


def as_read(stream: Stream[Any]) -> Stream[Any]:
    """Build nothing: what is read is written."""
    return stream


def driver(build: Callable[..., Stream[Any]], *inputs: str) -> TestDriver:
    """Return a driver of the flow, with system time ten o'clock."""
    return TestDriver(a_flow(build, *inputs), now=TEN)


def made(kind: Operator, chunk: Chunk) -> list[Any]:
    """Return the chunks that a stateless step makes of one."""
    return run_step(kind, "step", chunk, TaskContext(Moment(0)))
