"""Runs on Spark with a page: the numbers of the page, of the metrics and of the summary agree."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from time import sleep
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, Summary, run
from flow.engine.epoch.summary import WatermarkLag
from flow.engine.spark.epochs import PHASES
from flow.engine.spark.session.session_settings import is_remote
from flow.errors import FlowBuildError
from flow.testing import TestingSink, TestingSource
from flow.views import ViewSink, open
from recovery import RecoveryConfig

pytestmark = pytest.mark.spark


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def get(address: str, path: str) -> str:
    with urlopen(f"http://{address}{path}") as answer:
        return str(answer.read().decode())


def minutes_flow(items: list[Any], seconds_of_an_item: float = 0.0) -> Dataflow:
    def is_even(at: int) -> bool:
        sleep(seconds_of_an_item)
        return at % 2 == 0

    flow = Dataflow("minutes")
    visits = op.input("visits", flow, TestingSource(items, batch_size=4))
    even = op.filter_value("even", visits, is_even)
    clock = win.EventClock(lambda item: item[1], wait_for_system_duration="10s")
    windower = win.TumblingWindower(length="1m")
    minutes = win.count_window("minutes", even, clock, windower, key=lambda item: item[0])
    op.output("out", minutes.down, TestingSink([]))
    return flow


def sixteen() -> list[Any]:
    """Return items of two keys, some of them odd, and two that are late."""
    times = [0, 1, 20, 90, 2, 200, 201, 300, 4, 400, 402, 404, 500, 501, 502, 504]
    return [("a" if at % 4 else "b", at) for at in times]


def counter_values(text: str) -> dict[tuple[str, str], float]:
    """Return the counters of steps that a scrape reads, by step and name."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = family.name.removeprefix("flow_step_").removesuffix("_items")
        for sample in family.samples:
            if family.name.startswith("flow_step_") and family.name.endswith("_items"):
                labels = sample.labels
                found[labels["step"], labels.get("name", name)] = sample.value
    return found


class Watcher:
    """A function for `on_epoch` that reads the page after each epoch.

    Further paths are read after all epochs but the first, before which no state is committed.
    """

    def __init__(self, address: str, *paths: str) -> None:
        self.address = address
        self.reports: list[EpochReport] = []
        self.flow: dict[str, Any] = {}
        self.metrics = ""
        self.paths = paths
        self.answers: list[Any] = []
        self._events: Any = None

    def __call__(self, report: EpochReport) -> None:
        self._events = self._events or urlopen(f"http://{self.address}/events")
        self.reports.append(report)
        self.flow = json.loads(get(self.address, "/api/flow"))
        self.metrics = get(self.address, "/metrics")
        if report.epoch:
            self.answers = [json.loads(get(self.address, path)) for path in self.paths]

    def last_event(self) -> Any:
        """Return the last status that the page sent, after the end of the run."""
        with self._events as stream:
            *_, last = (line for line in stream if line.startswith(b"data: "))
        return json.loads(last.removeprefix(b"data: "))


def assert_agree(watcher: Watcher, summary: Summary) -> None:
    counts = {
        (step_id, name): count
        for step_id, step in watcher.flow["steps"].items()
        for name, count in step["counts"].items()
    }
    assert counts == dict(summary.counts)
    assert counter_values(watcher.metrics) == dict(summary.counts)
    assert watcher.flow["epochs"] == summary.epochs
    sizes = {
        (step_id, name): size
        for step_id, step in watcher.flow["steps"].items()
        for name, size in step["gauges"].items()
    }
    assert sizes == dict(summary.gauges)


#   b: 20 | 4, 95 | 96, 97, wait 10 s: 4 is behind the watermark, 10
#   a: 80
@pytest.mark.connect
def test_a_stream_s_page_has_the_numbers_of_its_summary_and_the_insides_of_steps(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("inside")
    items = [("b", 20), ("a", 80), ("b", 4), ("b", 95), ("b", 96), ("b", 97)]
    source = TestingSource([(key, (key, at)) for key, at in items], batch_size=2)
    visits = op.input("visits", flow, source)
    clock = win.EventClock(lambda item: item[1], wait_for_system_duration="10s")
    windower = win.TumblingWindower(length="1m")
    mean = win.Mean(lambda item: item[1])
    minutes = win.aggregate_window("minutes", visits, clock, windower, n=win.Count(), mean=mean)
    lists = win.collect_window("lists", visits, clock, windower)
    op.output("out", minutes.down, TestingSink([]))
    op.output("lists_out", lists.down, TestingSink([]))
    op.output("last", visits, ViewSink())
    address = free_address()
    late = [f"/api/late?step={step_id}" for step_id in ("minutes", "lists")]
    state = () if is_remote(spark) else ("/api/state?step=minutes&key=b",)
    watcher = Watcher(address, *late, "/view/last/b", *state)
    summary = run(
        flow,
        spark=spark,
        recovery=RecoveryConfig(str(tmp_path / "checkpoint")),
        shards=2,
        partitions=1,
        system_time="1970-01-01T00:10:00Z",
        web=address,
        web_values=True,
        on_epoch=watcher,
    )

    assert summary.count("minutes", "late") == 1
    assert_agree(watcher, summary)
    first, *later = watcher.reports
    assert ("waiting", *first.phases) == PHASES
    assert all(tuple(report.phases) == PHASES for report in later)
    assert all(seconds >= 0 for report in watcher.reports for seconds in report.phases.values())
    assert {step for report in watcher.reports for step in report.busy} == {
        *("visits", "minutes", "lists", "out", "lists_out", "last")
    }
    #  now 600 s, wait 10 s; the newest values are b 20 s and a 80 s
    assert first.lags == dict.fromkeys(("minutes", "lists"), WatermarkLag(530.0, 530.0, 590.0, 2))
    assert all(size > 1 << 20 for report in watcher.reports for size in report.workers.values())
    assert watcher.reports[0].workers

    end = watcher.last_event()
    assert (end["state"], end["epochs"]) == ("ended", summary.epochs)

    *of_steps, view = watcher.answers[: len(late) + 1]
    assert view["epoch"] == watcher.reports[-1].epoch
    assert view["entry"]["value"] == ["b", 97]
    assert open(tmp_path / "checkpoint")["last"].get("b").value == ["b", 97]
    for (value,) in (answer["late"] for answer in of_steps):
        assert (value["key"], value["value"], value["reason"]) == ("b", "('b', 4)", "late")
        assert (value["timestamp"], value["watermark"]) == (4.0, 10.0)
        assert value["windows"] == [{"id": 0, "open": 0.0, "close": 60.0}]
    for answer in watcher.answers[len(late) + 1 :]:
        (of_key,) = answer["keys"]
        (window,) = of_key["state"]["windows"]
        assert (of_key["key"], window["value"]) == ("b", {"n": 3, "mean": 96.0})
        assert window["open"] == "1970-01-01T00:01:00Z"


def test_a_batch_s_page_and_metrics_agree_with_its_summary(spark: SparkSession) -> None:
    address = free_address()
    watcher = Watcher(address)
    flow = minutes_flow(sixteen())
    summary = run(flow, spark=spark, engine="batch", shards=2, web=address, on_epoch=watcher)
    assert summary.engine == watcher.flow["engine"] == "batch"
    assert_agree(watcher, summary)
    (report,) = watcher.reports
    assert ("waiting", *report.phases) == PHASES
    assert all(seconds >= 0 for seconds in report.phases.values())
    assert watcher.last_event()["state"] == "ended"
    with pytest.raises(OSError, match="refused"):
        get(address, "/")


def test_a_wrong_address_is_refused_before_spark_starts() -> None:
    with pytest.raises(FlowBuildError, match="run: web must be HOST:PORT"):
        run(minutes_flow([]), web="everywhere")
