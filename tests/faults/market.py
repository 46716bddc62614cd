"""A second flow that is killed: trades and quotes at a market, with tables, calls and triggers.

::

    changes ── limits, fees (tables) ┐         rows that are looked up ── editions (a lookup table)
    trades (history, then live) ─────┴ limited ── charged (calls) ─┐
                                     ┌──────────── by symbol ──────┤
    level 1   once, apart (dedup)  runs (state by time)  panes, pieces (triggers)  ranked
              settled, paired, quoted (joins)
    level 2   streaks (state that expires)  confirmed (calls)  top, site (all keys)  spreads

Every value that is lost or comes twice shows in the log: totals run on. Limits are the number of
an epoch, so an item that saw another version shows too. The one thing that differs from run to run
is the edition that an epoch looks up, and with another layout the identity of a call:
`tests.faults.market_runs` checks both by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, KeyedStream, Stream
from flow.connectors.files import JsonLinesSink, ParquetSink
from flow_windowing import EventClock, TumblingWindower
from tests.faults import shop
from tests.faults.market_inputs import ChangesSource, Editions, Pace, PacedSource, trades_of
from tests.faults.shop import Record, Size, StruckSource, source_of, struck, value_of
from tests.faults.striking import NO_FAULT, Fault

CLOCK = EventClock("at", "2m", on_idle="hold")
FEES_KEPT = "1h"


def make_flow(home: Path, size: Size, fault: Fault = NO_FAULT) -> Dataflow:
    """Return the flow, over the inputs in a folder, with a fault that strikes somewhere in it."""
    flow, pace = Dataflow("market"), Pace()
    struck_trades = StruckSource(trades_of(home, size), fault)
    trades = op.input("trades", flow, PacedSource(struck_trades, pace))
    quotes = op.input("quotes", flow, source_of(home, "quotes", size))
    changes = op.input("changes", flow, ChangesSource(pace, fault, size))
    of_limits = op.filter("of_limits", changes, partial(is_change_of, "limit"))
    of_fees = op.filter("of_fees", changes, partial(is_change_of, "fee"))
    limits = op.table("limits", of_limits, "symbol", "limit")
    fees = op.table("fees", of_fees, "account", "fee", as_of="at", keep=FEES_KEPT)
    editions = op.lookup_table(
        "editions", flow, Editions(home, fault), "name", "value", refresh="10m"
    )

    limited = op.map_with("limited", trades, limits, with_limit)
    priced = op.map_with("priced", limited, fees, with_fee, as_of="at")
    calls = partial(Calls, home / "calls" / "charged")
    charged = op.map_async("charged", priced, Charge(fault), resource=calls)
    symbols = op.key_on("by_symbol", op.map("charged_trade", charged, value_of), "symbol")
    quotes_by_symbol = op.key_on("quotes_by_symbol", quotes, "symbol")

    once = win.dedup("once", symbols, win.SystemClock(), "id", ttl="20m").down
    log = [
        op.map("charged_call", charged, call_of),
        op.map_with("edition", trades, editions, edition_of),
        *_streaks(home, once, limits, editions, fault),
        *_windows(symbols),
        *_joins(symbols, quotes_by_symbol),
    ]
    panes = op.map_batches("range", op.records("rows", _panes(symbols).down), with_range)
    op.output("write_panes", panes, struck(ParquetSink(home / "out" / "panes"), fault, "panes"))
    log_sink = JsonLinesSink(home / "out" / "log")
    op.output("write_log", op.merge("all_log", *log), struck(log_sink, fault, "log"))
    return flow


def _streaks(
    home: Path, once: KeyedStream[Any], limits: Any, editions: Any, fault: Fault
) -> list[Stream[Any]]:
    """Add state that expires by system time, calls in the order of keys, and tables after both."""
    streaks = op.stateful_map("streaks", once, AddSize(fault), ttl="10m", ttl_from="first")
    again = op.map_with("limited_again", streaks.down, limits, with_limit_again)
    calls = partial(Calls, home / "calls" / "confirmed")
    confirmed = op.map_async("confirmed", again, confirm, resource=calls, order="key")
    return [
        op.map("confirmed_trade", confirmed, value_of),
        op.map("confirmed_call", confirmed, call_of),
        op.map_with("edition_again", confirmed, editions, edition_again_of),
        op.map("streak_over", streaks.expired, partial(state_of, "streak over")),
    ]


def _panes(symbols: KeyedStream[Any]) -> win.WindowOut[Any, Any]:
    """Add windows with early and late panes, by number and by system time."""
    aggregates: dict[str, Any] = {"n": win.Count(), "total": win.Sum("price")}
    aggregates |= {"least": win.Min("price"), "most": win.Max("price")}
    aggregates |= {"median": win.ApproxQuantile("price", q=0.5)}
    aggregates |= {"accounts": win.ApproxCountDistinct("account")}
    emit = win.AfterWatermark(early=win.Early(every="5m", count=4), late=win.Late(count=1))
    windower = TumblingWindower("30m", grace="10m")
    return win.aggregate_window("panes", symbols, CLOCK, windower, emit=emit, **aggregates)


def _windows(symbols: KeyedStream[Any]) -> list[Stream[Any]]:
    """Add windows of each key and of all keys, and state by event time."""
    runs = win.stateful_map("runs", symbols, CLOCK, add_to_run, ttl="12m")
    emit = win.AfterWatermark(early=win.Early(every="7m"), accumulate=False)
    patient = TumblingWindower("1h", grace="5m")
    pieces = win.fold_window("pieces", symbols, CLOCK, patient, list, add_number, emit=emit)
    apart = win.dedup("apart", symbols, CLOCK, "account", ttl="3m")
    hours = TumblingWindower("1h")
    accounts = win.ApproxTopK("account", 3, counters=4)
    ranked = win.aggregate_window("ranked", symbols, CLOCK, hours, accounts=accounts)
    top = win.top_n("top", symbols, CLOCK, hours, 3, by=win.Sum("price"))
    aggregates: dict[str, Any] = {"n": win.Count(), "total": win.Sum("price")}
    aggregates |= {"ids": win.ApproxCountDistinct("id")}
    aggregates |= {"share": win.ApproxQuantile("price", q=0.9)}
    site = win.aggregate_window_all("site", symbols, CLOCK, TumblingWindower("20m"), **aggregates)
    return [
        op.map("run", runs.down, value_of),
        op.map("run_over", runs.expired, partial(state_of, "run over")),
        op.map("apart_of", apart.down, apart_of),
        *(
            op.map_window(f"{name}_of", out.down, partial(window_of, name))
            for name, out in (("piece", pieces), ("ranked", ranked), ("top", top), ("site", site))
        ),
        *_late(runs=runs, apart=apart, pieces=pieces, ranked=ranked, top=top, site=site),
    ]


def _joins(trades: KeyedStream[Any], quotes: KeyedStream[Any]) -> list[Stream[Any]]:
    """Add joins by arrival and by time, and windows over the results of one."""
    settled = op.join("settled", trades, quotes, ttl="10m")
    paired = win.join_interval("paired", trades, quotes, CLOCK, "30s", "1m", how="outer")
    quoted = win.join_asof("quoted", trades, quotes, CLOCK, "5m", right_value="bid")
    spread = op.map_window("spread", quoted.down, spread_of)
    by_account = op.key_on("by_account", spread, "account")
    clock, hour = EventClock("at", "0s", on_idle="hold"), TumblingWindower("1h")
    spreads = win.aggregate_window(
        "spreads", by_account, clock, hour, spread=win.Sum("spread"), n=win.Count()
    )
    return [
        op.map("settled_of", settled.down, settled_of),
        op.map_window("pair_of", paired.down, pair_of),
        spread,
        op.map_window("spreads_of", spreads.down, partial(window_of, "spreads")),
        *_late(paired=paired, quoted=quoted, spreads=spreads),
    ]


def _late(**steps: Any) -> list[Stream[Any]]:
    """Add records of the late values of some steps."""
    return [op.map(f"late_{name}", out.late, partial(late_of, name)) for name, out in steps.items()]


def is_change_of(what: str, change: Record) -> bool:
    """Return True for a change of a limit, or of a fee."""
    return bool(change["what"] == what)


def with_limit(trade: Record, limits: Mapping[str, Any]) -> Record:
    """Add the limit of a trade's symbol."""
    return {**trade, "limit": limits.get(trade["symbol"])}


def with_fee(trade: Record, fees: Mapping[str, Any]) -> Record:
    """Add the fee of a trade's account at the time of the trade."""
    return {**trade, "fee": fees.get(trade["account"])}


def with_limit_again(item: Any, limits: Mapping[str, Any]) -> Any:
    """Add the limit once more, in a task after a shuffle."""
    symbol, streak = item
    return symbol, {**streak, "limit_again": limits.get(symbol)}


@dataclass(frozen=True)
class Calls:
    """A service that is called: it notes each call under the identity that the call brings.

    Attributes:
        folder: the folder with a file for each identity.
    """

    folder: Path

    def note(self, call: str, number: int) -> None:
        """Note a call for the trade `number`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = os.open(self.folder / call, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{number}\n".encode())
        os.close(file)


@dataclass(frozen=True)
class Charge:
    """Charges an account for a trade."""

    fault: Fault

    async def __call__(self, calls: Calls, trade: Record) -> tuple[Record, Record]:
        """Charge, and return the identity of the call and the trade."""
        call = op.call_id()
        self.fault.strike("before call", trade["n"])
        calls.note(call, trade["n"])
        self.fault.strike("after call", trade["n"])
        return {"step": "charged", "n": trade["n"], "call": call}, trade


async def confirm(calls: Calls, item: Any) -> tuple[Record, Record]:
    """Confirm a trade in the order of its symbol's trades."""
    _, streak = item
    call = op.call_id()
    calls.note(call, streak["n"])
    return {"step": "confirmed", "n": streak["n"], "call": call}, {"what": "streak", **streak}


def call_of(charged: tuple[Record, Record]) -> Record:
    """Return the record of a call."""
    return {"what": "call", **charged[0]}


def edition_of(trade: Record, editions: Mapping[str, Any]) -> Record:
    """Return the edition that a trade sees before the shuffles."""
    return {"what": "edition", "n": trade["n"], "edition": editions["edition"]}


def edition_again_of(confirmed: tuple[Record, Record], editions: Mapping[str, Any]) -> Record:
    """Return the edition that a trade sees after the shuffles."""
    edition = editions["edition"]
    return {"what": "edition again", "n": confirmed[0]["n"], "edition": edition}


@dataclass(frozen=True)
class AddSize:
    """Adds the size of a trade to its symbol's streak."""

    HARMLESS: ClassVar = frozenset({"fault"})

    fault: Fault

    def __call__(self, total: int | None, trade: Record) -> tuple[int, Record]:
        """Add it, and return the trade with the total."""
        self.fault.strike("level 2", trade["n"])
        total = (total or 0) + trade["size"]
        names = ("symbol", "n", "id", "limit", "fee")
        return total, {**{name: trade[name] for name in names}, "total": total}


def add_to_run(state: list[int] | None, trade: Record) -> tuple[list[int], Record]:
    """Add a trade to the run of its symbol: its number, and the sum of the numbers in the run."""
    count, total = state or [0, 0]
    state = [count + 1, total + trade["n"]]
    return state, {"what": "run", "symbol": trade["symbol"], "n": trade["n"], "run": state}


def add_number(numbers: list[int], trade: Record) -> list[int]:
    """Add the number of a trade."""
    return [*numbers, trade["n"]]


def state_of(what: str, item: Any) -> Record:
    """Return the record of state that has expired."""
    key, state = item
    return {"what": what, "key": key, "state": state}


def late_of(step: str, item: Any) -> Record:
    """Return the record of a late value of a step."""
    return {**shop.late_of(item), "step": step}


def window_of(what: str, key: str, window: win.WindowMetadata, value: Any) -> Record:
    """Return the record of the result of a window."""
    pane = {} if window.pane is None else window.pane.as_record()
    return {"what": what, "key": key, "open": window.open_time.isoformat(), "value": value, **pane}


def apart_of(item: Any) -> Record:
    """Return the record of the first trade of an account and a symbol in a while."""
    symbol, trade = item
    return {"what": "apart", "symbol": symbol, "account": trade["account"], "n": trade["n"]}


def settled_of(item: Any) -> Record:
    """Return the record of the last trade and the last quote since the last such record."""
    symbol, (trade, quote) = item
    return {"what": "settled", "symbol": symbol, "trade": trade["n"], "quote": quote["n"]}


def pair_of(symbol: str, window: win.WindowMetadata, pair: win.JoinedPair[Any, Any]) -> Record:
    """Return the record of a trade and a quote, or of one of the two alone."""
    left, right = (None if one is None else one["n"] for one in pair)
    bounds = [window.open_time.isoformat(), window.close_time.isoformat()]
    return {"what": "pair", "symbol": symbol, "trade": left, "quote": right, "bounds": bounds}


def spread_of(symbol: str, _window: Any, pair: win.JoinedPair[Any, Any]) -> Record:
    """Return the record of a trade with its distance from the bid at its time."""
    trade, bid = pair
    spread = None if bid is None else trade["price"] - bid
    of_trade = {name: trade[name] for name in ("account", "n", "at")}
    return {"what": "spread", "symbol": symbol, **of_trade, "spread": spread}


def with_range(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the difference between the greatest and the least price to each row."""
    return batch.append_column("range", pc.subtract(batch["most"], batch["least"]))
