"""Sources of tables of each kind: the laws, where they start, columns and unreadable tables."""

from __future__ import annotations

import contextlib
import importlib
import time
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.source import MemoryLog
from flow.errors import FlowBuildError, FlowTypeError, SourceError, TimestampError
from flow.testing import run_source
from flow.testing.connectors import check_source
from tests.support.databases import ns
from tests.support.planning import next_epoch, records_after

LONG_AGO = "2020-01-01T00:00Z"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="snapshot"),
        pytest.param({"start": LONG_AGO, "on_rewrite": "skip", "follow": True}, id="followed"),
    ],
)
def test_the_source_keeps_the_laws(lake: ModuleType, options: dict[str, Any]) -> None:
    def fill(place: Path, part: int) -> list[Any]:
        rows = [{"key": f"é/{part} {n % 3}", "n": n} for n in range(10)]
        for start in range(0, 10, 5):
            lake.append(place / "t", rows[start : start + 5])
        return rows

    check_source(
        lambda place: lake.source_of(place / "t", rows_per_epoch=3, **options),
        fill,
        per_epoch=3,
        secrets=[lake.SECRET],
    )


def numbers(lake: ModuleType, table: Path, **options: Any) -> list[int]:
    return [row["n"] for row in run_source(lake.source_of(table, **options))]


# --- start ---------------------------------------------------------------------------------------


def test_a_run_starts_at_the_table_as_it_is_or_at_a_version(
    lake: ModuleType, tmp_path: Path
) -> None:
    for number in range(4):
        lake.append(tmp_path, ns(number))
    lake.delete(tmp_path, "n = 1")
    third = lake.versions(tmp_path)[2]
    assert numbers(lake, tmp_path) == [0, 2, 3]
    assert numbers(lake, tmp_path, start=third, on_rewrite="skip") == [2, 3]
    assert numbers(lake, tmp_path, start="latest") == []


def test_a_run_starts_at_the_first_version_since_an_instant(
    lake: ModuleType, tmp_path: Path
) -> None:
    lake.append(tmp_path, ns(0))
    time.sleep(0.01)
    since = datetime.now(UTC)
    lake.append(tmp_path, ns(1))
    assert numbers(lake, tmp_path, start=since) == [1]
    assert numbers(lake, tmp_path, start=LONG_AGO) == [0, 1]
    assert numbers(lake, tmp_path, start="2100-01-01T00:00Z") == []


#  table  none, or 0   1   2
#  run    -               1, 2
@pytest.mark.parametrize(("rows", "start"), [([0], "latest"), ([], "latest"), ([], None)])
def test_the_start_is_kept_by_a_run_that_finds_no_rows(
    lake: ModuleType, tmp_path: Path, rows: list[int], start: Any
) -> None:
    lake.append(tmp_path, pa.table({"n": pa.array(rows, pa.int64())}))
    source = lake.source_of(tmp_path, start=start, follow=True)
    first = next_epoch(source)
    assert list(first.splits) == []
    lake.append(tmp_path, ns(1))
    lake.append(tmp_path, ns(2))
    found, end = records_after(source, first.end)
    assert found == ns(1, 2)
    with contextlib.closing(source.planner(MemoryLog(), 1)) as planner:
        assert not planner.finished(end)


def test_a_large_file_is_read_by_all_tasks(lake: ModuleType, tmp_path: Path) -> None:
    lake.append(tmp_path, pa.table({"n": range(50_000)}))
    splits = next_epoch(lake.source_of(tmp_path), parallelism=4).splits
    parts = [sum(end - start for _, start, end, _ in one.what["pieces"]) for one in splits]
    assert parts == [12_500] * 4
    assert numbers(lake, tmp_path) == list(range(50_000))


def test_only_the_columns_that_are_asked_for_are_read(
    lake: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(lake.READING)
    lake.append(tmp_path, [{"a": 1, "b": 2, "c": 3}])
    read_rows, asked = module.read_rows, list[Any]()

    def watched(parquet: Any, start: int, end: int, columns: Any, groups: Any) -> Any:
        asked.append(columns)
        return read_rows(parquet, start, end, columns, groups)

    monkeypatch.setattr(module, "read_rows", watched)
    source = lake.source_of(tmp_path, columns=["c", "a"])
    assert run_source(source) == [{"c": 3, "a": 1}]
    assert source.record_columns().names == ["c", "a"]
    batches = list(source.read_fields(next_epoch(source).splits[0], frozenset("a")))
    assert [batch.to_pylist() for batch in batches] == [[{"a": 1}]]
    assert [set(columns) for columns in asked] == [{"a", "c"}, {"a"}]


# --- tables that cannot be read, and arguments ---------------------------------------------------


def test_a_table_or_column_that_does_not_exist_is_an_error(
    lake: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match="does not exist: write it first, or correct its"):
        lake.source_of(tmp_path).check()
    lake.append(tmp_path, ns(1))
    with pytest.raises(SourceError, match=r"has no column 'm': it has \['n'\]"):
        lake.source_of(tmp_path, columns=["m"]).check()


def test_a_table_that_was_replaced_is_an_error(lake: ModuleType, tmp_path: Path) -> None:
    lake.append(tmp_path / "t", ns(1))
    source = lake.source_of(tmp_path / "t")
    first = next_epoch(source)
    lake.drop(tmp_path / "t")
    lake.append(tmp_path / "t", ns(1))
    with pytest.raises(SourceError, match="is not the table that the run has read before"):
        next_epoch(source, first.end)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"start": -1}, FlowBuildError, "start must be"),
        ({"start": "newest"}, TimestampError, "newest"),
        ({"start": datetime(2026, 1, 1)}, TimestampError, "zone"),  # noqa: DTZ001  (the subject)
        ({"columns": []}, FlowBuildError, "columns must name at least one column"),
        ({"columns": [1]}, FlowTypeError, "columns must be a list of names"),
        ({"on_rewrite": "ignore"}, FlowBuildError, "on_rewrite must be 'fail'"),
        ({"rows_per_epoch": 0}, FlowBuildError, "rows_per_epoch must be"),
    ],
)
def test_arguments_are_checked(
    lake: ModuleType, tmp_path: Path, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lake.source_of(tmp_path, **options)
