"""The windowed queries of Nexmark as flows.

Each query is a function from the streams that it reads to the stream of its results. All queries
follow the suite's SQL: event time is the column ``date_time``, and the watermark is four seconds
behind the greatest time of the whole stream. Only data moves the watermark.

q5 and q7 find the best over all keys, in two steps. The first computes the result of each auction
in a window, on all shards; the second finds the best of a window. A window closes in the epoch in
which the watermark of the stream passes its end, so it closes for all auctions at once. So
`BestOfWindow` gets all results of a window in one call, and keeps no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Moment, Stream
from flow.connectors.sink import Sink
from flow.connectors.source import Source
from flow_windowing import WindowMetadata

Row: TypeAlias = dict[str, Any]
InWindow: TypeAlias = tuple[str, tuple[WindowMetadata, Any]]
"""An item of the `down` stream of a windowing step: key, window, result."""
SourceOf: TypeAlias = Callable[[str, Sequence[str]], Source[Any]]
"""A function that returns the source of a table's columns."""

CLOCK: win.EventClock[Any] = win.EventClock("date_time", "4s", on_idle="hold", scope="stream")


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        name: its name in Nexmark.
        title: its title in the table.
        reads: the tables that it reads, with their columns.
        wire: a function from the streams of these tables to the stream of results.
    """

    name: str
    title: str
    reads: Mapping[str, Sequence[str]]
    wire: Callable[..., Stream[Any]]

    def flow(self, source_of: SourceOf, sink: Sink[Any]) -> Dataflow:
        """Return the query as a flow; its inputs have the names of the tables, its output `out`."""
        flow = Dataflow(self.name)
        tables = [
            op.input(table, flow, source_of(table, columns))
            for table, columns in self.reads.items()
        ]
        op.output("out", self.wire(*tables), sink)
        return flow


def hot_items(bids: Stream[Row]) -> Stream[Row]:
    """Return q5: the auctions with the most bids in the last ten seconds, every two seconds."""
    by_auction = op.key_on("by_auction", bids, "auction")
    windows = win.SlidingWindower("10s", "2s")
    counts = win.aggregate_window("counts", by_auction, CLOCK, windows, bids=win.Count())
    by_window = op.map("by_window", counts.down, _count_of_window)
    return op.key_rm("rows", op.stateful_batch("hottest", by_window, partial(BestOfWindow, "bids")))


def _count_of_window(item: InWindow) -> tuple[str, Row]:
    auction, (window, figures) = item
    return str(window.window_id), {"starttime": window.open_time, "auction": auction, **figures}


def highest_bid(bids: Stream[Row]) -> Stream[Row]:
    """Return q7: the bids with the highest price in each ten seconds."""
    by_auction = op.key_on("by_auction", bids, "auction")
    windows = win.TumblingWindower("10s")
    highest = win.fold_window("highest", by_auction, CLOCK, windows, list, _with_bid, ordered=False)
    by_window = op.flat_map("by_window", highest.down, _bids_of_window)
    return op.key_rm("rows", op.stateful_batch("best", by_window, partial(BestOfWindow, "price")))


def _with_bid(highest: list[Row], bid: Row) -> list[Row]:
    """Return the highest bids after one more bid; all bids in `highest` have the same price."""
    if not highest or bid["price"] > highest[0]["price"]:
        return [bid]
    return [*highest, bid] if bid["price"] == highest[0]["price"] else highest


def _bids_of_window(item: InWindow) -> Iterable[tuple[str, Row]]:
    _, (window, bids) = item
    return [(str(window.window_id), bid) for bid in bids]


def new_sellers(persons: Stream[Row], auctions: Stream[Row]) -> Stream[Row]:
    """Return q8: the persons that registered and opened an auction in the same ten seconds."""
    by_id = op.key_on("by_id", persons, "id")
    by_seller = op.key_on("by_seller", auctions, "seller")
    windows = win.TumblingWindower("10s")
    joined = win.join_window(
        "joined", by_id, by_seller, clock=CLOCK, windower=windows, ordered=False
    )
    return op.filter_map("rows", joined.down, _new_seller)


def _new_seller(item: InWindow) -> Row | None:
    key, (window, (person, auction)) = item
    if person is None or auction is None:
        return None
    return {"id": key, "name": person["name"], "starttime": window.open_time}


def user_sessions(bids: Stream[Row]) -> Stream[Any]:
    """Return q11: the number of bids of a user in each session, with a gap of ten seconds."""
    by_bidder = op.key_on("by_bidder", bids, "bidder")
    sessions = win.SessionWindower("10s")
    return win.aggregate_window("sessions", by_bidder, CLOCK, sessions, bids=win.Count()).down


def bids_by_system_time(bids: Stream[Row]) -> Stream[Any]:
    """Return q12: the number of bids of a user in each ten seconds of system time."""
    by_bidder = op.key_on("by_bidder", bids, "bidder")
    clock, windows = win.SystemClock(), win.TumblingWindower("10s")
    return win.aggregate_window("windows", by_bidder, clock, windows, bids=win.Count()).down


class BestOfWindow(op.StatefulBatchLogic[Row, Row, None]):
    """The rows of a window with the greatest value of a field; all its rows are in one epoch.

    Args:
        figure: the field to compare.
        state: always ``None``: the logic keeps no state.
    """

    def __init__(self, figure: str, state: None) -> None:  # noqa: ARG002
        self._figure = itemgetter(figure)

    @override
    def on_batch(self, values: list[Row], moment: Moment) -> tuple[Iterable[Row], op.Keep]:
        greatest = max(map(self._figure, values))
        return [row for row in values if self._figure(row) == greatest], op.DISCARD

    @override
    def snapshot(self) -> None:
        """Return None; never called, since `on_batch` discards the logic."""


_TIMED_BIDS = {"bid": ("auction", "date_time")}
QUERIES = {
    query.name: query
    for query in (
        Query("q5", "hot items", _TIMED_BIDS, hot_items),
        Query(
            "q7", "highest bid", {"bid": ("auction", "bidder", "price", "date_time")}, highest_bid
        ),
        Query(
            "q8",
            "new sellers",
            {"person": ("id", "name", "date_time"), "auction": ("seller", "date_time")},
            new_sellers,
        ),
        Query("q11", "user sessions", {"bid": ("bidder", "date_time")}, user_sessions),
        Query("q12", "bids by system time", {"bid": ("bidder",)}, bids_by_system_time),
    )
}
"""The queries by name."""
