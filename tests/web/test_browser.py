"""The live page in a real browser: what it shows, what it asks for, and how large it is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, run
from flow.engine.plan.compiler import compile_flow
from flow.errors import StepError
from flow.monitoring.recorder import Recorder
from flow.testing import TestingSink, TestingSource
from flow.web.hub import Hub
from flow.web.page_access import Access
from flow.web.server import PageServer
from tests.support.browsing import Browser
from tests.support.monitored import PHASES, SCRIPT, epoch_report, hourly_flow
from tests.web.conftest import Site
from tests.web.test_live_run import free_address, minutes_flow, sixteen

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LOOKS = [
    pytest.param(((1366, 768), False), marks=pytest.mark.extended),
    pytest.param(((1366, 768), True), marks=pytest.mark.extended),
    ((390, 844), False),
]
"""Sizes of a laptop and a phone, and whether colours are dark."""
LEAST_LETTERS = 9.0
"""The least size of letters in the graph, in pixels."""


def three_steps() -> Dataflow:
    flow = Dataflow("three")
    numbers = op.input("numbers", flow, TestingSource([]))
    op.output("out", op.map("double", numbers, lambda n: 2 * n), TestingSink([]))
    return flow


def sixty_steps() -> Dataflow:
    """Return five pipelines of twelve steps, with branches, windows and totals."""
    flow = Dataflow("sixty")
    clock = win.EventClock("at", wait_for_system_duration="10s")
    for n in range(5):
        orders = op.map(f"parse_{n}", op.input(f"orders_{n}", flow, TestingSource([])), dict)
        valid = op.branch(f"valid_orders_{n}", orders, bool)
        op.output(f"rejected_{n}", valid.falses, TestingSink([]))
        keyed = op.key_on(f"by_customer_{n}", valid.trues, "customer")
        windower = win.TumblingWindower(length="1h")
        hours = win.aggregate_window(f"hourly_{n}", keyed, clock, windower, n=win.Count())
        op.output(f"late_out_{n}", op.map(f"late_{n}", hours.late, str), TestingSink([]))
        sums = op.stateful_map(
            f"total_{n}", op.map_value(f"flat_{n}", hours.down, str), lambda s, v: (v, v)
        )
        op.output(f"sink_{n}", op.filter(f"large_{n}", sums, bool), TestingSink([]))
    return flow


@pytest.fixture
def site_of(site_at: Callable[..., Site]) -> Callable[[Dataflow], Site]:
    """Return a function that serves the page of a flow, whose steps have all counted."""

    def serve(flow: Dataflow) -> Site:
        site = site_at(flow=flow)
        for number in range(20):
            counts = {(one.step_id, name): 1_000 for one in flow.steps for name in ("in", "out")}
            site.page.report(epoch_report(number, counts=Counter(counts), lags={}))
        return site

    return serve


def assert_clean(browser: Browser, address: object) -> None:
    assert browser.console() == []
    assert browser.hosts() == {str(address)}


@pytest.mark.extended
@pytest.mark.spark
def test_the_page_of_a_run_shows_its_numbers_the_slow_step_and_why_a_value_was_late(
    browser: Browser, spark: SparkSession, tmp_path: Path
) -> None:
    """The path of `docs/how_to/debug_a_slow_step.md` and `docs/how_to/late_data.md`."""
    flow = minutes_flow(sixteen(), seconds_of_an_item=0.3)
    address = free_address()
    looked: list[int] = []

    def look(report: EpochReport) -> None:
        looked.append(report.epoch)
        if len(looked) != 2:
            return
        browser.open(f"http://{address}/")
        browser.wait_for(".node", 5)
        browser.wait("document.querySelectorAll('.node.works').length > 0")
        assert browser.text("#state") == "running"
        slowest, share = browser.run(
            "const found = [...document.querySelectorAll('.node')].map(node => ["
            "node.querySelector('.name').textContent, "
            "parseFloat(node.querySelector('.busy').getAttribute('width'))]);"
            "return found.sort((one, other) => other[1] - one[1])[0]"
        )
        assert slowest == "even"
        assert share > 0
        browser.screenshot(tmp_path / "running.png")
        assert_clean(browser, address)
        browser.click_step("late\xa01")
        browser.wait("document.querySelectorAll('#inside .late tr').length > 1")
        assert "a wait_for_system_duration longer by" in browser.text("#step")
        # a: 90 s, then 2 s, so the watermark is at 80 s
        assert "its windows had closed" in browser.text("#inside .late table")
        assert "read from the checkpoint" in browser.text("#inside"), "the run has none"

    shown: dict[str, Any] = {"web": address, "web_values": True, "on_epoch": look}
    time = "1970-01-01T00:10:00Z"
    options: dict[str, Any] = {"shards": 2, "partitions": 1, "system_time": time, **shown}
    summary = run(flow, spark=spark, engine="streaming", **options)
    assert len(looked) > 2
    browser.wait("document.body.dataset.state === 'ended'")
    browser.wait_for(".node.works", 0)
    shown = browser.table("steps")
    for step_id in ("visits", "even", "minutes.key", "minutes", "out"):
        for name in {"visits": ["out"], "out": ["in"]}.get(step_id, ["in", "out"]):
            assert shown[step_id][name] == f"{summary.count(step_id, name):,}"
    assert shown["minutes"]["keys"] == f"{summary.gauges['minutes', 'keys']:,}"
    assert shown["minutes"]["late and lost"] == f"late\xa0{summary.count('minutes', 'late')}"
    assert f"items read\n{summary.count('visits', 'out')}" in browser.text("#facts")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    "make_flow", [pytest.param(three_steps, marks=pytest.mark.extended), sixty_steps]
)
def test_a_small_and_a_large_flow_are_readable(
    browser: Browser,
    site_of: Callable[[Dataflow], Site],
    tmp_path: Path,
    make_flow: Callable[[], Dataflow],
    look: tuple[tuple[int, int], bool],
) -> None:
    flow = make_flow()
    site = site_of(flow)
    size, is_dark = look
    browser.resize(*size, is_dark=is_dark)
    browser.open(f"http://{site.server.address}/")
    browser.wait_for(".node.works", len(flow.steps))
    letters = browser.run(
        "return [...document.querySelectorAll('#graph .node text')].map(text => "
        "parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"
    )
    assert min(letters) >= LEAST_LETTERS
    boxes = browser.run(
        "return [...document.querySelectorAll('#graph .box')].map(box => {"
        "const at = box.getBoundingClientRect(); return [at.x, at.y, at.width, at.height]})"
    )
    assert list(overlapping(boxes)) == []
    assert not browser.scrolls_sideways()
    assert browser.run("return document.querySelectorAll('canvas').length") >= 2
    browser.screenshot(tmp_path / f"{flow.flow_id}.png")
    assert_clean(browser, site.server.address)


def overlapping(boxes: list[list[float]]) -> Iterator[tuple[list[float], list[float]]]:
    """Yield the pairs of boxes that overlap."""
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            if all(one[at] < other[at] + other[at + 2] - 1 for at in (0, 1)) and all(
                other[at] < one[at] + one[at + 2] - 1 for at in (0, 1)
            ):
                yield one, other


def test_the_page_shows_open_windows_and_buffered_values(
    browser: Browser, site_of: Callable[[Dataflow], Site]
) -> None:
    site = site_of(hourly_flow())
    browser.open(f"http://{site.server.address}/")
    browser.wait_for("#steps tbody tr", 4)
    row = browser.table("steps")["hours"]
    assert (row["windows"], row["buffered"]) == ("1,200", "30")
    assert browser.table("steps")["visits"]["windows"] == ""
    assert "1,200 windows · 30 buffered" in browser.text("#graph")


def test_the_legend_names_each_phase_and_waiting_is_not_work(
    browser: Browser, site_of: Callable[[Dataflow], Site]
) -> None:
    site = site_of(three_steps())
    site.page.report(epoch_report(21, phases={"waiting": 9.0, **PHASES}))
    browser.open(f"http://{site.server.address}/")
    browser.wait_for("#chart-phases .u-legend tr", 9)
    labels = browser.run(
        "return [...document.querySelectorAll('#chart-phases .u-label')].map(at => at.textContent)"
    )
    top_down = ["commit", "spark", "sinks", "steps", "reading", "starting", "planning"]
    assert labels == ["committed", *top_down, "trigger"]
    assert "length of an epoch\n2.0 s" in browser.text("#facts")
    newest = browser.run("return document.querySelector('#chart-phases .u-value').textContent")
    assert newest.count(":") == 2, "without a cursor the legend has the newest epoch"
    colors = browser.run(
        "return [...document.querySelectorAll('#chart-phases .u-marker')].map("
        "at => getComputedStyle(at).backgroundColor)"
    )
    assert len(set(colors[1:8])) == len(top_down)


def test_a_script_in_a_name_a_key_or_a_value_is_text(
    browser: Browser, site_of: Callable[[Dataflow], Site]
) -> None:
    flow = Dataflow(SCRIPT)
    op.output("out", op.input(SCRIPT + "in", flow, TestingSource([])), TestingSink([]))
    site = site_of(flow)
    site.page.report(epoch_report(21, behind={SCRIPT + "in": {SCRIPT: 3}}))
    browser.open(f"http://{site.server.address}/")
    browser.wait_for("#sources tbody tr", 2)
    site.page.fail(StepError("out", "its sink raised", key=SCRIPT, item=SCRIPT))
    browser.wait("document.body.dataset.state === 'failed'")
    browser.wait("!document.getElementById('error').hidden")
    assert SCRIPT in browser.text("#error-call")
    assert browser.text("#flow-id") == SCRIPT
    assert browser.text("#sources tr:nth-child(2) td") == SCRIPT
    browser.assert_no_script_ran()


@pytest.mark.extended
def test_the_page_follows_the_next_run_at_its_address(
    browser: Browser, site_of: Callable[[Dataflow], Site]
) -> None:
    first = site_of(three_steps())
    browser.open(f"http://{first.server.address}/")
    browser.wait("document.body.dataset.epochs === '20'")
    first.close()
    browser.wait("document.body.dataset.state === 'ended'")
    browser.wait("document.getElementById('connection').textContent === 'waits for the next run'")
    hub = Hub(Recorder(compile_flow(sixty_steps()), "streaming").status)
    second = PageServer(Access(first.server.address, None), hub)
    try:
        browser.wait("document.querySelectorAll('.node').length === 60", seconds=30)
        assert browser.text("#state") == "starting"
        assert browser.text("#connection") == ""
    finally:
        second.close()


def test_a_click_on_a_step_shows_why_it_runs_key_by_key(
    browser: Browser, site_of: Callable[[Dataflow], Site]
) -> None:
    site = site_of(sixty_steps())
    browser.open(f"http://{site.server.address}/")
    browser.wait_for(".node.works", 60)
    browser.click_step("total_3")
    browser.wait("!document.getElementById('step').hidden")
    assert "key by key: stateful_map calls Python for each key" in browser.text("#step")
    browser.run(
        "const filter = document.getElementById('filter'); filter.value = 'hourly';"
        "filter.dispatchEvent(new Event('input'))"
    )
    browser.wait_for("#steps tbody tr", 5)
