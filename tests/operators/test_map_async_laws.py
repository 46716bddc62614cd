"""Laws of async calls in process: order, capacity and attempts of random calls."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource
from tests.support.sampling import sampled

ATTEMPTS = 3


@dataclass
class Work:
    """The calls of a run.

    Attributes:
        in_flight: the number of attempts in flight.
        most: the greatest number of attempts in flight.
        attempts: the number of attempts of each item.
        begun: the items of each key, in the order in which their calls began.
        running: the keys whose calls run.
        overlapped: True if two calls of a key ran at a time.
    """

    in_flight: int = 0
    most: int = 0
    attempts: Counter[int] = field(default_factory=Counter)
    begun: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    running: Counter[str] = field(default_factory=Counter)
    overlapped: bool = False


WORK = Work()


@dataclass(frozen=True)
class Item:
    """An item: the loop's turns that a call takes, and the failures before it succeeds."""

    number: int
    turns: int
    failures: int


async def call(pair: tuple[str, Item]) -> tuple[str, int]:
    key, item = pair
    WORK.in_flight += 1
    WORK.most = max(WORK.most, WORK.in_flight)
    if not WORK.attempts[item.number]:
        WORK.begun[key].append(item.number)
    WORK.attempts[item.number] += 1
    WORK.running[key] += 1
    WORK.overlapped |= WORK.running[key] > 1
    try:
        for _ in range(item.turns):
            await asyncio.sleep(0)
        if WORK.attempts[item.number] <= item.failures:
            raise ConnectionError(item.number)
    finally:
        WORK.in_flight -= 1
        WORK.running[key] -= 1
    return key, item.number


SHAPES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 4)), max_size=30
)


@sampled(150, by_default=40)
@given(
    epochs=st.lists(SHAPES, min_size=1, max_size=3),
    capacity=st.integers(1, 6),
    order=st.sampled_from(["input", "key", "none"]),
)
def test_calls_keep_order_capacity_and_attempts(
    epochs: list[list[tuple[str, int, int]]], capacity: int, order: Literal["input", "key", "none"]
) -> None:
    WORK.__init__()  # type: ignore[misc]  # The function of a step refers to the module's object.
    numbers = iter(range(1000))
    sent = [
        [(key, Item(next(numbers), turns, failures)) for key, turns, failures in shapes]
        for shapes in epochs
    ]
    items = [pair for of_epoch in sent for pair in of_epoch]
    flow = Dataflow("laws")
    tried = op.map_async(
        "call",
        op.input("in", flow, TestingSource([])),
        call,
        capacity=capacity,
        order=order,
        retry=op.Retry(ATTEMPTS, "0s"),
        on_error="errors",
    )
    op.output("ok", tried.ok, TestingSink([]))
    op.output("errors", tried.errors, TestingSink([]))
    with TestDriver(flow) as t:
        for of_epoch in sent:
            t.send("in", of_epoch)

        ok = [(key, item.number) for key, item in items if item.failures < ATTEMPTS]
        received: list[Any] = t.received("ok")
        assert (sorted(received) == sorted(ok)) if order == "none" else (received == ok)
        failed = [error.item for error in t.received("errors")]
        assert failed == [pair for pair in items if pair[1].failures >= ATTEMPTS]
        expected = {item.number: min(item.failures + 1, ATTEMPTS) for _, item in items}
        assert expected == WORK.attempts
        assert t.stats.counts["call", "retries"] == sum(expected.values()) - len(items)
    assert WORK.most <= capacity
    assert WORK.in_flight == 0
    if order == "key":
        assert not WORK.overlapped
        assert WORK.begun == {
            key: [item.number for of, item in items if of == key] for key in {k for k, _ in items}
        }
