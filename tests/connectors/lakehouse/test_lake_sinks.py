"""Sinks of tables of each kind: the laws, corrections, other writers, columns and rewinds."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.lakehouse.lake_sink import LakeSink
from flow.errors import SinkError
from flow.testing.connectors import check_sink
from flow_windowing import Retracted, WindowMetadata
from tests.support import delta, iceberg
from tests.support.databases import kn, ns, opened, run_epochs
from tests.support.writing import attached, publish, write

UPSERT = {"mode": "upsert", "key": "key"}
SCHEMA = {"schema": {"key": pa.string(), "n": pa.int64()}}


@pytest.mark.parametrize(
    ("lake", "options"),
    [
        pytest.param(delta, {}, id="delta"),
        pytest.param(delta, UPSERT, id="delta-upsert"),
        pytest.param(delta, {"partition_by": "key"}, id="delta-partitioned"),
        pytest.param(delta, SCHEMA, id="delta-schema"),
        pytest.param(iceberg, {}, id="iceberg"),
        pytest.param(iceberg, UPSERT, id="iceberg-upsert"),
        pytest.param(
            iceberg, {"partition_by": "key"}, id="iceberg-partitioned", marks=pytest.mark.extended
        ),
        pytest.param(iceberg, SCHEMA, id="iceberg-schema", marks=pytest.mark.extended),
    ],
    indirect=["lake"],
)
def test_the_sink_keeps_the_laws(lake: ModuleType, options: dict[str, Any]) -> None:
    check_sink(
        lambda place: lake.sink_to(place / "t", **options),
        lambda place: [(row["key"], row["n"]) for row in lake.rows_of(place / "t")],
        secrets=[lake.SECRET],
    )


def numbers(lake: ModuleType, table: Path) -> list[int]:
    return sorted(row["n"] for row in lake.rows_of(table))


# --- results of windows --------------------------------------------------------------------------


def window(number: int, *merged: int) -> WindowMetadata:
    opens = datetime(2026, 1, 1, number, tzinfo=UTC)
    return WindowMetadata(number, opens, opens.replace(hour=number + 1), frozenset(merged))


#  epoch   0                1
#  items   LHR 1: 5, 2: 7   LHR 1: 6 (corrected), 2 taken back, merged into 1
def test_a_correction_replaces_a_window_and_a_retraction_deletes_it(
    lake: ModuleType, tmp_path: Path
) -> None:
    first = [("LHR", (window(1), {"flights": 5})), ("LHR", (window(2), {"flights": 7}))]
    second = [
        ("LHR", (window(1), {"flights": 1})),
        ("LHR", (window(1, 2), {"flights": 12})),
        ("LHR", (window(2), Retracted({"flights": 7}))),
        ("CDG", (window(2), {"flights": 3})),
    ]
    run_epochs(lake.sink_to(tmp_path, mode="upsert"), first, second)
    rows = sorted(lake.rows_of(tmp_path), key=lambda row: row["key"])
    assert list(rows[0]) == [
        *("key", "window_id", "open_time", "close_time", "merged_ids", "flights")
    ]
    assert [(row["key"], row["window_id"], row["merged_ids"], row["flights"]) for row in rows] == [
        ("CDG", 2, [], 3),
        ("LHR", 1, [2], 12),
    ]


def test_results_are_appended_with_their_retractions(lake: ModuleType, tmp_path: Path) -> None:
    results = [("LHR", (window(1), 5)), ("LHR", (window(1), Retracted(5)))]
    run_epochs(lake.sink_to(tmp_path), results)
    assert [(row["value"], row["is_retraction"]) for row in lake.rows_of(tmp_path)] == [
        (5, False),
        (5, True),
    ]


def test_the_last_record_of_a_key_counts_in_an_epoch(lake: ModuleType, tmp_path: Path) -> None:
    sink = lake.sink_to(tmp_path, mode="upsert", key="k")
    deleted = {"k": "b", "n": None, "is_retraction": True}
    with opened(sink):
        publish(sink, 0, [*kn(a=1, b=2), *kn(a=3)], kn(c=4))
        publish(sink, 1, [deleted, *kn(b=5)], [*kn(c=6), {**deleted, "k": "c"}])
        publish(sink, 2, [{**deleted, "k": "unknown"}])
    found = sorted((row["k"], row["n"]) for row in lake.rows_of(tmp_path))
    assert found == [("a", 3), ("b", 5)]


@pytest.mark.parametrize("name", [".k", "_max"])
def test_a_key_has_any_name_and_zero_has_no_sign(
    lake: ModuleType, tmp_path: Path, name: str
) -> None:
    rows = [{name: key, "n": n} for n, key in enumerate((0.0, -0.0, float("inf")))]
    run_epochs(lake.sink_to(tmp_path, mode="upsert", key=name), rows, rows)
    assert sorted((str(row[name]), row["n"]) for row in lake.rows_of(tmp_path)) == [
        ("0.0", 1),
        ("inf", 2),
    ]


def test_a_key_without_a_value_is_refused(lake: ModuleType, tmp_path: Path) -> None:
    sink = lake.sink_to(tmp_path, mode="upsert", key="k")
    with opened(sink), pytest.raises(SinkError, match="no item has a field 'k', which key names"):
        publish(sink, 0, ns(1))
    with opened(sink), pytest.raises(SinkError, match=r"column 'k' of the key .* has a null"):
        publish(sink, 0, [{"k": "a", "n": 1}, {"k": None, "n": 2}])


# --- other writers -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_commit_that_another_writer_was_faster_with_is_tried_again(
    lake: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """The other writer adds rows of the epoch's keys after the sink has read the table, twice."""
    schema = {"k": pa.string(), "n": pa.int64()}
    sink: LakeSink = lake.sink_to(tmp_path, mode=mode, key="k", schema=schema)
    commit, others = type(sink)._publish, iter(kn(a=8, b=9))

    def slowly(*arguments: Any) -> None:
        if other := next(others, None):
            lake.append(tmp_path, [other])
        commit(*arguments)

    monkeypatch.setattr(type(sink), "_publish", slowly)
    run_epochs(sink, kn(a=1, b=2), kn(a=3))
    assert numbers(lake, tmp_path) == ([1, 2, 3, 8, 9] if mode == "append" else [2, 3])


def test_compaction_and_removal_of_versions_beside_a_run_lose_nothing(
    lake: ModuleType, tmp_path: Path
) -> None:
    sink = lake.sink_to(tmp_path)
    with opened(sink):
        for epoch in range(4):
            publish(sink, epoch, ns(epoch), ns(10 + epoch))
        waiting = [write(sink, 4, 0, ns(4))]
        lake.compact(tmp_path)
        assert len(lake.live_files(tmp_path)) == 1
        sink.commit(4, waiting)
        publish(sink, 4, ns(4))
    assert len(lake.live_files(tmp_path)) == 2
    assert numbers(lake, tmp_path) == [0, 1, 2, 3, 4, 10, 11, 12, 13]


def test_two_outputs_of_a_flow_may_write_to_one_table(lake: ModuleType, tmp_path: Path) -> None:
    sink = lake.sink_to(tmp_path)
    with opened(sink):
        publish(sink, 0, ns(1), step="one")
        publish(sink, 0, ns(2), step="two")
        publish(sink, 0, ns(2), step="two")
    assert numbers(lake, tmp_path) == [1, 2]


# --- columns -------------------------------------------------------------------------------------


def test_a_new_column_is_an_error_or_added(lake: ModuleType, tmp_path: Path) -> None:
    run_epochs(lake.sink_to(tmp_path), ns(1))
    wider = [{"n": 2, "m": 5}]
    message = (
        rf"step 'out': {lake.NAME} table .* has no column 'm', its columns are \['n'\]: pass "
        "schema_mode='merge' to add it"
    )
    with pytest.raises(SinkError, match=message):
        run_epochs(lake.sink_to(tmp_path), wider, first=1)
    run_epochs(lake.sink_to(tmp_path, schema_mode="merge"), wider, first=1)
    merged = lake.sink_to(tmp_path, mode="upsert", key="n", schema_mode="merge")
    run_epochs(merged, [{"n": 2, "m": 6, "l": "x"}], first=2)
    assert lake.table_of(tmp_path).sort_by("n").to_pylist() == [
        {"n": 1, "m": None, "l": None},
        {"n": 2, "m": 6, "l": "x"},
    ]


def test_tasks_whose_types_differ_write_one_type(lake: ModuleType, tmp_path: Path) -> None:
    sink = lake.sink_to(tmp_path)
    with opened(sink):
        publish(sink, 0, [{"n": 1}], [{"n": 2.5}], [{"m": "x"}])
    column = lake.table_of(tmp_path).column("n")
    assert column.type == pa.float64()
    assert sorted(map(str, column.to_pylist())) == ["1.0", "2.5", "None"]


def test_a_type_that_tables_lack_is_an_error_that_names_it(
    lake: ModuleType, tmp_path: Path
) -> None:
    batch = pa.record_batch({"lasted": pa.array([1], pa.duration("us"))})
    message = rf"{lake.NAME} has no type for duration\[us\], of a field among \['lasted'\]: map it"
    with pytest.raises(SinkError, match=message):
        run_epochs(lake.sink_to(tmp_path), batch)


# --- rewinds -------------------------------------------------------------------------------------


#  run     1                2, set back to epoch 0
#  epoch   0: 1  1: 2  2: 3    1: 7  2: 8
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_rewind_is_refused_and_the_advice_works(
    lake: ModuleType, tmp_path: Path, checkpoint: bool
) -> None:
    def sink(**options: Any) -> Any:
        made = lake.sink_to(tmp_path, **options)
        return attached(made, tmp_path) if checkpoint else made

    run_epochs(sink(), ns(1), ns(2), ns(3))
    first, *_ = lake.versions(tmp_path)[-3:]
    message = (
        f"step 'out': {lake.NAME} table .* holds rows up to epoch 2 of this run, which was set "
        rf"back to epoch 0: .*(restore|rollback_to_snapshot)\({first}\).* start the flow with "
        "after_rewind='write'"
    )
    with pytest.raises(SinkError, match=message):
        run_epochs(sink(), ns(7), ns(8), first=1, rewinds=1)
    assert numbers(lake, tmp_path) == [1, 2, 3]
    lake.set_back(tmp_path, first)
    again = sink(after_rewind="write")
    run_epochs(again, ns(7), ns(8), first=1, rewinds=1)
    run_epochs(again, ns(8), ns(9), first=2, rewinds=1)
    assert numbers(lake, tmp_path) == [1, 7, 8, 9]


#  run     1                2, with a copy of the checkpoint after epoch 0
#  epoch   0: 1  1: 2  2: 3    1: 7
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_checkpoint_that_was_put_back_from_a_copy_loses_no_rows(
    lake: ModuleType, tmp_path: Path, mode: Any
) -> None:
    def sink() -> Any:
        return lake.sink_to(tmp_path, mode=mode, key="n")

    run_epochs(sink(), ns(1), ns(2), ns(3))
    refused = pytest.raises(SinkError, match="which was set back to epoch 0")
    with refused if mode == "append" else contextlib.nullcontext():
        run_epochs(sink(), ns(7), first=1)
    assert numbers(lake, tmp_path) == ([1, 2, 3] if mode == "append" else [1, 2, 3, 7])
