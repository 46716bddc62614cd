"""Task of each contestant of `benchmarks/kafka.py`, and the topic that it reads.

A message has a key, a time and a value: an order, a JSON object of some 130 bytes. The contestant
sums the amounts of each key in windows of ten seconds of the messages' time, and each sum becomes a
message with the same key. After the last message the topic has one message for each key, hours
later, which closes all earlier windows. The benchmark does not compare the windows of these
messages.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

KEYS = 1_000
START_MS = 1_700_000_000_000
WINDOW_MS = 10_000
GRACE_SECONDS = 60
LATER_MS = 3_600_000
PARTITIONS = 4

Answers = dict[tuple[str, int], int]
"""The sum of each key and window; a window is its open time in milliseconds."""


@dataclass(frozen=True)
class Job:
    """One run of a contestant.

    Attributes:
        servers: the brokers.
        source: the topic to read.
        sink: the topic to write to.
        warm: a small topic of the same kind, to be read first.
        messages: the number of messages in the topic.
        epoch: the greatest number of messages in an epoch, or a micro-batch.
        guarantee: the guarantee of its sink, if the contestant has a choice.
        scratch: a folder for checkpoints.
    """

    servers: str
    source: str
    sink: str
    warm: str
    messages: int
    epoch: int
    guarantee: str
    scratch: str


def run_as_asked(contestant: Callable[[Job], float]) -> None:
    """Run the job of the command line, and print its seconds."""
    parser = argparse.ArgumentParser()
    for field in fields(Job):
        kind = int if field.type == "int" else str
        parser.add_argument(f"--{field.name}", type=kind, required=True)
    seconds = contestant(Job(**vars(parser.parse_args())))
    print(json.dumps({"seconds": seconds}))


def amounts(messages: int) -> list[tuple[str, int, int]]:
    """Return the key, the time in milliseconds and the amount of each message."""
    rng = random.Random(1)
    found = [
        (f"k{rng.randrange(KEYS)}", START_MS + number, rng.randrange(100))
        for number in range(messages)
    ]
    later = found[-1][1] + 2 * LATER_MS
    return found + [(f"k{number}", later, 0) for number in range(KEYS)]


def order(key: str, at: int, amount: int) -> str:
    """Return the value of a message."""
    return (
        f'{{"order": "{at:x}-{key}", "shop": "{key}", "placed": {at}, "amount": {amount}, '
        f'"currency": "EUR", "paid": {"true" if amount % 3 else "false"}, "items": {amount % 7}}}'
    )


def answers_to(messages: int) -> Answers:
    """Return the expected sums of the first `messages` messages."""
    answers: Answers = {}
    for key, at, amount in amounts(messages)[:messages]:
        window = key, at // WINDOW_MS * WINDOW_MS
        answers[window] = answers.get(window, 0) + amount
    return answers


def fill(servers: str, topic: str, messages: int) -> int:
    """Write the messages to a topic, and return their number."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 10_000_000,
            "compression.type": "lz4",
        }
    )
    found = amounts(messages)
    for key, at, amount in found:
        producer.produce(topic, order(key, at, amount), key, timestamp=at)
        producer.poll(0)
    if producer.flush(300):
        sys.exit(f"{topic} could not be filled")
    return len(found)


def read_answers(
    messages: list[Any], read: int, opens: Callable[[dict[str, Any]], int], sum_: str
) -> Answers:
    """Return a contestant's sums, without those of the messages that close windows.

    Args:
        messages: the messages in its topic.
        read: the number of messages that the contestant has read.
        opens: returns the open time of a window in milliseconds, from the value of a message.
        sum_: the field of the sum.
    """
    answers: Answers = {}
    for message in messages:
        value = json.loads(message.value())
        answers[message.key().decode(), opens(value)] = value[sum_]
    later = START_MS + read + LATER_MS
    return {window: total for window, total in answers.items() if window[1] < later}


def seconds_of(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    began = time.monotonic()
    call()
    return time.monotonic() - began
