"""Export of a step's state to a Parquet file."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError
from flow.instants import NEVER
from flow_windowing.rules.key_state import DriverState
from recovery import export
from recovery.reading.epoch_state import KeySnapshot
from recovery.tools.exporting import _Shape
from recovery.tools.importing import read_states
from tests.recovery.kept_flow import NOW, Basket

pytestmark = pytest.mark.spark


def rows_by_key(file: Path) -> dict[str, Any]:
    return {row["key"]: row for row in pq.read_table(file).to_pylist()}


def test_plain_state_has_a_column_of_its_own_type(
    checkpoint: Path, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "counts.parquet"
    made = export(checkpoint, "counts", file, spark=spark)
    assert str(made) == f"step counts after epoch 3: 2 keys in 2 rows of {file}"
    assert pq.read_schema(file).field("state").type == pa.int64()
    rows = rows_by_key(file)
    assert (rows["a"]["state"], rows["b"]["state"], rows["a"]["due"]) == (3, 3, None)
    assert pickle.loads(rows["a"]["snapshot"]) == 3


def test_other_state_is_json_and_its_snapshot_loses_nothing(
    checkpoint: Path, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "baskets.parquet"
    export(checkpoint, "baskets", file, epoch=1, spark=spark)
    row = rows_by_key(file)["b"]
    assert json.loads(row["state"])["fields"] == {"owner": "me", "sizes": [10, 20]}
    assert pickle.loads(row["snapshot"]) == Basket("me", [10, 20])


def test_a_windowing_step_has_a_row_for_each_open_window(
    checkpoint: Path, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "hourly.parquet"
    made = export(checkpoint, "hourly", file, spark=spark)
    assert (made.keys, made.rows) == (2, 2)
    row = rows_by_key(file)["b"]
    assert (row["open_time"], row["close_time"]) == (NOW, NOW + timedelta(hours=1))
    assert row["window_id"] == NOW.timestamp() // 3600
    assert json.loads(row["value"]) == {"n": 2, "total": 30}
    assert isinstance(read_states(file, trust=True)["b"], DriverState)


def test_a_key_without_an_open_window_has_a_row_too(
    checkpoint: Path, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "hourly.parquet"
    export(checkpoint, "hourly", file, epoch=0, spark=spark)
    row = rows_by_key(file)["a"]  # its only value waits
    assert (row["window_id"], row["open_time"], row["value"]) == (None, None, None)
    assert row["snapshot"]


def test_due_times_of_keys(checkpoint: Path, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "sessions.parquet"
    export(checkpoint, "sessions", file, spark=spark)
    assert rows_by_key(file)["a"]["due"] == NOW + timedelta(minutes=10)


def test_a_file_that_cannot_be_written_is_an_error(
    checkpoint: Path, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "nowhere" / "counts.parquet"
    with pytest.raises(CheckpointError, match=r"counts\.parquet cannot be written: "):
        export(checkpoint, "counts", file, spark=spark)
    with pytest.raises(CheckpointError, match="step 'nix' keeps no state"):
        export(checkpoint, "nix", tmp_path / "nix.parquet", spark=spark)


@pytest.mark.parametrize(
    ("states", "kind"),
    [
        ([1, 2], pa.int64()),
        ([1, 2**63], None),
        ([1, True], None),
        ([True, False], pa.bool_()),
        ([1.5], pa.float64()),
        (["a", ""], pa.string()),
        (["a", None], None),
        ([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        ([datetime(2024, 1, 1)], None),  # noqa: DTZ001  (a user's may be naive)
        ([Decimal(1)], None),
        ([(1, 2)], None),
        ([], None),
    ],
    ids=repr,
)
def test_the_column_of_states(states: list[Any], kind: Any) -> None:
    keys = [KeySnapshot(str(n), pickle.dumps(one), NEVER, 0) for n, one in enumerate(states)]
    assert _Shape.of(iter(keys), "step").kind == kind
