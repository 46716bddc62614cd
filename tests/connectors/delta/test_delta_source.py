"""`DeltaSource`: the laws of sources, where it starts, versions that rewrite rows, and columns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.delta import DeltaSource
from flow.connectors.source import MemoryLog
from flow.errors import FlowBuildError, FlowTypeError, SourceError, TimestampError
from flow.instants import Moment
from flow.testing import run_source
from flow.testing.connectors import check_source
from tests.support.databases import ns
from tests.support.lakes import append

deltalake = pytest.importorskip("deltalake")


def fill(place: Path, part: int, **options: Any) -> list[Any]:
    rows = [{"key": f"é/{part} {n % 3}", "n": n} for n in range(20)]
    for start in range(0, 20, 5):
        append(place / "t", rows[start : start + 5], **options)
    return rows


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="snapshot"),
        pytest.param({"start": 0}, id="versions"),
        pytest.param({"start": 0, "on_rewrite": "skip", "follow": True}, id="followed"),
    ],
)
def test_the_source_keeps_the_laws(options: dict[str, Any]) -> None:
    def make(place: Path) -> DeltaSource:
        secret = {"password": "s3cr3t"}
        return DeltaSource(place / "t", rows_per_epoch=3, storage_options=secret, **options)

    check_source(make, fill, per_epoch=3, secrets=["s3cr3t"])


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


# --- start ---------------------------------------------------------------------------------------


def test_a_run_starts_at_the_table_as_it_is_or_at_a_version(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path, ns(number))
    table = deltalake.DeltaTable(tmp_path)
    table.delete("n = 1")
    assert numbers(tmp_path) == [0, 2, 3]
    assert numbers(tmp_path, start=2, on_rewrite="skip") == [2, 3]
    assert numbers(tmp_path, start=9) == []
    assert numbers(tmp_path, start="latest") == []


def test_a_run_starts_at_the_first_version_since_an_instant(tmp_path: Path) -> None:
    append(tmp_path, ns(0))
    time.sleep(0.01)
    since = datetime.now(UTC)
    append(tmp_path, ns(1))
    assert numbers(tmp_path, start=since) == [1]
    assert numbers(tmp_path, start="2020-01-01T00:00Z") == [0, 1]
    assert numbers(tmp_path, start="2100-01-01T00:00Z") == []


#  version  0          1  2
#  run      latest, -     1, 2
def test_the_start_at_the_latest_version_is_kept_by_a_run_without_data(tmp_path: Path) -> None:
    append(tmp_path, ns(0))
    source = DeltaSource(tmp_path, start="latest", follow=True)
    first = source.planner(MemoryLog(), 1).next(None)
    assert first is not None
    assert list(first.splits) == []
    append(tmp_path, ns(1))
    append(tmp_path, ns(2))
    planner = source.planner(MemoryLog(), 1)
    second = planner.next(first.end)
    assert second is not None
    rows = [
        row for split in second.splits for batch in source.read(split) for row in batch.to_pylist()
    ]  # type: ignore[union-attr]
    assert rows == ns(1, 2)
    assert planner.next(second.end) is None
    assert not planner.finished(second.end)


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


def test_a_large_file_is_read_by_all_tasks(tmp_path: Path) -> None:
    append(tmp_path, pa.table({"n": range(50_000)}))
    source = DeltaSource(tmp_path)
    planned = source.planner(MemoryLog(), 4).next(None)
    assert planned is not None
    parts = [
        sum(end - start for _, start, end, _ in split.what["pieces"]) for split in planned.splits
    ]
    assert parts == [12_500] * 4
    assert numbers(tmp_path) == list(range(50_000))


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


#  versions  0: 0  1: 1  2: compaction  3: 3
#  run       0 1  |  3, though the log has lost 0, 1 and 2
def test_a_compaction_that_was_passed_over_may_leave_the_log(tmp_path: Path) -> None:
    append(tmp_path, ns(0))
    append(tmp_path, ns(1))
    source = DeltaSource(tmp_path, start=0)
    first = source.planner(MemoryLog(), 1).next(None)
    assert first is not None
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
    third = source.planner(MemoryLog(), 1).next(second.end)
    assert third is not None
    assert [len(split.what["pieces"]) for split in third.splits] == [1]


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


def test_only_the_columns_that_are_asked_for_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flow.connectors.delta import source as module

    append(tmp_path, [{"a": 1, "b": 2, "c": 3}])
    read_rows, asked = module.read_rows, list[Sequence[str]]()

    def watched(parquet: Any, start: int, end: int, columns: Any, groups: Any) -> Any:
        asked.append(columns)
        return read_rows(parquet, start, end, columns, groups)

    monkeypatch.setattr(module, "read_rows", watched)
    source = DeltaSource(tmp_path, columns=["c", "a"])
    assert run_source(source) == [{"c": 3, "a": 1}]
    assert source.record_columns().names == ["c", "a"]
    planned = source.planner(MemoryLog(), 1).next(None)
    assert planned is not None
    batches = list(source.read_fields(planned.splits[0], frozenset("a")))
    assert [batch.to_pylist() for batch in batches] == [[{"a": 1}]]  # type: ignore[union-attr]
    assert asked == [["c", "a"], ["a"]]


# --- tables that cannot be read ------------------------------------------------------------------


def test_a_table_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist: write it first, or correct its path"):
        DeltaSource(tmp_path / "none").check()


def test_a_column_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    append(tmp_path, ns(1))
    with pytest.raises(SourceError, match=r"has no column 'm': it has \['n'\]"):
        DeltaSource(tmp_path, columns=["m"]).check()


def test_a_version_that_was_removed_from_the_log_is_an_error(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, ns(number))
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(SourceError, match=r"version 1 of .* was removed from its log, which keeps"):
        read(tmp_path, start=1)
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_table_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    append(tmp_path / "a", ns(1))
    append(tmp_path / "b", ns(1))
    first = DeltaSource(tmp_path / "a").planner(MemoryLog(), 1).next(None)
    assert first is not None
    with pytest.raises(SourceError, match="is not the table that the run has read before"):
        DeltaSource(tmp_path / "b").planner(MemoryLog(), 1).next(first.end)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"start": -1}, FlowBuildError, "start must be"),
        ({"start": "newest"}, TimestampError, "newest"),
        ({"start": datetime(2026, 1, 1)}, TimestampError, "zone"),  # noqa: DTZ001  (the subject)
        ({"columns": []}, FlowBuildError, "columns must name at least one column"),
        ({"columns": [1]}, FlowTypeError, "columns must be a list of names"),
        ({"on_rewrite": "ignore"}, FlowBuildError, "on_rewrite must be"),
        ({"rows_per_epoch": 0}, FlowBuildError, "rows_per_epoch must be"),
    ],
)
def test_arguments_are_checked(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        DeltaSource("t", **options)
