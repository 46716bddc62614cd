"""The check of a flow's result: the same queries in SQL, run by DuckDB on the same files.

A query's *expected* rows are computed from the tables, its *got* rows from the flow's output; they
must be the same rows, each as often. Times are compared as microseconds since 1970.

The windows of q12 depend on the time of the run. So for q12 the check compares totals, and tests
that all windows are ten seconds of the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.nexmark.auction_house import SHARES

SECOND = 1_000_000


@dataclass(frozen=True)
class Answer:
    """The expected result of a query, in SQL.

    Attributes:
        expected: SQL over the tables ``person``, ``auction`` and ``bid``.
        got: SQL over the table ``result``.
    """

    expected: str
    got: str


_BIDS_IN_WINDOWS = f"""
    SELECT auction, epoch_us(date_time) // {2 * SECOND} * {2 * SECOND} - back * {2 * SECOND}
        AS starttime
    FROM bid, range(5) AS offsets(back)
"""
_SESSION_STARTS = f"""
    SELECT bidder, us, coalesce(us - lag(us) OVER one_bidder > {10 * SECOND}, true) AS starts
    FROM (SELECT bidder, epoch_us(date_time) AS us FROM bid)
    WINDOW one_bidder AS (PARTITION BY bidder ORDER BY us)
"""
_NUMBERED = f"""
    SELECT *, sum(starts::int) OVER (PARTITION BY bidder ORDER BY us) AS session
    FROM ({_SESSION_STARTS})
"""

ANSWERS = {
    "q5": Answer(
        expected=f"""
            SELECT starttime, auction, bids
            FROM (SELECT starttime, auction, count(*) AS bids
                FROM ({_BIDS_IN_WINDOWS}) GROUP BY ALL)
            QUALIFY bids = max(bids) OVER (PARTITION BY starttime)
        """,
        got="SELECT epoch_us(starttime), auction, bids FROM result",
    ),
    "q7": Answer(
        expected=f"""
            SELECT auction, bidder, price, epoch_us(date_time) FROM bid
            QUALIFY price = max(price) OVER (PARTITION BY epoch_us(date_time) // {10 * SECOND})
        """,
        got="SELECT auction, bidder, price, epoch_us(date_time) FROM result",
    ),
    "q8": Answer(
        expected=f"""
            SELECT DISTINCT id, name, p.starttime
            FROM (SELECT *, epoch_us(date_time) // {10 * SECOND} * {10 * SECOND} AS starttime
                FROM person) AS p
            JOIN (SELECT seller, epoch_us(date_time) // {10 * SECOND} * {10 * SECOND} AS starttime
                FROM auction) AS a ON p.id = a.seller AND p.starttime = a.starttime
        """,
        got="SELECT id, name, epoch_us(starttime) FROM result",
    ),
    "q11": Answer(
        expected=f"""
            SELECT bidder, count(*), min(us), max(us) FROM ({_NUMBERED}) GROUP BY bidder, session
        """,
        got="SELECT key, bids, epoch_us(open_time), epoch_us(close_time) FROM result",
    ),
    "q12": Answer(
        expected="SELECT bidder, count(*), true FROM bid GROUP BY bidder",
        got=f"""
            SELECT key, sum(bids)::bigint, bool_and(
                epoch_us(close_time) - epoch_us(open_time) = {10 * SECOND}
                AND epoch_us(open_time) % {10 * SECOND} = 0)
            FROM result GROUP BY key
        """,
    ),
}
"""The answer of each query, by the query's name."""


class WrongResultError(Exception):
    """A flow's result differs from the result of the same query in DuckDB."""


def can_check() -> bool:
    """Return True if DuckDB is installed."""
    return find_spec("duckdb") is not None


def check(name: str, tables: Path, result: Path) -> int:
    """Compare the output of a query's flow with DuckDB's result, and return the number of rows.

    Args:
        name: the query's name.
        tables: the directory of the tables.
        result: the directory of the flow's Parquet files.

    Raises:
        WrongResultError: when rows are missing, or there are rows too many.
    """
    import duckdb

    answer = ANSWERS[name]
    with duckdb.connect() as database:
        for table in (*SHARES, "result"):
            files = sorted((result if table == "result" else tables / table).rglob("*.parquet"))
            if files:
                database.read_parquet([str(file) for file in files]).create_view(table)
        missing = database.sql(f"({answer.expected}) EXCEPT ALL ({answer.got})").fetchall()
        extra = database.sql(f"({answer.got}) EXCEPT ALL ({answer.expected})").fetchall()
        if missing or extra:
            shown = f"{len(missing)} rows are missing{_such_as(missing)}, and {len(extra)} too many"
            raise WrongResultError(f"{name}: {shown}{_such_as(extra)}")
        ((count,),) = database.sql(f"SELECT count(*) FROM ({answer.got})").fetchall()
    return int(count)


def _such_as(rows: Iterable[object]) -> str:
    shown = next(iter(rows), None)
    return "" if shown is None else f", such as {shown}"
