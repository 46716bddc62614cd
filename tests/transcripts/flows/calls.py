"""Flows of async calls, of functions over batches, and of records."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import flow.operators as op
import flow_windowing as win
from tests.support.transcript import In, Order, Out, Step, builder


class Client:
    """A client that counts its calls."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.of_key: Counter[str] = Counter()

    async def ask(self, milliseconds: int) -> int:
        """Return the number of calls in flight as this one begins."""
        self.in_flight += 1
        begun = self.in_flight
        await asyncio.sleep(milliseconds / 1000)
        self.in_flight -= 1
        return begun


async def waited(milliseconds: int) -> int:
    await asyncio.sleep(milliseconds / 1000)
    return milliseconds


async def is_within(client: Client, milliseconds: int) -> bool:
    return await client.ask(milliseconds) <= 2


async def is_alone(client: Client, pair: tuple[str, int]) -> tuple[str, tuple[int, bool]]:
    key, milliseconds = pair
    client.of_key[key] += 1
    alone = client.of_key[key] == 1
    await client.ask(milliseconds)
    client.of_key[key] -= 1
    return key, (milliseconds, alone)


class Doubtful:
    """A client whose first answers to each question are failures."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    async def ask(self, word: str) -> str:
        call = op.call_id()
        self._asked[call] += 1
        if self._asked[call] < len(word):
            raise ConnectionError(word)
        return word.upper()


async def asked(client: Doubtful, word: str) -> str:
    return await client.ask(word)


async def in_time(milliseconds: int) -> int:
    await asyncio.sleep(milliseconds / 1000)
    return milliseconds


async def priced(order: dict[str, Any]) -> dict[str, Any]:
    return {**order, "price": 2 * order["n"]}


async def distinct(item: Any) -> tuple[Any, str]:
    return item, op.call_id()


@builder(out=Order.SOURCE)
def calls(step: Step, s: In, *, order: Any = "input", capacity: int = 100) -> Out:
    return {"out": op.map_async(step("call"), s, waited, order=order, capacity=capacity)}


@builder(out=Order.SOURCE)
def calls_at_capacity(step: Step, s: In) -> Out:
    return {"out": op.map_async(step("call"), s, is_within, resource=Client, capacity=2)}


@builder()
def calls_of_keys(step: Step, s: In) -> Out:
    return {"out": op.map_async(step("call"), s, is_alone, resource=Client, order="key")}


def shown(error: op.ItemError) -> tuple[Any, str]:
    return error.item, type(error.exception).__name__


@builder(ok=Order.SOURCE, bad=Order.SOURCE)
def calls_that_fail(step: Step, s: In) -> Out:
    retry = op.Retry(3, "1ms")
    tried = op.map_async(step("call"), s, asked, resource=Doubtful, retry=retry, on_error="errors")
    return {"ok": tried.ok, "bad": op.map(step("shown"), tried.errors, shown)}


@builder(ok=Order.SOURCE, bad=Order.SOURCE)
def calls_that_hang(step: Step, s: In) -> Out:
    once = op.Retry(1)
    tried = op.map_async(step("call"), s, in_time, timeout="300ms", retry=once, on_error="errors")
    return {"ok": tried.ok, "bad": op.map(step("shown"), tried.errors, shown)}


@builder(out=Order.SOURCE)
def calls_of_records(step: Step, s: In) -> Out:
    return {"out": op.map_async(step("call"), s, priced)}


@builder(out=Order.ANY)
def calls_of_windows(step: Step, s: In) -> Out:
    clock, windower = win.SystemClock(), win.CountWindower(2)
    pairs = win.collect_window(step("pairs"), s, clock, windower)
    sums = op.map_window(step("sum"), pairs.down, lambda key, window, values: sum(values))
    called = op.map_async(step("call"), sums, waited)
    return {"out": called}


@builder(ids=Order.KEY)
def call_ids(step: Step, s: In) -> Out:
    """The number of different call ids among copies of an item, which have one position."""
    copies = op.flat_map(step("copies"), s, lambda item: [item] * 3)
    called = op.map_async(step("call"), copies, distinct)
    keyed = op.key_on(step("by_item"), called, lambda pair: str(pair[0]))
    threes = op.collect(step("threes"), keyed, "1h", 3)
    return {"ids": op.map_value(step("count"), threes, lambda pairs: len({i for _, i in pairs}))}


def with_square(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("square", pc.multiply(batch["n"], batch["n"]))


@builder(out=Order.SOURCE)
def squares(step: Step, s: In, *, size: int | None = None) -> Out:
    return {"out": op.map_batches(step("square"), s, with_square, size=size)}


@builder()
def squares_of_keys(step: Step, s: In) -> Out:
    keyed = op.key_on(step("by_name"), s, "name")
    return {"out": op.map_batches(step("square"), keyed, with_square, size=2)}


@builder(out=Order.SOURCE)
def numbers_as_columns(step: Step, s: In) -> Out:
    return {"out": op.map_batches(step("as_they_are"), s, lambda batch: batch)}


def short(row: dict[str, Any]) -> tuple[str, str]:
    row = {name: f"{v:%H:%M}" if name.endswith("_time") else v for name, v in row.items()}
    return row.pop("key"), str(row)


WINDOWERS: dict[str, Any] = {
    "minutes": win.TumblingWindower("1m"),
    "sessions": win.SessionWindower("1m", grace="5m"),
}


@builder()
def records_of_windows(step: Step, s: In, *, windows: str) -> Out:
    clock = win.EventClock("at", "0s")
    keyed = op.key_on(step("by_name"), s, "name")
    totals = win.aggregate_window(step("w"), keyed, clock, WINDOWERS[windows], n=win.Sum("n"))
    return {"out": op.map(step("short"), op.records(step("rows"), totals.down), short)}


@builder()
def windows_of_records(step: Step, s: In) -> Out:
    """Totals of each key and minute, and the number of keys of each minute from their records."""
    clock = win.EventClock("at", "0s")
    keyed = op.key_on(step("by_name"), s, "name")
    totals = win.aggregate_window(
        step("minutes"), keyed, clock, win.TumblingWindower("1m"), n=win.Sum("n")
    )
    rows = op.key_on(step("again"), op.records(step("rows"), totals.down), "key")
    hours = win.aggregate_window(
        step("hours"),
        rows,
        win.EventClock("open_time", "0s"),
        win.TumblingWindower("1h"),
        most=win.Max("n"),
    )
    return {"out": op.map(step("short"), op.records(step("hour_rows"), hours.down), short)}


@builder(out=Order.SOURCE)
def records(step: Step, s: In) -> Out:
    return {"out": op.records(step("rows"), s)}
