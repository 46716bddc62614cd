"""A flow of one input and one output, with what a test builds between them, in process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import flow.operators as op
from flow import Dataflow, Stream
from flow.testing import TestDriver, TestingSink, TestingSource

TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)

Build: TypeAlias = Callable[[Stream[Any]], Stream[Any]]


def step(operator: Callable[..., Any], *arguments: Any, **options: Any) -> Build:
    """Return what builds one step of an operator, with the id "step"."""
    return lambda s: operator("step", s, *arguments, **options)


def a_flow(build: Build) -> Dataflow:
    """Return the flow, whose source is empty."""
    flow = Dataflow("example")
    op.output("out", build(op.input("in", flow, TestingSource([]))), TestingSink([]))
    return flow


def driver(build: Build) -> TestDriver:
    """Return a driver of the flow, with system time ten o'clock."""
    return TestDriver(a_flow(build), now=TEN)
