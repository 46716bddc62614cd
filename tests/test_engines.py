"""The engines on Spark: one query for any flow, choice of the engine, errors and counts."""

from __future__ import annotations

import importlib
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, EpochReport, FlowBuildError, StepError, Stream, run
from flow.connectors.source import Planner, SourceLog
from flow.engine.epoch.summary import Summary
from flow.errors import DurationError, FlowTypeError, TimestampError
from flow.testing import Advance, TestingSink, TestingSource
from recovery import RecoveryConfig


def checkpoint(tmp_path: Path) -> Any:
    return RecoveryConfig(str(tmp_path / "checkpoint"))


def is_large(pair: tuple[str, int]) -> bool:
    return pair[1] >= 10


def add(left: int, right: int) -> int:
    return left + right


def running(total: int | None, value: int) -> tuple[int, int]:
    return (total or 0) + value, (total or 0) + value


def to_all(pair: tuple[str, int]) -> tuple[str, int]:
    return "all", pair[1]


# --- one query for any flow -------------------------------------------------------------------


@dataclass
class Watch:
    """Observer of each epoch of a run, at the commit of outputs."""

    spark: SparkSession
    outputs: dict[str, list[Any]]
    queries: list[tuple[Any, ...]]
    received: list[dict[str, list[Any]]]
    reports: list[EpochReport]

    def __call__(self, report: EpochReport) -> None:
        self.reports.append(report)
        self.received.append({name: list(items) for name, items in self.outputs.items()})
        active = self.spark.streams.active
        progress = active[0].lastProgress if active else None
        if progress is not None:
            execution = active[0]._jsq.streamingQuery().lastExecution()  # type: ignore[attr-defined]
            shuffles = re.findall(
                r"TransformWithState\w*(?:Exec)? ", execution.executedPlan().toString()
            )
            counts = len(progress["sources"]), len(progress["stateOperators"]), len(shuffles)
            names = [query.name for query in active]
            self.queries.append((names, *counts, "ForeachBatch" in progress["sink"]["description"]))


def large_flow(outputs: dict[str, list[Any]], *, timed: bool) -> Dataflow:
    """A branch, a merge, two inputs, two levels and four outputs.

    orders ─ split ┬ trues ─────────────────┬ both ─ per_key ┬─────────────────────── keys
                   └ falses ┬ waiting ──────│────────────────│─────────────────────── lists
                            └───────────────│────────────────│─────────────────────── small
    refunds ────────────────────────────────┘                └ to_all ─ everything ── total
    """
    flow = Dataflow("large")
    orders: list[Any] = [(f"k{number}", number) for number in range(40)]
    if timed:
        orders[30:30] = [Advance("10m")]
        orders[20:20] = [Advance("10m")]
    refunds = [("k15", -5), ("k3", -1)]
    split = op.branch(
        "split", op.input("orders", flow, TestingSource(orders, batch_size=20)), is_large
    )
    both = op.merge("both", split.trues, op.input("refunds", flow, TestingSource(refunds)))
    per_key = op.reduce_final("per_key", both, add)
    waiting = op.collect("waiting", split.falses, "10m", 100)
    everything = op.reduce_final("everything", op.map("to_all", per_key, to_all), add)
    streams = {"keys": per_key, "lists": waiting, "small": split.falses, "total": everything}
    for name, stream in streams.items():
        op.output(name, stream, TestingSink(outputs.setdefault(name, [])))
    return flow


LARGE = {
    "keys": sorted([(f"k{n}", n) for n in range(10, 40) if n != 15] + [("k15", 10), ("k3", -1)]),
    "lists": sorted((f"k{n}", [n]) for n in range(10)),
    "small": sorted((f"k{n}", n) for n in range(10)),
    "total": [("all", sum(range(10, 40)) - 6)],
}


@pytest.fixture(scope="module")
def watched(spark: SparkSession) -> tuple[Watch, Summary]:
    """A run of the large flow as a streaming query."""
    outputs: dict[str, list[Any]] = {}
    flow = large_flow(outputs, timed=True)
    watch = Watch(spark, outputs, [], [], [])
    return watch, run(flow, spark=spark, shards=8, system_time=0, on_epoch=watch)


@pytest.mark.spark
def test_a_flow_is_one_query_with_a_sink_and_a_state_operator_for_each_level(
    watched: tuple[Watch, Summary],
) -> None:
    queries = watched[0].queries
    assert queries
    assert all(query == (["large"], 1, 2, 2, True) for query in queries), queries


@pytest.mark.spark
def test_all_outputs_of_a_query_receive_their_items(watched: tuple[Watch, Summary]) -> None:
    assert {name: sorted(items) for name, items in watched[0].outputs.items()} == LARGE


@pytest.mark.spark
def test_system_time_reaches_every_shard_without_items(
    watched: tuple[Watch, Summary],
) -> None:
    """All lists were started in epoch 0, at 0:00; epoch 1, at 0:10, reads none of their keys."""
    first, second = (epoch["lists"] for epoch in watched[0].received[:2])
    assert (first, sorted(second)) == ([], LARGE["lists"])


@pytest.mark.spark
def test_the_end_of_input_reaches_each_level_after_the_output_of_the_level_before(
    watched: tuple[Watch, Summary],
) -> None:
    *before, last = watched[0].received
    assert [epoch["keys"] + epoch["total"] for epoch in before] == [[]] * 3
    assert last["total"] == [("all", 729)]


@pytest.mark.spark
def test_the_summary_counts_items_of_each_step(watched: tuple[Watch, Summary]) -> None:
    summary = watched[1]
    counted = {name: (summary.count(name, "in"), summary.count(name, "out")) for name in COUNTS}
    assert counted == COUNTS
    assert (summary.flow_id, summary.engine, summary.epochs) == ("large", "streaming", 4)
    assert (summary.stopped, summary.aborted) == (False, False)
    assert summary.gauges["per_key", "keys"] == 0
    assert summary.seconds > 0


@pytest.mark.spark
def test_reports_of_epochs_add_up_to_the_summary(watched: tuple[Watch, Summary]) -> None:
    reports, summary = watched[0].reports, watched[1]
    assert sum((report.counts for report in reports), Counter()) == summary.counts
    assert [report.epoch for report in reports] == [0, 1, 2, 3]
    assert (reports[-1].end_of_input, reports[-1].gauges) == (True, summary.gauges)
    minutes = [report.system_time.minute for report in reports if report.system_time]
    assert minutes == [0, 10, 20, 20]


COUNTS = {
    "orders": (0, 40),
    "refunds": (0, 2),
    "both": (32, 32),
    "per_key": (32, 31),
    "waiting": (10, 10),
    "everything": (31, 1),
}


@pytest.mark.spark
def test_a_batch_gives_the_results_of_the_query(spark: SparkSession) -> None:
    outputs: dict[str, list[Any]] = {}
    summary = run(large_flow(outputs, timed=False), spark=spark)
    assert {name: sorted(items) for name, items in outputs.items()} == LARGE
    assert (summary.engine, summary.epochs) == ("batch", 1)
    counted = {name: (summary.count(name, "in"), summary.count(name, "out")) for name in COUNTS}
    assert counted == COUNTS


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=pytest.mark.extended)])
def test_a_flow_whose_only_ends_are_inspect_runs(
    engine: Any, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = Dataflow("seen")
    s = op.input("in", flow, TestingSource([("a", 1), ("a", 2)]))
    op.inspect("see", s)
    op.inspect("total", op.reduce_final("sum", s, add))
    summary = run(flow, spark=spark, engine=engine)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith(("see:", "total:"))] == [
        "see: ('a', 1)",
        "see: ('a', 2)",
        "total: ('a', 3)",
    ]
    assert (summary.count("see", "in"), summary.count("total", "in")) == (2, 1)


# --- which engine, and with what --------------------------------------------------------------


class EndlessSource(TestingSource[Any]):
    """Source without an end."""

    bounded = False


def small_flow(source: Any = None, out: list[Any] | None = None) -> Dataflow:
    flow = Dataflow("small")
    s = op.input("in", flow, source or TestingSource([("a", 1), ("a", 2)]))
    op.output("out", op.reduce_final("sum", s, add), TestingSink([] if out is None else out))
    return flow


def print_epoch(epoch: int, stats: Any, feed: Any) -> None:
    """Take three arguments, as no function for `on_epoch` does."""


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        (
            {"engine": "flink"},
            FlowBuildError,
            "engine must be 'auto', 'batch' or 'streaming', got 'flink'",
        ),
        (
            {"engine": "batch", "recovery": RecoveryConfig("x")},
            FlowBuildError,
            "engine='batch' keeps no state to recover: leave out recovery=, or engine=",
        ),
        (
            {"recovery": "checkpoints/small"},
            FlowTypeError,
            "recovery must be a RecoveryConfig, got str 'checkpoints/small'",
        ),
        (
            {"on_epoch": print_epoch},
            FlowTypeError,
            "on_epoch must be a function of one argument, an EpochReport, got function",
        ),
        ({"on_epoch": "say"}, FlowTypeError, "on_epoch must be a function of one argument, an"),
        ({"trigger": "soon"}, DurationError, "trigger 'soon' is not a duration"),
        ({"trigger": "-1s"}, FlowBuildError, "trigger must not be negative, got '-1s'"),
        ({"system_time": "2013-01-01"}, TimestampError, "is a naive datetime"),
        ({"log_level": "LOUD"}, FlowBuildError, "log_level must be one of ALL, TRACE"),
        ({"conf": {"spark.x": 1}}, FlowBuildError, "Spark configuration is text to text"),
        ({"shards": 0}, FlowBuildError, "shards must be a whole number of at least 1, got 0"),
        (
            {"partitions": "2"},
            FlowBuildError,
            "partitions must be a whole number of at least 1, got '2'",
        ),
    ],
)
def test_an_invalid_argument_is_refused_before_spark_starts(
    options: dict[str, Any], error: type[Exception], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_session(*_: Any) -> Any:
        pytest.fail("Spark was started")

    monkeypatch.setattr("flow.engine.spark.session.session.make_session", no_session)
    with pytest.raises(error, match=re.escape(problem)):
        run(small_flow(), **options)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=pytest.mark.extended)])
def test_unkeyed_items_keep_source_order_and_reports_of_epochs_add_up_to_the_summary(
    engine: Any, spark: SparkSession
) -> None:
    items = [("k", number) for number in range(10)]
    plain, reports = list[Any](), list[EpochReport]()
    flow = small_flow(TestingSource(items, batch_size=4))
    mapped = op.map_value("same", Stream(flow, flow.step("in").downs[0]), int)
    op.output("plain", mapped, TestingSink(plain))
    options: dict[str, Any] = {"system_time": "2024-05-01T00:00Z", "partitions": 2}
    summary = run(flow, spark=spark, engine=engine, on_epoch=reports.append, **options)
    assert plain == items
    assert sum((report.counts for report in reports), Counter()) == summary.counts
    assert [report.epoch for report in reports] == list(range(summary.epochs))
    assert (reports[-1].end_of_input, reports[-1].gauges) == (True, summary.gauges)
    time = None if engine == "batch" else datetime(2024, 5, 1, tzinfo=UTC)
    assert {report.system_time for report in reports} == {time}


def test_run_needs_a_dataflow() -> None:
    with pytest.raises(FlowTypeError, match="run needs a Dataflow, got Stream"):
        run(op.input("in", Dataflow("x"), TestingSource([])))  # type: ignore[arg-type]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (EndlessSource([]), "has no end, and a batch needs one"),
        (TestingSource([Advance("1s")]), "moves system time or ends in a crash, which only"),
    ],
)
def test_a_batch_refuses_a_source_that_depends_on_epochs(
    source: Any, problem: str, spark: SparkSession
) -> None:
    with pytest.raises(FlowBuildError, match=f"step 'in': .*{problem}"):
        run(small_flow(source), spark=spark, engine="batch")


# --- errors -----------------------------------------------------------------------------------


class NoStock(Exception):
    """A user-written exception."""


def check_stock(pair: tuple[str, int]) -> tuple[str, int]:
    if pair[1] < 0:
        raise NoStock(f"{pair[0]} is sold out")
    return pair


def refuse(state: int | None, value: int) -> tuple[int, int]:
    check_stock(("state", value))
    return running(state, value)


def failing_flow(items: list[Any], outputs: dict[str, list[Any]], *, level: int) -> Dataflow:
    flow = Dataflow("failing")
    s = op.input("in", flow, TestingSource(items, batch_size=2))
    op.output("raw", s, TestingSink(outputs.setdefault("raw", [])))
    inspected = op.inspect("see", s)
    checked = op.map("check", inspected, check_stock) if level == 0 else inspected
    total = op.stateful_map("total", checked, running if level == 0 else refuse)
    op.output("totals", total, TestingSink(outputs.setdefault("totals", [])))
    return flow


GOOD, BAD = [("a", 1), ("b", 2)], [("a", 3), ("b", -1)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("level", "step_id"), [(0, "check"), pytest.param(1, "total", marks=pytest.mark.extended)]
)
def test_an_error_in_a_batch_is_the_step_s_and_commits_nothing(
    level: int, step_id: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs: dict[str, list[Any]] = {}
    with pytest.raises(StepError) as caught:
        run(failing_flow(GOOD + BAD, outputs, level=level), spark=spark)
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(f"see: {p}" for p in GOOD + BAD)
    assert (caught.value.step_id, type(caught.value.__cause__)) == (step_id, NoStock)
    assert outputs == {"raw": [], "totals": []}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("level", "step_id"), [pytest.param(0, "check", marks=pytest.mark.extended), (1, "total")]
)
def test_an_error_in_a_query_is_the_step_s_and_commits_nothing_of_its_epoch(
    level: int, step_id: str, spark: SparkSession, tmp_path: Path
) -> None:
    outputs: dict[str, list[Any]] = {}
    options: dict[str, Any] = {"spark": spark, "recovery": checkpoint(tmp_path), "shards": 4}
    with pytest.raises(StepError) as caught:
        run(failing_flow(GOOD + BAD, outputs, level=level), **options)
    cause = caught.value.__cause__
    assert (caught.value.step_id, type(cause)) == (step_id, NoStock)
    assert "in check_stock\n" in cause.__notes__[0]  # type: ignore[union-attr]
    assert {name: sorted(items) for name, items in outputs.items()} == {"raw": GOOD, "totals": GOOD}

    # The same epoch again, with what was wrong put right.
    run(failing_flow([*GOOD, ("a", 3), ("b", 1)], outputs, level=level), **options)
    assert sorted(outputs["totals"]) == [("a", 1), ("a", 4), ("b", 2), ("b", 3)]
    assert sorted(outputs["raw"]) == [("a", 1), ("a", 3), ("b", 1), ("b", 2)]


class BrokenSource(TestingSource[Any]):
    """Source that cannot be planned."""

    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        raise ConnectionError("nobody there")


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_a_source_that_cannot_be_planned_is_named(engine: Any, spark: SparkSession) -> None:
    with pytest.raises(StepError, match=r"step 'in': .*ConnectionError: nobody there") as caught:
        run(small_flow(BrokenSource([])), spark=spark, engine=engine)
    assert isinstance(caught.value.__cause__, ConnectionError)


# --- what workers can import ------------------------------------------------------------------


@pytest.mark.spark
def test_workers_find_modules_of_the_drivers_path(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers were started before the module was there, and in another directory."""
    (tmp_path / "steps_of_one_s_own.py").write_text("def double(n):\n    return n * 2\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("steps_of_one_s_own")
    flow, out = Dataflow("own"), list[int]()
    doubled = op.map("double", op.input("in", flow, TestingSource([1, 2])), module.double)
    op.output("out", doubled, TestingSink(out))
    run(flow, spark=spark)
    assert out == [2, 4]


# --- classes of the main script ---------------------------------------------------------------

SCRIPT = """
from dataclasses import dataclass

import flow.operators as op
from flow import Dataflow, run
from flow.testing import TestingSink, TestingSource

@dataclass
class Sale:
    amount: int

@dataclass(slots=True)
class Total:
    amount: int = 0

class Unsold(Exception):
    pass

def add(total, sale):
    total = Total((total or Total()).amount + sale.amount)
    if sale.amount < 0:
        raise Unsold(f"{sale} was given back")
    return total, total

def main(engine, amounts):
    flow, out = Dataflow("script"), []
    sales = [("k", Sale(amount)) for amount in amounts]
    s = op.stateful_map("add", op.input("in", flow, TestingSource(sales, batch_size=2)), add)
    op.output("out", s, TestingSink(out))
    run(flow, engine=engine, spark=spark, shards=2)
    return [(key, type(total).__name__, total.amount) for key, total in out]
"""


def test_classes_of_the_main_script_can_be_values_state_and_exceptions(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers cannot import them: another program is ``__main__`` there."""
    main = ModuleType("__main__")
    script = vars(main)
    script["spark"] = spark
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(SCRIPT, script)
    for engine in ("batch", "streaming"):
        totals = [("k", "Total", 1), ("k", "Total", 3), ("k", "Total", 6)]
        assert script["main"](engine, [1, 2, 3]) == totals, engine
    with pytest.raises(StepError) as caught:
        script["main"]("batch", [-1])
    assert type(caught.value.__cause__) is script["Unsold"]
    assert str(caught.value.__cause__) == "Sale(amount=-1) was given back"


@pytest.mark.extended
def test_a_flow_may_be_larger_than_a_message_of_spark(spark: SparkSession) -> None:
    table = {str(number): random.Random(number).randbytes(60) for number in range(40_000)}
    flow, sizes = Dataflow("large"), list[Any]()
    stream = op.input("in", flow, TestingSource(["a"]))
    op.output("out", op.map("size", stream, lambda _: len(table)), TestingSink(sizes))
    run(flow, spark=spark, engine="streaming")
    assert sizes == [40_000]
