"""`IcebergSink`: the laws of sinks, corrections, other writers, columns, rewinds and arguments."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.iceberg import IcebergSink
from flow.connectors.sink import CheckpointContext, OutputContext
from flow.errors import FlowBuildError, FlowTypeError, SinkError
from flow.testing.connectors import check_sink
from flow_windowing import Retracted, WindowMetadata
from tests.support import iceberg
from tests.support.databases import kn, ns, opened, run_epochs
from tests.support.iceberg import TABLE, append, live_files, properties, rows_of, snapshots
from tests.support.writing import publish, write

pyiceberg = pytest.importorskip("pyiceberg")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="append"),
        pytest.param({"mode": "upsert", "key": "key"}, id="upsert"),
        pytest.param({"partition_by": "n"}, id="partitioned", marks=pytest.mark.extended),
        pytest.param(
            {"schema": {"key": pa.string(), "n": pa.int64()}},
            id="schema",
            marks=pytest.mark.extended,
        ),
    ],
)
def test_the_sink_keeps_the_laws(options: dict[str, Any]) -> None:
    check_sink(
        lambda place: IcebergSink(properties(place, password="s3cr3t"), TABLE, **options),
        lambda place: [(row["key"], row["n"]) for row in rows_of(place)],
        secrets=["s3cr3t"],
    )


def sink_to(place: Path, checkpoint: bool = False, **options: Any) -> IcebergSink:
    sink = IcebergSink(properties(place), TABLE, **options)
    if checkpoint:
        sink.attach(OutputContext("flow", "out", CheckpointContext(str(place), str(place))))
    return sink


def upsert(place: Path, **options: Any) -> IcebergSink:
    return sink_to(place, mode="upsert", **{"key": "k", **options})


def numbers(place: Path) -> list[int]:
    return sorted(row["n"] for row in rows_of(place))


def pairs(place: Path) -> list[tuple[str, int]]:
    return sorted((row["k"], row["n"]) for row in rows_of(place))


def expire(place: Path) -> None:
    """Expire all snapshots but the newest."""
    with iceberg.opened(place) as table:
        table.maintenance.expire_snapshots().older_than(datetime(2100, 1, 1, tzinfo=UTC)).commit()


# --- epochs --------------------------------------------------------------------------------------


#  epoch   0           1            2
#  items   a: 1, b: 2  a: 3, c: 4   d: 5
def test_an_epoch_is_one_snapshot_with_its_number_also_if_it_replaces_rows(tmp_path: Path) -> None:
    run_epochs(upsert(tmp_path), kn(a=1, b=2), kn(a=3, c=4), kn(d=5))
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
    run_epochs(sink_to(tmp_path, checkpoint=True), ns(0), ns(1))
    append(tmp_path, ns(7))
    expire(tmp_path)
    assert len(snapshots(tmp_path)) == 1
    run_epochs(sink_to(tmp_path, checkpoint=True), ns(1), ns(2), first=1)
    assert numbers(tmp_path) == [0, 1, 2, 7]


def test_two_outputs_of_a_flow_may_write_to_one_table(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    with opened(sink):
        publish(sink, 0, ns(1), step="one")
        publish(sink, 0, ns(2), step="two")
        publish(sink, 0, ns(2), step="two")
    assert numbers(tmp_path) == [1, 2]


# --- corrections ---------------------------------------------------------------------------------


def window(number: int, *merged: int) -> WindowMetadata:
    opens = datetime(2026, 1, 1, number, tzinfo=UTC)
    return WindowMetadata(number, opens, opens.replace(hour=number + 1), frozenset(merged))


#  epoch   0                1
#  items   LHR 1: 5, 2: 7   LHR 1: 6 (corrected), 2 taken back, merged into 1
def test_a_correction_replaces_a_window_and_a_retraction_deletes_it(tmp_path: Path) -> None:
    sink = sink_to(tmp_path, mode="upsert")
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


def test_the_last_record_of_a_key_counts_in_an_epoch(tmp_path: Path) -> None:
    sink = upsert(tmp_path)
    deleted = {"k": "b", "n": None, "is_retraction": True}
    with opened(sink):
        publish(sink, 0, [*kn(a=1, b=2), *kn(a=3)], kn(c=4))
        publish(sink, 1, [deleted, *kn(b=5)], [*kn(c=6), {**deleted, "k": "c"}])
        publish(sink, 2, [{**deleted, "k": "unknown"}])
    assert pairs(tmp_path) == [("a", 3), ("b", 5)]


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


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_commit_that_another_writer_was_faster_with_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """The other writer adds rows of the epoch's keys after the sink has read the table, twice."""
    sink = sink_to(tmp_path, mode=mode, key="k", schema={"k": pa.string(), "n": pa.int64()})
    changes, others = IcebergSink._changes, iter(kn(a=8, b=9))

    def slowly(*arguments: Any) -> Any:
        if other := next(others, None):
            append(tmp_path, [other])
        return changes(*arguments)

    monkeypatch.setattr(IcebergSink, "_changes", slowly)
    with opened(sink):
        publish(sink, 0, kn(a=1, b=2))
        publish(sink, 1, kn(a=3))
    assert numbers(tmp_path) == ([1, 2, 3, 8, 9] if mode == "append" else [2, 3])


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


def test_compaction_and_expiry_beside_a_run_lose_nothing(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    with opened(sink):
        for epoch in range(4):
            publish(sink, epoch, ns(epoch), ns(10 + epoch))
        waiting = [write(sink, 4, 0, ns(4))]
        with iceberg.opened(tmp_path) as table:
            table.overwrite(table.scan().to_arrow())
        expire(tmp_path)
        sink.commit(4, waiting)
        publish(sink, 4, ns(4))
    assert len(live_files(tmp_path)) == 2
    assert numbers(tmp_path) == [0, 1, 2, 3, 4, 10, 11, 12, 13]


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


def test_a_new_column_is_an_error_or_added(tmp_path: Path) -> None:
    run_epochs(sink_to(tmp_path), ns(1))
    wider = [{"n": 2, "m": 5}]
    message = (
        r"step 'out': Iceberg table db.t has no column 'm', its columns are \['n'\]: pass "
        "schema_mode='merge' to add it"
    )
    with pytest.raises(SinkError, match=message):
        run_epochs(sink_to(tmp_path), wider, first=1)
    run_epochs(sink_to(tmp_path, schema_mode="merge"), wider, first=1)
    run_epochs(
        upsert(tmp_path, key="n", schema_mode="merge"), [{"n": 2, "m": 6, "l": "x"}], first=2
    )
    assert len(snapshots(tmp_path)) == 3
    with iceberg.opened(tmp_path) as table:
        assert table.scan().to_arrow().sort_by("n").to_pylist() == [
            {"n": 1, "m": None, "l": None},
            {"n": 2, "m": 6, "l": "x"},
        ]


def test_tasks_whose_types_differ_write_one_type(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    with opened(sink):
        publish(sink, 0, [{"n": 1}], [{"n": 2.5}], [{"m": "x"}])
    assert sorted(str(row["n"]) for row in rows_of(tmp_path)) == ["1.0", "2.5", "None"]


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


def test_a_type_that_iceberg_lacks_is_an_error_that_names_it(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    batch = pa.record_batch({"lasted": pa.array([1], pa.duration("us"))})
    message = r"Iceberg has no type for duration\[us\], of a field among \['lasted'\]: map it"
    with opened(sink), pytest.raises(SinkError, match=message):
        publish(sink, 0, batch)


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


# --- rewinds -------------------------------------------------------------------------------------


#  run     1                2, set back to epoch 0
#  epoch   0: 1  1: 2  2: 3    1: 7  2: 8
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_rewind_is_refused_and_the_advice_works(tmp_path: Path, checkpoint: bool) -> None:
    run_epochs(sink_to(tmp_path, checkpoint), ns(1), ns(2), ns(3))
    with iceberg.opened(tmp_path) as table:
        first = table.snapshots()[0].snapshot_id
    message = (
        "step 'out': Iceberg table db.t holds rows up to epoch 2 of this run, which was set back "
        rf"to epoch 0: .*rollback_to_snapshot\({first}\).* with after_rewind='write'"
    )
    with pytest.raises(SinkError, match=message):
        run_epochs(sink_to(tmp_path), ns(7), ns(8), first=1, rewinds=1)
    assert numbers(tmp_path) == [1, 2, 3]
    with iceberg.opened(tmp_path) as table:
        table.manage_snapshots().rollback_to_snapshot(first).commit()
    again = sink_to(tmp_path, checkpoint, after_rewind="write")
    run_epochs(again, ns(7), ns(8), first=1, rewinds=1)
    run_epochs(again, ns(8), ns(9), first=2, rewinds=1)
    assert numbers(tmp_path) == [1, 7, 8, 9]


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
