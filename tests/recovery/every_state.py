"""A flow with every kind of state."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, KeyedStream
from flow.connectors.source import Batch, Split
from flow.testing import TestingSink, TestingSource
from tests.recovery.checkpoints import run_flow

START = datetime(2023, 12, 14, 10, tzinfo=UTC)
KEYS = 12
Record = dict[str, Any]


@dataclass
class Basket:
    """State of a user-written class."""

    owner: str
    sizes: list[int]


class Largest(win.Aggregator[Any, Any, Any]):
    """A user-written aggregator whose state is an object."""

    def initialize(self) -> Basket:
        return Basket("largest", [])

    def add(self, state: Basket, value: Any) -> Basket:
        return Basket(state.owner, sorted([*state.sizes, value["n"]])[-2:])

    def merge(self, state: Basket, other: Basket) -> Basket:
        return Basket(state.owner, sorted(state.sizes + other.sizes)[-2:])

    def result(self, state: Basket) -> list[int]:
        return state.sizes


class Runs(win.WindowLogic[Any, Any, Any]):
    """A user-written logic of one window."""

    def __init__(self, state: list[int] | None) -> None:
        self.numbers = state or []

    def on_value(self, value: Any) -> Iterator[Any]:
        self.numbers.append(value["n"])
        if len(self.numbers) % 5 == 0:
            yield sum(self.numbers)

    def on_merge(self, original: Any) -> Iterator[Any]:
        self.numbers += original.numbers
        return iter(())

    def on_close(self) -> Iterator[Any]:
        yield list(self.numbers)

    def snapshot(self) -> list[int]:
        return list(self.numbers)


class Rows(TestingSource):
    """A source whose items are records, in columns."""

    def read(self, split: Split) -> Iterator[Batch]:
        for items in super().read(split):
            yield pa.RecordBatch.from_pylist(list(items))


def values(seed: int, count: int) -> list[tuple[str, Record]]:
    """Return records of keys in nearly the order of time, some of them late."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        minute = number / 4 - (rng.random() * 4 if rng.random() < 0.95 else 40)
        at = (START + timedelta(minutes=minute)).isoformat()
        kind = rng.choice(["view", "click"])
        record = {"at": at, "n": rng.randrange(1000), "x": rng.random(), "kind": kind}
        made.append((f"key-{rng.randrange(KEYS)}", record))
    return made


def filled(basket: Basket | None, value: Record) -> tuple[Basket, int]:
    """Put a number into the basket of a key."""
    sizes = [*(basket.sizes if basket else []), value["n"]][-5:]
    return Basket("me", sizes), sum(sizes)


def number_of(value: Record) -> int:
    return int(value["n"])


def listed(numbers: list[int], value: Record) -> list[int]:
    return [*numbers, value["n"]]


def joined(numbers: list[int], others: list[int]) -> list[int]:
    return numbers + others


def added(total: int, number: int) -> int:
    return total + number


def is_click(item: tuple[str, Record]) -> bool:
    return bool(item[1]["kind"] == "click")


def windows(stream: KeyedStream[Any], records: KeyedStream[Any]) -> dict[str, Any]:
    """Return the outputs of windowing steps: every windower, over columns and key by key."""
    clock = win.EventClock("at", "5m", on_idle="hold")
    hold = win.EventClock("at", "5m", on_idle="hold", scope="stream")
    hour, slide = win.TumblingWindower("1h"), win.SlidingWindower("1h", "20m", grace="10m")
    session, day = win.SessionWindower("7m"), win.CalendarWindower("day", "Europe/Berlin")
    figures: dict[str, Any] = {
        "n": win.Count(), "total": win.Sum("n"), "mean": win.Mean("x"), "least": win.Min("n"),
        "most": win.Max("x"), "first": win.First("n"), "last": win.Last("n"),
        "earliest": win.Earliest("n"), "latest": win.Latest("n"),
    }  # fmt: skip
    others: dict[str, Any] = {
        "all": win.Collect("n"), "unique": win.CollectUnique("kind"), "top": win.TopK("kind", 1),
        "most": win.MaxK("n", 2), "least": win.MinK("n", 2), "kinds": win.CountDistinct("kind"),
        "half": win.Quantile("x", 0.5), "spread": win.StdDev("x"), "largest": Largest(),
        "most_unique": win.MaxKUnique("n", 2), "least_unique": win.MinKUnique("n", 2),
    }  # fmt: skip
    found: dict[str, Any] = {}
    for name, windower in (
        ("hours", hour), ("slides", slide), ("sessions", session), ("days", day),
        ("counts", win.CountWindower(7, 3)), ("gaps", win.SlidingWindower("10m", "25m")),
    ):  # fmt: skip
        for source, up in (("objects", stream), ("records", records)):
            step = f"{name}_{source}"
            found[step] = win.aggregate_window(step, up, clock, windower, **figures)
            step = f"{name}_{source}_ordered"
            found[step] = win.aggregate_window(step, up, clock, windower, ordered=True, **others)
    for emit in ("epoch", "update"):
        step = f"sessions_{emit}"
        found[step] = win.aggregate_window(step, stream, clock, session, emit=emit, **figures)
        step = f"hours_{emit}"
        found[step] = win.fold_window(step, stream, clock, hour, list, listed, joined, emit=emit)
    sliding = win.EventSlidingWindower("10m", emit_right=True, resolution="1ms")
    found["event_sliding"] = win.collect_window("event_sliding", stream, clock, sliding)
    found["stream_hours"] = win.aggregate_window("stream_hours", stream, hold, hour, **figures)
    found["logics"] = win.window("logics", stream, clock, session, Runs)
    found["logics_now"] = win.window("logics_now", stream, clock, hour, Runs, ordered=False)
    clicks, views = op.branch("kinds", stream, is_click)
    for mode in ("first", "last", "product"):
        step = f"join_{mode}"
        found[step] = win.join_window(
            step, clicks, views, clock=clock, windower=hour, insert_mode=mode
        )
    down = {name: out.down for name, out in found.items()}
    return {**down, "late": op.merge("late", *(out.late for out in found.values()))}


def make_flow(items: list[Any]) -> Dataflow:
    """Return the flow over the items, and over `ROWS` in columns."""
    flow = Dataflow("every_state")
    stream = op.input("stream", flow, TestingSource(items, batch_size=200))
    rows = op.input("rows", flow, Rows(ROWS, batch_size=100))
    records = op.key_on("records", rows, "key")
    clicks, views = op.branch("clicks_views", stream, is_click)
    numbers = op.map_value("numbers", stream, number_of)
    outputs = windows(stream, records)
    outputs["baskets"] = op.stateful_map("baskets", stream, filled)
    outputs["lists"] = op.collect("lists", numbers, timeout="1000d", max_size=9)
    outputs["totals"] = op.reduce_final("totals", numbers, added)
    outputs["greatest"] = op.max_final("greatest", numbers)
    outputs["joined"] = op.join("joined", clicks, views)
    for name, out in outputs.items():
        op.output(f"{name}_out", out, TestingSink([]))
    return flow


def go_on(directory: Path, items: list[Any], drain: bool) -> dict[str, Any]:
    """Run the flow on the checkpoint in a directory; return the items of each output, sorted."""
    flow = make_flow(items)
    run_flow(directory / "checkpoint", flow, drain=drain, system_time=START, partitions=2)
    return outputs_of(flow)


def outputs_of(flow: Dataflow) -> dict[str, Any]:
    """Return the items of each output of a run, sorted."""
    sinks = {
        step.step_id: step.operator.sink for step in flow.steps if hasattr(step.operator, "sink")
    }
    return {name: sorted(map(repr, sink.items)) for name, sink in sinks.items()}


ITEMS = values(1, 600)
ROWS = [{"key": key, **record} for key, record in values(2, 400)]
