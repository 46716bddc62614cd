"""SQL sinks on every database, driven as an engine drives them: open, write, commit, run again."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import flow.operators as op
from flow.connectors.sql import Delete
from flow.connectors.sql.table_sink import CHUNK_ROWS
from flow.errors import FlowBuildError, FlowTypeError, SinkError, StepError
from flow.testing import run_once
from flow_windowing import EventClock, Retracted, SessionWindower, WindowMetadata, count_window
from tests.support.databases import (
    Postgres,
    TestDatabase,
    kn,
    ns,
    opened,
    rows_after,
)
from tests.support.writing import RUN, publish, write

INSERT = {"schema": "n bigint"}
UPSERT = {"schema": "k text PRIMARY KEY, n bigint", "mode": "upsert", "key": "k"}


# --- upsert --------------------------------------------------------------------------------------


def test_upsert_keeps_the_last_row_of_each_key(db: TestDatabase) -> None:
    sink = db.sink(**UPSERT)
    with opened(sink):
        publish(sink, 0, [*kn(a=1, b=2), *kn(a=3)], kn(c=4))
        assert db.rows() == [("a", 3), ("b", 2), ("c", 4)]
        publish(sink, 1, kn(b=5, d=None))
    assert db.rows() == [("a", 3), ("b", 5), ("c", 4), ("d", None)]


def test_equal_numbers_are_one_key(db: TestDatabase) -> None:
    schema = {"k": pa.decimal128(10, 2), "n": pa.int64()}
    items = [{"n": n, "k": Decimal(text)} for n, text in enumerate(("1", "2.50", "1.0", "3"))]
    later = [Delete({"k": Decimal("3.000")}), {"k": Decimal("2.5"), "n": 9}]
    rows = rows_after(db, items, later, schema=schema, mode="upsert", key="k")
    assert [(str(key), n) for key, n in rows] == [("1.00", 2), ("2.50", 9)]


def test_delete_removes_a_row_in_order(db: TestDatabase) -> None:
    items = [Delete({"k": "a", "n": 9}), *kn(b=2), Delete({"k": "b"}), Delete({"k": "c"})]
    later = [*items, *kn(c=2), Delete({"k": "never there"})]
    assert rows_after(db, kn(a=1, b=1, c=1), later, **UPSERT) == [("c", 2)]


def test_a_retracted_result_is_deleted(db: TestDatabase) -> None:
    def build(stream: Any) -> Any:
        clock, gap = EventClock(lambda at: at, "10s"), SessionWindower("5s")
        out = count_window("n", stream, clock, gap, lambda _: "a", emit="update")
        rows = op.map("row", op.records("rows", out.down), kept)
        return op.map("change", rows, lambda row: Delete(row) if row["retracted"] else row)

    def kept(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["window_id"], "n": row["value"], "retracted": row["is_retraction"]}

    options = {"schema": "id bigint PRIMARY KEY, n bigint, retracted boolean", "key": "id"}
    rows = rows_after(db, run_once([10, 20, 15], build), mode="upsert", **options)
    assert rows == [(10_000_000, 3, False)]


@pytest.mark.parametrize("key", [["a", "b"], ["b", "a"]])
def test_a_key_may_consist_of_all_columns(key: list[str], db: TestDatabase) -> None:
    schema = pa.schema([("b", pa.int64()), ("a", pa.string())])
    first = [{"a": "x", "b": 1}, {"a": "x", "b": 2}, {"b": 1, "a": "x"}]
    later = [Delete({"b": 2, "a": "x"})]
    assert rows_after(db, first, later, schema=schema, mode="upsert", key=key) == [(1, "x")]


#  a     put x=1   delete          put y=5
#  b     put x=2          put x=1           put y=6
def test_upserts_and_deletes_with_different_columns_keep_their_order(db: TestDatabase) -> None:
    """That `b` may have the 1 of `a` once `a` is gone is also a matter of order."""
    schema = "k text PRIMARY KEY, x bigint UNIQUE, y bigint DEFAULT -1"
    first = [{"k": "a", "x": 1}, {"x": 2, "k": "b"}, Delete({"k": "a"}), {"k": "b", "x": 1}]
    items = [*first, {"k": "a", "y": 5}, {"y": 6, "k": "b"}]
    rows = rows_after(db, items, schema=schema, mode="upsert", key="k")
    assert rows == [("a", None, 5), ("b", 1, 6)]


def test_upsert_needs_a_unique_key(db: TestDatabase) -> None:
    options = {"schema": "k text, n bigint", "mode": "upsert", "key": "k"}
    message = r"mode='upsert': a primary key or a unique index on exactly its key columns \('k',\)"
    with pytest.raises(SinkError, match=message):
        rows_after(db, **options)
    db.ask("CREATE TABLE t (k text, n bigint)")
    db.ask("CREATE UNIQUE INDEX by_k ON t (k)")
    assert rows_after(db, kn(a=1), **options) == [("a", 1)]


# --- tables and columns --------------------------------------------------------------------------


def test_a_missing_table_is_created_from_a_schema(db: TestDatabase) -> None:
    schema = {"k": pa.string(), "n": pa.int32()}
    rows = rows_after(db, kn(a=1), kn(a=2), schema=schema, mode="upsert", key="k")
    assert rows == [("a", 2)]


def test_a_schema_can_forbid_nulls(db: TestDatabase) -> None:
    schema = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(SinkError, match=r"(?i)not.null"):
        rows_after(db, kn(a=1, b=None), schema=schema)
    assert db.rows() == []


def test_an_existing_table_is_not_changed(db: TestDatabase) -> None:
    db.ask("CREATE TABLE t (n bigint, made text DEFAULT 'by hand')")
    schema = {"something": pa.string(), "else": pa.int8()}
    assert rows_after(db, ns(1), schema=schema) == [(1, "by hand")]


def test_a_table_that_does_not_fit_the_sink_is_an_error(db: TestDatabase) -> None:
    with pytest.raises(SinkError, match=r"table 't' of .* does not exist: create it, or"):
        rows_after(db)
    db.ask("CREATE TABLE t (n bigint, run text)")
    with pytest.raises(SinkError, match=r"has no column 'k', its columns are \['n', 'run'\]"):
        rows_after(db, mode="upsert", key="k")


def test_a_schema_that_the_database_refuses_creates_nothing(db: TestDatabase) -> None:
    schema = "n bigint, n text"
    with pytest.raises(SinkError, match=r"table 't' of .* cannot be opened: .*n"):
        rows_after(db, schema=schema)
    db.ask("CREATE TABLE t (n bigint)")
    assert rows_after(db, ns(1), schema=schema) == [(1,)]


def test_a_column_that_the_table_lacks_is_an_error_that_names_both(db: TestDatabase) -> None:
    message = r"step 'out': table 't' of .* has no column 'o', its columns are \['n', 'm'\]: map"
    with pytest.raises(SinkError, match=message):
        rows_after(db, [{"n": 1}, {"n": 2, "o": 3}], schema="n bigint, m bigint")
    assert db.rows() == []


def test_a_column_that_a_record_lacks_gets_its_default(db: TestDatabase) -> None:
    items = [{"n": 1}, {"k": "a", "n": 2}, {"n": 3, "m": 4}, {"n": 5}]
    rows = rows_after(db, items, schema="n bigint, m bigint DEFAULT 7, k text")
    assert rows == [(1, 7, None), (2, 7, "a"), (3, 4, None), (5, 7, None)]


def test_rows_beyond_one_block_are_all_written(db: TestDatabase) -> None:
    count = 2 * CHUNK_ROWS + 1
    sink = db.sink(schema="n bigint")
    with opened(sink):
        message = write(sink, 0, 0, ns(*range(count)))
        assert [chunk.count for chunk in message] == [CHUNK_ROWS, CHUNK_ROWS, 1]
        sink.commit(0, [message])
    assert db.ask("SELECT count(*), sum(n) FROM t") == [(count, count * (count - 1) // 2)]


def alternating(count: int, stretch: int = 1) -> list[dict[str, int]]:
    """Records of which every other stretch lacks a column."""
    return [{"n": n, "m": n} if n // stretch % 2 else {"n": n} for n in range(count)]


def test_rows_with_different_columns_or_field_orders_share_a_block(db: TestDatabase) -> None:
    chunks = write(db.sink(), 0, 0, alternating(CHUNK_ROWS + 2))
    assert [chunk.count for chunk in chunks] == [CHUNK_ROWS, 2]
    (chunk,) = write(db.sink(), 0, 0, [{"n": 1, "k": "a"}, {"k": "b", "n": 2}, Pair("c", 3)])
    assert [(group.columns, len(group.rows)) for group in chunk.unpack()] == [(("k", "n"), 3)]


@pytest.mark.parametrize("stretch", [1, 20])
def test_rows_with_different_columns_keep_their_order(db: TestDatabase, stretch: int) -> None:
    identity = " GENERATED ALWAYS AS IDENTITY" if isinstance(db, Postgres) else ""
    schema = f"id integer PRIMARY KEY{identity}, n bigint, m bigint DEFAULT -1"
    rows = rows_after(db, alternating(100, stretch), columns="id, n, m", schema=schema)
    assert rows == [(n + 1, n, n if n // stretch % 2 else -1) for n in range(100)]


STRANGE = [
    "with space",
    "Capital",
    'a "quoted" one',
    "100%s",
    "x; DROP TABLE t; --",
    "select",
    "ü$1",
]


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_names_and_values_can_hold_anything(db: TestDatabase, name: str, mode: Any) -> None:
    schema = pa.schema([(name, pa.string()), ("n", pa.int64())])
    key = (name,) if mode == "upsert" else ()
    sink = db.sink(name, schema=schema, mode=mode, key=key)
    with opened(sink):
        publish(sink, 0, [{name: value, "n": 1} for value in STRANGE])
        if mode == "upsert":
            publish(sink, 1, [{name: value, "n": 2} for value in STRANGE])
            publish(sink, 2, [Delete({name: value}) for value in STRANGE[1:]])
    table = '"' + name.replace('"', '""') + '"'
    found = db.ask(f"SELECT * FROM {table}")
    expected = [(STRANGE[0], 2)] if mode == "upsert" else [(value, 1) for value in STRANGE]
    assert found == expected
    assert [row[1] for row in db.rows("_flow_epochs", "sink, run_id")] == [RUN]


# --- items ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    n: int


class Pair(NamedTuple):
    k: str
    n: int


def test_records_are_mappings_dataclasses_named_tuples_and_batches(db: TestDatabase) -> None:
    batch = pa.record_batch({"k": ["b", None], "n": [3, 4]})
    rows = rows_after(db, [Reading(1), Pair("a", 2)], batch, [{"n": 5}], schema="n bigint, k text")
    assert rows == [(1, None), (2, "a"), (3, "b"), (4, None), (5, None)]


HOUR = WindowMetadata(
    0, datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=UTC), frozenset({3, 2})
)


def test_results_of_windows_and_pairs_are_laid_out(db: TestDatabase) -> None:
    columns = {
        "key": pa.string(),
        "window_id": pa.int64(),
        "open_time": pa.timestamp("us", "UTC"),
        "merged_ids": pa.list_(pa.int64()),
        "close_time": pa.timestamp("us", "UTC"),
        "is_retraction": pa.bool_(),
        "n": pa.int64(),
        "value": pa.string(),
    }
    items = [("LHR", (HOUR, {"n": 3})), ("CDG", (HOUR, Retracted({"n": 4}))), ("JFK", "x")]
    shown = "key, window_id, is_retraction, n, value"
    assert rows_after(db, items, schema=columns, columns=shown) == [
        ("CDG", 0, True, 4, None),
        ("JFK", None, None, None, "x"),
        ("LHR", 0, False, 3, None),
    ]
    ids = {str(row[0]).replace(" ", "") for row in db.rows(columns="merged_ids, window_id")}
    assert ids == {"[2,3]", "None"}


def test_a_delete_under_a_key_removes_the_row_of_the_key(db: TestDatabase) -> None:
    items = [("a", 1), ("b", 2), ("a", Delete(None))]
    options = {"schema": "key text PRIMARY KEY, value bigint", "mode": "upsert", "key": "key"}
    assert rows_after(db, items, **options) == [("b", 2)]


def test_a_result_without_its_column_in_the_table_names_the_way_to_choose(db: TestDatabase) -> None:
    problem = r"step 'out': .* has no column 'close_time', .* \(op.records makes records of the"
    with pytest.raises(SinkError, match=problem):
        rows_after(db, [("LHR", (HOUR, {"n": 3}))], schema="key text, n bigint")


@pytest.mark.parametrize(
    ("options", "item", "problem"),
    [
        (INSERT, {}, "the record has no field to write"),
        (INSERT, {"n": 1, 2: 3}, "names of columns must be text, got 2"),
        (INSERT, Delete({"n": 1}), "a Delete needs a sink with mode='upsert'"),
        (INSERT, ("LHR", Delete({"n": 1})), "a Delete needs a sink with mode='upsert'"),
        (UPSERT, {"n": 1}, "the record lacks column 'k' of the key"),
        (UPSERT, {"k": None, "n": 1}, r"a column of the key \('k',\) is None"),
        (UPSERT, Delete({"n": 1}), "the record lacks column 'k' of the key"),
        (UPSERT, Delete({"k": None}), r"a column of the key \('k',\) is None"),
        (UPSERT, Delete(7), "the record lacks column 'k' of the key"),
    ],
)
def test_an_item_that_is_no_record_is_shown(
    db: TestDatabase, options: dict[str, Any], item: Any, problem: str
) -> None:
    with pytest.raises(StepError, match=problem) as caught:
        write(db.sink(**options), 0, 0, [{"k": "a", "n": 1}, item])
    assert caught.value.step_id == "out"
    assert "item: " in str(caught.value)


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "replace"}, "mode must be 'insert' or 'upsert', got 'replace'"),
        ({"mode": "upsert"}, "give both or neither, got mode='upsert' and key=\\(\\)"),
        ({"key": "k"}, "give both or neither, got mode='insert'"),
        ({"mode": "upsert", "key": ("k", "k")}, "key must name each column once"),
        ({"schema": " "}, "schema must have columns, got empty text"),
        ({"schema": {}}, "schema must have columns, each name once"),
        ({"schema": {"at": pa.timestamp("us")}}, "column 'at' is timestamp.* needs a time zone"),
        ({"schema": {"x": pa.null()}}, "column 'x' is null, which has no SQL type"),
        ({"schema": {"n": pa.int64()}, "mode": "upsert", "key": "k"}, "'k' is not in the schema"),
    ],
)
def test_invalid_arguments_are_refused_when_the_sink_is_made(
    db: TestDatabase, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(FlowBuildError, match=problem):
        db.sink(**options)


@pytest.mark.parametrize("options", [{"key": 3}, {"key": ["a", ""]}, {"schema": 7}, {"table": ""}])
def test_arguments_of_the_wrong_type_are_errors(db: TestDatabase, options: dict[str, Any]) -> None:
    with pytest.raises(FlowTypeError):
        db.sink(**options)


def test_sinks_compare_by_value(db: TestDatabase) -> None:
    options: dict[str, Any] = {"mode": "upsert", "key": "n", "schema": {"n": pa.int64()}}
    sink = db.sink(**options)
    assert sink == db.sink(**options)
    assert hash(sink) == hash(db.sink(**options))
    assert sink != db.sink("other", **options)
    assert ", table='t', mode='upsert', key=('n',), schema=n: int64)" in repr(sink)


def test_an_open_sink_is_pickled_without_its_connection(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        copy = pickle.loads(pickle.dumps(sink))
        with pytest.raises(SinkError, match="is not open"):
            copy.commit(0, [])
        publish(sink, 0, ns(1))
    assert db.rows() == [(1,)]
