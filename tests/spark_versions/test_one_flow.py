"""One flow with every kind of step: as a batch, and as a streaming query in three runs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

from flow import EnvironmentProblem, run
from flow.engine.spark.session.versions import installed_version
from flow.testing import TestDriver
from recovery import RecoveryConfig
from tests.recovery.every_state import ITEMS, ROWS, START, make_flow, outputs_of
from tests.spark_versions.three_runs import Outputs, merged, run_parts

pytestmark = [pytest.mark.spark, pytest.mark.each_spark]

only_batches = not installed_version().has_streaming


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


@pytest.mark.skipif(only_batches, reason="Spark 4.0 runs flows as batches only")
@pytest.mark.extended
def test_three_runs_of_a_query_emit_every_item_of_one_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert merged(run_parts(tmp_path, 0, 1, 2)) == outputs_on(spark, "streaming")


@pytest.mark.skipif(not only_batches, reason="only Spark 4.0 refuses")
@pytest.mark.parametrize("engine", ["streaming", "auto"])
def test_a_streaming_query_is_refused(
    spark: SparkSession, tmp_path: Path, engine: Literal["streaming", "auto"]
) -> None:
    checkpoint = RecoveryConfig(tmp_path / "checkpoint") if engine == "auto" else None
    message = r"streaming flows and checkpoints need Spark 4\.1 to .* runs a flow as a batch only"
    with pytest.raises(EnvironmentProblem, match=message):
        run(make_flow(ITEMS), spark=spark, recovery=checkpoint, engine=engine)
    assert not (tmp_path / "checkpoint").exists()
