"""Flows of steps with a state for each key."""

from __future__ import annotations

import flow.operators as op
from tests.support.logics import BatchTotal, Diary
from tests.support.transcript import In, Order, Out, Step, builder


def add(left: int, right: int) -> int:
    return left + right


def running(total: int | None, value: int) -> tuple[int | None, int]:
    """Add up, and start over at ten."""
    total = (total or 0) + value
    return (None if total >= 10 else total), total


def first(pair: tuple[str, int]) -> str:
    return pair[0]


@builder()
def running_total(step: Step, s: In) -> Out:
    return {"out": op.stateful_map(step("sum"), s, running)}


@builder(**dict.fromkeys(("sum", "max", "min", "count", "list"), Order.KEY))
def finals(step: Step, s: In) -> Out:
    return {
        "sum": op.reduce_final(step("sum"), s, add),
        "max": op.max_final(step("max"), s),
        "min": op.min_final(step("min"), s),
        "count": op.count_final(step("count"), s, first),
        "list": op.fold_final(step("list"), s, list, lambda kept, v: [*kept, v]),
    }


@builder()
def largest_by(step: Step, s: In, *, field: str) -> Out:
    keyed = op.key_on(step("by_id"), s, "id")
    return {"out": op.max_final(step("max"), keyed, by=lambda record: record[field])}


@builder(shares_time=True)
def collect(step: Step, s: In, *, timeout: str, max_size: int) -> Out:
    return {"out": op.collect(step("lists"), s, timeout, max_size)}


@builder()
def diary(step: Step, s: In) -> Out:
    return {"out": op.stateful(step("diary"), s, Diary)}


@builder()
def batch_total(step: Step, s: In) -> Out:
    return {"out": op.stateful_batch(step("total"), s, BatchTotal)}
