"""`DeltaSink`: the laws of sinks, corrections, other writers, columns, rewinds and arguments."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flow.operators as op
from flow import Dataflow
from flow.connectors.delta import DeltaSink
from flow.connectors.delta.sink import DeltaSink as Sink
from flow.connectors.files import ParquetSource
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.declared_columns import check_fields
from flow.errors import FlowBuildError, FlowTypeError, SinkError
from flow.testing.connectors import check_sink
from flow_windowing import Retracted, WindowMetadata
from tests.support.databases import kn, ns, opened, run_epochs
from tests.support.lakes import append, commits, live_files, rows_of
from tests.support.writing import publish, write

deltalake = pytest.importorskip("deltalake")


def upsert(table: Path, **options: Any) -> DeltaSink:
    return DeltaSink(table, mode="upsert", **{"key": "k", **options})


def numbers(table: Path) -> list[int]:
    return sorted(row["n"] for row in rows_of(table))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="append"),
        pytest.param({"mode": "upsert", "key": "key"}, id="upsert"),
        pytest.param({"partition_by": "key"}, id="partitioned"),
        pytest.param({"schema": {"key": pa.string(), "n": pa.int64()}}, id="schema"),
    ],
)
def test_the_sink_keeps_the_laws(options: dict[str, Any]) -> None:
    check_sink(
        lambda place: DeltaSink(place / "t", storage_options={"password": "s3cr3t"}, **options),
        lambda place: [(row["key"], row["n"]) for row in rows_of(place / "t")],
        secrets=["s3cr3t"],
    )


def test_an_epoch_is_one_commit_with_its_number(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, schema={"n": pa.int64()})
    with opened(sink):
        publish(sink, 0, ns(1), ns(2))
        publish(sink, 5, ns(3))
    _, first, second = commits(tmp_path)
    assert [sorted(action) for action in first] == [
        ["commitInfo"],
        ["add"],
        ["add"],
        *[["txn"]] * 2,
    ]
    assert [one["txn"] for one in second if "txn" in one] == [
        {"appId": "run-one/out", "version": 5},
        {"appId": "run-one/out/rewinds", "version": 0},
    ]


# --- results of windows --------------------------------------------------------------------------


def window(number: int, *merged: int) -> WindowMetadata:
    opens = datetime(2026, 1, 1, number, tzinfo=UTC)
    return WindowMetadata(number, opens, opens.replace(hour=number + 1), frozenset(merged))


#  epoch   0                1
#  items   LHR 1: 5, 2: 7   LHR 1: 6 (corrected), 2 taken back, merged into 1
def test_a_correction_replaces_a_window_and_a_retraction_deletes_it(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, mode="upsert")
    first = [("LHR", (window(1), {"flights": 5})), ("LHR", (window(2), {"flights": 7}))]
    second = [
        ("LHR", (window(1), {"flights": 1})),
        ("LHR", (window(1, 2), {"flights": 12})),
        ("LHR", (window(2), Retracted({"flights": 7}))),
        ("CDG", (window(2), {"flights": 3})),
    ]
    with opened(sink):
        publish(sink, 0, first)
        publish(sink, 1, second)
    rows = sorted(rows_of(tmp_path), key=lambda row: row["key"])
    assert list(rows[0]) == [
        *("key", "window_id", "open_time", "close_time", "merged_ids", "flights")
    ]
    assert [(row["key"], row["window_id"], row["merged_ids"], row["flights"]) for row in rows] == [
        ("CDG", 2, [], 3),
        ("LHR", 1, [2], 12),
    ]


def test_results_are_appended_with_their_retractions(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path)
    with opened(sink):
        publish(sink, 0, [("LHR", (window(1), 5)), ("LHR", (window(1), Retracted(5)))])
    assert [(row["value"], row["is_retraction"]) for row in rows_of(tmp_path)] == [
        (5, False),
        (5, True),
    ]


def test_the_last_record_of_a_key_counts_in_an_epoch(tmp_path: Path) -> None:
    sink = upsert(tmp_path)
    deleted = {"k": "b", "n": None, "is_retraction": True}
    with opened(sink):
        publish(sink, 0, [*kn(a=1, b=2), *kn(a=3)], kn(c=4))
        publish(sink, 1, [deleted, *kn(b=5)], [*kn(c=6), {**deleted, "k": "c"}])
    assert sorted((row["k"], row["n"]) for row in rows_of(tmp_path)) == [("a", 3), ("b", 5)]


def test_a_key_without_a_value_is_refused(tmp_path: Path) -> None:
    sink = upsert(tmp_path)
    with opened(sink), pytest.raises(SinkError, match="no item has a field 'k', which key names"):
        publish(sink, 0, ns(1))
    with opened(sink), pytest.raises(SinkError, match=r"column 'k' of the key .* has a null"):
        publish(sink, 0, [{"k": "a", "n": 1}, {"k": None, "n": 2}])


# --- other writers -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_commit_that_another_writer_was_faster_with_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """The other writer adds rows of the epoch's keys after the sink has read the table, twice."""
    sink = DeltaSink(tmp_path, mode=mode, key="k", schema={"k": pa.string(), "n": pa.int64()})
    name, others = ("_append" if mode == "append" else "_merge"), iter(kn(a=8, b=9))
    commit = getattr(Sink, name)

    def slowly(*arguments: Any) -> None:
        if other := next(others, None):
            append(tmp_path, [other])
        commit(*arguments)

    monkeypatch.setattr(Sink, name, slowly)
    with opened(sink):
        publish(sink, 0, kn(a=1, b=2))
        publish(sink, 1, kn(a=3))
    assert numbers(tmp_path) == ([1, 2, 3, 8, 9] if mode == "append" else [2, 3])


def test_compaction_and_vacuum_beside_a_run_lose_nothing(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path)
    with opened(sink):
        for epoch in range(4):
            publish(sink, epoch, ns(epoch), ns(10 + epoch))
        waiting = [write(sink, 4, 0, ns(4))]
        table = deltalake.DeltaTable(tmp_path)
        assert table.optimize.compact()["numFilesRemoved"] == 8
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        sink.commit(4, waiting)
        publish(sink, 4, ns(4))
    assert len(live_files(tmp_path)) == 2
    assert numbers(tmp_path) == [0, 1, 2, 3, 4, 10, 11, 12, 13]


def test_two_outputs_of_a_flow_may_write_to_one_table(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path)
    with opened(sink):
        publish(sink, 0, ns(1), step="one")
        publish(sink, 0, ns(2), step="two")
        publish(sink, 0, ns(2), step="two")
    assert numbers(tmp_path) == [1, 2]


def test_an_epoch_is_known_again_after_the_log_was_shortened(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path)
    run_epochs(sink, ns(0), ns(1))
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    for path in sorted((tmp_path / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    run_epochs(sink, ns(1), ns(2), first=1)
    assert deltalake.DeltaTable(tmp_path).to_pyarrow_table().column("n").to_pylist() == [2, 1, 0]


# --- columns -------------------------------------------------------------------------------------


def test_a_new_column_is_an_error_or_added(tmp_path: Path) -> None:
    run_epochs(DeltaSink(tmp_path), ns(1))
    wider = [{"n": 2, "m": 5}]
    message = (
        r"step 'out': Delta table .* has no column 'm', its columns are \['n'\]: pass "
        "schema_mode='merge' to add it"
    )
    with pytest.raises(SinkError, match=message):
        run_epochs(DeltaSink(tmp_path), wider, first=1)
    run_epochs(DeltaSink(tmp_path, schema_mode="merge"), wider, first=1)
    merged = DeltaSink(tmp_path, mode="upsert", key="n", schema_mode="merge")
    run_epochs(merged, [{"n": 2, "m": 6, "l": "x"}], first=2)
    table = deltalake.DeltaTable(tmp_path).to_pyarrow_table().sort_by("n")
    assert table.to_pylist() == [
        {"n": 1, "m": None, "l": None},
        {"n": 2, "m": 6, "l": "x"},
    ]


def test_tasks_whose_types_differ_write_one_type(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path)
    with opened(sink):
        publish(sink, 0, [{"n": 1}], [{"n": 2.5}], [{"m": "x"}])
    table = deltalake.DeltaTable(tmp_path).to_pyarrow_table()
    assert table.schema.field("n").type == pa.float64()
    assert sorted(map(str, table.column("n").to_pylist())) == ["1.0", "2.5", "None"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([2**32 - 1], pa.uint32()), pa.int64()),
        (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(38, 0)),
        (pa.array(["a"]).dictionary_encode(), pa.string()),
        (pa.array([1], pa.timestamp("ms", "Europe/Paris")), pa.timestamp("us", "UTC")),
        (pa.array([[{"a": 1}]], pa.large_list(pa.struct([("a", pa.uint8())]))), None),
        (pa.array([date(2026, 1, 2)], pa.date64()), pa.date32()),
    ],
    ids=str,
)
def test_values_keep_their_meaning_in_types_of_delta(
    tmp_path: Path, values: Any, expected: Any
) -> None:
    sink = DeltaSink(tmp_path)
    with opened(sink):
        publish(sink, 0, pa.record_batch({"x": values}))
    column = deltalake.DeltaTable(tmp_path).to_pyarrow_table().column("x")
    assert column.to_pylist() == values.to_pylist()
    assert expected is None or column.type == expected


def test_a_type_that_delta_lacks_is_an_error_that_names_it(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path)
    batch = pa.record_batch({"lasted": pa.array([1], pa.duration("us"))})
    message = r"Delta has no type for duration\[us\], of a field among \['lasted'\]: map it"
    with opened(sink), pytest.raises(SinkError, match=message):
        publish(sink, 0, batch)


def test_files_have_one_value_of_each_partition_column(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, partition_by=["day", "late"])
    rows = [
        {"day": date(2026, 1, 1), "late": True, "n": 1},
        {"day": date(2026, 1, 1), "late": None, "n": 2},
        {"day": date(2026, 1, 2), "late": True, "n": 3},
        {"day": date(2026, 1, 1), "late": True, "n": 4},
    ]
    with opened(sink):
        publish(sink, 0, rows)
    found = [file["partitionValues"] for file in live_files(tmp_path)]
    assert sorted(((one["day"], one["late"]) for one in found), key=str) == [
        ("2026-01-01", "true"),
        ("2026-01-01", None),
        ("2026-01-02", "true"),
    ]
    table = (
        deltalake.DeltaTable(tmp_path).to_pyarrow_table().sort_by("n").select(["day", "late", "n"])
    )
    assert table.to_pylist() == rows


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC), "a b/ü%", "", 2.5, -3, False],
    ids=repr,
)
def test_a_value_of_a_partition_column_comes_back(tmp_path: Path, value: Any) -> None:
    sink = DeltaSink(tmp_path, partition_by="p")
    with opened(sink):
        publish(sink, 0, [{"p": value, "n": 1}])
    expected = None if value == "" else value  # Delta has no empty text in a partition.
    assert deltalake.DeltaTable(tmp_path).to_pyarrow_table().column("p").to_pylist() == [expected]


def test_statistics_let_readers_skip_files(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path)
    at = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [
        {"n": 3, "k": "b", "f": float("nan"), "at": at, "long": "x" * 99, "none": 1},
        {"n": 1, "k": "a", "f": 1.0, "at": at.replace(hour=5), "long": "y", "none": None},
    ]
    with opened(sink):
        publish(sink, 0, rows)
    stats = deltalake.DeltaTable(tmp_path).get_add_actions(flatten=True)
    row = pa.table(stats).to_pylist()[0]
    assert (row["num_records"], row["min.n"], row["max.n"]) == (2, 1, 3)
    assert (row["min.k"], row["max.k"], row["min.at"], row["max.at"]) == (
        *("a", "b"),
        *(at, at.replace(hour=5)),
    )
    assert row["null_count.none"] == 1
    assert row.get("max.f") is None
    assert row.get("max.long") is None


# --- rewinds -------------------------------------------------------------------------------------


#  run     1                2, set back to epoch 0
#  epoch   0: 1  1: 2  2: 3    1: 7  2: 8
def test_a_rewind_is_refused_and_the_advice_works(tmp_path: Path) -> None:
    run_epochs(DeltaSink(tmp_path, schema={"n": pa.int64()}), ns(1), ns(2), ns(3))
    message = (
        "step 'out': Delta table .* holds rows up to epoch 2 of this run, which was set back to "
        r"epoch 0: .* by DeltaTable.restore\(1\) .* start the flow with after_rewind='write'"
    )
    with pytest.raises(SinkError, match=message):
        run_epochs(DeltaSink(tmp_path), ns(7), ns(8), first=1, rewinds=1)
    assert numbers(tmp_path) == [1, 2, 3]
    deltalake.DeltaTable(tmp_path).restore(1)
    again = DeltaSink(tmp_path, after_rewind="write")
    run_epochs(again, ns(7), ns(8), first=1, rewinds=1)
    run_epochs(again, ns(8), ns(9), first=2, rewinds=1)
    assert numbers(tmp_path) == [1, 7, 8, 9]


# --- tables that do not fit, and arguments -------------------------------------------------------


def test_a_table_that_does_not_fit_the_sink_is_an_error(tmp_path: Path) -> None:
    append(tmp_path, kn(a=1), partition_by=["k"])
    cases = [
        (DeltaSink(tmp_path, partition_by="n"), r"is partitioned by \['k'\], and not by \['n'\]"),
        (DeltaSink(tmp_path, mode="upsert"), "has no column 'key' of the key"),
    ]
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"positive": "n > 0"})
    cases.append((DeltaSink(tmp_path), "checks or computes values"))
    for sink, message in cases:
        with pytest.raises(SinkError, match=message):
            sink.check(False)
    run_epochs(upsert(tmp_path), kn(b=2))
    with pytest.raises(SinkError, match="step 'out': epoch 0 cannot be committed to Delta table"):
        run_epochs(upsert(tmp_path), kn(b=-2), run="run-two")
    assert sorted(row["n"] for row in rows_of(tmp_path)) == [1, 2]


def checked(sink: DeltaSink, path: Path) -> None:
    """Check the fields that a flow names, as a run does before it starts."""
    pq.write_table(pa.table({"page": ["a"], "n": [1]}), path)
    flow = Dataflow("names")
    op.output("out", op.input("in", flow, ParquetSource(path)), sink)
    check_fields(compile_flow(flow))


def test_only_columns_that_the_mode_uses_are_looked_for_before_a_run(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    checked(DeltaSink("t"), path)
    checked(DeltaSink("t", mode="upsert", key="page", partition_by="n"), path)
    with pytest.raises(FlowBuildError, match="step 'out' names the field 'window_id'"):
        checked(DeltaSink("t", mode="upsert", key=("page", "window_id")), path)
    with pytest.raises(FlowBuildError, match=r"names the field 'pge', .* is it 'page'"):
        checked(DeltaSink("t", partition_by="pge"), path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mode": "insert"}, FlowBuildError, "mode must be 'append' or 'upsert', got 'insert'"),
        ({"mode": "upsert", "key": ()}, FlowBuildError, "key must name the columns"),
        ({"key": 3}, FlowTypeError, "key must name columns"),
        ({"schema_mode": "overwrite"}, FlowBuildError, "schema_mode must be"),
        ({"storage_options": {"a": 1}}, FlowTypeError, "storage_options must map names to texts"),
        ({"schema": {"n": pa.int64()}, "partition_by": "m"}, FlowBuildError, "'m' is not in the"),
        ({"schema": {"n": pa.duration("s")}}, SinkError, "Delta has no type for duration"),
    ],
)
def test_arguments_are_checked(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        DeltaSink("t", **options)


def test_errors_of_a_store_hide_its_options(tmp_path: Path) -> None:
    options = {"AWS_SECRET_ACCESS_KEY": "s3cr3t", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    options |= {"AWS_ALLOW_HTTP": "true", "AWS_REGION": "x", "max_retries": "0"}
    sink = DeltaSink("s3://me:s3cr3t@bucket/t", storage_options=options)
    with pytest.raises(SinkError, match=r"^Delta table s3://bucket/t cannot be opened: ") as caught:
        sink.check(False)
    assert "s3cr3t" not in f"{caught.value!r}{sink!r}{sink.datasets()}"
    assert caught.value.__cause__ is None
    with pytest.raises(SinkError) as caught, sink.place.explained("it failed"):
        raise OSError("no access with s3cr3t to s3://me:pass@bucket")
    assert str(caught.value) == "it failed: no access with *** to s3://bucket"
