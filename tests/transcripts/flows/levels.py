"""Flows with keyed steps one after the other."""

from __future__ import annotations

from typing import Any

import flow.operators as op
from tests.support.logics import Diary
from tests.support.transcript import In, Order, Out, Step, builder


def add(left: int, right: int) -> int:
    return left + right


def summed(total: int | None, value: int) -> tuple[int, int]:
    total = (total or 0) + value
    return total, total


def city(pair: tuple[str, Any]) -> str:
    """Return the text before the dash of a key."""
    return pair[0].split("-")[0]


@builder(users=Order.KEY, cities=Order.KEY)
def sums_of_sums(step: Step, s: In) -> Out:
    by_user = op.reduce_final(step("by_user"), s, add)
    by_city = op.key_on(step("city"), by_user, city)
    amounts = op.map_value(step("amount"), by_city, lambda pair: pair[1])
    return {"users": by_user, "cities": op.reduce_final(step("by_city"), amounts, add)}


@builder()
def city_diaries(step: Step, s: In) -> Out:
    """A running total for each user, and a diary of all totals for each city."""
    totals = op.stateful_map(step("totals"), s, summed)
    by_city = op.key_on(step("city"), totals, city)
    return {"out": op.stateful(step("diary"), by_city, Diary)}


@builder()
def raw_and_summed(step: Step, s: In) -> Out:
    """Each value beside the running total up to it; one is a level below the other."""
    totals = op.stateful_map(step("totals"), s, summed)
    both = op.merge(step("both"), s, totals)
    return {"out": op.fold_final(step("list"), both, list, lambda kept, v: [*kept, v])}


@builder(shares_time=True)
def lists_of_lists(step: Step, s: In, *, timeout: str) -> Out:
    pairs = op.collect(step("pairs"), s, timeout, 2)
    return {"out": op.collect(step("lists"), pairs, timeout, 2)}
