"""One flow with every kind of step: as a batch, and as a streaming query in four runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flow import run
from tests.recovery.every_state import ITEMS, START, make_flow, outputs_of
from tests.spark_versions.four_runs import Outputs, driver_outputs, merged, run_parts

pytestmark = [pytest.mark.spark, pytest.mark.extended]


@pytest.fixture(scope="module")
def expected() -> Outputs:
    return driver_outputs()


def test_a_batch_emits_what_the_in_process_driver_emits(
    spark: SparkSession, expected: Outputs
) -> None:
    flow = make_flow(ITEMS)
    run(flow, spark=spark, engine="batch", drain=True, system_time=START)
    outputs = outputs_of(flow)
    # Steps with emit="epoch" emit by slices, and a batch has others than the driver.
    found = {name: items for name, items in outputs.items() if "_epoch" not in name}
    assert found == {name: expected[name] for name in found}
    assert [name for name, items in found.items() if not items] == []


@pytest.mark.each_spark
def test_four_runs_of_a_query_emit_what_the_in_process_driver_emits(
    spark: SparkSession, expected: Outputs, tmp_path: Path
) -> None:
    assert merged(run_parts(tmp_path, 0, 1, 2, 3)) == expected
