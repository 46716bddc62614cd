"""The run host over Spark Connect, without Spark: its planner, and its copies of sinks."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql.connect.group import GroupedData

import flow.operators as op
from flow import Dataflow, EngineError, SinkError, StopFlag
from flow.connectors.kafka import KafkaSink
from flow.connectors.sink import Sink
from flow.connectors.sql import PostgresSink
from flow.engine.checkpoint.storage import LocalStorage
from flow.engine.feed.offsets import EpochOffset
from flow.engine.plan.compiler import compile_flow
from flow.engine.spark.remote_host import OutputsHost, PlannerHost, RemoteRun, opened
from flow.engine.spark.remote_streaming import (
    AttachedRun,
    RemoteStreamingRun,
    ServerCalls,
    check_keyed_steps,
    started,
)
from flow.engine.spark.run_files import RunFiles
from flow.engine.spark.run_host import StreamingSettings
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.shipping import ShippedPlan
from flow.engine.steps.outputs import sink_of
from flow.errors import EnvironmentProblem
from flow.testing import TestingSink, TestingSource
from flow.views import ViewSink
from recovery import RecoveryConfig
from tests.support.one_stream import a_flow, as_read, running_total, step

HOUR_US = 3_600_000_000
SECRET = "s3cr3t-s3cr3t"


@pytest.fixture(autouse=True)
def _log_of_this_process() -> Iterator[None]:
    """Give this process its log back, which a host keeps for programs."""
    logger = logging.getLogger("flow")
    before = logger.handlers[:], logger.propagate
    yield
    logger.handlers[:], logger.propagate = before


def run_of(root: Path, *sinks: Sink[Any], waits: bool = True, **settings: Any) -> RemoteRun:
    """Prepare a run as its program does, in this process."""
    flow = Dataflow("numbers")
    numbers = op.input("in", flow, TestingSource([("a", 1), ("a", 2)], batch_size=1))
    for number, sink in enumerate(sinks or (TestingSink([]),)):
        op.output(f"out_{number}", numbers, sink)
    chosen = StreamingSettings(**{"recovery": RecoveryConfig(root), **settings})
    plan = compile_flow(flow)
    identity, resuming, _ = opened(str(root), ShippedPlan.pack(plan), chosen, 2, "4.3.0")
    program = RemoteStreamingRun(plan, None, chosen)
    run = program._prepared(ServerCalls(None, here=True), str(root), identity, resuming, 2)
    return pickle.loads(pickle.dumps(replace(run, waits=waits)))


def files_of(run: RemoteRun) -> RunFiles:
    return RunFiles(LocalStorage(run.root), run.token)


def next_offset(planner: PlannerHost, after: Any) -> tuple[Any, float]:
    """Return the offset that a planner answers, and the seconds that it took."""
    start = time.monotonic()
    return planner.answer({"after": after})["offset"], time.monotonic() - start


def test_the_planner_waits_for_the_interval_between_epochs(tmp_path: Path) -> None:
    planner = PlannerHost(run_of(tmp_path, interval_us=400_000))
    first, _ = next_offset(planner, EpochOffset().to_json())
    second, seconds = next_offset(planner, first)
    assert second != first
    assert 0.3 < seconds < 5


def test_a_request_to_stop_ends_the_wait_for_an_interval(tmp_path: Path) -> None:
    run = run_of(tmp_path, interval_us=HOUR_US)
    planner = PlannerHost(run)
    first, _ = next_offset(planner, EpochOffset().to_json())
    files_of(run).ask_to_stop()
    assert next_offset(planner, first)[0] == first
    end = files_of(run).read_end()
    assert end is not None
    assert end.summary is not None
    assert end.summary.stopped


def test_the_planner_leaves_intervals_to_a_spark_that_asks_again(tmp_path: Path) -> None:
    planner = PlannerHost(run_of(tmp_path, interval_us=HOUR_US, waits=False))
    first, _ = next_offset(planner, EpochOffset().to_json())
    assert next_offset(planner, first)[0] != first


def test_outputs_have_the_checkpoint_of_a_run_with_recovery_alone(tmp_path: Path) -> None:
    OutputsHost(run_of(tmp_path / "kept", ViewSink()))._open().close()
    with pytest.raises(SinkError, match="a view is beside the checkpoint, and this run has none"):
        OutputsHost(run_of(tmp_path / "scratch", ViewSink(), recovery=None))._open()


def test_a_program_that_attaches_to_a_run_that_has_died_gets_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path)
    files_of(run).begin(run.plan.flow_id)
    monkeypatch.setattr(ServerCalls, "in_task", lambda _, function: function())
    attached = AttachedRun(run.plan, None, run.root, lambda *_: None, StopFlag())
    with pytest.raises(EngineError, match="the streaming query ended on the server before"):
        attached.run()


def test_keyed_steps_are_refused_where_connect_has_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in PySpark 4.0, before the run has made a checkpoint."""
    form = spark_capabilities().adapter().value
    monkeypatch.delattr(GroupedData, form)
    settings = StreamingSettings(recovery=RecoveryConfig(tmp_path / "checkpoint"))
    plan = compile_flow(a_flow(step(op.stateful_map, running_total)))
    with pytest.raises(EnvironmentProblem) as caught:
        RemoteStreamingRun(plan, None, settings).run()
    assert str(caught.value) == (
        f"step 'step' keeps state, for which PySpark {pyspark.__version__} has no {form} over "
        "Spark Connect: use Spark 4.1 or newer, a classic session, or engine='batch'"
    )
    check_keyed_steps(compile_flow(a_flow(as_read)))


def test_secrets_reach_the_sinks_of_the_server_and_no_file(tmp_path: Path) -> None:
    """The database refuses the connection: its error, and all that a run writes, has no secret."""
    dsn = f"postgresql://ann:{SECRET}@127.0.0.1:1/sales"
    properties = {"sasl.password": SECRET}
    sinks = PostgresSink(dsn, "hours"), KafkaSink("127.0.0.1:1", "hours", properties=properties)
    run = run_of(tmp_path, *sinks)
    of_database, of_topic = (sink_of(run.plan, edge) for edge in run.plan.outputs)
    assert isinstance(of_database, PostgresSink)
    assert isinstance(of_topic, KafkaSink)
    assert (of_database.dsn, of_topic.properties) == (dsn, properties)
    assert SECRET.encode() not in ShippedPlan.pack(run.plan.for_workers()).content

    planner = PlannerHost(run)
    next_offset(planner, EpochOffset().to_json())
    logging.getLogger("flow").warning("sinks: %r", sinks)
    with pytest.raises(SinkError, match="out_0"):
        OutputsHost(run).write(None, 0)  # type: ignore[arg-type]
    end = files_of(run).read_end()
    assert end is not None
    assert end.failure is not None
    contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(end.failure in content for content in contents)
    assert not any(SECRET.encode() in content for content in contents)


@pytest.mark.parametrize(
    ("problems", "tried"),
    [
        (["Python worker failed to connect back."] * 2, 3),
        (["Python worker failed to connect back."] * 3, 3),
        (["Python worker failed to connect back.", "no such table"], 2),
    ],
)
def test_a_query_is_started_again_if_a_busy_server_started_no_process(
    problems: list[str], tried: int
) -> None:
    calls = []

    def start() -> str:
        calls.append(len(calls))
        if len(calls) <= len(problems):
            raise RuntimeError(problems[len(calls) - 1])
        return "query"

    if len(problems) < tried:
        assert started(start) == "query"
    else:
        with pytest.raises(EngineError, match="the streaming query did not start: "):
            started(start)
    assert len(calls) == tried
