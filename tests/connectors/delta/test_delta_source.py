"""`DeltaSource`: partitions, times, versions that rewrite rows, and versions that are removed."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.delta import DeltaSource
from flow.connectors.source import MemoryLog
from flow.errors import SourceError
from flow.instants import Moment
from flow.testing import run_source
from flow.testing.connectors import check_source
from tests.support.databases import ns
from tests.support.delta import append, commits, live_files, versions
from tests.support.planning import next_epoch, records_after

deltalake = pytest.importorskip("deltalake")


def fill(place: Path, part: int, **options: Any) -> list[Any]:
    rows = [{"key": f"é/{part} {n % 3}", "n": n} for n in range(20)]
    for start in range(0, 20, 5):
        append(place / "t", rows[start : start + 5], **options)
    return rows


def test_the_source_keeps_the_laws_with_partitions() -> None:
    check_source(
        lambda place: DeltaSource(place / "t", rows_per_epoch=4, start=0),
        lambda place, part: fill(place, part, partition_by=["key"]),
        per_epoch=4,
    )


def read(table: Path, **options: Any) -> list[Any]:
    return run_source(DeltaSource(table, **options))


def numbers(table: Path, **options: Any) -> list[int]:
    return [row["n"] for row in read(table, **options)]


def test_a_backlog_has_the_times_of_its_commits(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, ns(number))
    history = deltalake.DeltaTable(tmp_path).history()
    planner = DeltaSource(tmp_path, start=0, rows_per_epoch=1, follow=True).planner(MemoryLog(), 1)
    now, end = Moment(2_000_000_000_000_000), None
    for version in (1, 2):
        planned = planner.next(end)
        assert planned is not None
        end = planned.end
        assert planned.behind == {0}
        # The arrival of the last commit that is read, or of the next.
        reached = planner.read_until_us(now, behind=True)
        assert reached is not None
        assert reached in [one["timestamp"] * 1000 for one in history if one["version"] <= version]
    last = planner.next(end)
    assert last is not None
    assert last.behind == ()
    assert planner.read_until_us(now, behind=False) == now.running_us


# --- versions that rewrite rows ------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["plain", "change feed"])
def rewritten(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table whose version 1 updates a row, and whose version 2 adds one."""
    feed = {"delta.enableChangeDataFeed": "true"} if request.param else None
    append(tmp_path, ns(1, 2), configuration=feed)
    deltalake.DeltaTable(tmp_path).update({"n": "7"}, predicate="n = 2")
    append(tmp_path, ns(3))
    return tmp_path


def test_a_version_that_rewrites_rows_stops_the_flow(rewritten: Path) -> None:
    message = (
        r"version 1 of Delta table .* deletes or rewrites rows \(UPDATE\): pass on_rewrite='skip' "
        "to leave the version out, or on_rewrite='changes'"
    )
    with pytest.raises(SourceError, match=message):
        read(rewritten, start=0)
    assert sorted(numbers(rewritten)) == [1, 3, 7]


def test_a_version_that_rewrites_rows_is_left_out(rewritten: Path) -> None:
    assert numbers(rewritten, start=0, on_rewrite="skip") == [1, 2, 3]


def test_changes_lead_from_one_version_to_the_next(rewritten: Path) -> None:
    changes = [
        (row["_change_type"], row["n"]) for row in read(rewritten, start=0, on_rewrite="changes")
    ]
    assert changes[:2] == [("insert", 1), ("insert", 2)]
    assert changes[-1] == ("insert", 3)
    rows: list[int] = []
    for change, n in changes:
        if change in ("delete", "update_preimage"):
            rows.remove(n)
        else:
            rows.append(n)
    assert sorted(rows) == [1, 3, 7]


def test_changes_begin_with_the_rows_of_a_snapshot(rewritten: Path) -> None:
    found = read(rewritten, on_rewrite="changes", columns=["n"])
    assert sorted(found, key=str) == [{"n": n, "_change_type": "insert"} for n in (1, 3, 7)]


def test_a_compaction_is_passed_over(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, ns(number))
    deltalake.DeltaTable(tmp_path).optimize.compact()
    append(tmp_path, ns(3))
    assert numbers(tmp_path, start=0) == [0, 1, 2, 3]
    assert numbers(tmp_path, start=9) == []


#  versions  0: 0  1: 1  2: compaction  3: 3
#  run       0 1  |  3, though the log has lost 0, 1 and 2
def test_a_compaction_that_was_passed_over_may_leave_the_log(tmp_path: Path) -> None:
    append(tmp_path, ns(0))
    append(tmp_path, ns(1))
    source = DeltaSource(tmp_path, start=0)
    first = next_epoch(source)
    deltalake.DeltaTable(tmp_path).optimize.compact()
    planner = source.planner(MemoryLog(), 1)
    second = planner.next(first.end)
    assert second is not None
    assert list(second.splits) == []
    assert planner.next(second.end) is None
    append(tmp_path, ns(3))
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert records_after(source, second.end)[0] == ns(3)


def test_a_version_that_is_made_during_a_look_at_the_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, ns(0))
    planner = DeltaSource(tmp_path, follow=True).planner(MemoryLog(), 1)
    first = planner.next(None)
    assert first is not None
    refresh, others = deltalake.DeltaTable.update_incremental, iter(ns(1))

    def slowly(table: Any) -> None:
        if other := next(others, None):
            append(tmp_path, [other])
        refresh(table)

    monkeypatch.setattr(deltalake.DeltaTable, "update_incremental", slowly)
    second = planner.next(first.end)
    assert second is not None
    assert [len(split.what["pieces"]) for split in second.splits] == [1]


# --- columns -------------------------------------------------------------------------------------


def test_a_column_that_was_added_is_null_before(tmp_path: Path) -> None:
    append(tmp_path, ns(1))
    append(tmp_path, [{"n": 2, "m": 5}], schema_mode="merge")
    assert read(tmp_path, start=0) == [{"n": 1}, {"n": 2, "m": 5}]
    assert sorted(read(tmp_path), key=str) == [{"n": 1, "m": None}, {"n": 2, "m": 5}]


def test_values_of_partitions_are_columns_with_their_types(tmp_path: Path) -> None:
    day, at = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    rows = [{"day": day, "at": at, "ok": True, "f": 1.5, "i": 3, "s": "a b/%", "n": 1}]
    rows.append({**dict.fromkeys(rows[0]), "n": 2})
    names = ["day", "at", "ok", "f", "i", "s"]
    append(tmp_path, rows, partition_by=names)
    for start in (None, 0):
        assert sorted(read(tmp_path, start=start), key=lambda row: row["n"]) == rows
    source = DeltaSource(tmp_path)
    assert source.record_columns().field("at").type == pa.timestamp("us", "UTC")


def commit(table: Path, action: str, content: dict[str, Any]) -> None:
    """Add a version to the log, as a writer with other habits than deltalake's does."""
    name = f"{len(versions(table)):020}.json"
    (table / "_delta_log" / name).write_text(json.dumps({action: content}))


def test_an_empty_text_of_a_partition_is_null(tmp_path: Path) -> None:
    append(tmp_path, [{"s": "a", "i": 1, "n": 1}], partition_by=["s", "i"])
    commit(tmp_path, "add", {**live_files(tmp_path)[0], "partitionValues": {"s": "", "i": ""}})
    assert read(tmp_path, start=1) == [{"s": None, "i": None, "n": 1}]


# --- tables that cannot be read ------------------------------------------------------------------


def test_a_version_that_was_removed_from_the_log_is_an_error(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, ns(number))
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(SourceError, match=r"version 1 of .* was removed from its log, which keeps"):
        read(tmp_path, start=1)
    assert numbers(tmp_path) == [0, 1, 2]


def test_columns_that_are_mapped_while_the_source_follows_are_an_error(tmp_path: Path) -> None:
    append(tmp_path, ns(1))
    planner = DeltaSource(tmp_path, follow=True).planner(MemoryLog(), 1)
    first = planner.next(None)
    assert first is not None
    metadata = next(one["metaData"] for one in commits(tmp_path)[0] if "metaData" in one)
    commit(
        tmp_path, "metaData", {**metadata, "configuration": {"delta.columnMapping.mode": "name"}}
    )
    with pytest.raises(SourceError, match="maps the names of columns"):
        planner.next(first.end)
