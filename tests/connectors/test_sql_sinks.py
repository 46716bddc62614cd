"""SQL sinks on every database, driven as an engine drives them: open, write, commit, run again."""

from __future__ import annotations

import pickle
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from flow.connectors.sink import Guarantee
from flow.connectors.sql import Delete
from flow.connectors.sql.ledger import Ledger
from flow.connectors.sql.rows import CHUNK_ROWS
from flow.connectors.sql.table_sink import TableSink
from flow.errors import FlowBuildError, FlowTypeError, SinkError, StepError
from flow_windowing import WindowMetadata
from tests.support.databases import (
    OTHER,
    RUN,
    Postgres,
    Sqlite,
    TestDatabase,
    opened,
    publish,
    write,
)

MARKS = ("run", "epoch")
MARKED = {"schema": "n bigint", "epoch_columns": MARKS}
UPSERT = {"schema": "k text PRIMARY KEY, n bigint", "mode": "upsert", "key": "k"}


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> TestDatabase:
    return Sqlite(tmp_path / "out.db") if request.param == "sqlite" else Postgres()


def ns(*numbers: int) -> list[dict[str, int]]:
    """Records with a column n."""
    return [{"n": number} for number in numbers]


def kn(**numbers: int | None) -> list[dict[str, Any]]:
    """Records with the columns k and n."""
    return [{"k": key, "n": number} for key, number in numbers.items()]


def epochs(db: TestDatabase) -> list[tuple[Any, ...]]:
    """What the table of epochs says."""
    return db.rows("_flow_epochs", "sink, run_id, epoch")


def open_once(*sinks: Any) -> None:
    with opened(*sinks):
        pass


def full(db: TestDatabase, table: str = "t") -> str:
    """The name by which the table of epochs knows a table."""
    return f"{db.schema}.{table}" if isinstance(db, Postgres) else table


# --- epochs --------------------------------------------------------------------------------------


def test_an_epoch_is_there_with_its_number_once_it_is_committed(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        messages = [write(sink, 0, ns(1, 2)), write(sink, 0, ns(3), partition=1)]
        assert db.rows() == []
        assert epochs(db) == [(full(db), RUN, None)]
        sink.commit(0, messages)
        assert db.rows() == [(1,), (2,), (3,)]
        assert epochs(db) == [(full(db), RUN, 0)]
        publish(sink, 1, ns(4))
    assert db.rows() == [(1,), (2,), (3,), (4,)]
    assert epochs(db) == [(full(db), RUN, 1)]
    assert sink.guarantee is Guarantee.EXACTLY_ONCE


#  run     1           2
#  epoch   0  1        1  2
#  commit  x  x crash  x  x
def test_an_epoch_that_is_run_again_is_written_once(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 0, ns(1))
        publish(sink, 1, ns(2))
        publish(sink, 1, ns(2))
    assert db.rows() == [(1,), (2,)]
    again = db.sink(schema="n bigint")
    with opened(again, resuming=True):
        publish(again, 1, ns(2))
        publish(again, 2, ns(3))
    assert db.rows() == [(1,), (2,), (3,)]


def test_with_epoch_columns_an_epoch_that_is_run_again_replaces_itself(db: TestDatabase) -> None:
    sink = db.sink(**MARKED)
    with opened(sink, run=OTHER):
        publish(sink, 1, ns(100), run=OTHER)
    with opened(sink):
        publish(sink, 0, ns(1))
        publish(sink, 1, ns(2, 3))
        publish(sink, 1, ns(2, 4))
        assert db.rows(columns="n, run, epoch") == [
            (1, RUN, 0),
            (2, RUN, 1),
            (4, RUN, 1),
            (100, OTHER, 1),
        ]
        publish(sink, 1)
    assert db.rows(columns="n, run, epoch") == [(1, RUN, 0), (100, OTHER, 1)]


@pytest.mark.parametrize("bad", [(1, 7, 2), (2, 7)])
def test_an_epoch_of_which_one_row_is_refused_leaves_nothing(
    db: TestDatabase, bad: tuple[int, ...]
) -> None:
    """A row that is there already comes in the middle of the epoch, or of its second partition."""
    sink = db.sink(schema="n bigint PRIMARY KEY")
    with opened(sink):
        publish(sink, 0, ns(7))
        messages = [write(sink, 1, ns(3)), write(sink, 1, ns(*bad), partition=1)]
        with pytest.raises(SinkError, match=r"step 'out': epoch 1 could not be written to") as it:
            sink.commit(1, messages)
        assert ("(n)=(7)" if isinstance(db, Postgres) else "row: (7,)") in str(it.value)
        assert db.rows() == [(7,)]
        assert epochs(db) == [(full(db), RUN, 0)]
        publish(sink, 1, ns(3, 4))
    assert db.rows() == [(3,), (4,), (7,)]


def test_an_epoch_without_rows_changes_nothing(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 0, ns(1))
        publish(sink, 1)
        publish(sink, 2, [])
        assert epochs(db) == [(full(db), RUN, 0)]
        publish(sink, 5, ns(2))
    assert db.rows() == [(1,), (2,)]
    assert epochs(db) == [(full(db), RUN, 5)]


def test_a_run_that_was_set_back_is_refused_where_rows_cannot_be_told_apart(
    db: TestDatabase,
) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        for epoch in range(4):
            publish(sink, epoch, ns(epoch))
    with opened(sink, resuming=True):
        with pytest.raises(SinkError, match=r"up to epoch 3, and the run was set back to 2: rows"):
            publish(sink, 2, ns(2))
        assert db.rows() == [(0,), (1,), (2,), (3,)]
        assert epochs(db) == [(full(db), RUN, 3)]


#  run     1                       2, set back by one epoch, which takes more now
#  epoch   0: 1   1: 2             1: 2 3
@pytest.mark.parametrize("now", [[2, 3], []])
def test_an_epoch_that_was_set_back_to_and_has_other_rows_is_refused_and_not_left_out(
    db: TestDatabase, now: list[int]
) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 0, ns(1))
        publish(sink, 1, ns(2))
    message = f"holds 1 rows of epoch 1 of this run, which has {len(now)} now: rows would"
    with opened(sink, resuming=True), pytest.raises(SinkError, match=message):
        publish(sink, 1, ns(*now))
    assert db.rows() == [(1,), (2,)]


#  run     1                       2, set back by one epoch, which holds as many others now
#  epoch   0: 1   1: 2 3           1: 2 4
@pytest.mark.parametrize("now", [[{"n": 2}, {"n": 4}], [{"n": 2}, {"m": 3}], [{"n": 2}] * 2])
def test_an_epoch_that_was_set_back_to_and_has_as_many_other_rows_is_refused(
    db: TestDatabase, now: list[Any]
) -> None:
    sink = db.sink(schema="n bigint, m bigint")
    with opened(sink):
        publish(sink, 0, ns(1))
        publish(sink, 1, ns(2, 3))
    message = "holds 2 rows of epoch 1 of this run, which has other ones now: rows would"
    with opened(sink, resuming=True), pytest.raises(SinkError, match=message):
        publish(sink, 1, now)
    assert db.rows(columns="n") == [(1,), (2,), (3,)]


def test_the_same_rows_in_another_order_and_from_other_workers_are_not_written_twice(
    db: TestDatabase,
) -> None:
    sink = db.sink(schema="n bigint, k text")
    with opened(sink):
        publish(sink, 0, [*kn(a=1, b=2), {"n": 3}], kn(c=3))
        publish(sink, 0, kn(c=3), [{"n": 2, "k": "b"}], [{"n": 3}, *kn(a=1)])
    assert db.rows() == [(1, "a"), (2, "b"), (3, None), (3, "c")]


def test_rows_that_a_function_made_anew_can_be_left_out_as_the_refusal_says(
    db: TestDatabase,
) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 0, ns(1, 2))
        with pytest.raises(SinkError) as caught:
            publish(sink, 0, ns(1, 3))
    db.ask(str(caught.value).splitlines()[-1].strip())
    with opened(sink, resuming=True):
        publish(sink, 0, ns(1, 3))
        publish(sink, 1, ns(4))
        with pytest.raises(SinkError, match=r"holds 1 rows of epoch 1 .* which has other ones now"):
            publish(sink, 1, ns(5))
    assert db.rows() == [(1,), (2,), (4,)]


#  epoch   0  1 | 1  2  2     digests from the second run on
def test_a_table_of_epochs_without_digests_gets_them_with_the_next_epoch(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 0, ns(0))
        publish(sink, 1, ns(1))
    db.ask("ALTER TABLE _flow_epochs DROP COLUMN row_digest")
    with opened(sink, resuming=True):
        publish(sink, 1, ns(1))
        publish(sink, 2, ns(2))
        publish(sink, 2, ns(2))
        with pytest.raises(SinkError, match=r"holds 1 rows of epoch 2 .* which has other ones now"):
            publish(sink, 2, ns(3))
    assert db.rows() == [(0,), (1,), (2,)]
    assert epochs(db) == [(full(db), RUN, 2)]


@pytest.mark.parametrize("table", ["t", "ann's"])
def test_what_the_refusal_says_is_a_way_to_go_on(db: TestDatabase, table: str) -> None:
    sink = db.sink(table, schema="n bigint")
    with opened(sink):
        for epoch in range(4):
            publish(sink, epoch, ns(epoch))
        with pytest.raises(SinkError) as caught:
            publish(sink, 2, ns(2))
    (statement,) = (line for line in str(caught.value).splitlines() if "DELETE FROM" in line)
    db.ask(f'DELETE FROM "{table}" WHERE n >= 2')
    db.ask(statement.strip())
    with opened(sink, resuming=True):
        publish(sink, 2, ns(2))
        publish(sink, 3, ns(3))
    assert db.rows(f'"{table}"') == [(0,), (1,), (2,), (3,)]


def test_with_epoch_columns_a_run_that_was_set_back_removes_what_it_wrote_since(
    db: TestDatabase,
) -> None:
    sink = db.sink(**MARKED)
    with opened(sink, run=OTHER):
        publish(sink, 3, ns(100), run=OTHER)
    with opened(sink):
        for epoch in range(4):
            publish(sink, epoch, ns(epoch))
    with opened(sink, resuming=True):
        publish(sink, 1, ns(11))
        assert db.rows(columns="n, epoch") == [(0, 0), (11, 1), (100, 3)]
        assert epochs(db) == [(full(db), RUN, 1), (full(db), OTHER, 3)]
        publish(sink, 2, ns(12))
    assert db.rows(columns="n, epoch") == [(0, 0), (11, 1), (12, 2), (100, 3)]


def test_a_run_that_was_set_back_to_an_epoch_without_rows_removes_them_too(
    db: TestDatabase,
) -> None:
    sink = db.sink(**MARKED)
    with opened(sink):
        for epoch in range(3):
            publish(sink, epoch, ns(epoch))
        publish(sink, 1)
        assert db.rows(columns="n") == [(0,)]
        publish(sink, 2, ns(12))
    assert db.rows(columns="n") == [(0,), (12,)]


#  epoch   0  1 | 2  3     columns from epoch 2 on
def test_rows_from_before_there_were_epoch_columns_are_not_written_twice(db: TestDatabase) -> None:
    plain = db.sink(schema="n bigint")
    with opened(plain):
        publish(plain, 0, ns(0))
        publish(plain, 1, ns(1))
    db.ask("ALTER TABLE t ADD COLUMN run text")
    db.ask("ALTER TABLE t ADD COLUMN epoch bigint")
    sink = db.sink(**MARKED)
    with opened(sink, resuming=True):
        publish(sink, 1, ns(1))
        publish(sink, 2, ns(2))
        publish(sink, 3, ns(3))
        with pytest.raises(SinkError, match="set back to 1"):
            publish(sink, 1, ns(1))
        publish(sink, 2, ns(12))
    assert db.rows(columns="n") == [(0,), (1,), (12,)]


def test_rows_from_after_epoch_columns_were_given_up_are_not_written_twice(
    db: TestDatabase,
) -> None:
    sink, plain = db.sink(**MARKED), db.sink()
    with opened(sink):
        publish(sink, 0, ns(0))
    with opened(plain, resuming=True):
        publish(plain, 1, ns(1))
    with opened(sink, resuming=True):
        with pytest.raises(SinkError, match="set back to 0"):
            publish(sink, 0, ns(0))
        publish(sink, 2, ns(2))
    assert db.rows(columns="n") == [(0,), (1,), (2,)]


def test_another_run_adds_its_rows(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 4, ns(1))
    with opened(sink, run=OTHER):
        publish(sink, 0, ns(2), run=OTHER)
    with opened(sink, resuming=True):
        publish(sink, 4, ns(1))
        publish(sink, 5, ns(3))
    assert db.rows() == [(1,), (2,), (3,)]
    assert epochs(db) == [(full(db), RUN, 5), (full(db), OTHER, 0)]


# --- who writes ----------------------------------------------------------------------------------


def test_two_outputs_of_a_flow_have_epochs_of_their_own(db: TestDatabase) -> None:
    one, two = db.sink("one", schema="n bigint"), db.sink("two", schema="n bigint")
    with opened(one, two):
        publish(one, 0, ns(1))
    with opened(one, two, resuming=True):
        publish(one, 0, ns(1))
        publish(two, 0, ns(2))
    assert (db.rows("one"), db.rows("two")) == ([(1,)], [(2,)])
    assert epochs(db) == [(full(db, "one"), RUN, 0), (full(db, "two"), RUN, 0)]


def test_two_outputs_of_a_flow_cannot_write_to_one_table(db: TestDatabase) -> None:
    """Else the second would take the number of the first for its own, and write nothing."""
    one, two = db.sink(schema="n bigint"), db.sink(schema="n bigint")
    problem = "for the same run by another output of the flow"
    with opened(one, two), pytest.raises(SinkError, match=problem):
        publish(one, 0, ns(1))
    assert db.rows() == []


def test_one_sink_cannot_be_that_of_two_outputs(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with pytest.raises(SinkError, match="is the sink of several outputs: merge their streams"):
        open_once(sink, sink)
    with opened(sink):
        publish(sink, 0, ns(1))
    assert db.rows() == [(1,)]


def test_a_process_whose_checkpoint_another_one_has_taken_up_writes_no_more(
    db: TestDatabase,
) -> None:
    thought_dead, alive = db.sink(schema="n bigint"), db.sink()
    with opened(thought_dead):
        publish(thought_dead, 0, ns(0))
        with opened(alive, resuming=True):
            with pytest.raises(SinkError, match="by another process on the same checkpoint"):
                publish(thought_dead, 1, ns(1))
            publish(alive, 1, ns(1))
    assert db.rows() == [(0,), (1,)]


def test_whoever_takes_up_a_run_waits_for_the_epoch_that_is_being_written(
    db: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    thought_dead, alive = db.sink(schema="n bigint"), db.sink()
    write_chunk = TableSink._write_chunk
    waited: list[bool] = []

    with ThreadPoolExecutor(1) as other_process, opened(thought_dead):

        def slowly(*arguments: Any) -> None:
            write_chunk(*arguments)
            opening.append(other_process.submit(alive.open, RUN, True))
            waited.append(wait(opening, timeout=0.5).not_done != set())

        opening: list[Future[None]] = []
        with monkeypatch.context() as patch:
            patch.setattr(TableSink, "_write_chunk", slowly)
            publish(thought_dead, 0, ns(0))
        opening[0].result()
        publish(alive, 0, ns(0))
        publish(alive, 1, ns(1))
        alive.close()
    assert waited == [True]
    assert db.rows() == [(0,), (1,)]


def test_two_flows_may_make_their_tables_at_the_same_time(
    db: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Ledger.claim

    def slowly(*arguments: Any) -> None:
        claim(*arguments)
        time.sleep(0.3)

    monkeypatch.setattr(Ledger, "claim", slowly)
    one, two = db.sink(schema="n bigint"), db.sink(schema="n bigint")
    with ThreadPoolExecutor(2) as processes:
        for opening in [
            processes.submit(one.open, RUN, False),
            processes.submit(two.open, OTHER, False),
        ]:
            opening.result()
    publish(one, 0, ns(1))
    publish(two, 0, ns(2), run=OTHER)
    one.close()
    two.close()
    assert db.rows() == [(1,), (2,)]


def test_an_epoch_may_be_committed_in_another_thread(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink), ThreadPoolExecutor(1) as threads:
        threads.submit(publish, sink, 0, ns(1)).result()
    assert db.rows() == [(1,)]


def test_a_sink_that_is_not_open_does_not_commit(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    sink.close()
    with pytest.raises(SinkError, match="is not open"):
        publish(sink, 0, ns(1))
    with opened(sink):
        pass
    with pytest.raises(SinkError, match="is not open"):
        publish(sink, 0, ns(1))


# --- upsert --------------------------------------------------------------------------------------


def test_upsert_keeps_the_last_row_of_each_key(db: TestDatabase) -> None:
    sink = db.sink(**UPSERT)
    with opened(sink):
        publish(sink, 0, [*kn(a=1, b=2), *kn(a=3)], kn(c=4))
        assert db.rows() == [("a", 3), ("b", 2), ("c", 4)]
        publish(sink, 1, kn(b=5, d=None))
    assert db.rows() == [("a", 3), ("b", 5), ("c", 4), ("d", None)]


def test_upsert_writes_an_epoch_over_itself_and_takes_a_run_that_was_set_back(
    db: TestDatabase,
) -> None:
    sink = db.sink(**UPSERT)
    with opened(sink):
        publish(sink, 0, kn(a=1))
        publish(sink, 1, kn(a=2, b=1))
        publish(sink, 2, kn(a=3))
    with opened(sink, resuming=True):
        publish(sink, 1, kn(a=20, b=1))
        assert db.rows() == [("a", 20), ("b", 1)]
        publish(sink, 2, kn(a=30))
    assert db.rows() == [("a", 30), ("b", 1)]
    assert epochs(db) == [(full(db), RUN, 2)]


def test_delete_takes_a_row_out_in_its_turn(db: TestDatabase) -> None:
    sink = db.sink(**UPSERT)
    with opened(sink):
        publish(sink, 0, kn(a=1, b=1, c=1))
        items = [Delete({"k": "a", "n": 9}), *kn(b=2), Delete({"k": "b"}), Delete({"k": "c"})]
        publish(sink, 1, [*items, *kn(c=2), Delete({"k": "never there"})])
    assert db.rows() == [("c", 2)]


def test_a_key_may_have_several_columns_and_be_all_there_is(db: TestDatabase) -> None:
    schema = pa.schema([("b", pa.int64()), ("a", pa.string())])
    sink = db.sink(schema=schema, mode="upsert", key=["a", "b"])
    with opened(sink):
        publish(sink, 0, [{"a": "x", "b": 1}, {"a": "x", "b": 2}, {"b": 1, "a": "x"}])
        publish(sink, 1, [Delete({"b": 2, "a": "x"})])
    assert db.rows(columns="a, b") == [("x", 1)]


def test_upsert_leaves_columns_alone_that_a_record_lacks(db: TestDatabase) -> None:
    sink = db.sink(schema="k text PRIMARY KEY, n bigint, m bigint", mode="upsert", key="k")
    with opened(sink):
        publish(sink, 0, [{"k": "a", "n": 1, "m": 1}, {"k": "a", "m": 2}])
    assert db.rows() == [("a", 1, 2)]


#  a     put x=1   delete          put y=5
#  b     put x=2          put x=1           put y=6
def test_upserts_and_deletes_are_done_in_order_whatever_columns_they_have(
    db: TestDatabase,
) -> None:
    """That `b` may have the 1 of `a` once `a` is gone is also a matter of order."""
    schema = "k text PRIMARY KEY, x bigint UNIQUE, y bigint DEFAULT -1"
    sink = db.sink(schema=schema, mode="upsert", key="k")
    with opened(sink):
        first = [{"k": "a", "x": 1}, {"x": 2, "k": "b"}, Delete({"k": "a"}), {"k": "b", "x": 1}]
        publish(sink, 0, [*first, {"k": "a", "y": 5}, {"y": 6, "k": "b"}])
    assert db.rows() == [("a", None, 5), ("b", 1, 6)]


def test_upsert_needs_a_unique_key(db: TestDatabase) -> None:
    sink = db.sink(schema="k text, n bigint", mode="upsert", key="k")
    message = r"mode='upsert': a primary key or a unique index on exactly its key columns \('k',\)"
    with pytest.raises(SinkError, match=message):
        open_once(sink)
    db.ask("CREATE TABLE t (k text, n bigint)")
    db.ask("CREATE UNIQUE INDEX by_k ON t (k)")
    with opened(sink):
        publish(sink, 0, kn(a=1))
    assert db.rows() == [("a", 1)]


# --- tables and columns --------------------------------------------------------------------------


def test_a_table_that_is_missing_is_made_from_a_schema(db: TestDatabase) -> None:
    schema = {"k": pa.string(), "n": pa.int32()}
    sink = db.sink(schema=schema, mode="upsert", key="k")
    with opened(sink):
        publish(sink, 0, kn(a=1))
        publish(sink, 1, kn(a=2))
    assert db.rows() == [("a", 2)]


def test_a_schema_can_forbid_nulls(db: TestDatabase) -> None:
    schema = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64(), nullable=False)])
    sink = db.sink(schema=schema)
    with opened(sink), pytest.raises(SinkError, match=r"(?i)not.null"):
        publish(sink, 0, kn(a=1, b=None))
    assert db.rows() == []


def test_a_table_that_is_there_stays_as_it_is(db: TestDatabase) -> None:
    db.ask("CREATE TABLE t (n bigint, made text DEFAULT 'by hand')")
    sink = db.sink(schema={"something": pa.string(), "else": pa.int8()})
    with opened(sink):
        publish(sink, 0, ns(1))
    assert db.rows() == [(1, "by hand")]


def test_a_table_that_is_missing_without_a_schema_is_an_error(db: TestDatabase) -> None:
    sink = db.sink("nowhere")
    with pytest.raises(SinkError, match=r"table 'nowhere' of .* does not exist: make it, or give"):
        open_once(sink)


def test_a_schema_that_the_database_refuses_is_an_error_and_makes_nothing(
    db: TestDatabase,
) -> None:
    sink = db.sink(schema="n bigint, n text")
    with pytest.raises(SinkError, match=r"table 't' of .* cannot be opened: .*n"):
        open_once(sink)
    db.ask("CREATE TABLE t (n bigint)")
    with opened(sink):
        publish(sink, 0, ns(1))
    assert db.rows() == [(1,)]


def test_columns_that_the_sink_needs_must_be_there(db: TestDatabase) -> None:
    db.ask("CREATE TABLE t (n bigint, run text)")
    sink = db.sink(epoch_columns=MARKS)
    with pytest.raises(SinkError, match=r"has no column 'epoch', its columns are \['n', 'run'\]"):
        open_once(sink)


def test_a_column_that_the_table_lacks_is_an_error_that_names_both(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint, m bigint")
    message = r"step 'out': table 't' of .* has no column 'o', its columns are \['n', 'm'\]: map"
    with opened(sink), pytest.raises(SinkError, match=message):
        publish(sink, 0, [{"n": 1}, {"n": 2, "o": 3}])
    assert db.rows() == []


def test_a_column_that_a_record_lacks_gets_its_default(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint, m bigint DEFAULT 7, k text")
    with opened(sink):
        publish(sink, 0, [{"n": 1}, {"k": "a", "n": 2}, {"n": 3, "m": 4}, {"n": 5}])
    assert db.rows() == [(1, 7, None), (2, 7, "a"), (3, 4, None), (5, 7, None)]


def test_more_rows_than_are_unpacked_at_a_time_are_all_there(db: TestDatabase) -> None:
    count = 2 * CHUNK_ROWS + 1
    sink = db.sink(schema="n bigint")
    with opened(sink):
        message = write(sink, 0, ns(*range(count)))
        assert [chunk.count for chunk in message] == [CHUNK_ROWS, CHUNK_ROWS, 1]
        sink.commit(0, [message])
    assert db.ask("SELECT count(*), sum(n) FROM t") == [(count, count * (count - 1) // 2)]


def alternating(count: int) -> list[dict[str, int]]:
    """Records of which every other one lacks a column."""
    return [{"n": n, "m": n} if n % 2 else {"n": n} for n in range(count)]


def test_rows_with_different_columns_travel_together(db: TestDatabase) -> None:
    sink = db.sink()
    chunks = write(sink, 0, alternating(CHUNK_ROWS + 2))
    assert [chunk.count for chunk in chunks] == [CHUNK_ROWS, 2]


def test_rows_whose_fields_have_another_order_are_alike(db: TestDatabase) -> None:
    (chunk,) = write(db.sink(), 0, [{"n": 1, "k": "a"}, {"k": "b", "n": 2}, Pair("c", 3)])
    assert [(some.columns, len(some.rows)) for some in chunk.unpacked()] == [(("k", "n"), 3)]


@pytest.mark.parametrize("stretch", [1, 20])
def test_rows_are_inserted_in_order_whatever_columns_they_have(
    db: TestDatabase, stretch: int
) -> None:
    identity = " GENERATED ALWAYS AS IDENTITY" if isinstance(db, Postgres) else ""
    sink = db.sink(schema=f"id integer PRIMARY KEY{identity}, n bigint, m bigint DEFAULT -1")
    records = [{"n": n, "m": n} if n // stretch % 2 else {"n": n} for n in range(100)]
    with opened(sink):
        publish(sink, 0, records)
    assert db.rows(columns="id, n, m") == [
        (n + 1, n, n if n // stretch % 2 else -1) for n in range(100)
    ]


def test_a_row_that_is_refused_among_others_with_other_columns_leaves_nothing(
    db: TestDatabase,
) -> None:
    sink = db.sink(schema="n bigint PRIMARY KEY, m bigint")
    problem = r"\(n\)=\(4\)" if isinstance(db, Postgres) else r"row: \(4,\)"
    with opened(sink):
        with pytest.raises(SinkError, match=rf"(?s)step 'out': epoch 0 could not .*{problem}"):
            publish(sink, 0, [*alternating(9), {"n": 4}, *alternating(9)])
        assert db.rows() == []
        publish(sink, 0, alternating(3))
    assert db.rows() == [(0, None), (1, 1), (2, None)]


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


def test_epoch_columns_can_have_any_name(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint", epoch_columns=("the %run", 'the "epoch"'))
    with opened(sink):
        publish(sink, 0, ns(1))
        publish(sink, 0, ns(2))
    assert db.rows(columns='n, "the %run", "the ""epoch"""') == [(2, RUN, 0)]


# --- items ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    n: int


class Pair(NamedTuple):
    k: str
    n: int


def test_records_are_mappings_dataclasses_named_tuples_and_rows_of_batches(
    db: TestDatabase,
) -> None:
    batch = pa.record_batch({"k": ["b", None], "n": [3, 4]})
    sink = db.sink(schema="n bigint, k text")
    with opened(sink):
        sink.commit(0, [write(sink, 0, [Reading(1), Pair("a", 2)], batch, [{"n": 5}])])
    assert db.rows() == [(1, None), (2, "a"), (3, "b"), (4, None), (5, None)]


HOUR = WindowMetadata(
    0, datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=UTC), frozenset()
)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (7, "this item is a int: map the items to dicts"),
        ("text", "this item is a str"),
        (("LHR", (HOUR, 3)), "this item is a tuple: map the items to dicts"),
        (("LHR", {"n": 3}), "this item is a tuple"),
        (None, "this item is a NoneType"),
        (Reading, "this item is a type"),
        ({}, "the record has no field to write"),
        ({"n": 1, 2: 3}, "the names of columns are text, got 2"),
        ({"n": 1, "epoch": 3}, "the sink itself fills column 'epoch'"),
        (Delete({"n": 1}), "a Delete needs a sink with mode='upsert'"),
    ],
)
def test_what_is_no_record_is_an_error_that_shows_the_item(
    db: TestDatabase, item: Any, problem: str
) -> None:
    sink = db.sink(**MARKED)
    with pytest.raises(StepError, match=problem) as caught:
        write(sink, 0, [{"n": 1}, item])
    assert caught.value.step_id == "out"
    assert "item: " in str(caught.value)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"n": 1}, "the record lacks column 'k' of the key"),
        ({"k": None, "n": 1}, r"a column of the key \('k',\) is None"),
        (Delete({"n": 1}), "the record lacks column 'k' of the key"),
        (Delete({"k": None}), r"a column of the key \('k',\) is None"),
        (Delete(7), "this item is a int"),
    ],
)
def test_a_record_without_its_key_is_an_error(db: TestDatabase, item: Any, problem: str) -> None:
    with pytest.raises(StepError, match=problem):
        write(db.sink(**UPSERT), 0, [{"k": "a", "n": 1}, item])


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "replace"}, "mode must be one of 'insert', 'upsert', got 'replace'"),
        ({"mode": "upsert"}, "give both or neither, got mode='upsert' and key=\\(\\)"),
        ({"key": "k"}, "give both or neither, got mode='insert'"),
        ({"mode": "upsert", "key": ("k", "k")}, "key must name each column once"),
        ({"epoch_columns": ("run",)}, "epoch_columns must name two columns"),
        ({"epoch_columns": ("run", "run")}, "epoch_columns must name each column once"),
        ({**UPSERT, "epoch_columns": MARKS}, "epoch_columns are for mode='insert'"),
        ({"schema": " "}, "schema must have columns, got empty text"),
        ({"schema": {}}, "schema must have columns, each name once"),
        ({"schema": {"at": pa.timestamp("us")}}, "column 'at' is timestamp.* needs a time zone"),
        ({"schema": {"x": pa.null()}}, "column 'x' is null, for which no type of column is known"),
        ({"schema": {"epoch": pa.int64()}, "epoch_columns": MARKS}, "one of epoch_columns"),
        ({"schema": {"n": pa.int64()}, "mode": "upsert", "key": "k"}, "'k' is not in the schema"),
    ],
)
def test_what_does_not_fit_is_said_when_the_sink_is_made(
    db: TestDatabase, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(FlowBuildError) as caught:
        db.sink(**options)
    assert re.search(problem, str(caught.value))


@pytest.mark.parametrize(
    "options", [{"key": 3}, {"key": ["a", ""]}, {"epoch_columns": 5}, {"schema": 7}, {"table": ""}]
)
def test_arguments_of_the_wrong_type_are_errors(db: TestDatabase, options: dict[str, Any]) -> None:
    with pytest.raises(FlowTypeError):
        db.sink(**options)


def test_a_sink_is_a_value(db: TestDatabase) -> None:
    options: dict[str, Any] = {"mode": "upsert", "key": "n", "schema": {"n": pa.int64()}}
    sink = db.sink(**options)
    assert sink == db.sink(**options)
    assert hash(sink) == hash(db.sink(**options))
    assert sink != db.sink("other", **options)
    assert ", table='t', mode='upsert', key=('n',), schema=n: int64)" in repr(sink)


def test_an_open_sink_travels_without_its_connection(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        copy = pickle.loads(pickle.dumps(sink))
        with pytest.raises(SinkError, match="is not open"):
            copy.commit(0, [])
        publish(sink, 0, ns(1))
    assert db.rows() == [(1,)]
