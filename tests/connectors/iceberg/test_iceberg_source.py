"""`IcebergSource`: the laws of sources, where it starts, snapshots that rewrite rows, columns."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.iceberg import IcebergSink, IcebergSource
from flow.connectors.source import MemoryLog
from flow.errors import FlowBuildError, SourceError
from flow.instants import Moment
from flow.testing import run_source
from flow.testing.connectors import check_source
from tests.support import iceberg
from tests.support.databases import kn, ns, run_epochs
from tests.support.iceberg import TABLE, append, properties

pyiceberg = pytest.importorskip("pyiceberg")


def fill(place: Path, part: int) -> list[Any]:
    rows = [{"key": f"é/{part} {n % 3}", "n": n} for n in range(10)]
    for start in range(0, 10, 5):
        append(place, rows[start : start + 5])
    return rows


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="snapshot"),
        pytest.param({"start": "2020-01-01T00:00Z", "follow": True}, id="followed"),
    ],
)
def test_the_source_keeps_the_laws(options: dict[str, Any]) -> None:
    def make(place: Path) -> IcebergSource:
        secret = properties(place, password="s3cr3t")
        return IcebergSource(secret, TABLE, rows_per_epoch=3, **options)

    check_source(make, fill, per_epoch=3, secrets=["s3cr3t"])


def source_of(place: Path, **options: Any) -> IcebergSource:
    return IcebergSource(properties(place), TABLE, **options)


def read(place: Path, **options: Any) -> list[Any]:
    return run_source(source_of(place, **options))


def numbers(place: Path, **options: Any) -> list[int]:
    return [row["n"] for row in read(place, **options)]


def ids(place: Path) -> list[int]:
    return [one["snapshot-id"] for one in iceberg.metadata(place)["snapshots"]]


def expire(place: Path, *numbers: int) -> None:
    with iceberg.opened(place) as table:
        table.maintenance.expire_snapshots().by_ids(list(numbers)).commit()


def compact(place: Path) -> None:
    """Write all rows into one file, as a compaction does."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.table.snapshots import Operation, Summary

    with iceberg.opened(place) as table:
        files = [task.file for task in table.scan().plan_files()]
        rows = table.scan().to_arrow()
        with table.transaction() as transaction:
            change = transaction.update_snapshot().overwrite()
            summary = change._summary
            change._summary = lambda of: Summary(
                Operation.REPLACE, **summary(of).additional_properties
            )
            for file in files:
                change.delete_data_file(file)
            for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                change.append_data_file(file)
            change.commit()


# --- start ---------------------------------------------------------------------------------------


def test_a_run_starts_at_the_table_as_it_is_or_at_a_snapshot(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path, ns(number))
    with iceberg.opened(tmp_path) as table:
        table.delete("n = 1")
    third = ids(tmp_path)[2]
    assert numbers(tmp_path) == [0, 2, 3]
    assert numbers(tmp_path, start=third, on_rewrite="skip") == [2, 3]
    assert numbers(tmp_path, start="latest") == []


def test_a_run_starts_at_the_first_snapshot_since_an_instant(tmp_path: Path) -> None:
    append(tmp_path, ns(0))
    time.sleep(0.01)
    since = datetime.now(UTC)
    append(tmp_path, ns(1))
    assert numbers(tmp_path, start=since) == [1]
    assert numbers(tmp_path, start="2020-01-01T00:00Z") == [0, 1]
    assert numbers(tmp_path, start="2100-01-01T00:00Z") == []


#  table  empty   0, 1   2
#  run    -       0, 1   2
@pytest.mark.parametrize("start", [None, "latest"])
def test_a_table_without_rows_is_followed(tmp_path: Path, start: Any) -> None:
    append(tmp_path, pa.table({"n": pa.array([], pa.int64())}))
    source = source_of(tmp_path, start=start, follow=True)
    planner = source.planner(MemoryLog(), 1)
    first = planner.next(None)
    assert first is not None
    assert list(first.splits) == []
    append(tmp_path, ns(0))
    append(tmp_path, ns(1))
    found, end = [], first.end
    while (planned := planner.next(end)) is not None:
        found += [
            row
            for split in planned.splits
            for batch in source.read(split)
            for row in batch.to_pylist()
        ]  # type: ignore[union-attr]
        end = planned.end
    assert found == ns(0, 1)
    assert not planner.finished(end)
    planner.close()


def test_a_backlog_has_the_times_of_its_snapshots(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, ns(number))
    times = [one["timestamp-ms"] * 1000 for one in iceberg.metadata(tmp_path)["snapshots"]]
    source = source_of(tmp_path, start="2020-01-01T00:00Z", rows_per_epoch=1, follow=True)
    planner, now, end = source.planner(MemoryLog(), 1), Moment(2_000_000_000_000_000), None
    for number in (1, 2):
        planned = planner.next(end)
        assert planned is not None
        end = planned.end
        assert planned.behind == {0}
        assert planner.read_until_us(now, behind=True) == times[number]
    planner.close()


# --- snapshots that rewrite rows, and that expire ------------------------------------------------


def test_a_snapshot_that_rewrites_rows_stops_the_flow_or_is_left_out(tmp_path: Path) -> None:
    upsert = IcebergSink(properties(tmp_path), TABLE, mode="upsert", key="k")
    run_epochs(upsert, kn(a=1, b=2), kn(c=3), kn(a=4, d=5), kn(e=6))
    first, _, third, _ = ids(tmp_path)
    message = (
        rf"snapshot {third} of Iceberg table db.t deletes or rewrites rows \(overwrite\): pass "
        "on_rewrite='skip'"
    )
    with pytest.raises(SourceError, match=message):
        read(tmp_path, start=first)
    assert numbers(tmp_path, start=first, on_rewrite="skip") == [1, 2, 3, 6]
    assert sorted(numbers(tmp_path)) == [2, 3, 4, 5, 6]


def test_each_snapshot_gives_its_own_rows_where_manifests_are_merged(tmp_path: Path) -> None:
    sink = IcebergSink(properties(tmp_path), TABLE)
    run_epochs(sink, ns(0))
    with iceberg.opened(tmp_path) as table, table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "2"})
    run_epochs(sink, ns(1), ns(2), ns(3), first=1)
    with iceberg.opened(tmp_path) as table:
        assert len(table.current_snapshot().manifests(table.io)) == 1
    assert numbers(tmp_path, start=ids(tmp_path)[0]) == [0, 1, 2, 3]
    assert numbers(tmp_path) == [0, 1, 2, 3]


#  snapshots  0: 0  1: 1  2: compaction  3: 3
#  run        0 1  |  3, though 0, 1 and 2 have expired
def test_a_compaction_is_passed_over_also_if_it_expires(tmp_path: Path) -> None:
    append(tmp_path, ns(0))
    append(tmp_path, ns(1))
    compact(tmp_path)
    assert numbers(tmp_path, start="2020-01-01T00:00Z") == [0, 1]
    source = source_of(tmp_path, start="2020-01-01T00:00Z")
    planner, end = source.planner(MemoryLog(), 1), None
    while (planned := planner.next(end)) is not None:
        end = planned.end
    planner.close()
    append(tmp_path, ns(3))
    expire(tmp_path, *ids(tmp_path)[:-1])
    planner = source.planner(MemoryLog(), 1)
    rest = planner.next(end)
    planner.close()
    assert rest is not None
    assert [
        row for split in rest.splits for batch in source.read(split) for row in batch.to_pylist()
    ] == ns(3)  # type: ignore[union-attr]


def test_a_snapshot_that_has_expired_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path, ns(number))
    first, second, third, _ = ids(tmp_path)
    planner = source_of(tmp_path, start=first, rows_per_epoch=1).planner(MemoryLog(), 1)
    planned = planner.next(None)
    planner.close()
    assert planned is not None
    expire(tmp_path, first, second)
    planner = source_of(tmp_path).planner(MemoryLog(), 1)
    with pytest.raises(SourceError, match=rf"after {first} have expired .*: read the table from"):
        planner.next(planned.end)
    planner.close()
    with pytest.raises(SourceError, match=rf"snapshot {second} of .* has expired before it was"):
        read(tmp_path, start=second)
    assert numbers(tmp_path, start=third) == [2, 3]


def test_a_table_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    append(tmp_path, ns(1))
    planner = source_of(tmp_path).planner(MemoryLog(), 1)
    first = planner.next(None)
    planner.close()
    with iceberg.catalog(tmp_path) as catalog:
        catalog.drop_table(TABLE)
    append(tmp_path, ns(1))
    planner = source_of(tmp_path).planner(MemoryLog(), 1)
    assert first is not None
    with pytest.raises(SourceError, match="is not the table that the run has read before"):
        planner.next(first.end)
    planner.close()


# --- columns -------------------------------------------------------------------------------------


def test_columns_are_found_by_their_ids_in_the_schema_of_each_snapshot(tmp_path: Path) -> None:
    append(tmp_path, [{"n": 1, "old": "x", "gone": 0}])
    first = ids(tmp_path)[0]
    with iceberg.opened(tmp_path) as table, table.update_schema() as schema:
        schema.rename_column("old", "new")
        schema.delete_column("gone")
    append(tmp_path, [{"n": 2, "new": "y", "m": [5]}])
    assert read(tmp_path, start=first) == [
        {"n": 1, "old": "x", "gone": 0},
        {"n": 2, "new": "y", "m": [5]},
    ]
    assert read(tmp_path) == [{"n": 1, "new": "x", "m": None}, {"n": 2, "new": "y", "m": [5]}]
    source = source_of(tmp_path, columns=["new", "n"])
    assert run_source(source) == [{"new": "x", "n": 1}, {"new": "y", "n": 2}]
    assert source.record_columns() == pa.schema([("new", pa.string()), ("n", pa.int64())])


def test_values_come_back_with_their_types_also_from_partitions(tmp_path: Path) -> None:
    day, at = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    row = {"day": day, "at": at, "ok": True, "f": 1.5, "s": "a b/%", "l": [{"a": b"x"}], "n": 1}
    rows = [row, {**dict.fromkeys(row), "n": 2}, {**row, "l": [], "n": 3}]
    names = ["day", "at", "ok", "f", "s"]
    run_epochs(IcebergSink(properties(tmp_path), TABLE, partition_by=names), rows)
    assert sorted(read(tmp_path), key=lambda one: one["n"]) == rows


def test_only_the_columns_that_are_asked_for_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flow.connectors.iceberg import data_files as module

    append(tmp_path, [{"a": 1, "b": 2, "c": 3}])
    read_rows, asked = module.read_rows, list[Any]()

    def watched(parquet: Any, start: int, end: int, columns: Any, groups: Any) -> Any:
        asked.append(columns)
        return read_rows(parquet, start, end, columns, groups)

    monkeypatch.setattr(module, "read_rows", watched)
    source = source_of(tmp_path, columns=["c", "a"])
    planner = source.planner(MemoryLog(), 1)
    planned = planner.next(None)
    planner.close()
    assert planned is not None
    batches = list(source.read_fields(planned.splits[0], frozenset("a")))
    assert [batch.to_pylist() for batch in batches] == [[{"a": 1}]]  # type: ignore[union-attr]
    assert asked == [["a"]]


def test_nulls_stay_in_columns_of_lists_and_maps_of_structs(tmp_path: Path) -> None:
    parts = pa.struct([("a", pa.int64())])
    values = [[("k", {"a": 1})], None, [], [("l", None)]]
    batch = pa.record_batch(
        {
            "l": pa.array([[{"a": 1}], None, [], [None]], pa.list_(parts)),
            "m": pa.array(values, pa.map_(pa.string(), parts)),
            "n": pa.array(range(4)),
        }
    )
    upsert = IcebergSink(properties(tmp_path), TABLE, mode="upsert", key="n")
    run_epochs(upsert, batch, [{"n": 3, "l": [{"a": 2}], "m": None}])
    found = sorted(read(tmp_path, rows_per_epoch=2), key=lambda row: row["n"])
    assert [row["l"] for row in found] == [[{"a": 1}], None, [], [{"a": 2}]]
    assert [row["m"] and [*map(tuple, row["m"])] for row in found] == [values[0], None, [], None]


def test_a_large_file_is_read_by_all_tasks(tmp_path: Path) -> None:
    append(tmp_path, pa.table({"n": range(50_000)}))
    planner = source_of(tmp_path).planner(MemoryLog(), 4)
    planned = planner.next(None)
    planner.close()
    assert planned is not None
    assert len(planned.splits) == 4
    assert numbers(tmp_path) == list(range(50_000))


# --- tables that cannot be read ------------------------------------------------------------------


def test_a_table_or_column_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist: write it first, or correct its name"):
        source_of(tmp_path).check()
    append(tmp_path, ns(1))
    with pytest.raises(SourceError, match=r"has no column 'm': it has \['n'\]"):
        source_of(tmp_path, columns=["m"]).check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": -1}, "start must be"),
        ({"columns": []}, "columns must name at least one column"),
        ({"on_rewrite": "changes"}, "on_rewrite must be 'fail' or 'skip'"),
        ({"rows_per_epoch": 0}, "rows_per_epoch must be"),
    ],
)
def test_arguments_are_checked(options: Any, message: str) -> None:
    with pytest.raises(FlowBuildError, match=message):
        IcebergSource("lake", TABLE, **options)
