"""Flows with tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flow.operators as op
from tests.support.transcript import In, Order, Out, Step, builder


def with_price(name: str, prices: Mapping[str, Any]) -> tuple[str, Any]:
    return name, prices.get(name)


def is_known(name: str, prices: Mapping[str, Any]) -> bool:
    return name in prices


def repeated(name: str, prices: Mapping[str, int]) -> list[str]:
    return [name] * prices.get(name, 0)


def of_pair(pair: tuple[str, Any], prices: Mapping[str, Any]) -> tuple[str, Any]:
    key, value = pair
    return key, (value, prices.get(key))


def count(state: int | None, value: Any) -> tuple[int, Any]:
    return (state or 0) + 1, (state or 0, value)


@builder(out=Order.SOURCE)
def priced(step: Step, changes: In, names: In) -> Out:
    prices = op.table(step("prices"), changes)
    return {"out": op.map_with(step("price"), names, prices, with_price)}


@builder(out=Order.SOURCE)
def priced_records(step: Step, changes: In, names: In, *, value: str | None = None) -> Out:
    prices = op.table(step("prices"), changes, "name", value)
    return {"out": op.map_with(step("price"), names, prices, with_price)}


@builder(known=Order.SOURCE, repeated=Order.SOURCE)
def known_names(step: Step, changes: In, names: In) -> Out:
    prices = op.table(step("prices"), changes)
    return {
        "known": op.filter_with(step("known"), names, prices, is_known),
        "repeated": op.flat_map_with(step("repeated"), names, prices, repeated),
    }


@builder(out=Order.KEY)
def priced_after_state(step: Step, changes: In, names: In) -> Out:
    prices = op.table(step("prices"), changes)
    counted = op.stateful_map(step("count"), names, count)
    return {"out": op.map_with(step("price"), counted, prices, of_pair)}


@builder(out=Order.KEY)
def priced_at_the_end(step: Step, changes: In, names: In) -> Out:
    prices = op.table(step("prices"), changes)
    counted = op.count_final(step("count"), names, lambda name: name)
    return {"out": op.map_with(step("price"), counted, prices, of_pair)}


@builder(out=Order.SOURCE)
def priced_by_two(step: Step, changes: In, others: In, names: In) -> Out:
    prices = op.table(step("prices"), op.merge(step("all"), changes, others))
    return {"out": op.map_with(step("price"), names, prices, with_price)}


@builder(out=Order.SOURCE)
def priced_as_of(step: Step, changes: In, names: In, *, keep: str | None = None) -> Out:
    prices = op.table(step("prices"), changes, "name", "price", as_of="at", keep=keep)

    def priced(record: dict[str, Any], table: Mapping[str, Any]) -> tuple[str, Any]:
        return record["name"], table.get(record["name"])

    return {"out": op.map_with(step("price"), names, prices, priced, as_of="at")}
