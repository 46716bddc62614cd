"""Output of the examples, compared with their docstrings, and their further behaviour."""

from __future__ import annotations

import ast
import re
import runpy
import sqlite3
import textwrap
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import running_totals, word_count
from examples.own_source_and_sink import SqliteSink, TemperatureApi
from flow import Dataflow, run
from flow.operators.edges import Input, Output
from flow.testing import TestDriver, run_source
from flow.testing.connectors import check_sink
from recovery import RecoveryConfig

EXAMPLES = Path(word_count.__file__).parent


def docstring_output(name: str) -> list[str]:
    """Return the lines that an example prints according to its docstring."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""
    _, says, after = docstring.partition("\nIt prints")
    assert says, f"the docstring of {name} does not say what it prints"
    _, _, block = after.partition(":\n")
    return textwrap.dedent(block).strip("\n").splitlines()


def printed_by(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that an example prints when it is run as a script."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "name",
    [
        *("orders_and_payments", "orders_and_shipments", "trades_and_quotes", "top_urls"),
        *("custom_logic", "early_takings", "fraud_rules"),
    ],
)
def test_an_example_without_spark_prints_what_its_docstring_shows(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed_by(name, capsys) == docstring_output(name)


WITH_A_GRAPH = (
    *("traffic_lights", "sensor_temperature", "last_three_purchases", "visits", "clicks_once"),
    *("views_and_clicks", "local_days"),
)
"""Examples whose flow is made as the module is imported."""


@pytest.mark.parametrize("name", WITH_A_GRAPH)
def test_a_flow_of_an_example_in_process_emits_what_the_docstring_shows(name: str) -> None:
    flow: Dataflow = import_module(f"examples.{name}").graph
    sources, sinks = {}, {}
    for step in flow.steps:
        if isinstance(step.operator, Input):
            sources[step.step_id] = step.operator.source
        elif isinstance(step.operator, Output):
            sinks[step.step_id] = step.operator.sink
    with TestDriver(flow) as driver:
        driver.send_all({name: run_source(source) for name, source in sources.items()})
        driver.end()
        lines = [
            str(sink.format(item) if sink.format else item)
            for name, sink in sinks.items()
            for item in driver.received(name)
        ]
    assert sorted(lines) == sorted(docstring_output(name))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "name",
    [
        *("word_count", "batches_for_an_api", "enrichment_over_http", "dead_letters"),
        "own_source_and_sink",
        pytest.param("running_totals", marks=pytest.mark.extended),
        pytest.param("history_then_live", marks=pytest.mark.extended),
        *(pytest.param(name, marks=pytest.mark.extended) for name in WITH_A_GRAPH),
    ],
)
def test_an_example_on_spark_prints_what_its_docstring_shows_in_any_order(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sorted(printed_by(name, capsys)) == sorted(docstring_output(name))


@pytest.mark.spark
@pytest.mark.extended
@pytest.mark.usefixtures("spark")
def test_an_example_that_asks_its_table_prints_what_its_docstring_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for package in ("deltalake", "duckdb"):
        pytest.importorskip(package)
    assert printed_by("flights_lake", capsys) == docstring_output("flights_lake")


def test_the_sink_of_an_example_keeps_the_laws_of_sinks() -> None:
    def read(place: Path) -> list[tuple[str, int]]:
        if not (place / "rows.db").exists():
            return []
        with closing(sqlite3.connect(place / "rows.db")) as database:
            return database.execute("SELECT city, degrees FROM temperatures").fetchall()

    check_sink(
        lambda place: SqliteSink(place / "rows.db"), read, item=lambda key, n: (key, float(n))
    )


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


@pytest.mark.extended
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
