"""The flow of the README."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.readme import check_departures, code_block, write_departures


@pytest.mark.spark
def test_the_flow_in_twenty_lines_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark  # started, so that the flow runs in it
    monkeypatch.chdir(tmp_path)
    write_departures(tmp_path)
    exec(code_block("A flow in twenty lines"), {"__name__": "departures"})
    check_departures(tmp_path)
