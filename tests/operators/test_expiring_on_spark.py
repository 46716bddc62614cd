"""State that expires, in a query that is interrupted, replayed and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, run
from flow.errors import FlowError
from flow.testing import ABORT, EOF, Advance, TestingSink, TestingSource
from recovery import RecoveryConfig

STEPS = ("system", "event", "total", "by_time")


class Case:
    """A flow of three steps whose state expires, for several runs on one checkpoint."""

    def __init__(self, spark: SparkSession, path: Path, items: list[Any]) -> None:
        self.spark, self.items = spark, items
        self.recovery = RecoveryConfig(str(path / "checkpoint"))
        self.received: dict[str, list[Any]] = {}
        self.keys: list[tuple[int, ...]] = []

    def flow(self, ttl: str = "10s", **total: Any) -> Dataflow:
        flow = Dataflow("expiring")
        s = op.input("in", flow, TestingSource(self.items, batch_size=2))
        event = win.dedup("event", s, win.EventClock("at", "0s"), "id", ttl=ttl)
        counted = op.stateful_map("total", s, count, **total or {"ttl": ttl})
        clock = win.EventClock[Any]("at", "0s")
        by_time = win.stateful_map("by_time", s, clock, count, ttl=ttl)
        streams = {
            "by_time": by_time.down,
            "time_expired": by_time.expired,
            "system": win.dedup("system", s, win.SystemClock(), "id", ttl=ttl).down,
            "event": event.down,
        }
        if isinstance(counted, op.ExpiringOut):
            streams |= {"total": counted.down, "expired": counted.expired}
        for name, stream in streams.items():
            received = self.received.setdefault(name, [])
            op.output(f"to_{name}", stream, TestingSink(received))
        return flow

    def run(self, flow: Dataflow | None = None, **options: Any) -> Any:
        return run(
            flow or self.flow(),
            spark=self.spark,
            recovery=self.recovery,
            system_time=0,
            shards=4,
            partitions=1,
            on_epoch=self._on_epoch,
            **options,
        )

    def _on_epoch(self, report: EpochReport) -> None:
        self.keys.append(tuple(report.gauges[step, "keys"] for step in STEPS))

    def ids(self, name: str) -> list[Any]:
        return [(key, value["id"]) for key, value in self.received[name]]


def count(total: int | None, _: Any) -> tuple[int, int]:
    return (total or 0) + 1, (total or 0) + 1


def item(key: str, found: int, at: float) -> Any:
    return key, {"id": found, "at": at}


@pytest.mark.extended
#  run       1                             2                                     3
#  items     a1 a1 │ a2 ABORT              a2 a1 │ +9.999999s a1 │ +1µs a1 EOF   +20s
#  commit      x       -                     x            x           x           x
@pytest.mark.spark
def test_an_interrupted_query_resumes_its_state_and_ends_without(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(
        spark,
        tmp_path,
        [
            *(item("a", 1, 0), item("a", 1, 0)),
            *(item("a", 2, 0), ABORT(), item("a", 1, 0)),
            *(Advance("9.999999s"), item("a", 1, 9.999999)),
            *(Advance("0.000001s"), item("a", 1, 10), EOF()),
            Advance("20s"),
        ],
    )
    assert case.run().aborted
    assert case.ids("system") == case.ids("event") == [("a", 1)]
    case.run(drain=False)
    assert case.ids("system") == [("a", 1), ("a", 2), ("a", 1)]
    assert case.ids("event") == [("a", 1), ("a", 2), ("a", 1)]
    assert [total for _, total in case.received["total"]] == [1, 2, 3, 4, 5, 6]
    assert case.keys[-1] == (1, 1, 1, 1)
    assert [total for _, total in case.received["by_time"]] == [1, 2, 3, 4, 5, 6]
    summary = case.run(drain=False)
    assert case.keys[-1] == (0, 0, 0, 0)
    assert {summary.gauges[step, "state_bytes"] for step in STEPS} == {0}
    assert case.received["expired"] == case.received["time_expired"] == [("a", 6)]


@pytest.mark.spark
@pytest.mark.extended
def test_a_changed_time_to_live_holds_for_the_state_in_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    items = [item("a", 1, 0), EOF(), Advance("5s"), item("b", 1, 5), EOF()]
    case = Case(spark, tmp_path, items)
    case.run(drain=False)
    assert case.keys[-1] == (1, 1, 1, 1)
    case.run(case.flow("5s"), drain=False)
    assert case.keys[-1] == (1, 1, 1, 1), "only b"
    assert case.received["expired"] == case.received["time_expired"] == [("a", 1)]
    plain = Dataflow("expiring")
    s = op.input("in", plain, TestingSource(items, batch_size=2))
    op.output("to_total", op.stateful_map("total", s, count), TestingSink([]))
    with pytest.raises(FlowError, match="total"):
        case.run(plain)
