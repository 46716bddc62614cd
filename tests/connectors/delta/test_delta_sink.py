"""`DeltaSink`: commits, columns, partitions, statistics, tables that do not fit and arguments."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flow.operators as op
from flow import Dataflow
from flow.connectors.delta import DeltaSink
from flow.connectors.files import ParquetSource
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.declared_columns import check_fields
from flow.errors import FlowBuildError, FlowTypeError, SinkError
from tests.support.databases import kn, ns, opened, run_epochs
from tests.support.delta import append, commits, live_files, rows_of, table_of
from tests.support.writing import publish

deltalake = pytest.importorskip("deltalake")


def upsert(table: Path, **options: Any) -> DeltaSink:
    return DeltaSink(table, mode="upsert", **{"key": "k", **options})


def numbers(table: Path) -> list[int]:
    return sorted(row["n"] for row in rows_of(table))


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


def test_an_epoch_is_known_again_after_the_log_was_shortened(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path)
    run_epochs(sink, ns(0), ns(1))
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    for path in sorted((tmp_path / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    run_epochs(sink, ns(1), ns(2), first=1)
    assert table_of(tmp_path).column("n").to_pylist() == [2, 1, 0]


# --- columns -------------------------------------------------------------------------------------


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
    column = table_of(tmp_path).column("x")
    assert column.to_pylist() == values.to_pylist()
    assert expected is None or column.type == expected


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
    table = table_of(tmp_path).sort_by("n").select(["day", "late", "n"])
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
    assert table_of(tmp_path).column("p").to_pylist() == [expected]


def test_a_column_and_a_part_of_a_struct_with_one_path_have_no_bounds(tmp_path: Path) -> None:
    with opened(sink := DeltaSink(tmp_path)):
        publish(sink, 0, [{"a.b": 100, "a": {"b": 1}, "n": 2}])
    assert json.loads(live_files(tmp_path)[0]["stats"])["minValues"] == {"n": 2}


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
