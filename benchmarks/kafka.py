"""Kafka → tumbling sum → Kafka: flow-windows, Spark SQL and Quix Streams on the same broker.

    python benchmarks/kafka.py [--messages N] [--epoch N] [--runs N] [--spark PYTHON]
        [--quix PYTHON]

The benchmark starts a broker as the tests do, with Maven and Java. Contestants take turns, each in
a process of its own. The time is that of a whole run, from the start of the query or the
application to its end, with Spark itself started and warm. The benchmark compares the answers with
those of plain Python. flow-windows runs exactly once, and at least once, as Spark SQL and Quix
Streams do, and a third time through Spark's own connector for Kafka. ``--quix`` is an interpreter
with Quix Streams, which needs another version of the client, and ``--spark`` an interpreter with a
version of Spark whose connector for Kafka is available.
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
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.kafka_job import PARTITIONS, Answers, Job, answers_to, fill, read_answers  # noqa: E402
from tests.support.kafka import Broker, broker_program  # noqa: E402

WARM = 500_000


@dataclass(frozen=True)
class Contestant:
    """A library that runs the job.

    Attributes:
        title: its name in the table.
        module: the module to run.
        guarantee: the guarantee of its sink.
        python: the option that names its interpreter; by default this process's interpreter.
    """

    title: str
    module: str
    guarantee: str
    python: str = ""


CONTESTANTS = {
    "ours": Contestant("flow-windows, exactly once", "benchmarks.kafka_ours", "exactly once"),
    "ours-at-least-once": Contestant(
        "flow-windows, at least once", "benchmarks.kafka_ours", "at least once"
    ),
    "ours-connector": Contestant(
        "flow-windows through Spark's connector", "benchmarks.kafka_connector", "exactly once"
    ),
    "spark": Contestant(
        "Spark SQL, at least once", "benchmarks.kafka_spark", "at least once", "spark"
    ),
    "quix": Contestant(
        "Quix Streams, at least once", "benchmarks.kafka_quix", "at least once", "quix"
    ),
}


def main() -> int:
    """Measure the contestants, compare their answers, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--epoch", type=int, default=4_000_000)
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
                run_seconds = one_run(broker, CONTESTANTS[who], options, (source, warm), expected)
                print(f"{CONTESTANTS[who].title}: {run_seconds:.1f} s", flush=True)
                seconds[who].append(run_seconds)
    finally:
        broker.remove()
    show(seconds, options.messages)
    return 0


def one_run(
    broker: Broker,
    who: Contestant,
    options: argparse.Namespace,
    topics: tuple[str, str],
    expected: Answers,
) -> float:
    """Run the job with a contestant, check its answers, and return its seconds."""
    source, warm = topics
    sink = broker.topic(f"sums-{uuid.uuid4().hex[:8]}", PARTITIONS)
    broker.topic(f"{sink}-warm", PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="flow-benchmark-") as scratch:
        job = Job(
            broker.servers,
            source,
            sink,
            warm,
            options.messages,
            options.epoch,
            who.guarantee,
            scratch,
        )
        python = getattr(options, who.python, sys.executable)
        command = [python, "-m", who.module]
        command += [
            text for name, value in asdict(job).items() for text in (f"--{name}", f"{value}")
        ]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{who.title} failed")
    found = answers_of(who, options.messages, broker.consume(sink, 300))
    if found != expected:
        different = sum(found.get(window) != total for window, total in expected.items())
        print(f"{who.title}: {different} of {len(expected)} answers differ")
    seconds: float = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return seconds


def answers_of(who: Contestant, read: int, messages: list[Any]) -> Answers:
    """Return the sums in a contestant's topic, after it has read `read` messages."""
    if who is CONTESTANTS["quix"]:
        return read_answers(messages, read, lambda value: int(value["start"]), "value")

    def opens(value: dict[str, Any]) -> int:
        return round(datetime.fromisoformat(value["open_time"]).timestamp() * 1000)

    return read_answers(messages, read, opens, "total")


def show(seconds: dict[str, list[float]], messages: int) -> None:
    """Print the table."""
    medians = {who: statistics.median(times) for who, times in seconds.items()}
    ours = [who for who in medians if CONTESTANTS[who].module == CONTESTANTS["ours"].module]
    heads = "".join(f" as long as {CONTESTANTS[who].title} |" for who in ours)
    print(f"\n| | median | messages/s |{heads}\n|---|---:|---:|{'---:|' * len(ours)}")
    for who, median in medians.items():
        ratios = "".join(f" {median / medians[one]:.2f}x |" for one in ours)
        title = CONTESTANTS[who].title
        print(f"| {title} | {median:.1f} s | {messages / median:,.0f} |{ratios}")


if __name__ == "__main__":
    sys.exit(main())
