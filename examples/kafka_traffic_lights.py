"""Traffic lights over Kafka: cars in one topic, totals in another, unusable messages in a third.

    cars ─┬─ ok ─ by_light ─ figures ─┬─ down → car-figures
          │                           └─ late ─┐
          └─ errors ───────────────────────────┴─ dead letters → car-dead-letters

(The topics' names begin with ``example-``.)

Cameras at three lights send a message for each car. A window is ten minutes of traffic. The
camera at the bridge sometimes loses its connection, and sends the cars of the last half hour
afterwards, too late for their windows. And some messages are truncated. Neither stops the flow, and
neither is lost: these messages go unchanged to a topic of their own, with headers that have the
step, the reason, the lateness and the origin.

Each result is in its topic once, whatever fails: an epoch of the flow is one transaction of Kafka.
Stop the flow with Ctrl-C, or kill it, and start it again: it continues after its last epoch.

You need a broker: your own, or that of ``python examples/kafka_broker.py``. Then

    python examples/kafka_traffic_lights.py --servers localhost:9092

prints the messages of the two topics, until Ctrl-C::

    08:00-08:10 bridge: 84 cars, 190 passengers
    late by 1630 s: bridge, a car of 08:02:10
    unreadable: '{"at": "2024-05-01T08:'

The same program sends the cars, in a thread, ``--speed`` times as fast as they drove. ``--fresh``
deletes the three topics and starts over.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowError, run
from flow.connectors.kafka import KafkaSink, KafkaSource
from flow.operators.dead_letters import dead_letters
from recovery import RecoveryConfig

OUT = Path(__file__).parent / "out" / "kafka_traffic_lights"
CARS, FIGURES, DEAD = "example-cars", "example-car-figures", "example-car-dead-letters"
SCHEMA = {"at": pa.timestamp("us", "UTC"), "light": pa.string(), "passengers": pa.int64()}
START = datetime(2024, 5, 1, 8, tzinfo=UTC)


def make_flow(servers: str, end: str | None = None) -> Dataflow:
    """Build the flow.

    Args:
        servers: the brokers.
        end: ``"latest"`` to end with the cars that have been sent so far.
    """
    graph = Dataflow("kafka_traffic_lights")
    source = KafkaSource(servers, CARS, value="json", schema=SCHEMA, on_invalid="errors", end=end)
    cars, unreadable = op.try_input("cars", graph, source)
    figures = win.aggregate_window(
        "figures",
        op.key_on("by_light", cars, "light"),
        clock=win.EventClock("at", wait_for_system_duration="30s"),
        windower=win.TumblingWindower(length="10m"),
        timestamp="close",
        cars=win.Count(),
        passengers=win.Sum("passengers"),
    )
    op.output("figures_out", figures.down, KafkaSink(servers, FIGURES, partitions=3))
    dead_letters("dead", figures.late, unreadable, sink=KafkaSink(servers, DEAD, partitions=1))
    return graph


@dataclass(frozen=True)
class Sent:
    """A message of a camera, with its time and its light."""

    at: datetime
    light: str
    text: str


def traffic(seed: int = 1) -> Iterator[Sent]:
    """Yield the messages of cars in the order of sending; the same for the same seed."""
    rng, now, held = random.Random(seed), START, list[Sent]()
    while True:
        now += timedelta(seconds=rng.randint(1, 5))
        light = rng.choice(["bridge", "market", "station"])
        car = {"at": now.isoformat(), "light": light, "passengers": rng.randint(1, 5)}
        text = json.dumps(car)
        if rng.random() < 0.003:
            text = text[: rng.randint(5, 30)]
        sent = Sent(now, light, text)
        # The bridge's camera is offline for the first three minutes of every forty.
        if light == "bridge" and (now - START) % timedelta(minutes=40) < timedelta(minutes=3):
            held.append(sent)
        else:
            yield sent
        if held and now - held[0].at > timedelta(minutes=30):
            yield from held
            held = []


def send(servers: str, cars: Iterator[Sent], speed: float, noted: Path | None = None) -> None:
    """Send cars, `speed` times as fast as they drove.

    Args:
        servers: the brokers.
        cars: the cars; the function skips those that were sent before.
        speed: the ratio of event time to elapsed time.
        noted: the file with the number of cars that have been sent.
    """
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    before = int(noted.read_text()) if noted is not None and noted.exists() else 0
    began, first = time.monotonic(), None
    for count, car in enumerate(islice(cars, before, None), before + 1):
        first = first or car.at
        wait = (car.at - first).total_seconds() / speed - (time.monotonic() - began)
        if wait > 0:
            time.sleep(wait)
        producer.produce(CARS, car.text, car.light)
        producer.poll(0)
        if noted is not None and count % 100 == 0:
            noted.write_text(str(count))
    producer.flush()


def make_topic(servers: str, *, fresh: bool = False) -> None:
    """Create the topic of cars, unless it exists; the sinks create their topics."""
    admin = AdminClient({"bootstrap.servers": servers})
    try:
        there = set(admin.list_topics(timeout=10).topics)
        if fresh and there & {CARS, FIGURES, DEAD}:
            for deleted in admin.delete_topics([*there & {CARS, FIGURES, DEAD}]).values():
                deleted.result()
            time.sleep(2)
        if fresh or CARS not in there:
            admin.create_topics([NewTopic(CARS, 3)])[CARS].result()
    except KafkaException as error:
        raise SystemExit(f"no broker at {servers}: {error.args[0].str()}") from None


def arrivals(servers: str, start: str = "earliest") -> Iterator[str]:
    """Yield the present and future messages of the two topics as lines of text."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "kafka_traffic_lights",
            "isolation.level": "read_committed",
            "auto.offset.reset": start,
            "topic.metadata.refresh.interval.ms": 1000,
            "session.timeout.ms": 6000,
            "log_level": 0,
        }
    )
    consumer.subscribe([FIGURES, DEAD])
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            yield line_of(message)


def line_of(message: Message) -> str:
    """Return the text of a message of one of the two topics."""
    pairs = cast("list[tuple[str, bytes]]", message.headers() or [])
    headers = {name: value.decode() for name, value in pairs}
    if message.topic() == DEAD and headers["flow.reason"] != "late":
        return f"unreadable: {(message.value() or b'').decode()!r}"
    value: dict[str, Any] = json.loads(message.value() or b"{}")
    if message.topic() == DEAD:
        return f"late by {headers['flow.late_by']} s: {value['light']}, a car of {value['at']}"
    opens, closes = (value[name][11:16] for name in ("open_time", "close_time"))
    light = (message.key() or b"").decode()
    return f"{opens}-{closes} {light}: {value['cars']} cars, {value['passengers']} passengers"


def watch(servers: str) -> None:
    """Print messages as they arrive."""
    for line in arrivals(servers):
        print(line, flush=True)


def main(arguments: list[str]) -> int:
    """Send cars, count them, and print the results, until Ctrl-C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--servers", default="localhost:9092", help="the brokers")
    parser.add_argument("--speed", type=float, default=600, help="how fast: 600")
    parser.add_argument("--out", type=Path, default=OUT, help="where the checkpoint is")
    parser.add_argument("--fresh", action="store_true", help="start over")
    options = parser.parse_args(arguments)
    if options.fresh:
        shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    make_topic(options.servers, fresh=options.fresh)
    graph = make_flow(options.servers)
    sending = (options.servers, traffic(), options.speed, options.out / "sent")
    threading.Thread(target=send, args=sending, daemon=True).start()
    threading.Thread(target=watch, args=(options.servers,), daemon=True).start()
    try:
        run(graph, recovery=RecoveryConfig(options.out / "checkpoint"))
    except FlowError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
