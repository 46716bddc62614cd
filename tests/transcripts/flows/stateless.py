"""Flows of steps without state."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

import flow.operators as op
from tests.support.transcript import In, Order, Out, Step, builder


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


@builder(out=Order.SOURCE)
def long_words(step: Step, s: In) -> Out:
    split = op.flat_map(step("words"), s, words)
    kept = op.filter(step("long"), split, lambda word: len(word) > 2)
    return {"out": op.map(step("upper"), kept, str.upper)}


@builder(odd=Order.SOURCE, all=Order.SOURCE)
def odd_and_even(step: Step, s: In) -> Out:
    odd = op.branch(step("odd"), s, is_odd)
    tens = op.map(step("tens"), odd.falses, lambda n: n * 10)
    return {"odd": odd.trues, "all": op.merge(step("all"), tens, odd.trues)}


@builder(late=Order.SOURCE, delays=Order.SOURCE)
def delays(step: Step, s: In) -> Out:
    keyed = op.key_on(step("by_origin"), s, "origin")
    late = op.key_rm(step("rm"), op.filter_value(step("late"), keyed, is_late))
    return {"late": late, "delays": op.map_value(step("delay"), keyed, delay_of)}


@builder(late=Order.SOURCE, far=Order.SOURCE, others=Order.SOURCE)
def delays_by_expressions(step: Step, s: In) -> Out:
    late = op.branch(step("is_late"), s, pc.field("delay") > 0)
    keyed = op.key_on(step("by_origin"), late.trues, "origin")
    far = op.filter_value(step("is_far"), keyed, pc.field("delay") >= 60)
    return {"late": late.trues, "far": op.key_rm(step("rm"), far), "others": late.falses}


@builder(numbers=Order.SOURCE, bad=Order.SOURCE)
def numbers(step: Step, s: In) -> Out:
    tried = op.try_map(step("int"), s, int)
    return {"numbers": tried.ok, "bad": op.map(step("shown"), tried.errors, shown)}


@builder(out=Order.ANY)
def spread(step: Step, s: In) -> Out:
    return {"out": op.redistribute(step("spread"), s)}
