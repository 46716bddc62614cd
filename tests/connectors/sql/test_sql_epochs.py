"""Exactly-once epochs in tables, with failures, rewinds and concurrent writers."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from flow.connectors.sql.database import Ledger
from flow.connectors.sql.table_sink import TableSink
from flow.errors import SinkError
from tests.support.databases import (
    Postgres,
    TestDatabase,
    epochs,
    full,
    ns,
    open_once,
    opened,
    run_epochs,
)
from tests.support.writing import OTHER, RUN, publish

# --- epochs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([ns(3), ns(1, 7, 2)], id="in the middle of a partition"),
        pytest.param([ns(3), ns(2, 7)], id="in the second partition"),
        pytest.param([[{"n": 1}, {"n": 3, "m": 3}, {"n": 7}, {"m": 5, "n": 5}]], id="among others"),
    ],
)
def test_an_epoch_with_a_refused_row_writes_nothing(db: TestDatabase, bad: list[Any]) -> None:
    sink = db.sink(schema="n bigint PRIMARY KEY, m bigint")
    problem = r"\(n\)=\(7\)" if isinstance(db, Postgres) else r"row: \(7,"
    message = rf"(?s)step 'out': epoch 1 could not be written to .*{problem}"
    with opened(sink):
        publish(sink, 0, ns(7))
        with pytest.raises(SinkError, match=message):
            publish(sink, 1, *bad)
        assert db.rows(columns="n") == [(7,)]
        assert epochs(db) == [(full(db), RUN, 0)]
        publish(sink, 1, ns(3, 4))
    assert db.rows(columns="n") == [(3,), (4,), (7,)]


#  run     1                       2, set back by one epoch, which takes more now
#  epoch   0: 1   1: 2             1: 2 3
@pytest.mark.parametrize("now", [[2, 3], []])
def test_a_rewound_epoch_with_other_rows_is_refused(db: TestDatabase, now: list[int]) -> None:
    sink = db.sink(schema="n bigint")
    run_epochs(sink, ns(1), ns(2))
    message = f"holds 1 rows of epoch 1 of this run, which has {len(now)} now: rows would"
    with pytest.raises(SinkError, match=message):
        run_epochs(sink, ns(*now), first=1)
    assert db.rows() == [(1,), (2,)]


#  rewinds   0     1               1 (done again)   2
#  epoch     0  1  2 (of nothing)  2  3             2
def test_epochs_written_after_a_rewind_are_recognised(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with opened(sink):
        publish(sink, 0, ns(0))
        publish(sink, 1, ns(1))
        publish(sink, 2, ns(2), rewinds=1)
        publish(sink, 2, ns(2), rewinds=1)
        publish(sink, 3, ns(3), rewinds=1)
        with pytest.raises(SinkError, match="up to epoch 3, and the run was set back to 2: rows"):
            publish(sink, 2, ns(2), rewinds=2)
    assert db.rows() == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("table", ["t", "ann's"])
def test_a_rewound_run_is_refused_and_the_advice_works(db: TestDatabase, table: str) -> None:
    sink = db.sink(table, schema="n bigint")
    rows = [(0,), (1,), (2,), (3,)]
    run_epochs(sink, *map(ns, range(4)))
    refusal = "up to epoch 3, and the run was set back to 2: rows"
    with pytest.raises(SinkError, match=refusal) as caught:
        run_epochs(sink, ns(2), first=2)
    assert db.rows(f'"{table}"') == rows
    assert epochs(db) == [(full(db, table), RUN, 3)]
    (statement,) = (line for line in str(caught.value).splitlines() if "DELETE FROM" in line)
    db.ask(f'DELETE FROM "{table}" WHERE n >= 2')
    db.ask(statement.strip())
    run_epochs(sink, ns(2), ns(3), first=2)
    assert db.rows(f'"{table}"') == rows


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


def test_one_sink_cannot_serve_two_outputs(db: TestDatabase) -> None:
    sink = db.sink(schema="n bigint")
    with pytest.raises(SinkError, match="is the sink of several outputs: merge their streams"):
        open_once(sink, sink)
    run_epochs(sink, ns(1))
    assert db.rows() == [(1,)]


def test_a_process_that_lost_its_checkpoint_cannot_write(db: TestDatabase) -> None:
    thought_dead, alive = db.sink(schema="n bigint"), db.sink()
    with opened(thought_dead):
        publish(thought_dead, 0, ns(0))
        with opened(alive, resuming=True):
            with pytest.raises(SinkError, match="by another process on the same checkpoint"):
                publish(thought_dead, 1, ns(1))
            publish(alive, 1, ns(1))
    assert db.rows() == [(0,), (1,)]


def test_a_new_run_waits_for_an_epoch(db: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    thought_dead, alive = db.sink(schema="n bigint"), db.sink()
    write_chunk = TableSink._write_chunk
    was_waiting: list[bool] = []

    with ThreadPoolExecutor(1) as other_process, opened(thought_dead):

        def slowly(*arguments: Any) -> None:
            write_chunk(*arguments)
            opening.append(other_process.submit(alive.open, RUN, True))
            was_waiting.append(wait(opening, timeout=0.5).not_done != set())

        opening: list[Future[None]] = []
        with monkeypatch.context() as patch:
            patch.setattr(TableSink, "_write_chunk", slowly)
            publish(thought_dead, 0, ns(0))
        opening[0].result()
        publish(alive, 0, ns(0))
        publish(alive, 1, ns(1))
        alive.close()
    assert was_waiting == [True]
    assert db.rows() == [(0,), (1,)]


def test_two_flows_create_tables_at_once(db: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Ledger.claim

    def slowly(*arguments: Any) -> None:
        claim(*arguments)
        time.sleep(0.3)

    monkeypatch.setattr(Ledger, "claim", slowly)
    sinks = {run: db.sink(schema="n bigint") for run in (RUN, OTHER)}
    with ThreadPoolExecutor(2) as processes:
        list(processes.map(lambda run: sinks[run].open(run, False), sinks))
    for number, (run, sink) in enumerate(sinks.items()):
        publish(sink, 0, ns(number), run=run)
        sink.close()
    assert db.rows() == [(0,), (1,)]


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
    open_once(sink)
    with pytest.raises(SinkError, match="is not open"):
        publish(sink, 0, ns(1))
