"""Top URLs: the most visited pages of each minute, and figures of the whole site beside them.

``top_n`` ranks the keys of a window over all keys: visits are counted by page, and each minute has
one ranking. ``aggregate_window_all`` computes figures of all values of a minute, whatever their
page. Both do their work in parallel before one task merges it, and a window closes once the
watermark of the whole stream has passed it. The log of the second server is behind that of the
first: its visits are not late.

Run it; `TestDriver` needs no Spark:

    python examples/top_urls.py

It prints:

    after the first log
    after the second log
      12:00  /: 3, /cart: 2
      12:00  7 visits, 4 visitors, 1620 bytes
    at the end
      12:01  /cart: 2, /: 1
      12:01  3 visits, 2 visitors, 700 bytes
"""

from __future__ import annotations

from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource

Row = dict[str, Any]
Ranking = list[tuple[str, int]]

START = "2024-05-01T12:02:00Z"


def visits(log: str) -> list[Row]:
    """Read visits from lines of a time, a visitor, a page and a number of bytes."""
    rows = [line.split() for line in log.strip().splitlines()]
    return [
        {"at": f"2024-05-01T{time}Z", "user": user, "url": url, "bytes": int(size)}
        for time, user, url, size in rows
    ]


FIRST = visits("""
    12:00:05 ann /       300
    12:00:20 bob /       300
    12:00:31 ann /cart   120
    12:01:10 cat /       300
    12:01:40 cat /cart   200
""")
SECOND = visits("""
    12:00:02 dan /about  180
    12:00:45 dan /       300
    12:00:50 eve /help   300
    12:00:59 dan /cart   120
    12:01:58 bob /cart   200
""")


def in_words(_: str, minute: win.WindowMetadata, ranking: Ranking) -> str:
    """Describe the ranking of a minute."""
    pages = ", ".join(f"{url}: {count}" for url, count in ranking)
    return f"{minute.open_time:%H:%M}  {pages}"


def site_in_words(_: str, minute: win.WindowMetadata, site: Row) -> str:
    """Describe the figures of a minute."""
    return (
        f"{minute.open_time:%H:%M}  {site['visits']} visits, {site['visitors']} visitors, "
        f"{site['bytes']} bytes"
    )


graph = Dataflow("top_urls")
servers = [op.input(name, graph, TestingSource(list[Row]())) for name in ("first", "second")]
log = op.merge("log", *servers)
clock = win.EventClock("at", wait_for_system_duration="10s", on_idle="hold")
minutes = win.TumblingWindower(length="1m")
top = win.top_n("top", op.key_on("by_url", log, "url"), clock, minutes, n=2)
site = win.aggregate_window_all(
    "site",
    op.key_on("by_user", log, "user"),
    clock,
    minutes,
    visits=win.Count(),
    visitors=win.CountDistinct("user"),
    bytes=win.Sum("bytes"),
)
lines = op.merge(
    "lines",
    op.map_window("in_words", top.down, in_words),
    op.map_window("site_in_words", site.down, site_in_words),
)
op.output("out", lines, TestingSink([]))


def main() -> None:
    """Run the flow over both logs and print its output."""
    with TestDriver(graph, now=START) as driver:
        driver.send_all({"first": FIRST, "second": []}, behind=["second"])
        show("after the first log", driver)
        driver.send("second", SECOND)
        show("after the second log", driver)
        driver.end()
        show("at the end", driver)


def show(heading: str, driver: TestDriver) -> None:
    """Print the output since the last call."""
    print(heading)
    for line in driver.take("out"):
        print(f"  {line}")


if __name__ == "__main__":
    main()
