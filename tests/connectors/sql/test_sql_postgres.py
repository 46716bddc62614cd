"""Features of PostgreSQL alone: passwords, schemas, rights and a server that stops."""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from flow.connectors.sql import PostgresSink
from flow.connectors.sql.postgres import PostgresDatabase
from flow.errors import EnvironmentProblem, FlowBuildError, FlowTypeError, SinkError
from flow.visualize import to_json, to_mermaid
from tests.support.databases import Postgres, ns, opened, rows_after, run_epochs
from tests.support.one_stream import a_flow, as_read
from tests.support.postgres import PASSWORD, TELLTALE
from tests.support.programs import printed_by
from tests.support.writing import RUN, publish, write


@pytest.fixture
def db() -> Postgres:
    return Postgres()


# --- the server goes away ------------------------------------------------------------------------


@pytest.fixture
def restarted(db: Postgres) -> Iterator[None]:
    """Whatever happens, the server runs again afterwards."""
    yield
    db.server.stop()
    db.server.start()


@pytest.mark.usefixtures("restarted")
def test_a_server_that_stops_within_an_epoch_fails_the_run_and_the_next_resumes(
    db: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 0, ns(0))
        messages = [write(sink, 1, 0, ns(1)), write(sink, 1, 1, ns(2))]
        load = PostgresDatabase.load

        def load_and_stop(*arguments: Any) -> None:
            load(*arguments)
            db.server.stop()

        with monkeypatch.context() as patch:
            patch.setattr(PostgresDatabase, "load", load_and_stop)
            with pytest.raises(SinkError, match="step 'out': epoch 1 could not be written") as it:
                sink.commit(1, messages)
    assert_hidden(it.value)
    db.server.start()
    assert db.rows() == [(0,)]
    with opened(sink, resuming=True):
        publish(sink, 1, ns(1), ns(2))
        publish(sink, 2, ns(3))
    assert db.rows() == [(0,), (1,), (2,), (3,)]


@pytest.mark.usefixtures("restarted")
def test_a_server_restarted_between_epochs_is_reconnected(db: Postgres) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 0, ns(0))
        db.server.stop()
        with pytest.raises(SinkError, match="epoch 1 could not be written") as caught:
            publish(sink, 1, ns(1))
        db.server.start()
        publish(sink, 1, ns(1))
        publish(sink, 1, ns(1))
    assert_hidden(caught.value)
    assert db.rows() == [(0,), (1,)]


@pytest.mark.usefixtures("restarted")
def test_an_unreachable_server_is_an_error_with_its_address(db: Postgres) -> None:
    db.server.stop()
    with pytest.raises(SinkError, match=r"(?s)^table 't' of .* cannot be opened: .*Is the server"):
        db.sink(schema="n bigint").open(RUN, False)


# --- the password --------------------------------------------------------------------------------


def assert_hidden(error: BaseException) -> None:
    assert TELLTALE not in "".join(traceback.format_exception(error))


def test_the_password_is_hidden(
    db: Postgres, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = db.sink(schema="n bigint PRIMARY KEY")
    flow = a_flow(as_read, sink=sink)
    with opened(sink):
        publish(sink, 0, ns(1))
        with pytest.raises(SinkError) as caught:
            publish(sink, 1, ns(1))
    assert_hidden(caught.value)
    (entry,) = db.rows("_flow_epochs")
    texts = [repr(sink), str(sink), repr(flow.step("out")), to_json(flow), to_mermaid(flow)]
    texts += [*map(str, entry), caplog.text, *capsys.readouterr()]
    for text in texts:
        assert TELLTALE not in str(text)
    assert "password=***" in repr(sink)


def test_the_password_is_not_sent_to_workers(db: Postgres) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        sent = pickle.dumps(sink)
    assert TELLTALE.encode() not in sent
    assert repr(pickle.loads(sent)) == repr(sink)


def test_a_wrong_password_is_hidden(db: Postgres) -> None:
    wrong = psycopg.conninfo.make_conninfo(db.server.dsn, password="another s3cr3t")
    with pytest.raises(SinkError, match="password authentication failed") as caught:
        PostgresSink(wrong, "t").open(RUN, False)
    assert_hidden(caught.value)


def test_the_password_is_removed_from_errors(db: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise psycopg.OperationalError(f"cannot connect with {PASSWORD} or {quote(PASSWORD)}")

    monkeypatch.setattr(psycopg, "connect", fail)
    with pytest.raises(SinkError, match=r"cannot connect with \*\*\* or \*\*\*") as caught:
        db.sink().open(RUN, False)
    assert_hidden(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://user:s3cr3t/%40@host/name",
        "postgresql://user:12/s3cr3t@host/name",
        "postgresql://user:a@s3cr3t@host/name",
        "host=here password=two s3cr3t",
        "host=here password='s3cr3t",
        "mysql://user:s3cr3t@host/name",
        "postgresql://user:s3cr3t%zz@host/name",
    ],
)
def test_the_error_of_an_invalid_dsn_hides_it(dsn: str) -> None:
    with pytest.raises(FlowBuildError, match="dsn cannot be read: write 'postgresql://") as caught:
        PostgresSink(dsn, "t")
    assert_hidden(caught.value)


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("", ""),
        ("postgresql://ann:p%40s@a:1,b:2/db", "user=ann password=*** dbname=db host=a,b port=1,2"),
        ("host=/run dbname=db sslpassword=x", "dbname=db host=/run sslpassword=***"),
        ("host=@abstract", "host=@abstract"),
        ("service=sales", "service=sales"),
    ],
)
def test_a_dsn_is_shown_without_its_secrets(dsn: str, shown: str) -> None:
    assert PostgresSink(dsn, "t").dsn_shown == shown


# --- tables, schemas and rights ------------------------------------------------------------------


def test_a_table_may_be_named_with_its_schema(db: Postgres) -> None:
    names: list[Any] = ["t", (db.schema, "t"), f"{db.schema}.t"]
    for epoch, name in enumerate(names):
        sink = db.sink(name, schema="n bigint")
        with opened(sink, resuming=epoch > 0):
            publish(sink, max(epoch - 1, 0), ns(max(epoch - 1, 0)))
            publish(sink, epoch, ns(epoch))
    assert db.rows() == [(0,), (1,), (2,)]
    assert db.rows("_flow_epochs", "sink, epoch") == [(f"{db.schema}.t", 2)]


def test_a_name_with_a_dot_is_written_as_a_tuple(db: Postgres) -> None:
    run_epochs(db.sink((db.schema, "a.b"), schema="n bigint"), ns(1))
    assert db.rows('"a.b"') == [(1,)]


def test_the_numbers_of_epochs_can_be_kept_in_another_schema(db: Postgres) -> None:
    db.ask(f"CREATE SCHEMA {db.schema}_own")
    sink = db.sink(schema="n bigint", epochs_schema=f"{db.schema}_own")
    with opened(sink):
        publish(sink, 0, ns(1))
        publish(sink, 0, ns(1))
    assert db.rows() == [(1,)]
    assert db.rows(f"{db.schema}_own._flow_epochs", "sink, epoch") == [(f"{db.schema}.t", 0)]
    assert db.ask("SELECT to_regclass('_flow_epochs')") == [(None,)]


def test_a_schema_that_is_missing_is_an_error(db: Postgres) -> None:
    with pytest.raises(SinkError, match='schema "nowhere" does not exist'):
        db.sink("nowhere.t", schema="n bigint").open(RUN, False)


def test_a_role_needs_no_more_rights_than_to_insert(db: Postgres) -> None:
    run_epochs(db.sink(schema="n bigint"), ns(0))
    role = f"{db.schema}_role"
    db.ask(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    db.ask(f"GRANT USAGE ON SCHEMA {db.schema} TO {role}")
    db.ask(f"GRANT INSERT ON t TO {role}")
    db.ask(f"GRANT SELECT, INSERT, UPDATE ON _flow_epochs TO {role}")
    dsn = psycopg.conninfo.make_conninfo(db.dsn, user=role, password="x")
    run_epochs(PostgresSink(dsn, "t"), ns(1), first=1)
    assert db.rows() == [(0,), (1,)]


def test_exactly_once_overrides_settings(db: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch is on the disk when it is committed, and waits for others instead of failing."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    options = "-c synchronous_commit=off -c default_transaction_isolation=serializable"
    dsn = psycopg.conninfo.make_conninfo(db.server.dsn, options=options)
    database = PostgresSink(dsn, "t").connect()
    with contextlib.closing(database), database.transaction():
        assert database.execute("SHOW synchronous_commit") == [("on",)]
        assert database.execute("SHOW transaction_isolation") == [("read committed",)]
        assert database.execute("SHOW client_encoding") == [("UTF8",)]


def test_text_is_read_as_the_type_of_its_column(db: Postgres) -> None:
    row = {"a": "10.0.0.1", "b": "00000000-0000-0000-0000-000000000001", "c": 7, "d": "2024-01-31"}
    columns = "a::text, b::text, c::text, d::text"
    found = rows_after(db, [row], columns=columns, schema="a inet, b uuid, c numeric, d date")
    assert found == [("10.0.0.1/32", row["b"], "7", "2024-01-31")]


# --- rows with different columns ---------------------------------------------------------------


@pytest.mark.parametrize(("stretch", "copied"), [(1, 0), (20, 5), (100, 1)])
def test_small_groups_of_rows_are_not_copied_separately(
    db: Postgres, monkeypatch: pytest.MonkeyPatch, stretch: int, copied: int
) -> None:
    """Each COPY is a question to the server whose answer is waited for."""
    copies: list[Any] = []
    copy = PostgresDatabase._copy
    monkeypatch.setattr(PostgresDatabase, "_copy", lambda *a: (copies.append(a), copy(*a)))
    items = [{"n": n, "m": n} if n // stretch % 2 else {"n": n} for n in range(100)]
    rows_after(db, items, schema="n bigint, m bigint")
    assert len(copies) == copied
    assert db.ask("SELECT count(*), sum(n) FROM t") == [(100, 4950)]


@pytest.mark.parametrize("items", [[{"n": 7}], [{"n": 7}, {"m": 1}]])
def test_a_generated_column_can_be_given(db: Postgres, items: Any) -> None:
    schema = "n bigint GENERATED ALWAYS AS IDENTITY, m bigint"
    assert rows_after(db, items, schema=schema) == [(1, 1), (7, None)][-len(items) :]


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["", "a.", ".b", ("a", ""), 7, ("a", 7), "a\0"])
def test_an_invalid_table_name_is_an_error(table: Any) -> None:
    with pytest.raises(FlowTypeError, match="table must be a table's name"):
        PostgresSink("", table)


def test_a_name_with_too_many_dots_is_an_error() -> None:
    with pytest.raises(FlowBuildError, match=r"'schema\.name', got 'a\.b\.c': a name with dots"):
        PostgresSink("", "a.b.c")


def test_a_dsn_must_be_text() -> None:
    with pytest.raises(FlowTypeError, match="dsn must be text, got int"):
        PostgresSink(5, "t")  # type: ignore[arg-type]


def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'flow-windows\[postgres\]'"):
        PostgresSink("host=here", "t")


def test_workers_and_users_of_sqlite_do_not_need_psycopg() -> None:
    sink = PostgresSink("host=here", "t")
    code = (
        "import pickle, sys; sys.modules['psycopg'] = None\n"
        "from flow.connectors.sink import WriteContext\n"
        f"sink = pickle.loads({pickle.dumps(sink)!r})\n"
        "chunks = sink.write(WriteContext('out', 0, 0, 'run'), iter([[{'n': 1}]]))\n"
        "print(chunks[0].unpack()[0].rows, sink)"
    )
    assert printed_by("-c", code) == "[('1',)] table 't' of 'host=here'\n"
