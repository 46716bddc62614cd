"""Output of the examples, compared with their docstrings, and their further behaviour."""

from __future__ import annotations

import ast
import re
import runpy
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import (
    custom_logic,
    orders_and_payments,
    orders_and_shipments,
    running_totals,
    trades_and_quotes,
    word_count,
)
from examples.own_source_and_sink import SqliteSink, TemperatureApi
from flow import run
from flow.testing import TestDriver, run_source
from recovery import RecoveryConfig
from tests.support.examples import EXAMPLES, docstring_output


def printed_by(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that an example prints when it is run as a script."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "name",
    [
        "orders_and_payments",
        "orders_and_shipments",
        "trades_and_quotes",
        "top_urls",
        "custom_logic",
        "early_takings",
        "fraud_rules",
    ],
)
def test_an_example_without_spark_prints_what_its_docstring_shows(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed_by(name, capsys) == docstring_output(name)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "name",
    [
        "word_count",
        "traffic_lights",
        "sensor_temperature",
        "last_three_purchases",
        "visits",
        "clicks_once",
        "views_and_clicks",
        "local_days",
        "batches_for_an_api",
        "enrichment_over_http",
        "dead_letters",
        "own_source_and_sink",
        "history_then_live",
        pytest.param("running_totals", marks=pytest.mark.slow),
    ],
)
def test_an_example_on_spark_prints_what_its_docstring_shows_in_any_order(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sorted(printed_by(name, capsys)) == sorted(docstring_output(name))


def test_every_example_is_in_the_index_of_the_folder_and_in_the_readme() -> None:
    index = ast.get_docstring(ast.parse((EXAMPLES / "__init__.py").read_text())) or ""
    names = {file.stem for file in EXAMPLES.glob("[!_]*.py")}
    assert {line.split("`")[1] for line in index.splitlines() if line.startswith("- `")} == names
    readme = (EXAMPLES.parent / "README.md").read_text()
    linked = re.findall(r"^\| \[`(\w+)`\]\(examples/(\w+)\.py\) \|", readme, re.MULTILINE)
    assert sorted(linked) == [(name, name) for name in sorted(names)]


def test_word_count_ignores_case_and_punctuation() -> None:
    with TestDriver(word_count.make_flow()) as driver:
        driver.send("lines", ["No, no: NO!", "Yes", ""])
        driver.end()
        assert driver.received("out") == [("no", 3)]


def test_orders_and_payments_match_in_any_order_of_arrival() -> None:
    with TestDriver(orders_and_payments.graph) as driver:
        driver.send("payments", [{"for_order": "A1", "paid": 1}])
        driver.send("orders", [{"order": "A1", "amount": 1}, {"order": "A2", "amount": 2}])
        driver.send("payments", [{"for_order": "A2", "paid": 2}])
        assert driver.received("paid") == []
        driver.end()
        assert sorted(number for number, _ in driver.received("paid")) == ["A1", "A2"]
        assert driver.received("unmatched") == []


def test_a_shipment_is_matched_to_the_last_moment_in_any_order_of_arrival() -> None:
    order = {"order": "A1", "at": "2024-05-01T11:00:00Z"}
    shipments = [{"order": "A1", "at": f"2024-05-03T11:00:0{second}Z"} for second in (0, 1)]
    for first, second in (("orders", "shipments"), ("shipments", "orders")):
        sent = {"orders": [order], "shipments": shipments}
        with TestDriver(orders_and_shipments.graph, now="2024-05-01T11:00:00Z") as driver:
            driver.send_all({first: sent[first]}, behind=[second])
            driver.send_all({second: sent[second]})
            driver.end()
            assert driver.received("out") == ["A1 shipped after 48 h"]


def test_a_trade_has_the_quote_of_its_moment_in_any_order_of_arrival() -> None:
    #  quotes 1 s 7, 2 s 8, 3 s none    trades 2 s, 3 s
    day = "2024-05-01T00:00:0"
    bids = [
        {"symbol": "X", "at": f"{day}{s}Z", "bid": bid} for s, bid in ((1, 7), (2, 8), (3, None))
    ]
    sold = [{"symbol": "X", "at": f"{day}{s}Z", "price": 9, "size": s} for s in (2, 3)]
    for quotes, trades in ((bids, sold), (bids[::-1], sold[::-1])):
        with TestDriver(trades_and_quotes.graph, now=f"{day}3Z") as driver:
            driver.send("trades", trades)
            driver.send("quotes", quotes)
            driver.end()
            assert driver.received("out") == ["X 2 at 9: 1.00 above the bid", "X 3 at 9: no quote"]


def test_a_sensor_silent_during_downtime_is_reported_by_the_resumed_flow() -> None:
    """
    12:00 reading, the flow stops · · · 13:00 it goes on
    """
    with TestDriver(custom_logic.graph, now="2024-05-01T12:00:00Z") as driver:
        driver.send("readings", [("attic", 24.0)])
        driver.restart(after="1h")
        driver.advance("0s")
        alerts = [(key, f"{at:%H:%M}", text) for key, (at, text) in driver.received("alerts")]
        assert alerts == [("attic", "13:00", "silent since 12:00")]


@pytest.mark.spark
@pytest.mark.slow
def test_running_totals_read_each_file_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inbox, recovery = tmp_path / "inbox", RecoveryConfig(tmp_path / "checkpoint")
    inbox.mkdir()
    read = []
    for day in ("Monday", None, "Tuesday"):
        if day:
            running_totals.deliver(inbox, day, [{"account": "ann", "amount": 1}])
        flow = running_totals.make_flow(inbox)
        summary = run(flow, spark=spark, recovery=recovery, trigger="available")
        read.append(summary.count("movements", "out"))
    assert read == [1, 0, 1]
    assert capsys.readouterr().out.splitlines() == ["ann: 1 makes 1", "ann: 1 makes 2"]


def test_the_user_written_source_reads_every_page() -> None:
    assert run_source(TemperatureApi(("berlin",), pages_per_epoch=1)) == [
        ("berlin", 21.5),
        ("berlin", 22.0),
        ("berlin", 19.0),
    ]


def test_the_user_written_sink_writes_a_replayed_epoch_once(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "temperatures.db")
    sink.open("a run", resuming=False)
    sink.commit(0, [[("berlin", 20.0)]])
    sink.open("a run", resuming=True)
    sink.commit(0, [[("berlin", 20.0)]])
    sink.commit(1, [[("berlin", 21.0)], [("madrid", 30.0)]])
    with closing(sqlite3.connect(sink.path)) as database:
        rows = database.execute("SELECT city, degrees FROM temperatures ORDER BY rowid").fetchall()
    assert rows == [("berlin", 20.0), ("berlin", 21.0), ("madrid", 30.0)]
