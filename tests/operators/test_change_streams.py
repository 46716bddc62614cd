"""Events of Debezium as changes of rows: recorded ones, and those of a real server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.kafka import KafkaMessage
from flow.connectors.sql import Delete, SqliteSink
from flow.errors import FlowBuildError, StepError
from flow.operators import Change
from flow.testing import TestDriver, TestingSink, TestingSource, run_once
from tests.support.debezium import Debezium, logging_server

AT = datetime(2026, 11, 27, 19, 32, 16, 841_857, tzinfo=UTC)
US = 1_795_807_936_841_857
POSTGRES = {"connector": "postgresql", "ts_ms": US // 1_000, "ts_us": US, "lsn": 22_183_664}


def event(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": source or POSTGRES, "ts_ms": 1}


def changes_of(*items: Any, **options: Any) -> list[Any]:
    return run_once(items, lambda events: op.debezium("changes", events, **options))


def row(number: int, name: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name}


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (event("c", None, row(1, "a")), ("create", "1", None, row(1, "a"))),
        (event("r", None, row(1, "a")), ("read", "1", None, row(1, "a"))),
        (event("u", row(1, "a"), row(1, "b")), ("update", "1", row(1, "a"), row(1, "b"))),
        (event("u", None, row(1, "b")), ("update", "1", None, row(1, "b"))),
        (event("d", row(1, "b")), ("delete", "1", row(1, "b"), None)),
        (event("d"), ("delete", "1", {"id": 1}, None)),
    ],
)
@pytest.mark.parametrize("has_schema", [False, True])
def test_an_event_is_a_change_with_the_row_before_and_after(
    value: Any, change: Any, has_schema: bool
) -> None:
    key: Any = {"id": 1}
    if has_schema:
        key, value = ({"schema": {"type": "struct"}, "payload": one} for one in (key, value))
    expected = ("1", Change(*change, AT, (22_183_664,)))
    assert changes_of((key, value)) == [expected]
    assert changes_of(KafkaMessage(key, value, "db.public.items")) == [expected]


def test_a_tombstone_is_left_out() -> None:
    null = {"schema": None, "payload": None}
    assert changes_of(({"id": 1}, None), KafkaMessage({"id": 1}, None), ({"id": 1}, null)) == []


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ({"lsn": 7}, (7,)),
        ({"file": "bin.000003", "pos": 154, "row": 0, "gtid": None}, ("bin.000003", 154, 0)),
        ({"change_lsn": "00000027:0003", "event_serial_no": 2}, ("00000027:0003", 2)),
        ({"scn": "1513734", "lsn": None}, (1513734,)),
        ({"ord": 3}, (1_000, 3)),
        ({"table": "unknown"}, ()),
    ],
)
def test_the_position_and_the_time_are_those_of_the_database(source: Any, position: Any) -> None:
    ((_, change),) = changes_of(({"id": 1}, event("c", None, row(1), ts_ms=1_000, **source)))
    assert (change.position, change.ts) == (position, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))


def test_a_key_of_several_columns_is_the_text_that_key_on_makes() -> None:
    after = {"tenant": "acme", "day": date(2026, 1, 2), "n": 1}
    key = {"tenant": "acme", "day": date(2026, 1, 2)}
    ((text, change),) = changes_of((key, event("c", None, after)))
    keyed = run_once([after], lambda rows: op.key_on("by", rows, ["tenant", "day"]))
    assert text == change.key == keyed[0][0] == '["acme","2026-01-02"]'


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (({"id": 1}, {"id": 1, "name": "a"}), "no event of a row, which has op"),
        (({"id": 1}, {"op": "m", "source": POSTGRES, "message": {}}), "no event of a row"),
        (({"id": 1}, {"op": "c", "after": row(1)}), "no event of a row"),
        (({"id": 1}, event("u", row(1))), "no event of a row, .* and a row: got"),
        (({"id": 1}, "text"), "no event of a row"),
        ((None, event("c", None, row(1))), "has no key with fields, got None: give the table a"),
        (("1", event("c", None, row(1))), "has no key with fields, got '1'"),
        (({"x": 0.5}, event("c", None, row(1))), "float"),
        ((None, event("t")), "the table was truncated, and the event names no rows"),
    ],
)
def test_what_is_no_change_of_a_row_is_an_error(item: Any, problem: str) -> None:
    with pytest.raises(StepError, match=rf"(?s)step 'changes'.*{problem}"):
        changes_of(item)


def test_a_truncation_can_be_skipped() -> None:
    truncated = (None, event("t"))
    kept = ({"id": 1}, event("c", None, row(1)))
    assert len(changes_of(kept, truncated, on_truncate="skip")) == 1
    with pytest.raises(FlowBuildError, match="on_truncate must be 'fail' or 'skip', got 'delete'"):
        changes_of(kept, on_truncate="delete")


def test_changes_make_a_table_to_look_up() -> None:
    flow = Dataflow("table")
    changes = op.debezium("changes", op.input("events", flow, TestingSource([])))
    names = op.table("names", op.map_value("after", changes, lambda change: change.after))
    ids = op.input("ids", flow, TestingSource([]))
    found = op.map_with("name", ids, names, lambda key, table: (table.get(key) or {}).get("name"))
    op.output("out", found, TestingSink([]))
    driver = TestDriver(flow)
    driver.send("events", [({"id": 1}, event("r", None, row(1, "a")))])
    driver.send("ids", ["1", "2"])
    assert driver.take("out") == ["a", None]
    driver.send("events", [({"id": 1}, event("d", row(1))), ({"id": 1}, None)])
    driver.send("ids", ["1"])
    assert driver.take("out") == [None]


# --- a real server ------------------------------------------------------------------------------

TABLE = """
CREATE TABLE items (
    tenant text, id bigint, name text, price numeric(10, 2), PRIMARY KEY (tenant, id)
)
"""


def random_statements(random: Random, count: int) -> Iterator[str]:
    """Yield statements that insert, update, rename and delete rows of few keys."""
    for number in range(count):
        tenant, key, other = random.choice("ab"), random.randrange(6), random.randrange(6, 9)
        where = f"WHERE tenant = '{tenant}' AND id = {key}"
        name = random.choice(["NULL", f"'n{number} é\"'"])
        yield random.choice(
            [
                f"INSERT INTO items VALUES ('{tenant}', {key}, {name}, {number}.5) "
                "ON CONFLICT (tenant, id) DO UPDATE SET name = excluded.name",
                f"UPDATE items SET price = {number}, name = {name} {where}",
                f"UPDATE items SET id = {other} {where} AND NOT EXISTS "
                f"(SELECT FROM items WHERE tenant = '{tenant}' AND id = {other})",
                f"DELETE FROM items {where}",
            ]
        )


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_the_rows_of_a_sink_are_those_of_the_table_after_kills_of_debezium(
    identity: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Statements before, while and after Debezium reads, and between two of its runs."""
    random = Random(7)
    with logging_server() as server, server.connect() as database:
        database.execute(TABLE)
        database.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}".encode())
        debezium = Debezium(server, "public.items", tmp_path)
        for turn in range(3):
            for statement in random_statements(random, 60):
                database.execute(statement.encode())
            database.execute(f"INSERT INTO items VALUES ('before', {turn})".encode())
            with debezium.running():
                debezium.wait_for({"tenant": "before", "id": turn})
                for statement in random_statements(random, 60):
                    database.execute(statement.encode())
                database.execute(f"INSERT INTO items VALUES ('after', {turn})".encode())
                debezium.wait_for({"tenant": "after", "id": turn})
                debezium.wait_for_offsets()
        rows = database.execute("SELECT tenant, id, name, price::text FROM items").fetchall()
    events = debezium.pairs()
    assert {value["op"] for _, value in events if value} == {"r", "c", "u", "d"}

    out = tmp_path / "out.db"
    columns = {"tenant": pa.string(), "id": pa.int64(), "name": pa.string(), "price": pa.string()}
    sink = SqliteSink(out, "items", schema=columns, mode="upsert", key=["tenant", "id"])
    flow = Dataflow("replica")
    changes = op.debezium("changes", op.input("events", flow, TestingSource(events)))
    op.output("items", op.map("row", op.key_rm("change", changes), as_row), sink)
    run(flow, spark=spark)
    with closing(sqlite3.connect(out)) as copy:
        assert sorted(copy.execute("SELECT * FROM items")) == sorted(rows)


def as_row(change: Change) -> Any:
    return Delete(change.before) if change.after is None else change.after
