"""The flow that is killed: visits to a shop and orders there, over two levels of keyed steps.

::

    clicks ─┬─ visits (sessions, by user) ─┬─ numbered (by town) ── log, JSON lines
            ├─ led_to (a join, by user) ─┐ │                         │ │
    orders ─┴─ spent  (totals, by user) ─│─┤                         │ │
                                         │ └─ hours (a join, by town)┴ late
                                         └───── log                  └─ hours, Parquet

Every value that is lost or comes twice shows: totals and numbers run on for the flow's whole life.
Watermarks move with the data alone, so that the results do not tell how long a run took.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.files import JsonLinesSink, JsonLinesSource, ParquetSink
from flow.connectors.sink import Sink, SinkBatch, WriteContext
from flow.connectors.source import Batch, Json, Planner, Slice, Source, SourceLog, Split
from flow_windowing import EventClock, SessionWindower, TumblingWindower
from tests.faults.striking import NO_FAULT, Fault

START = datetime(2024, 5, 1, tzinfo=UTC)
USERS = 20
TOWNS = 7
Record = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Size of the shop's input.

    Attributes:
        hours: the hours of visits and orders.
        epochs: the approximate number of epochs that read them.
    """

    hours: float = 20
    epochs: int = 40


def write_inputs(home: Path, size: Size, seed: int = 1) -> None:
    """Write what the shop's users did, in the order in which it is heard of: nearly in time."""
    rng = random.Random(seed)
    records_by_input = {
        "clicks": by_arrival(rng, _clicks(rng, size)),
        "orders": by_arrival(rng, _orders(rng, size)),
    }
    for name, records in records_by_input.items():
        write_files(home / name, [{**record, "n": n} for n, record in enumerate(records)])


def _clicks(rng: random.Random, size: Size) -> Iterator[tuple[float, Record]]:
    for user in range(USERS):
        minute = rng.expovariate(1 / 20)
        while minute < size.hours * 60:
            for page in range(rng.randint(1, 9)):
                yield minute, {"user": f"user-{user}", "page": f"/{page}"}
                minute += rng.expovariate(1 / 1.5)
            minute += rng.expovariate(1 / 25)


def _orders(rng: random.Random, size: Size) -> Iterator[tuple[float, Record]]:
    for _ in range(int(size.hours * 40)):
        user = f"user-{rng.randrange(USERS)}"
        yield rng.random() * size.hours * 60, {"user": user, "amount": rng.randint(1, 99)}


def up_to_four_minutes(rng: random.Random) -> float:
    """Return the minutes after which something is heard of."""
    return 4 * rng.random()


def by_arrival(
    rng: random.Random,
    events: Iterator[tuple[float, Record]],
    delay: Callable[[random.Random], float] = up_to_four_minutes,
) -> list[Record]:
    """Records with their time, in the order in which they are heard of."""
    timed = sorted(
        ((minute + delay(rng), minute, record) for minute, record in events), key=lambda one: one[0]
    )
    return [
        {**record, "at": (START + timedelta(minutes=minute)).isoformat()}
        for _, minute, record in timed
    ]


def write_files(folder: Path, records: list[Record]) -> None:
    """Write records as three files of JSON lines."""
    folder.mkdir(parents=True)
    files = 3
    for number in range(files):
        part = records[number * len(records) // files : (number + 1) * len(records) // files]
        lines = [json.dumps(record) + "\n" for record in part]
        (folder / f"{number}.jsonl").write_text("".join(lines), "utf-8")


def make_flow(home: Path, size: Size, fault: Fault = NO_FAULT) -> Dataflow:
    """The flow, over the inputs in a folder, with a fault that strikes somewhere in it."""
    flow = Dataflow("shop")
    clicks = op.input("clicks", flow, StruckSource(source_of(home, "clicks", size), fault))
    orders = op.input("orders", flow, source_of(home, "orders", size))
    clicks_by_user = op.key_on("clicks_by_user", clicks, "user")
    orders_by_user = op.key_on("orders_by_user", orders, "user")
    clock, gap = EventClock("at", "2m", on_idle="hold"), SessionWindower("5m")
    visits = win.fold_window(
        "visits", clicks_by_user, clock, gap, list, AddPage(fault), merge_pages
    )
    spent = op.stateful_map("spent", orders_by_user, add_amount)
    made = op.map("visit", visits.down, visit_of)
    visits_by_town = op.key_on("visits_by_town", made, "town")
    orders_by_town = op.key_on("orders_by_town", op.map("order", spent, order_of), "town")
    clock, hour = EventClock("at", "1h", on_idle="hold"), TumblingWindower("1h")
    hours = win.join_window("hours", visits_by_town, orders_by_town, clock=clock, windower=hour)
    both = op.merge("both", visits_by_town, orders_by_town)
    numbered = op.stateful_map("numbered", both, Number(fault))
    late = op.map("late", op.merge("all_late", visits.late, hours.late), late_of)
    led_to = op.join("led_to", clicks_by_user, orders_by_user)
    pairs = op.map("pair", led_to, pair_of)
    log = op.merge("all_log", op.map("plain", numbered, value_of), late, pairs)
    rows = op.map("row", hours.down, row_of)
    op.output("write_hours", rows, struck(ParquetSink(home / "out" / "hours"), fault, "hours"))
    op.output("write_log", log, struck(JsonLinesSink(home / "out" / "log"), fault, "log"))
    return flow


def source_of(home: Path, name: str, size: Size) -> JsonLinesSource:
    """Return the source of an input, which an epoch reads a part of."""
    total = sum(file.stat().st_size for file in (home / name).iterdir())
    return JsonLinesSource(home / name, bytes_per_epoch=total // size.epochs)


@dataclass(frozen=True)
class AddPage:
    """Adds a click to a visit."""

    HARMLESS: ClassVar = frozenset({"fault"})

    fault: Fault

    def __call__(self, pages: list[Any], click: Record) -> list[Any]:
        """Add it."""
        self.fault.strike("level 1", click["n"])
        return [*pages, [click["n"], click["page"]]]


def merge_pages(left: list[Any], right: list[Any]) -> list[Any]:
    """The pages of two visits that turned out to be one."""
    return sorted(left + right)


def add_amount(total: int | None, order: Record) -> tuple[int, Record]:
    """Add an order to what its user has spent."""
    spent = (total or 0) + order["amount"]
    return spent, {**order, "spent": spent}


@dataclass(frozen=True)
class Number:
    """Numbers what happens in a town."""

    HARMLESS: ClassVar = frozenset({"fault"})

    fault: Fault

    def __call__(self, number: int | None, record: Record) -> tuple[int, Record]:
        """Number it."""
        if record["what"] == "order":
            self.fault.strike("level 2", record["n"])
        count = (number or 0) + 1
        return count, {**record, "number": count}


def visit_of(item: Any) -> Record:
    """A visit as a record."""
    user, (window, pages) = item
    ids = [window.window_id, *sorted(window.merged_ids)]
    at = window.close_time.isoformat()
    return {"what": "visit", **_who(user), "at": at, "ids": ids, "pages": pages}


def order_of(item: Any) -> Record:
    """An order as a record."""
    user, order = item
    names = ("at", "n", "spent")
    return {"what": "order", **_who(user), **{name: order[name] for name in names}}


def _who(user: str) -> Record:
    return {"user": user, "town": f"town-{int(user.partition('-')[2]) % TOWNS}"}


def late_of(item: Any) -> Record:
    """Return the record of a late value."""
    key, late = item
    windows = [window.window_id for window in late.windows]
    by = late.late_by.total_seconds()
    details = {"late_by": by, "windows": windows, "side": late.side, "reason": late.reason.value}
    return {"what": "late", "key": key, "value": late.value, **details}


def pair_of(item: Any) -> Record:
    """A user's last click before an order, or the first after it, and the order."""
    user, (click, order) = item
    return {"what": "pair", "user": user, "click": click["n"], "order": order["n"]}


def value_of(item: Any) -> Any:
    """Return the value of a pair."""
    return item[1]


def row_of(item: Any) -> Record:
    """A town's hour as a row: its last visit and its last order."""
    town, (window, (visit, order)) = item
    visit, order = visit or {}, order or {}
    return {
        "town": town,
        "hour": window.open_time,
        "visitor": visit.get("user"),
        "pages": len(visit["pages"]) if visit else None,
        "buyer": order.get("user"),
        "order": order.get("n"),
        "spent": order.get("spent"),
    }


@dataclass(frozen=True)
class StruckSource(Source[Any]):
    """A source during whose planning, or reading, a fault may strike; epochs count from 0."""

    inner: Source[Any]
    fault: Fault

    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _StruckPlanner(self.inner.planner(log, parallelism), self.fault)

    def read(self, split: Split) -> Iterator[Batch]:
        number, what = split.what
        self.fault.strike("read", number)
        yield from self.inner.read(replace(split, what=what))


class _StruckPlanner(Planner):
    """Counts what it plans, in its offset too."""

    def __init__(self, inner: Planner, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def next(self, start: Json | None) -> Slice | None:
        number, at = start or (0, None)
        planned = self._inner.next(at)
        self._fault.strike("plan", number)
        if planned is None:
            return None
        splits = [replace(split, what=[number, split.what]) for split in planned.splits]
        return replace(planned, end=[number + 1, planned.end], splits=splits)

    def finished(self, start: Json | None) -> bool:
        return self._inner.finished((start or (0, None))[1])

    def lag(self, start: Json | None) -> str:
        return self._inner.lag((start or (0, None))[1])

    def close(self) -> None:
        self._inner.close()


def struck(inner: Sink[Any], fault: Fault, name: str) -> Sink[Any]:
    """A sink in which a fault may strike: before, during and after each of its calls."""
    return _StruckSink(inner, fault, name)


class _StruckSink(Sink[Any]):
    def __init__(self, inner: Sink[Any], fault: Fault, name: str) -> None:
        self.guarantee = inner.guarantee
        self._inner = inner
        self._name = name
        self._strike: Callable[[str, int], None] = fault.strike

    def open(self, run_id: str, resuming: bool) -> None:
        self._inner.open(run_id, resuming)

    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> Any:
        self._strike(f"before write {self._name}", context.epoch)
        message = self._inner.write(context, self._until_struck(context, batches))
        self._strike(f"after write {self._name}", context.epoch)
        return message

    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        self._strike(f"before commit {self._name}", epoch)
        self._inner.commit(epoch, messages)
        self._strike(f"after commit {self._name}", epoch)

    def close(self) -> None:
        self._inner.close()

    def _until_struck(
        self, context: WriteContext, batches: Iterator[SinkBatch]
    ) -> Iterator[SinkBatch]:
        yield from batches
        self._strike(f"amid write {self._name}", context.epoch)
