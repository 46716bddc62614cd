"""One flow with every kind of step: as a batch, and as a streaming query in four runs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

from flow import run
from flow.testing import TestDriver
from tests.recovery.every_state import ITEMS, ROWS, START, make_flow, outputs_of
from tests.spark_versions.four_runs import Outputs, merged, run_parts

pytestmark = [pytest.mark.spark, pytest.mark.each_spark]


def outputs_on(spark: SparkSession, engine: Literal["batch", "streaming"]) -> Outputs:
    flow = make_flow(ITEMS)
    run(flow, spark=spark, engine=engine, drain=True, system_time=START)
    return outputs_of(flow)


@pytest.mark.extended
def test_a_batch_emits_what_the_in_process_driver_emits(spark: SparkSession) -> None:
    flow = make_flow([])
    driver = TestDriver(flow, now=START)
    driver.send("stream", ITEMS)
    driver.send("rows", ROWS)
    driver.end()
    # Steps with emit="epoch" emit by slices, and a batch has others than the driver.
    outputs = outputs_on(spark, "batch").items()
    found = {name: items for name, items in outputs if "_epoch" not in name}
    assert found == {name: sorted(map(repr, driver.received(name))) for name in found}
    assert [name for name, items in found.items() if not items] == []


@pytest.mark.extended
def test_four_runs_of_a_query_emit_every_item_of_one_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert merged(run_parts(tmp_path, 0, 1, 2, 3)) == outputs_on(spark, "streaming")
