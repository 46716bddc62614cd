"""A `KafkaSink` at the end of flows on Spark that are killed at any point and run again."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import flow.operators as op
from flow import Dataflow, StepError, run
from flow.connectors.kafka import KafkaSink
from flow.connectors.kafka.sending import Sender
from flow.connectors.sink import Sink
from flow.operators.dead_letters import dead_letters
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support.kafka import Broker
from tests.support.one_stream import a_flow, running_total, step

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
SECRET = "s3cr3t-s3cr3t"
SEED = int(os.environ.get("FAULTS_SEED", "1"))
"""Where the kills fall, as far as that can be repeated."""


def totals(sink: Sink[Any]) -> Dataflow:
    source = TestingSource(ITEMS, batch_size=2)
    return a_flow(step(op.stateful_map, running_total), source=source, sink=sink)


ITEMS = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]
TOTALS = {b"a": [1, 4, 9], b"b": [2, 6]}


def by_key(broker: Broker, topic: str) -> dict[bytes, list[Any]]:
    """The committed values of each key, in order."""
    found: dict[bytes, list[Any]] = defaultdict(list)
    for message in broker.consume(topic):
        found[message.key()].append(json.loads(message.value())["value"])
    return dict(found)


def small(spark: SparkSession, tmp_path: Path) -> dict[str, Any]:
    recovery = RecoveryConfig(str(tmp_path / "checkpoint"))
    return {"recovery": recovery, "spark": spark, "shards": 4, "partitions": 2}


#  epoch    0       1       2
#  items  a1 b2   a3 b4    a5
#                    died once its transaction was committed, and once while it was open
@pytest.mark.extended
@pytest.mark.parametrize(
    ("cls", "method"),
    [
        pytest.param(KafkaSink, "commit", id="committed"),
        pytest.param(Sender, "flush", id="open", marks=pytest.mark.extended),
    ],
)
def test_a_killed_flow_resumes_with_nothing_lost_or_doubled(
    broker: Broker,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cls: Any,
    method: str,
) -> None:
    topic = broker.topic(partitions=2)
    sink = KafkaSink(broker.servers, topic, properties={"sasl.password": SECRET})
    original, calls = getattr(cls, method), list[Any]()

    def dying(*arguments: Any) -> None:
        original(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise RuntimeError("died")

    with monkeypatch.context() as patch:
        patch.setattr(cls, method, dying)
        with pytest.raises(StepError, match="died"):
            run(totals(sink), **small(spark, tmp_path))
    before = {b"a": [1, 4], b"b": [2, 6]} if method == "commit" else {b"a": [1], b"b": [2]}
    assert by_key(broker, topic) == before
    run(totals(sink), **small(spark, tmp_path))
    assert by_key(broker, topic) == TOTALS
    kept = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept
    assert not any(SECRET.encode() in content for content in kept)


def test_a_batch_writes_results_and_dead_letters(broker: Broker, spark: SparkSession) -> None:
    results, dead = broker.topic(partitions=2), broker.topic()
    flow = Dataflow("sums")
    texts = op.input("in", flow, TestingSource([*ITEMS, ("a", "x"), ("b", "y")]))
    numbers = op.try_map("parse", texts, lambda item: (item[0], int(item[1])))
    totals = op.stateful_map("total", numbers.ok, running_total)
    op.output("out", totals, KafkaSink(broker.servers, results, guarantee="at least once"))
    dead_letters("dead", numbers.errors, sink=KafkaSink(broker.servers, dead))
    assert run(flow, spark=spark).engine == "batch"
    assert by_key(broker, results) == TOTALS
    letters = broker.consume(dead)
    assert [(one.key(), json.loads(one.value())) for one in letters] == [(b"a", "x"), (b"b", "y")]
    headers = dict(letters[1].headers())
    assert headers["flow.step"] == b"parse"
    assert headers["flow.reason"].startswith(b"ValueError: invalid literal for int()")


# --- killed at random moments ---

EPOCHS, SIZE, KEYS = 24, 60, 7
NUMBERS = [(f"k{number % KEYS}", number) for number in range(EPOCHS * SIZE)]
MOMENTS = ("sending", "sent", "committed", "done")


class StruckSink(KafkaSink):
    """Sink whose process dies at a moment of an epoch."""

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        flush = Sender.flush

        def struck_flush(*arguments: Any) -> None:
            flush(*arguments)
            die_at("sent", epoch)

        die_at("sending", epoch)
        Sender.flush = struck_flush  # type: ignore[method-assign]
        super().commit(epoch, messages)
        Sender.flush = flush  # type: ignore[method-assign]
        die_at("committed", epoch)


def die_at(moment: str, epoch: int) -> None:
    """Kill the process if it is the moment that its arguments name."""
    if sys.argv[-2:] == [moment, str(epoch)]:
        os.kill(os.getpid(), signal.SIGKILL)


def run_until_struck(servers: str, topic: str, checkpoint: str) -> None:
    """Run the flow of running totals to its end, or to its death."""
    source, sink = TestingSource(NUMBERS, batch_size=SIZE), StruckSink(servers, topic)
    flow = a_flow(step(op.stateful_map, running_total), source=source, sink=sink)
    options: dict[str, Any] = {"master": "local[1]", "shards": 2, "partitions": 1}
    recovery = RecoveryConfig(checkpoint)
    run(flow, recovery=recovery, on_epoch=lambda report: die_at("done", report.epoch), **options)


@pytest.mark.extended
def test_results_are_written_once_over_random_kills(broker: Broker, tmp_path: Path) -> None:
    print(f"FAULTS_SEED={SEED}")  # noqa: T201  (shown when the test fails)
    topic, rng = broker.topic(partitions=3), random.Random(SEED)
    command = [sys.executable, "-m", __name__, broker.servers, topic, str(tmp_path)]
    moments = rng.sample(MOMENTS * 2, 8)
    for moment, epoch in zip(moments, sorted(rng.choices(range(EPOCHS), k=8)), strict=True):
        struck = [*command, moment, str(epoch)]
        killed = subprocess.run(struck, cwd=ROOT, capture_output=True)
        assert killed.returncode in (0, -signal.SIGKILL), killed.stderr[-2_000:]
    subprocess.run([*command, "never", "-1"], cwd=ROOT, capture_output=True, check=True)
    expected = {
        f"k{key}".encode(): list(itertools.accumulate(range(key, EPOCHS * SIZE, KEYS)))
        for key in range(KEYS)
    }
    assert by_key(broker, topic) == expected


if __name__ == "__main__":
    run_until_struck(*sys.argv[1:4])
