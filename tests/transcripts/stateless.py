"""Transcripts of steps that keep nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import flow.operators as op
from flow.testing import Part
from tests.support.transcript import AnyOrder, AsRead, Transcript, Wiring, builder, still

FLIGHTS = pa.RecordBatch.from_pylist(
    [
        {"origin": "JFK", "delay": 5},
        {"origin": "LGA", "delay": -2},
        {"origin": "JFK", "delay": 0},
    ]
)


def is_odd(number: int) -> bool:
    return number % 2 == 1


def words(text: str) -> list[str]:
    return text.split()


def is_late(flight: dict[str, Any]) -> bool:
    return bool(flight["delay"] > 0)


def delay_of(flight: dict[str, Any]) -> int:
    return int(flight["delay"])


def shown(error: op.ItemError) -> tuple[str, str]:
    return error.item, type(error.exception).__name__


@builder
def long_words(w: Wiring) -> None:
    split = op.flat_map(w.name("words"), w.input("s"), words)
    kept = op.filter(w.name("long"), split, lambda word: len(word) > 2)
    w.output("out", op.map(w.name("upper"), kept, str.upper))


@builder
def odd_and_even(w: Wiring) -> None:
    odd = op.branch(w.name("odd"), w.input("s"), is_odd)
    tens = op.map(w.name("tens"), odd.falses, lambda n: n * 10)
    w.output("odd", odd.trues)
    w.output("all", op.merge(w.name("all"), tens, odd.trues))


@builder
def delays(w: Wiring) -> None:
    keyed = op.key_on(w.name("by_origin"), w.input("s"), "origin")
    w.output("late", op.key_rm(w.name("rm"), op.filter_value(w.name("late"), keyed, is_late)))
    w.output("delays", op.map_value(w.name("delay"), keyed, delay_of))


@builder
def numbers(w: Wiring) -> None:
    tried = op.try_map(w.name("int"), w.input("s"), int)
    w.output("numbers", tried.ok)
    w.output("bad", op.map(w.name("shown"), tried.errors, shown))


@builder
def spread(w: Wiring) -> None:
    w.output("out", op.redistribute(w.name("spread"), w.input("s")))


TRANSCRIPTS = [
    Transcript(
        "items keep their order through stateless steps",
        flow="long_words",
        epochs=[still(s=["the quick fox", ""]), still(s=["it is"]), still(s=["a lazy dog"])],
        expected={"out": AsRead(["THE", "QUICK", "FOX", "LAZY", "DOG"])},
    ),
    Transcript(
        "a merge puts the two ways of a branch back in source order",
        flow="odd_and_even",
        epochs=[still(s=[1, 2, 3]), still(s=[4, 5])],
        expected={"odd": AsRead([1, 3, 5]), "all": AsRead([1, 20, 3, 40, 5])},
    ),
    Transcript(
        "records are keyed by a column and come out as dicts",
        flow="delays",
        epochs=[still(s=FLIGHTS.slice(0, 2)), still(s=FLIGHTS.slice(2))],
        expected={
            "late": AsRead([{"origin": "JFK", "delay": 5}]),
            "delays": AsRead([("JFK", 5), ("LGA", -2), ("JFK", 0)]),
        },
    ),
    Transcript(
        "dicts are keyed by a field as records are by a column",
        flow="delays",
        epochs=[still(s=FLIGHTS.to_pylist())],
        expected={
            "late": AsRead([{"origin": "JFK", "delay": 5}]),
            "delays": AsRead([("JFK", 5), ("LGA", -2), ("JFK", 0)]),
        },
    ),
    Transcript(
        "what a mapper raises on leaves on a stream of its own",
        flow="numbers",
        epochs=[still(s=["1", "x", "2"]), still(s=[None])],
        expected={
            "numbers": AsRead([1, 2]),
            "bad": AsRead([("x", "ValueError"), (None, "TypeError")]),
        },
    ),
    Transcript(
        "redistribute loses nothing",
        flow="spread",
        epochs=[still(s=list(range(50))), still(s=[Part([50, 51]), Part([52], partition=1)])],
        expected={"out": AnyOrder(range(53))},
    ),
]
