"""Inputs of the market: trades and quotes in files, changes of rules, and rows that are looked up.

System time stands still but for the epochs that read trades: each of them advances it by
`EPOCH_MINUTES`. Changes of rules arrive by the number of the epoch of trades. So each epoch sees
the versions of tables that it sees in an uninterrupted run, whenever a run is killed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from flow.connectors.files import JsonLinesSource
from flow.connectors.source import Batch, Json, Planner, Slice, Source, SourceLog, Split
from flow.connectors.then import Then
from tests.faults.shop import (
    START,
    Record,
    Size,
    StruckSource,
    by_arrival,
    up_to_four_minutes,
    write_files,
)
from tests.faults.striking import Fault

SYMBOLS = 8
ACCOUNTS = 5
EPOCH_MINUTES = 3
HISTORY_SHARE = 0.4
"""Share of the trades that is read as history, before the live ones."""


def write_inputs(home: Path, size: Size, seed: int = 1) -> None:
    """Write trades and quotes, in the order in which they are heard of: nearly in time."""
    rng = random.Random(seed)
    trades = _numbered(by_arrival(rng, _trades(rng, size), _delay))
    history = int(len(trades) * HISTORY_SHARE)
    write_files(home / "trades" / "history", trades[:history])
    write_files(home / "trades" / "live", trades[history:])
    write_files(home / "quotes", _numbered(by_arrival(rng, _quotes(rng, size))))


def _trades(rng: random.Random, size: Size) -> Iterator[tuple[float, Record]]:
    """Yield trades, of which some are reported twice."""
    for number in range(int(size.hours * 60)):
        minute = rng.random() * size.hours * 60
        trade = {
            "id": number,
            "symbol": f"symbol-{rng.randrange(SYMBOLS)}",
            "account": f"account-{rng.randrange(ACCOUNTS)}",
            "price": round(rng.uniform(10, 20), 2),
            "size": rng.randint(1, 99),
        }
        yield minute, trade
        if rng.random() < 0.15:
            yield minute + rng.random() * 15, trade


def _delay(rng: random.Random) -> float:
    """Return the minutes after which a trade is heard of: some after the end of their window."""
    return up_to_four_minutes(rng) + (8 if rng.random() < 0.15 else 0)


def _quotes(rng: random.Random, size: Size) -> Iterator[tuple[float, Record]]:
    for _ in range(int(size.hours * 90)):
        bid = round(rng.uniform(10, 20), 2) if rng.random() < 0.9 else None
        quote = {"symbol": f"symbol-{rng.randrange(SYMBOLS)}", "bid": bid}
        yield rng.random() * size.hours * 60, quote


def _numbered(records: list[Record]) -> list[Record]:
    return [{**record, "n": n} for n, record in enumerate(records)]


@dataclass
class Pace:
    """Number of epochs that have read trades, as far as this process has planned them."""

    number: int = 0


def trades_of(home: Path, size: Size) -> Then[Any]:
    """Return the source of trades: a history, and live trades after it."""
    folder = home / "trades"
    total = sum(file.stat().st_size for file in folder.glob("*/*"))
    part = total // size.epochs
    history, live = (
        JsonLinesSource(folder / name, bytes_per_epoch=part) for name in ("history", "live")
    )
    return Then(history, live)


@dataclass(frozen=True)
class PacedSource(Source[Any]):
    """A source each of whose epochs advances system time, and lets the next changes arrive."""

    inner: StruckSource
    pace: Pace

    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _PacedPlanner(self.inner.planner(log, parallelism), self.pace)

    def read(self, split: Split) -> Iterator[Batch]:
        return self.inner.read(split)


class _PacedPlanner(Planner):
    def __init__(self, inner: Planner, pace: Pace) -> None:
        self._inner = inner
        self._pace = pace

    def next(self, start: Json | None) -> Slice | None:
        planned = self._inner.next(start)
        if planned is None:
            return None
        self._pace.number = planned.end[0]
        return replace(planned, advance_us=EPOCH_MINUTES * 60_000_000)

    def finished(self, start: Json | None) -> bool:
        return self._inner.finished(start)

    def lag(self, start: Json | None) -> str:
        return self._inner.lag(start)

    def close(self) -> None:
        self._inner.close()


@dataclass(frozen=True)
class ChangesSource(Source[Any]):
    """Changes of the market's rules: some with each epoch of trades.

    A fault may strike as an epoch's changes are planned, before its version is written.
    """

    pace: Pace
    fault: Fault
    size: Size = field(default_factory=Size)

    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _ChangesPlanner(self.pace, self.fault)

    def read(self, split: Split) -> Iterator[Batch]:
        first, end = split.what
        minutes = self.size.hours * 60 / self.size.epochs
        for number in range(first, end):
            yield list(_changes(number, minutes))


def _changes(number: int, minutes: float) -> Iterator[Record]:
    """Yield the changes that arrive with an epoch of trades.

    Each epoch changes the limits of all symbols to the epoch's number, and removes one of them. The
    fee of an account holds from the epoch's time on.
    """
    for symbol in range(SYMBOLS):
        limit = None if symbol == number % SYMBOLS else number
        yield {"what": "limit", "symbol": f"symbol-{symbol}", "limit": limit}
    at = (START + timedelta(minutes=minutes * number)).isoformat()
    account = f"account-{number % ACCOUNTS}"
    yield {"what": "fee", "account": account, "fee": number % 7, "at": at}


class _ChangesPlanner(Planner):
    """Planner of changes; an offset is the number of epochs whose changes have been read."""

    def __init__(self, pace: Pace, fault: Fault) -> None:
        self._pace = pace
        self._fault = fault

    def next(self, start: Json | None) -> Slice | None:
        first, end = start or 0, self._pace.number
        if end <= first:
            return None
        self._fault.strike("changes", first)
        return Slice(end, [Split([first, end])])

    def finished(self, start: Json | None) -> bool:
        return (start or 0) >= self._pace.number


@dataclass(frozen=True)
class Editions:
    """Rows that are looked up: each reading finds a newer edition.

    A fault may strike as they are read, after the versions of earlier tables have been written.
    """

    home: Path
    fault: Fault

    def __call__(self) -> list[Mapping[str, Any]]:
        """Return the rows of the next edition."""
        folder = self.home / "editions"
        folder.mkdir(exist_ok=True)
        edition = len(list(folder.iterdir()))
        (folder / f"{edition}").touch()
        self.fault.strike("look up", edition)
        return [{"name": "edition", "value": edition}]
