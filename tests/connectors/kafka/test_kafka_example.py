"""The Kafka example, from its input topics to its output topics."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples import kafka_traffic_lights as example
from flow import run
from tests.support.kafka import Broker


def is_held_back(car: example.Sent) -> bool:
    """Return True if the camera was cut off: it sends the car half an hour later, which is late."""
    cut_off = (car.at - example.START) % timedelta(minutes=40) < timedelta(minutes=3)
    return car.light == "bridge" and cut_off


def is_whole(car: example.Sent) -> bool:
    return car.text.endswith("}")


@pytest.mark.extended
@pytest.mark.spark
def test_cars_become_figures_and_dead_letters(broker: Broker, spark: SparkSession) -> None:
    until = example.START + timedelta(hours=2)
    cars = list(itertools.takewhile(lambda car: car.at < until, example.traffic()))
    example.make_topic(broker.servers, fresh=True)
    example.send(broker.servers, iter(cars), speed=float("inf"))
    run(example.make_flow(broker.servers, end="latest"), spark=spark)

    on_time = [car for car in cars if is_whole(car) and not is_held_back(car)]
    late = [car for car in cars if is_whole(car) and is_held_back(car)]
    broken = [car for car in cars if not is_whole(car)]
    assert min(len(on_time) - 1_000, len(late), len(broken)) > 0

    expected: Counter[tuple[str, int]] = Counter()
    for car in on_time:
        expected[car.light, (car.at - example.START) // timedelta(minutes=10)] += 1
    found: dict[tuple[str, int], int] = {}
    for message in broker.consume(example.FIGURES):
        value = json.loads(message.value())
        opens = datetime.fromisoformat(value["open_time"])
        light = message.key().decode()
        found[light, (opens - example.START) // timedelta(minutes=10)] = value["cars"]
    assert found == dict(expected)

    dead = [(one, dict(one.headers())) for one in broker.consume(example.DEAD)]
    of_late = [one for one, headers in dead if headers["flow.step"] == b"figures"]
    of_broken = [one for one, headers in dead if headers["flow.step"] == b"cars"]
    assert sorted(json.loads(one.value())["at"] for one in of_late) == sorted(
        f"{car.at:%Y-%m-%dT%H:%M:%S}Z" for car in late
    )
    assert sorted(one.value().decode() for one in of_broken) == sorted(one.text for one in broken)
    sent = {(one.partition(), one.offset()): one for one in broker.consume(example.CARS)}
    for one, headers in dead:
        assert headers["flow.topic"] == example.CARS.encode()
        original = sent[int(headers["flow.partition"]), int(headers["flow.offset"])]
        assert (original.key(), original.timestamp()) == (one.key(), one.timestamp())
    lines = [example.line_of(one) for one, _ in dead]
    assert sum(line.startswith("late by ") for line in lines) == len(late)
    assert sum(line.startswith("unreadable: ") for line in lines) == len(broken)


def test_sent_messages_are_not_sent_again(broker: Broker, tmp_path: Any) -> None:
    example.make_topic(broker.servers, fresh=True)
    for count in (150, 250):
        cars = itertools.islice(example.traffic(), count)
        example.send(broker.servers, cars, float("inf"), tmp_path / "sent")
    sent = [one.value().decode() for one in broker.consume(example.CARS)]
    first = [car.text for car in itertools.islice(example.traffic(), 250)]
    assert sorted(sent) == sorted(first[:150] + first[100:])
