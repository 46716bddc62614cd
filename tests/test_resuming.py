"""Stops, crashes and later runs: the content of checkpoints, no lost or doubled items."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import CheckpointError, Dataflow, EngineError, StopFlag, run
from flow.connectors.dataframe import DataFrameSource
from flow.engine.spark.session.spark_capabilities import ADAPTER_VARIABLE, LevelAdapter
from flow.instants import Moment
from flow.operators import KEEP, StatefulLogic
from flow.testing import ABORT, EOF, Advance, TestingSink, TestingSource
from recovery import RecoveryConfig

pytestmark = pytest.mark.spark


class CountWithTime(StatefulLogic[Any, Any, int]):
    """Logic that emits each value with its count so far and the epoch's time."""

    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_item(self, value: Any, moment: Moment) -> Any:
        self._count += 1
        return [(value, self._count, moment.now_us, moment.downtime_us)], KEEP

    def snapshot(self) -> int:
        return self._count


def add(left: int, right: int) -> int:
    return left + right


def running(total: int | None, value: int) -> tuple[int, int]:
    return (total or 0) + value, (total or 0) + value


class Case:
    """A flow over a list of items, for several runs on one checkpoint."""

    def __init__(self, spark: SparkSession, tmp_path: Path, items: list[Any]) -> None:
        self.spark = spark
        self.items = items
        self.recovery: Any = RecoveryConfig(str(tmp_path / "checkpoint"))
        self.totals: list[Any] = []
        self.finals: list[Any] = []
        self.flow = Dataflow("resumed")
        s = op.input("in", self.flow, TestingSource(items, batch_size=2))
        total = op.stateful_map("total", s, running)
        op.output("totals", total, TestingSink(self.totals))
        final = op.reduce_final("final", op.map("all", total, lambda pair: ("all", 1)), add)
        op.output("finals", final, TestingSink(self.finals))

    def run(self, **options: Any) -> Any:
        options = {"shards": 4, "partitions": 1, "system_time": 0, **options}
        return run(self.flow, spark=self.spark, recovery=self.recovery, **options)

    def kept(self) -> Any:
        """Read the file in which the checkpoint describes the flow."""
        return json.loads((Path(self.recovery.path) / "flow.json").read_text("utf-8"))


def options_of(spark: SparkSession, path: Path, **more: Any) -> dict[str, Any]:
    """Return the options of a small run with a checkpoint."""
    recovery = RecoveryConfig(str(path / "checkpoint"))
    return {"spark": spark, "recovery": recovery, "shards": 2, "partitions": 1, **more}


def ones(count: int) -> list[Any]:
    return [("a", 1)] * count


def totals(*numbers: int) -> list[Any]:
    return [("a", number) for number in numbers]


#  run       1               2
#  items     a a (stopped)   a a, the end
def test_a_run_resumes_one_that_stopped_between_two_epochs_and_ends_the_input(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case, stop = Case(spark, tmp_path, ones(4)), StopFlag()
    summary = case.run(stop=stop, on_epoch=lambda report: stop.ask())
    assert (summary.stopped, summary.epochs) == (True, 1)
    assert (case.totals, case.finals) == (totals(1, 2), [])
    kept = case.kept()
    assert (kept["flow_id"], kept["shards"], kept["partitions"]) == ("resumed", 4, 1)

    # The checkpoint's own shards and partitions are used, not those that are asked for.
    case.run(drain=True, shards=16, partitions=2)
    assert (case.totals, case.finals) == (totals(1, 2, 3, 4), [("all", 4)])
    assert case.kept() == kept
    path = case.recovery.path
    messages = [record.getMessage() for record in caplog.records if record.name == "flow"]
    assert messages == [
        f"{requested} was asked for, but checkpoint {path} was made with {old} and keeps it "
        "(`python -m recovery rescale` moves it to another layout)"
        for requested, old in (("shards=16", 4), ("partitions=2", 1))
    ]
    refused = f"{path} is the checkpoint of flow 'resumed', not of 'other': give each flow a direct"
    other = Dataflow("other")
    op.output("out", op.input("in", other, TestingSource([])), TestingSink([]))
    with pytest.raises(CheckpointError, match=refused):
        run(other, spark=spark, recovery=case.recovery)


@pytest.mark.extended
#  run       1              2                3
#  items     a a EOF        a EOF            (none left)
#  drain     no             no               yes
def test_a_run_without_drain_keeps_windows_open_and_a_draining_one_closes_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, [*ones(2), EOF(), *ones(1), EOF()])
    for drain, received, finals in (
        (False, totals(1, 2), []),
        (False, totals(1, 2, 3), []),
        (True, totals(1, 2, 3), [("all", 3)]),
    ):
        case.run(drain=drain)
        assert (case.totals, case.finals) == (received, finals)


#  run       1                         2
#  items     1 1 │ 1 1 ABORT           1 1 │ 1 1, the end
#  adapter   data frames, by variable  data frames, by the checkpoint
def test_a_checkpoint_keeps_the_adapter_that_it_was_made_with(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On each Spark, levels can run on pandas data frames, as they do on 4.0."""
    monkeypatch.setenv(ADAPTER_VARIABLE, LevelAdapter.FRAMES.value)
    case = Case(spark, tmp_path, [*ones(4), ABORT(), *ones(2)])
    assert (case.run().aborted, case.totals) == (True, totals(1, 2))
    monkeypatch.delenv(ADAPTER_VARIABLE)
    assert not case.run(drain=True).aborted
    assert (case.totals, case.finals) == (totals(1, 2, 3, 4, 5, 6), [("all", 6)])
    assert case.kept()["adapter"] == "transformWithStateInPandas"
    files = (tmp_path / "checkpoint/spark/state").glob("*/_metadata/v2/[0-9]*")
    assert {b'"transformWithStateInPandasExec"' in file.read_bytes() for file in files} == {True}


#  run       1                     2
#  items     v w │ x ABORT         x │ y │ end
#  commit     x      -             x   x    x
def test_an_interrupted_epoch_is_replayed_with_the_same_results_at_the_same_system_time(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the machine's clock: what the first attempt would have written is printed on its way."""
    out: list[Any] = []
    flow = Dataflow("again")
    items = [("k", "v"), ("k", "w"), ("k", "x"), ABORT(), ("k", "y")]
    s = op.input("in", flow, TestingSource(items, batch_size=2))
    clocked = op.inspect("see", op.stateful("clocked", s, CountWithTime))
    op.output("out", clocked, TestingSink(out))
    options = options_of(spark, tmp_path)
    summary = run(flow, **options)
    assert (summary.aborted, summary.epochs) == (True, 1)
    *first, first_attempt = capsys.readouterr().out.splitlines()
    assert [f"see: {pair!r}" for pair in out] == first

    assert not run(flow, **options).aborted
    second_attempt, later = capsys.readouterr().out.splitlines()
    assert second_attempt == first_attempt
    assert [f"see: {pair!r}" for pair in out] == [*first, second_attempt, later]
    counts = [(value, count) for _, (value, count, *_) in out]
    assert counts == [("v", 1), ("w", 2), ("x", 3), ("y", 4)]
    times = [(now_us, down_us) for _, (_, _, now_us, down_us) in out]
    _, (_, first_down), (attempt_us, attempt_down), (later_us, later_down) = times
    # All of the time between the last two epochs is downtime, but for what their own run took.
    assert first_down == attempt_down == 0 < later_down <= later_us - attempt_us


@pytest.mark.extended
def test_an_idle_run_can_be_stopped_from_another_thread(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Waiting(TestingSource[Any]):
        bounded = False

        def planner(self, log: Any, parallelism: int) -> Any:
            planner = super().planner(log, parallelism)
            planner.finished = lambda start: False  # type: ignore[method-assign]
            return planner

    out: list[Any] = []
    flow = Dataflow("waiting")
    s = op.input("in", flow, Waiting(ones(2)))
    op.output("out", op.stateful_map("total", s, running), TestingSink(out))
    stop, first_epoch = StopFlag(), threading.Event()

    def ask() -> None:
        first_epoch.wait()
        stop.ask()

    threading.Thread(target=ask, daemon=True).start()
    options: dict[str, Any] = {"spark": spark, "shards": 2, "partitions": 1}
    summary = run(flow, stop=stop, on_epoch=lambda *_: first_epoch.set(), **options)
    assert (summary.stopped, out) == (True, totals(1, 2))


@pytest.mark.extended
def test_a_fixed_time_advances_in_a_later_run_by_its_source_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A list that was begun in the first run leaves in the second, ten minutes later."""
    items = [("a", 1), Advance("6m"), ("b", 2), EOF(), Advance("4m"), ("b", 3), EOF()]
    out: list[Any] = []
    flow = Dataflow("moved")
    s = op.input("in", flow, TestingSource(items))
    op.output("out", op.collect("lists", s, "10m", 9), TestingSink(out))
    options = options_of(spark, tmp_path, system_time=0, drain=False)
    run(flow, **options)
    assert out == []
    run(flow, **options)
    assert out == [("a", [1])]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"version": 99}, "is not a flow's checkpoint"),
        (
            {"version": 99, "flow_id": "resumed", "run_id": "x", "shards": 4, "partitions": 1},
            "flow.json has format 99, and this version reads format 1: run the version that wrote",
        ),
        ("not a checkpoint", "is not a flow's checkpoint"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_refused(
    content: Any, problem: str, spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, [])
    Path(case.recovery.path).mkdir()
    (Path(case.recovery.path) / "flow.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(CheckpointError, match=problem):
        case.run()


@pytest.mark.extended
def test_a_step_id_may_have_characters_that_paths_may_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    out: list[Any] = []
    flow = Dataflow("odd: name/1")
    rows = spark.createDataFrame([("a", 1)], "id string, n long")
    frame = op.input("a/static: frame?", flow, DataFrameSource(rows))
    items = op.input("items: from *here*", flow, TestingSource([{"id": "b", "n": 2}]))
    op.output("out", op.merge("both", frame, items), TestingSink(out))
    run(flow, spark=spark, recovery=RecoveryConfig(str(tmp_path / "checkpoint")))
    assert sorted(row["n"] for row in out) == [1, 2]


def test_a_checkpoint_that_cannot_be_written_is_an_error_with_its_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    case = Case(spark, tmp_path / "file", ones(1))
    with pytest.raises(CheckpointError) as caught:
        case.run()
    assert str(caught.value).startswith(f"{case.recovery.path} cannot be opened: ")
    assert "\n" not in str(caught.value)


def test_a_query_that_does_not_start_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise ValueError("no such format\n\tat org.apache.spark.Deep(Deep.scala:1)")

    monkeypatch.setattr("flow.engine.spark.flow_query.FlowQuery._chain", refuse)
    with pytest.raises(EngineError, match="the streaming query did not start: no such format") as e:
        Case(spark, tmp_path, ones(1)).run()
    assert "scala" not in str(e.value)
