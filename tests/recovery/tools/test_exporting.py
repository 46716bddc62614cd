"""Export of a step's state to a Parquet file."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flow import CheckpointError
from flow_windowing.rules.key_state import DriverState
from recovery import export
from recovery.tools.exporting import _column_type, _json, _kind, read_states
from tests.recovery.kept_flow import NOW, Basket


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "out.parquet"


def exported(checkpoint: Path, step: str, file: Path, **options: Any) -> dict[str, Any]:
    """Export the state of a step, and return the row of each key."""
    export(checkpoint, step, file, **options)
    return rows_of(file)


def rows_of(file: Path) -> dict[str, Any]:
    return {row["key"]: row for row in pq.read_table(file).to_pylist()}


def test_plain_state_has_a_column_of_its_own_type(checkpoint: Path, file: Path) -> None:
    rows = exported(checkpoint, "counts", file)
    assert pq.read_schema(file).field("state").type == pa.int64()
    assert (rows["a"]["state"], rows["b"]["state"], rows["a"]["due"]) == (3, 3, None)
    assert pickle.loads(rows["a"]["snapshot"]) == 3


def test_other_state_is_json_and_its_snapshot_loses_nothing(checkpoint: Path, file: Path) -> None:
    row = exported(checkpoint, "baskets", file, epoch=1)["b"]
    assert json.loads(row["state"])["fields"] == {"owner": "me", "sizes": [10, 20]}
    assert pickle.loads(row["snapshot"]) == Basket("me", [10, 20])
    assert read_states(file, trust=True)["b"] == Basket("me", [10, 20])
    with pytest.raises(CheckpointError, match=r"holds states as JSON for people, .* with --trust"):
        read_states(file)


def test_text_without_utf_8_is_json_with_escapes() -> None:
    assert _column_type({_kind("ä"), _kind("\ud800")}) is None
    assert _column_type({_kind("\ud800")}) is None
    assert (_json({"ä": 1}), _json("ä\ud800")) == ('{"ä": 1}', r'"\u00e4\ud800"')


@pytest.mark.extended
def test_a_windowing_step_has_a_row_for_each_open_window(
    checkpoint: Path, file: Path, printed: Callable[..., str]
) -> None:
    output = printed("export", checkpoint, "--step", "hourly", file)
    assert output == f"step hourly after epoch 3: 2 keys in 2 rows of {file}\n"
    row = rows_of(file)["b"]
    assert (row["open_time"], row["close_time"]) == (NOW, NOW + timedelta(hours=1))
    assert row["window_id"] == NOW.timestamp() // 3600
    assert json.loads(row["value"]) == {"n": 2, "total": 30}
    assert isinstance(read_states(file, trust=True)["b"], DriverState)


@pytest.mark.extended
def test_a_key_without_an_open_window_has_a_row_too(checkpoint: Path, file: Path) -> None:
    row = exported(checkpoint, "hourly", file, epoch=0)["a"]  # its only value waits
    assert (row["window_id"], row["open_time"], row["value"]) == (None, None, None)
    assert row["snapshot"]


@pytest.mark.extended
def test_due_times_of_keys(checkpoint: Path, file: Path) -> None:
    assert exported(checkpoint, "sessions", file)["a"]["due"] == NOW + timedelta(minutes=10)


def test_a_file_that_cannot_be_written_is_an_error(checkpoint: Path, file: Path) -> None:
    with pytest.raises(CheckpointError, match=r"out\.parquet cannot be written: "):
        export(checkpoint, "counts", file.parent / "nowhere" / file.name)
    with pytest.raises(CheckpointError, match="step 'nix' keeps no state"):
        export(checkpoint, "nix", file)


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
    assert _column_type(set(map(_kind, states))) == kind
