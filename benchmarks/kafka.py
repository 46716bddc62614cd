"""Kafka → tumbling sum → Kafka: ours, Spark SQL and Quix Streams on the same broker.

    python benchmarks/kafka.py [--messages N] [--runs N] [--spark PYTHON] [--quix PYTHON]

A broker is started as the tests do, with Maven and Java. Each contestant runs
in a process of its own, one after the other, in turns; what is timed is a whole run, from the start
of the query or the application to its end, with Spark itself started and warm. Answers are compared
with those that plain Python gives. ``--quix`` is an interpreter that has Quix Streams, which asks
for another version of the client than ours may use, and ``--spark`` one that has a version of Spark
whose connector for Kafka can be had.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.kafka_job import PARTITIONS, Answers, answers_to, fill, read_answers  # noqa: E402
from tests.support.kafka import Broker, broker_program  # noqa: E402

WARM = 500_000
CONTESTANTS = {"ours": "flow-windows", "spark": "Spark SQL", "quix": "Quix Streams"}


def main() -> int:
    """Measure, compare and show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--spark", default=sys.executable)
    parser.add_argument("--quix", default=sys.executable)
    parser.add_argument("--only", nargs="*", choices=CONTESTANTS, default=list(CONTESTANTS))
    options = parser.parse_args()
    problem, jars = broker_program()
    if problem:
        sys.exit(problem)
    broker = Broker(jars)
    try:
        source = broker.topic(partitions=PARTITIONS)
        warm = broker.topic(partitions=PARTITIONS)
        fill(broker.servers, source, options.messages)
        fill(broker.servers, warm, WARM)
        expected = answers_to(options.messages)
        seconds: dict[str, list[float]] = {who: [] for who in options.only}
        for _ in range(options.runs):
            for who in options.only:
                python = getattr(options, who, sys.executable)
                took = one_run(broker, who, python, (source, warm), options.messages, expected)
                print(f"{CONTESTANTS[who]}: {took:.1f} s", flush=True)
                seconds[who].append(took)
    finally:
        broker.remove()
    show(seconds, options.messages)
    return 0


def one_run(
    broker: Broker,
    who: str,
    python: str,
    topics: tuple[str, str],
    messages: int,
    expected: Answers,
) -> float:
    """Let a contestant do the job, and look at what it wrote; returns its seconds."""
    sink = broker.topic(f"sums-{who}-{uuid.uuid4().hex[:8]}", PARTITIONS)
    broker.topic(f"{sink}-warm", PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="flow-benchmark-") as scratch:
        arguments = {
            "servers": broker.servers,
            "source": topics[0],
            "sink": sink,
            "warm": topics[1],
            "messages": str(messages),
            "scratch": scratch,
        }
        command = [python, "-m", f"benchmarks.kafka_{who}"]
        command += [text for name, value in arguments.items() for text in (f"--{name}", value)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{CONTESTANTS[who]} failed")
    found = answers_of(who, messages, broker.consume(sink, 300))
    if found != expected:
        different = sum(found.get(window) != total for window, total in expected.items())
        print(f"{CONTESTANTS[who]}: {different} of {len(expected)} answers differ")
    seconds: float = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return seconds


def answers_of(who: str, read: int, messages: list[Any]) -> Answers:
    """What a contestant's topic holds, that has read so many messages."""
    if who == "quix":
        return read_answers(messages, read, lambda value: int(value["start"]), "value")

    def opens(value: dict[str, Any]) -> int:
        return round(datetime.fromisoformat(value["open_time"]).timestamp() * 1000)

    return read_answers(messages, read, opens, "total")


def show(seconds: dict[str, list[float]], messages: int) -> None:
    """Print the table."""
    medians = {who: statistics.median(took) for who, took in seconds.items()}
    print("\n| | median | messages/s | ours is |\n|---|---:|---:|---:|")
    for who, median in medians.items():
        ratio = f"{median / medians['ours']:.2f}x" if "ours" in medians else ""
        print(f"| {CONTESTANTS[who]} | {median:.1f} s | {messages / median:,.0f} | {ratio} |")


if __name__ == "__main__":
    sys.exit(main())
