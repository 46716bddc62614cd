"""Transcripts of joins, and of inputs that meet."""

from __future__ import annotations

from typing import Any

import flow.operators as op
from tests.support.transcript import Transcript, Wiring, builder, still


@builder
def join(w: Wiring, sides: str, **modes: Any) -> None:
    w.output("out", op.join(w.name("join"), *[w.input(side) for side in sides], **modes))


@builder
def join_with_itself(w: Wiring) -> None:
    s = w.input("s")
    doubled = op.map_value(w.name("double"), s, lambda n: n * 2)
    w.output("out", op.join(w.name("join"), s, doubled, emit_mode="complete"))


@builder
def meeting(w: Wiring) -> None:
    both = op.merge(w.name("both"), w.input("left"), w.input("right"))
    w.output("out", op.fold_final(w.name("list"), both, list, lambda kept, v: [*kept, v]))


TRANSCRIPTS = [
    Transcript(
        "a join emits once both sides have a value and starts over",
        flow="join",
        options={"sides": "AB"},
        epochs=[
            still(A=[("k", 1), ("k", 2), ("l", 9)]),
            still(B=[("k", "x")]),
            still(A=[("k", 3)], B=[("k", "y")]),
        ],
        expected={"out": {"k": [(2, "x"), (3, "y")]}},
    ),
    Transcript(
        "a running join emits all that there is at every value",
        flow="join",
        options={"sides": "AB", "insert_mode": "product", "emit_mode": "running"},
        epochs=[still(A=[("k", 1), ("k", 2)], B=[("k", "x")])],
        expected={"out": {"k": [(1, None), (1, "x"), (1, "x"), (2, "x")]}},
    ),
    Transcript(
        "a final join emits at the end, with none for a side without a value",
        flow="join",
        options={"sides": "ABC", "insert_mode": "first", "emit_mode": "final"},
        epochs=[
            still(A=[("k", 1)], C=[("l", "p")]),
            still(A=[("k", 2)], B=[("k", "x")], C=[("k", "q")]),
        ],
        expected={"out": {"k": [(1, "x", "q")], "l": [(None, None, "p")]}},
        before_end={"out": {}},
    ),
    Transcript(
        "a stream that is joined with itself meets itself item by item",
        flow="join_with_itself",
        epochs=[still(s=[("k", 1), ("l", 5), ("k", 2)])],
        expected={"out": {"k": [(1, 2), (2, 4)], "l": [(5, 10)]}},
    ),
    Transcript(
        "two inputs meet in each epoch, first of each, then second of each",
        flow="meeting",
        epochs=[
            still(left=[("k", 1), ("k", 2), ("k", 3)], right=[("k", 10)]),
            still(right=[("k", 20), ("k", 30)]),
            still(left=[("k", 4)], right=[("k", 40)]),
        ],
        expected={"out": {"k": [[1, 10, 2, 3, 20, 30, 4, 40]]}},
    ),
]
