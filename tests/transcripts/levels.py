"""Transcripts of flows with keyed steps one after the other."""

from __future__ import annotations

from typing import Any

import flow.operators as op
from tests.support.logics import Diary
from tests.support.transcript import Transcript, Wiring, at, builder, still


def add(left: int, right: int) -> int:
    return left + right


def summed(total: int | None, value: int) -> tuple[int, int]:
    total = (total or 0) + value
    return total, total


def city(pair: tuple[str, Any]) -> str:
    """The text before the dash of a key."""
    return pair[0].split("-")[0]


@builder
def sums_of_sums(w: Wiring) -> None:
    by_user = op.reduce_final(w.name("by_user"), w.input("s"), add)
    by_city = op.key_on(w.name("city"), by_user, city)
    amounts = op.map_value(w.name("amount"), by_city, lambda pair: pair[1])
    w.output("users", by_user)
    w.output("cities", op.reduce_final(w.name("by_city"), amounts, add))


@builder
def city_diaries(w: Wiring) -> None:
    """A running total for each user, and a diary of all totals for each city."""
    totals = op.stateful_map(w.name("totals"), w.input("s"), summed)
    by_city = op.key_on(w.name("city"), totals, city)
    w.output("out", op.stateful(w.name("diary"), by_city, Diary))


@builder
def raw_and_summed(w: Wiring) -> None:
    """Each value beside the running total up to it, of which one lies a level below the other."""
    s = w.input("s")
    totals = op.stateful_map(w.name("totals"), s, summed)
    both = op.merge(w.name("both"), s, totals)
    w.output("out", op.fold_final(w.name("list"), both, list, lambda kept, v: [*kept, v]))


@builder
def lists_of_lists(w: Wiring, timeout: str) -> None:
    pairs = op.collect(w.name("pairs"), w.input("s"), timeout, 2)
    w.output("out", op.collect(w.name("lists"), pairs, timeout, 2))


TRANSCRIPTS = [
    Transcript(
        "the end reaches level two after what level one emits at the end",
        flow="sums_of_sums",
        epochs=[still(s=[("ny-1", 5), ("ny-2", 7)]), still(s=[("ny-1", 1), ("la-1", 2)])],
        expected={
            "users": {"ny-1": [6], "ny-2": [7], "la-1": [2]},
            "cities": {"ny": [13], "la": [2]},
        },
    ),
    Transcript(
        "level two gets what level one made of many keys in source order",
        flow="city_diaries",
        epochs=[
            still(s=[("ny-2", 5), ("ny-1", 7), ("ny-2", 1)]),
            still(s=[("ny-3", 4), ("ny-1", 1)]),
        ],
        expected={
            "out": {
                "ny": [
                    "item ('ny-2', 5)",
                    "item ('ny-1', 7)",
                    "item ('ny-2', 6)",
                    "item ('ny-3', 4)",
                    "item ('ny-1', 8)",
                    "end after 5",
                ]
            }
        },
    ),
    Transcript(
        "a value comes before what a level below has made of it",
        flow="raw_and_summed",
        epochs=[still(s=[(key, 1) for key in "abcdefgh"]) for _ in range(4)],
        expected={"out": {key: [[1, 1, 1, 2, 1, 3, 1, 4]] for key in "abcdefgh"}},
    ),
    Transcript(
        "timers of two levels run down one after the other",
        #  now     0      5m            10m        15m
        #  pairs   1      [1, 2], 3                [3]
        #  lists          [[1, 2]                  [[1, 2], [3]]
        flow="lists_of_lists",
        options={"timeout": "10m"},
        epochs=[at("0m", s=[("a", 1)]), at("5m", s=[("a", 2), ("a", 3)]), at("10m"), at("15m")],
        expected={"out": {"a": [[[1, 2]], [[3]]]}},
    ),
]
