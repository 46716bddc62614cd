"""`IcebergSink`: snapshots, files that are rewritten, other writers, columns and arguments."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.iceberg import IcebergSink
from flow.errors import FlowBuildError, FlowTypeError, SinkError
from tests.support import iceberg
from tests.support.databases import kn, ns, opened, run_epochs
from tests.support.iceberg import (
    TABLE,
    append,
    expire,
    live_files,
    properties,
    rows_of,
    sink_to,
    snapshots,
)
from tests.support.writing import attached, publish, write

pyiceberg = pytest.importorskip("pyiceberg")


def upsert(place: Path, **options: Any) -> IcebergSink:
    return sink_to(place, mode="upsert", **{"key": "k", **options})


def numbers(place: Path) -> list[int]:
    return sorted(row["n"] for row in rows_of(place))


def pairs(place: Path) -> list[tuple[str, int]]:
    return sorted((row["k"], row["n"]) for row in rows_of(place))


# --- epochs --------------------------------------------------------------------------------------


#  epoch   0           1            2
#  items   a: 1, b: 2  a: 3, c: 4   d: 5, with a new column
def test_an_epoch_is_one_snapshot_with_its_number_also_if_it_replaces_rows(tmp_path: Path) -> None:
    sink = upsert(tmp_path, schema_mode="merge")
    run_epochs(sink, kn(a=1, b=2), kn(a=3, c=4), [{"k": "d", "n": 5, "m": True}])
    assert [
        (one["operation"], one["flow.output"], one["flow.epoch"]) for one in snapshots(tmp_path)
    ] == [
        ("append", "run-one/out", "0"),
        ("overwrite", "run-one/out", "1"),
        ("append", "run-one/out", "2"),
    ]
    assert pairs(tmp_path) == [("a", 3), ("b", 2), ("c", 4), ("d", 5)]


@pytest.mark.parametrize("died", ["before", "after"])
def test_a_kill_around_the_commit_of_an_upsert_is_made_good_by_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died: str
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    commit = SqlCatalog.commit_table

    def killed(*arguments: Any) -> None:
        if died == "after":
            commit(*arguments)
        raise KeyboardInterrupt

    run_epochs(upsert(tmp_path), kn(a=1, b=2))
    monkeypatch.setattr(SqlCatalog, "commit_table", killed)
    with pytest.raises(KeyboardInterrupt):
        run_epochs(upsert(tmp_path), kn(a=3, c=4), first=1)
    monkeypatch.undo()
    run_epochs(upsert(tmp_path), kn(a=3, c=4), first=1)
    assert pairs(tmp_path) == [("a", 3), ("b", 2), ("c", 4)]
    assert len(snapshots(tmp_path)) == 2


def test_an_epoch_is_known_again_after_its_snapshot_has_expired(tmp_path: Path) -> None:
    run_epochs(attached(sink_to(tmp_path), tmp_path), ns(0), ns(1))
    append(tmp_path, ns(7))
    expire(tmp_path)
    assert len(snapshots(tmp_path)) == 1
    run_epochs(attached(sink_to(tmp_path), tmp_path), ns(1), ns(2), first=1)
    assert numbers(tmp_path) == [0, 1, 2, 7]


# --- files that are rewritten --------------------------------------------------------------------


def test_only_files_with_a_key_of_the_epoch_are_rewritten(tmp_path: Path) -> None:
    sink = upsert(tmp_path)
    epochs = [{f"k{epoch}{n}": n for n in range(3)} for epoch in range(3)]
    run_epochs(sink, *(kn(**one) for one in epochs))
    before = set(live_files(tmp_path))
    many = {f"k1{n}": n for n in range(1, 300)}
    run_epochs(sink, kn(**many), first=3)
    after = set(live_files(tmp_path))
    assert len(before - after) == 1
    assert pairs(tmp_path) == sorted(
        [*epochs[0].items(), ("k10", 0), *many.items(), *epochs[2].items()]
    )


def test_a_row_with_the_key_of_several_rows_replaces_them_all(tmp_path: Path) -> None:
    append(tmp_path, kn(a=1, b=2))
    append(tmp_path, kn(a=3, c=4))
    run_epochs(upsert(tmp_path), kn(a=5))
    assert pairs(tmp_path) == [("a", 5), ("b", 2), ("c", 4)]


# --- other writers -------------------------------------------------------------------------------


def test_an_epoch_that_another_process_has_committed_meanwhile_is_not_committed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_epochs(sink_to(tmp_path), ns(0))
    changes, others = IcebergSink._changes, iter([ns(1)])

    def overtaken(*arguments: Any) -> Any:
        if other := next(others, None):
            run_epochs(sink_to(tmp_path), other, first=1)
        return changes(*arguments)

    monkeypatch.setattr(IcebergSink, "_changes", overtaken)
    run_epochs(sink_to(tmp_path), ns(1), first=1)
    assert numbers(tmp_path) == [0, 1]


def test_a_table_that_is_partitioned_anew_meanwhile_stops_the_epoch(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    with opened(sink):
        publish(sink, 0, ns(0))
        waiting = [write(sink, 1, 0, ns(1))]
        with iceberg.opened(tmp_path) as table, table.update_spec() as spec:
            spec.add_identity("n")
        with pytest.raises(SinkError, match=r"partitioned in another way .*: start the flow again"):
            sink.commit(1, waiting)
        publish(sink, 1, ns(1))
    assert numbers(tmp_path) == [0, 1]


# --- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        pa.array([255], pa.uint8()),
        pa.array([2**64 - 1], pa.uint64()),
        pa.array(["a"]).dictionary_encode(),
        pa.array([1], pa.timestamp("ms", "Europe/Paris")),
        pa.array([[{"a": 1}]], pa.large_list(pa.struct([("a", pa.uint8())]))),
        pa.array([date(2026, 1, 2)], pa.date64()),
        pa.array([time(1, 2, 3)], pa.time32("s")),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
def test_values_keep_their_meaning_in_types_of_iceberg(tmp_path: Path, values: Any) -> None:
    sink = sink_to(tmp_path)
    with opened(sink):
        publish(sink, 0, pa.record_batch({"x": values}))
        publish(sink, 1, pa.record_batch({"x": values}))
    assert [row["x"] for row in rows_of(tmp_path)] == values.to_pylist() * 2


def test_a_required_column_without_a_value_is_an_error(tmp_path: Path) -> None:
    append(tmp_path, pa.table({"n": [1]}, pa.schema([pa.field("n", pa.int64(), nullable=False)])))
    sink = sink_to(tmp_path)
    with opened(sink):
        publish(sink, 0, ns(2))
        with pytest.raises(SinkError, match="step 'out': column 'n' of the table is required"):
            publish(sink, 1, [{"n": None}])
    assert numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_files_are_divided_as_the_table_says(tmp_path: Path, mode: Any) -> None:
    from pyiceberg import transforms

    days = [datetime(2026, 1, day, 3, tzinfo=UTC) for day in (1, 1, 2)]
    rows = [
        {"at": at, "k": key, "day": at.date(), "n": n}
        for n, (at, key) in enumerate(zip(days, ["a", None, "a"], strict=True))
    ]
    properties(tmp_path)
    with iceberg.catalog(tmp_path) as catalog:
        table = catalog.create_table(TABLE, pa.Table.from_pylist(rows).schema)
        with table.update_spec() as spec:
            spec.add_field("at", transforms.DayTransform())
            spec.add_field("k", transforms.TruncateTransform(3))
            spec.add_field("n", transforms.BucketTransform(1))
            spec.add_identity("day")
    run_epochs(sink_to(tmp_path, mode=mode, key="n"), rows)
    assert len(live_files(tmp_path)) == 3
    with iceberg.opened(tmp_path) as table:
        for only in ("at >= '2026-01-02T00:00:00+00:00'", "k IS NULL", "day > '2026-01-01'"):
            [task] = table.scan(only).plan_files()
            assert task.file.record_count == 1
    assert sorted(rows_of(tmp_path), key=lambda row: row["n"]) == rows


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC), "a b/ü%", "", 2.5, -3, False, None],
    ids=repr,
)
def test_a_value_of_a_partition_column_comes_back(tmp_path: Path, value: Any) -> None:
    schema = {"p": pa.array([value]).type if value is not None else pa.int64(), "n": pa.int64()}
    run_epochs(sink_to(tmp_path, partition_by="p", schema=schema), [{"p": value, "n": 1}])
    assert [row["p"] for row in rows_of(tmp_path)] == [value]
    with iceberg.opened(tmp_path) as table:
        where = "p IS NULL" if value is None else pyiceberg.expressions.EqualTo("p", value)
        assert table.scan(where).to_arrow().column("p").to_pylist() == [value]


# --- tables that do not fit, and arguments -------------------------------------------------------


def test_a_table_that_does_not_fit_the_sink_is_an_error(tmp_path: Path) -> None:
    append(tmp_path, kn(a=1))
    with iceberg.opened(tmp_path) as table, table.update_spec() as spec:
        spec.add_identity("k")
    cases = [
        (sink_to(tmp_path, partition_by="n"), r"is partitioned by \['k'\], and not by \['n'\]"),
        (sink_to(tmp_path, mode="upsert"), "has no column 'key' of the key"),
    ]
    for sink, message in cases:
        with pytest.raises(SinkError, match=message):
            sink.check(False)


def test_a_namespace_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    sink = IcebergSink(properties(tmp_path), "other.t")
    with opened(sink), pytest.raises(SinkError, match=r"create it by catalog.create_namespace"):
        publish(sink, 0, ns(1))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({}, "hours"), FlowBuildError, "table must be text such as 'db.hours'"),
        ((3, "db.t"), FlowTypeError, "catalog must be a name, or must map names to texts, got int"),
        (({"uri": 1}, "db.t"), FlowTypeError, "catalog must be a name, or must map"),
    ],
)
def test_arguments_are_checked(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        IcebergSink(*arguments)


def test_errors_of_a_catalog_hide_its_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = "postgresql+psycopg2://me:s3cr3t@127.0.0.1:1/x"
    sink = IcebergSink({"type": "sql", "uri": uri, "token": "s3cr3t-too"}, TABLE)
    with pytest.raises(SinkError, match=r"^the catalog of Iceberg table db.t cannot be") as caught:
        sink.check(False)
    assert "s3cr3t" not in f"{caught.value!r}{sink!r}{sink.datasets()}"
    with pytest.raises(SinkError) as caught, sink.place.explained("it failed"):
        raise OSError(f"no access with s3cr3t-too or s3cr3t to {uri}")
    assert "s3cr3t" not in str(caught.value)


def test_a_catalog_may_be_given_by_its_name_in_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    for name, value in properties(tmp_path).items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # Read once, on import.
    with contextlib.closing(catalog.load_catalog("lake")) as found:
        found.create_namespace("db")
    run_epochs(IcebergSink("lake", TABLE), ns(1))
    assert numbers(tmp_path) == [1]
