"""Draws the pictures of the live page: ``python docs/draw_live_page.py`` takes about two minutes.

They are screenshots of a flow that runs, on Spark and with a checkpoint: of the page, and of the
inside of a step. A thread writes a file of departures in each interval of the trigger, as a service
would, some of them late. Chromium and its driver draw the page. The pictures differ from run to
run, so no test compares them: draw them anew when the page changes, on a machine with nothing else
to do, and look at them.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, StopFlag, run
from flow.connectors.files import JsonLinesSink, ParquetSource
from flow.engine.spark.session.session import SparkSettings, make_session
from recovery import RecoveryConfig
from tests.support.browsing import Browser, headless_chromium

PICTURE = Path(__file__).parent / "_static/live_page.png"
INSIDE = Path(__file__).parent / "_static/live_page_inside.png"
WIDTH, MOST_HIGH, INSIDE_HIGH = 1280, 1400, 1000
CHARTS = "document.querySelector('.charts').parentElement"
TRIGGER = 2.0
WARM_UP, EPOCHS = 5, 40
"""Epochs of a run that warms Spark up, and of the one in the picture, on the same checkpoint."""

ROWS = 20_000
"""Departures of each interval."""

AIRPORTS = ("AMS", "CDG", "FRA", "LHR", "MAD", "OSL", "VIE")


def departures_flow(home: Path) -> Dataflow:
    """Return a flow with a branch, a window over columns, and a keyed step that runs key by key."""
    flow = Dataflow("departures")
    departures = op.input("departures", flow, ParquetSource(str(home / "in"), follow=True))
    delayed = op.branch("delayed", departures, lambda row: row["delay"] > 15)
    by_airport = op.key_on("by_airport", delayed.trues, "airport")
    clock = win.EventClock("at", wait_for_system_duration="3s")
    windower = win.TumblingWindower(length="10s")
    delays = win.aggregate_window(
        "ten_seconds", by_airport, clock, windower, count=win.Count(), mean=win.Mean("delay")
    )
    op.output("delays", delays.down, JsonLinesSink(str(home / "delays")))
    op.output("late", delays.late, JsonLinesSink(str(home / "late")))
    scored = op.map("score", delayed.falses, lambda row: (row["airport"], row["delay"] ** 0.5))
    counts = op.stateful_map("count", scored, lambda n, _: ((n or 0) + 1, (n or 0) + 1))
    op.output("totals", counts, JsonLinesSink(str(home / "totals")))
    return flow


def write_departures(folder: Path, is_over: threading.Event) -> None:
    """Write a file in each interval until the event is set."""
    chances = np.random.default_rng(1)
    for number in range(10_000):
        at = time.time() - chances.random(ROWS) * TRIGGER
        at[:20] -= 12  # Late: the clock waits for three seconds.
        table = pa.table(
            {
                "airport": chances.choice(AIRPORTS, ROWS),
                "at": at.round(3),
                "delay": chances.exponential(12.0, ROWS).round(1),
            }
        )
        hidden = folder / f".{number}"
        pq.write_table(table, hidden)
        hidden.rename(folder / f"{number:05}.parquet")
        if is_over.wait(TRIGGER):
            return


def follow(spark: SparkSession, home: Path, epochs: int, then: Callable[[str], object]) -> None:
    """Run the flow for some epochs, call a function with the address of its page, and stop it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    reached, stop = threading.Event(), StopFlag()
    seen: list[EpochReport] = []

    def on_epoch(report: EpochReport) -> None:
        seen.append(report)
        if len(seen) == epochs:
            reached.set()

    def look() -> None:
        reached.wait()
        try:
            then(address)
        finally:
            stop.ask()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        run(
            departures_flow(home),
            spark=spark,
            recovery=RecoveryConfig(str(home / "checkpoint")),
            trigger=f"{TRIGGER}s",
            web=address,
            web_values=True,
            on_epoch=on_epoch,
            stop=stop,
        )
    finally:
        reached.set()
        looking.join()


def shoot(browser: Browser, address: str) -> None:
    """Take the pictures of a page: down to the charts of epochs, and the inside of a step."""
    browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    browser.resize(WIDTH, MOST_HIGH)
    browser.open(f"http://{address}/")
    browser.wait("document.querySelectorAll('.node.works').length > 8")
    browser.wait("document.querySelectorAll('canvas').length >= 2")
    bottom = browser.run(f"return Math.ceil({CHARTS}.getBoundingClientRect().bottom) + 12")
    browser.resize(WIDTH, bottom)
    browser.screenshot(PICTURE)
    browser.click_step("ten_seconds")
    browser.wait("document.querySelectorAll('#inside .of-key').length > 3")
    browser.wait("document.querySelector('#inside td button') !== null")
    browser.resize(WIDTH, INSIDE_HIGH)
    browser.run("document.getElementById('split').parentElement.scrollIntoView()")
    browser.run("document.getElementById('inside').scrollIntoView()")
    browser.screenshot(INSIDE)


def draw(home: Path) -> None:
    """Run the flow while a thread writes its input, and take the picture."""
    (home / "in").mkdir()
    is_over = threading.Event()
    writer = threading.Thread(target=write_departures, args=(home / "in", is_over))
    writer.start()
    spark = make_session("live_page", SparkSettings("local[2]"))
    try:
        with headless_chromium(home / "chromium") as browser:
            follow(spark, home, WARM_UP, lambda _: None)
            follow(spark, home, EPOCHS, partial(shoot, browser))
    finally:
        is_over.set()
        spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
