"""The error of a run whose Python worker the system kills."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, EngineError, run
from flow.engine.spark.session.failures import WORKER_DIED
from flow.testing import TestingSink, TestingSource


def die(item: Any) -> Any:
    """Die as a worker does that the kernel kills for memory."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "with_state"),
    [
        ("batch", False),
        pytest.param("streaming", True, marks=pytest.mark.extended),
        pytest.param("streaming", False, marks=pytest.mark.extended),
    ],
)
def test_a_killed_worker_is_explained_with_what_to_set(
    engine: Any, with_state: bool, spark: SparkSession
) -> None:
    flow = Dataflow("killed")
    items = op.input("in", flow, TestingSource([("a", 1)]))
    if with_state:
        items = op.stateful_map("die", items, lambda _, value: (None, die(value)))
    else:
        items = op.map("die", items, die)
    op.output("out", items, TestingSink([]))
    with pytest.raises(EngineError, match=re.escape(WORKER_DIED)):
        run(flow, spark=spark, engine=engine)
