"""Transcripts of steps with a state per key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import flow.operators as op
from flow.testing import Part
from tests.support.logics import BatchTotal, Diary
from tests.support.transcript import Transcript, Wiring, at, builder, still

TEN_PAST = datetime(2023, 12, 14, 10, 10, tzinfo=UTC)


def add(left: int, right: int) -> int:
    return left + right


def running(total: int | None, value: int) -> tuple[int | None, int]:
    """Adds up, and starts over at ten."""
    total = (total or 0) + value
    return (None if total >= 10 else total), total


def seconds(pair: tuple[str, int]) -> str:
    return pair[0]


@builder
def running_total(w: Wiring) -> None:
    w.output("out", op.stateful_map(w.name("sum"), w.input("s"), running))


@builder
def finals(w: Wiring) -> None:
    s = w.input("s")
    w.output("sum", op.reduce_final(w.name("sum"), s, add))
    w.output("max", op.max_final(w.name("max"), s))
    w.output("min", op.min_final(w.name("min"), s))
    w.output("count", op.count_final(w.name("count"), s, seconds))
    w.output("list", op.fold_final(w.name("list"), s, list, lambda kept, v: [*kept, v]))


@builder
def largest_by(w: Wiring, field: str) -> None:
    keyed = op.key_on(w.name("by_id"), w.input("s"), "id")
    w.output("out", op.max_final(w.name("max"), keyed, by=lambda record: record[field]))


@builder
def collect(w: Wiring, timeout: str, max_size: int) -> None:
    w.output("out", op.collect(w.name("lists"), w.input("s"), timeout, max_size))


@builder
def diary(w: Wiring) -> None:
    w.output("out", op.stateful(w.name("diary"), w.input("s"), Diary))


@builder
def batch_total(w: Wiring) -> None:
    w.output("out", op.stateful_batch(w.name("total"), w.input("s"), BatchTotal))


SCORES = [("a", 3), ("b", 1), ("a", 9), ("a", 5), ("b", 1)]
FINALS: dict[str, Any] = {
    "sum": {"a": [17], "b": [2]},
    "max": {"a": [9], "b": [1]},
    "min": {"a": [3], "b": [1]},
    "count": {"a": [3], "b": [2]},
    "list": {"a": [[3, 9, 5]], "b": [[1, 1]]},
}

TRANSCRIPTS = [
    Transcript(
        "a state goes on from epoch to epoch and is forgotten when it becomes none",
        flow="running_total",
        epochs=[still(s=[("a", 4), ("b", 1)]), still(s=[("a", 6), ("a", 1)]), still(s=[("a", 2)])],
        expected={"out": {"a": [4, 10, 1, 3], "b": [1]}},
    ),
    Transcript(
        "within a key source partitions interleave by position",
        #  partition 0   1     3     5
        #  partition 1     20     40
        flow="diary",
        epochs=[
            still(s=[Part([("k", 1), ("l", 3), ("k", 5)]), Part([("k", 20), ("k", 40)], 1)]),
        ],
        expected={
            "out": {
                "k": ["item 1", "item 20", "item 40", "item 5", "end after 4"],
                "l": ["item 3", "end after 1"],
            }
        },
    ),
    Transcript(
        "final figures come when the input ends and not before",
        flow="finals",
        epochs=[still(s=SCORES[:2]), still(s=SCORES[2:])],
        expected=FINALS,
        before_end={name: {} for name in FINALS},
    ),
    Transcript(
        "of equal records the first is the greatest",
        flow="largest_by",
        options={"field": "n"},
        epochs=[
            still(s=pa.RecordBatch.from_pylist([{"id": "a", "n": 1, "at": 1}])),
            still(s=pa.RecordBatch.from_pylist([{"id": "a", "n": 2, "at": at} for at in (2, 3)])),
        ],
        expected={"out": {"a": [{"id": "a", "n": 2, "at": 2}]}},
    ),
    Transcript(
        "a batch logic gets an epoch's values together",
        flow="batch_total",
        epochs=[still(s=[("a", 1), ("a", 2)]), still(s=[("a", 3), ("b", 1)])],
        expected={"out": {"a": [(2, 3), (1, 6)], "b": [(1, 1)]}},
    ),
    Transcript(
        "a list leaves when it is full, and the rest at the end",
        flow="collect",
        options={"timeout": "10m", "max_size": 2},
        epochs=[still(s=[("a", 1)]), still(s=[("a", 2), ("a", 3), ("b", 4)])],
        expected={"out": {"a": [[1, 2], [3]], "b": [[4]]}},
        before_end={"out": {"a": [[1, 2]]}},
    ),
    Transcript(
        "a list that waited long enough leaves though nothing comes",
        #  now   0     5m    10m     15m
        #  a     1     2     [1, 2]  3
        #  b           4             [4]
        flow="collect",
        options={"timeout": "10m", "max_size": 9},
        epochs=[
            at("0m", s=[("a", 1)]),
            at("5m", s=[("a", 2), ("b", 4)]),
            at("10m"),
            at("15m", s=[("a", 3)]),
        ],
        expected={"out": {"a": [[1, 2], [3]], "b": [[4]]}},
        before_end={"out": {"a": [[1, 2]], "b": [[4]]}},
    ),
    Transcript(
        "a list that waited long enough leaves before what comes later",
        #  now   0     5m    10m             15m
        #  a     1           [1], then 2     3
        flow="collect",
        options={"timeout": "10m", "max_size": 9},
        epochs=[at("0m", s=[("a", 1)]), at("5m"), at("10m", s=[("a", 2)]), at("15m", s=[("a", 3)])],
        expected={"out": {"a": [[1], [2, 3]]}},
        before_end={"out": {"a": [[1]]}},
    ),
    Transcript(
        "a full list makes the next one wait anew",
        #  now   0     5m             10m      15m
        #  a     1     [1, 2] 3       (not 3)  [3]
        flow="collect",
        options={"timeout": "10m", "max_size": 2},
        epochs=[at("0m", s=[("a", 1)]), at("5m", s=[("a", 2), ("a", 3)]), at("10m"), at("15m")],
        expected={"out": {"a": [[1, 2], [3]]}},
        before_end={"out": {"a": [[1, 2], [3]]}},
    ),
    Transcript(
        "a logic is called when it is due, then gets its values, then the end",
        flow="diary",
        epochs=[
            at("0m", s=[("k", TEN_PAST), ("l", TEN_PAST)]),
            at("5m", s=[("k", "a")]),
            at("10m", s=[("k", "b"), ("l", "go")]),
            at("15m"),
        ],
        expected={
            "out": {
                "k": ["set", "item a", "notify 10:10", "item b", "end after 4"],
                "l": ["set", "notify 10:10", "item go"],
            }
        },
    ),
    Transcript(
        "what becomes due by an epoch's values is called in that epoch",
        flow="diary",
        epochs=[at("0m"), at("5m"), at("10m"), at("15m", s=[("k", TEN_PAST), ("k", "a")])],
        expected={"out": {"k": ["set", "item a", "notify 10:15", "end after 3"]}},
    ),
]
