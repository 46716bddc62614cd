"""`IcebergSource`: times, snapshots that rewrite rows, snapshots that expire, and columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flow.columns.predicate import ColumnPredicate
from flow.connectors.iceberg import IcebergSink
from flow.connectors.source import MemoryLog
from flow.errors import SourceError
from flow.instants import Moment
from flow.testing import run_source
from tests.support import iceberg
from tests.support.databases import kn, ns, run_epochs
from tests.support.iceberg import (
    TABLE,
    append,
    expire,
    properties,
    rewrite,
    source_of,
    versions,
)
from tests.support.planning import next_epoch, records_after

pyiceberg = pytest.importorskip("pyiceberg")


def read(place: Path, **options: Any) -> list[Any]:
    return run_source(source_of(place, **options))


def numbers(place: Path, **options: Any) -> list[int]:
    return [row["n"] for row in read(place, **options)]


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
    first, _, third, _ = versions(tmp_path)
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
    assert numbers(tmp_path, start=versions(tmp_path)[0]) == [0, 1, 2, 3]
    assert numbers(tmp_path) == [0, 1, 2, 3]


#  snapshots  0: 0  1: 1  2: compaction  3: 3
#  run        0 1  |  3, though 0, 1 and 2 have expired
def test_a_compaction_is_passed_over_also_if_it_expires(tmp_path: Path) -> None:
    append(tmp_path, ns(0))
    append(tmp_path, ns(1))
    rewrite(tmp_path)
    assert numbers(tmp_path, start="2020-01-01T00:00Z") == [0, 1]
    source = source_of(tmp_path, start="2020-01-01T00:00Z")
    _, end = records_after(source, None)
    append(tmp_path, ns(3))
    expire(tmp_path)
    assert records_after(source, end)[0] == ns(3)


def test_a_snapshot_that_has_expired_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path, ns(number))
    first, second, third, _ = versions(tmp_path)
    planned = next_epoch(source_of(tmp_path, start=first, rows_per_epoch=1))
    expire(tmp_path, first, second)
    with pytest.raises(SourceError, match=rf"after {first} have expired .*: read the table from"):
        next_epoch(source_of(tmp_path), planned.end)
    with pytest.raises(SourceError, match=rf"snapshot {second} of .* has expired before it was"):
        read(tmp_path, start=second)
    assert numbers(tmp_path, start=third) == [2, 3]


# --- columns -------------------------------------------------------------------------------------


def test_columns_are_found_by_their_ids_in_the_schema_of_each_snapshot(tmp_path: Path) -> None:
    append(tmp_path, [{"n": 1, "old": "x", "gone": 0}])
    first = versions(tmp_path)[0]
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


def test_a_predicate_of_a_renamed_part_of_a_struct_leaves_out_no_record(tmp_path: Path) -> None:
    append(tmp_path, [{"s": {"a": 1}}])
    with iceberg.opened(tmp_path) as table, table.update_schema() as schema:
        schema.rename_column("s.a", "b")
    append(tmp_path, [{"s": {"b": 2, "a": 3}}])
    source = source_of(tmp_path).keeping(ColumnPredicate(pc.field("s", "a").is_null()))
    assert {"s": {"b": 1, "a": None}} in run_source(source)


def test_values_come_back_with_their_types_also_from_partitions(tmp_path: Path) -> None:
    day, at = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    row = {"day": day, "at": at, "ok": True, "f": 1.5, "s": "a b/%", "l": [{"a": b"x"}], "n": 1}
    rows = [row, {**dict.fromkeys(row), "n": 2}, {**row, "l": [], "n": 3}]
    names = ["day", "at", "ok", "f", "s"]
    run_epochs(IcebergSink(properties(tmp_path), TABLE, partition_by=names), rows)
    assert sorted(read(tmp_path), key=lambda one: one["n"]) == rows


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
