"""The switch of the optional speed-ups: results are the same with and without them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, KeyedStream, run
from flow.engine.spark.session.session_settings import has_speedups, switched
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig
from tests.support.programs import printed_by

VALUES = [(f"key {n % 50}", {"at": n, "n": n}) for n in range(200)]


def totals(directory: Path, **session: Any) -> list[Any]:
    """Run a flow of several epochs with a checkpoint, in this session; return its output."""
    flow, out = Dataflow("totals"), list[Any]()
    stream: KeyedStream[Any] = op.input("in", flow, TestingSource(VALUES, batch_size=100))
    minutes = win.TumblingWindower("1m")
    figures = win.sum_window("sums", stream, win.EventClock("at", "5s"), minutes, by="n")
    summed = op.map_value("sum", figures.down, lambda pair: pair[1])
    op.output("out", summed, TestingSink(out))
    run(flow, recovery=RecoveryConfig(directory / "checkpoint"), **session)
    return sorted(out)


@pytest.mark.spark
@pytest.mark.extended
def test_results_are_the_same_without_speedups(spark: SparkSession, tmp_path: Path) -> None:
    without = printed_by("-m", __name__, tmp_path / "off", **switched(is_on=False))
    assert has_speedups(), "of this process"
    found = totals(tmp_path / "on", spark=spark)
    assert len(found) == 170
    assert json.loads(json.dumps(found)) == json.loads(without)


if __name__ == "__main__":
    from tests.engine.spark.session import test_switch

    sys.stdout.write(json.dumps(test_switch.totals(Path(sys.argv[1]), master="local[2]")))
