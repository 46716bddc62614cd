"""The live page in a real browser: what it shows, what it asks for, and how large it is drawn."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Summary, run
from flow.engine.plan.compiler import compile_flow
from flow.errors import StepError
from flow.monitoring.recorder import Recorder
from flow.testing import TestingSink, TestingSource
from flow.web.access import Access
from flow.web.hub import Hub
from flow.web.live_page import LivePage
from flow.web.server import PageServer
from tests.support.browsing import Browser, headless_chromium
from tests.support.monitored import PHASES, SCRIPT, epoch_report, hourly_flow
from tests.web.conftest import Site
from tests.web.test_live_run import free_address, minutes_flow, sixteen

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LAPTOP, PHONE = (1366, 768), (390, 844)
LEAST_LETTERS = 9.0
"""The least size of letters in the graph, in pixels."""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with headless_chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """The browser with an empty page, and without messages and requests of the pages before."""
    chromium.open("about:blank")
    chromium.console()
    chromium.hosts()
    return chromium


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


def site_of(flow: Dataflow, site_at: Callable[..., Site]) -> Site:
    """Return a site of a flow, whose steps have all counted."""
    plan = compile_flow(flow)
    recorder = Recorder(plan, "streaming", 1.0)
    hub = Hub(recorder.status)
    site = site_at()
    site.server.close()
    access = Access(site.server.address, None)
    site.page, site.hub, site.server = LivePage(recorder, hub), hub, PageServer(access, hub)
    for number in range(20):
        counts = {(step_id, name): 1_000 for step_id in plan.steps for name in ("in", "out")}
        site.page.report(epoch_report(number, counts=Counter(counts), lags={}))
    return site


def assert_clean(browser: Browser, address: object) -> None:
    assert browser.console() == []
    assert browser.hosts() == {str(address)}


@contextmanager
def held_run(
    flow: Dataflow, spark: SparkSession, epochs: int = 1, **options: Any
) -> Iterator[tuple[str, list[Summary]]]:
    """Yield the address of a run's page after some epochs; the run goes on after the block.

    The list has the summary of the run after the block.
    """
    address = free_address()
    reached, looked = threading.Event(), threading.Event()
    summaries: list[Summary] = []
    done: list[object] = []

    def on_epoch(report: object) -> None:
        done.append(report)
        if len(done) == epochs:
            reached.set()
            looked.wait(60)

    def work() -> None:
        settings: dict[str, Any] = {"shards": 2, "partitions": 1, "on_epoch": on_epoch, **options}
        summaries.append(run(flow, spark=spark, engine="streaming", web=address, **settings))

    running = threading.Thread(target=work)
    running.start()
    try:
        assert reached.wait(60)
        yield address, summaries
    finally:
        looked.set()
        running.join()


@pytest.mark.spark
def test_the_page_of_a_run_shows_the_numbers_of_its_summary(
    browser: Browser, spark: SparkSession, tmp_path: Path
) -> None:
    with held_run(minutes_flow(sixteen()), spark) as (address, summaries):
        browser.resize(*LAPTOP)
        browser.open(f"http://{address}/")
        browser.wait("document.querySelectorAll('.node').length === 5")
        browser.wait("document.querySelectorAll('.node.works').length > 0")
        assert browser.text("#state") == "running"
        browser.screenshot(tmp_path / "running.png")
        assert_clean(browser, address)
    browser.wait("document.body.dataset.state === 'ended'")
    (summary,) = summaries
    browser.wait("document.querySelectorAll('.node.works').length === 0")
    shown = browser.table("steps")
    for step_id in ("visits", "even", "minutes.key", "minutes", "out"):
        for name in ("in", "out"):
            assert shown[step_id][name] == f"{summary.count(step_id, name):,}"
    assert shown["minutes"]["keys"] == f"{summary.gauges['minutes', 'keys']:,}"
    assert shown["minutes"]["late and lost"] == f"late {summary.count('minutes', 'late')}"
    assert browser.text("#facts").startswith(f"items read\n{summary.count('visits', 'out')}")
    browser.screenshot(tmp_path / "ended.png")


@pytest.mark.spark
def test_the_page_alone_shows_the_slow_step_and_why_a_value_was_late(
    browser: Browser, spark: SparkSession
) -> None:
    """The path of `docs/how_to/debug_a_slow_step.md` and `docs/how_to/late_data.md`."""
    flow = Dataflow("slow")
    visits = op.input("visits", flow, TestingSource(sixteen(), batch_size=8))
    slow = op.map_value("enrich", visits, lambda at: sleep(0.1) or at)
    clock = win.EventClock(lambda item: item[1], wait_for_system_duration="10s")
    keyed = op.map("pairs", slow, lambda item: (item[0], item))
    minutes = win.collect_window("minutes", keyed, clock, win.TumblingWindower(length="1m"))
    op.output("out", minutes.down, TestingSink([]))
    options = {"system_time": "1970-01-01T00:10:00Z", "web_values": True}
    with held_run(flow, spark, **options) as (address, _):
        browser.resize(*LAPTOP)
        browser.open(f"http://{address}/")
        browser.wait("document.querySelectorAll('.node.works').length > 0")
        slowest, share = browser.run(
            "const found = [...document.querySelectorAll('.node')].map(node => ["
            "node.querySelector('.name').textContent, "
            "parseFloat(node.querySelector('.busy').getAttribute('width'))]);"
            "return found.sort((one, other) => other[1] - one[1])[0]"
        )
        assert slowest == "enrich"
        assert share > 0
        browser.run(
            "[...document.querySelectorAll('.node')].find(node => node.querySelector('.loss')."
            "textContent.startsWith('late')).dispatchEvent(new MouseEvent('click'))"
        )
        browser.wait("document.querySelectorAll('#inside table tr').length > 1")
        assert "a wait_for_system_duration longer by" in browser.text("#step")
        # a: 1 s, then 90 s, so the watermark is at 80 s; no other value of the epoch is late.
        assert "behind the watermark: its windows had closed" in browser.text("#inside table")
        assert "read from the checkpoint" in browser.text("#inside"), "the run has none"


@pytest.mark.parametrize(("size", "is_dark"), [(LAPTOP, False), (LAPTOP, True), (PHONE, False)])
@pytest.mark.parametrize("steps", [3, 60])
def test_a_small_and_a_large_flow_are_readable(
    browser: Browser,
    site_at: Callable[..., Site],
    tmp_path: Path,
    steps: int,
    size: tuple[int, int],
    is_dark: bool,
) -> None:
    flow = sixty_steps() if steps == 60 else three_steps()
    assert len(flow.steps) == steps
    site = site_of(flow, site_at)
    browser.resize(*size, is_dark=is_dark)
    browser.open(f"http://{site.server.address}/")
    browser.wait(f"document.querySelectorAll('.node.works').length === {steps}")
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
    wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.run(f"return {wider}"), "the page itself does not scroll sideways"
    assert browser.run("return document.querySelectorAll('canvas').length") >= 2
    scheme = "dark" if is_dark else "light"
    browser.screenshot(tmp_path / f"{steps}-{size[0]}-{scheme}.png")
    assert_clean(browser, site.server.address)


def test_the_page_shows_open_windows_and_buffered_values(
    browser: Browser, site_at: Callable[..., Site]
) -> None:
    site = site_of(hourly_flow(), site_at)
    browser.open(f"http://{site.server.address}/")
    browser.wait("document.querySelectorAll('#steps tbody tr').length === 4")
    row = browser.table("steps")["hours"]
    assert (row["windows"], row["buffered"]) == ("1,200", "30")
    assert browser.table("steps")["visits"]["windows"] == ""
    assert "1,200 windows · 30 buffered" in browser.text("#graph")
    gauges = Counter({("hours", "keys"): 7, ("hours", "uncounted_keys"): 7})
    site.page.report(epoch_report(21, gauges=gauges))
    browser.wait("document.querySelector('#graph').textContent.includes('not counted yet')")
    row = browser.table("steps")["hours"]
    assert (row["keys"], row["windows"], row["buffered"]) == ("7", "unknown", "unknown")
    assert_clean(browser, site.server.address)


def three_steps() -> Dataflow:
    flow = Dataflow("three")
    numbers = op.input("numbers", flow, TestingSource([]))
    op.output("out", op.map("double", numbers, lambda n: 2 * n), TestingSink([]))
    return flow


def test_the_legend_names_each_phase_and_waiting_is_not_work(
    browser: Browser, site_at: Callable[..., Site]
) -> None:
    site = site_of(three_steps(), site_at)
    site.page.report(epoch_report(21, phases={"waiting": 9.0, **PHASES}))
    browser.resize(*LAPTOP)
    browser.open(f"http://{site.server.address}/")
    browser.wait("document.querySelectorAll('#chart-phases .u-legend tr').length === 9")
    labels = browser.run(
        "return [...document.querySelectorAll('#chart-phases .u-label')].map(at => at.textContent)"
    )
    top_down = ["commit", "spark", "sinks", "levels", "reading", "starting", "planning"]
    assert labels == ["committed", *top_down, "trigger"]
    assert "the last took 2.0 s" in browser.text("#facts")
    colors = browser.run(
        "return [...document.querySelectorAll('#chart-phases .u-marker')].map("
        "at => getComputedStyle(at).backgroundColor)"
    )
    assert len(set(colors[1:8])) == len(top_down)


def overlapping(boxes: list[list[float]]) -> Iterator[tuple[list[float], list[float]]]:
    """Yield the pairs of boxes that overlap."""
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            if all(one[at] < other[at] + other[at + 2] - 1 for at in (0, 1)) and all(
                other[at] < one[at] + one[at + 2] - 1 for at in (0, 1)
            ):
                yield one, other


def test_a_script_in_a_name_a_key_or_a_value_is_text(
    browser: Browser, site_at: Callable[..., Site]
) -> None:
    flow = Dataflow(SCRIPT)
    numbers = op.input(SCRIPT + "in", flow, TestingSource([]))
    op.output("out", numbers, TestingSink([]))
    site = site_of(flow, site_at)
    site.page.report(epoch_report(21, behind={SCRIPT + "in": {SCRIPT: 3}}))
    browser.open(f"http://{site.server.address}/")
    browser.wait("document.querySelectorAll('#sources td').length === 3")
    site.page.fail(StepError("out", "its sink raised", key=SCRIPT, item=SCRIPT))
    browser.wait("document.body.dataset.state === 'failed'")
    browser.wait("!document.getElementById('error').hidden")
    assert SCRIPT in browser.text("#error-call")
    assert browser.text("#flow-id") == SCRIPT
    assert browser.text("#sources td") == SCRIPT
    assert browser.run("return document.querySelectorAll('script').length") == 2
    assert [text for text in browser.console() if "alert" in text or "Policy" in text] == []


def test_the_page_follows_the_next_run_at_its_address(
    browser: Browser, site_at: Callable[..., Site]
) -> None:
    first = site_of(three_steps(), site_at)
    browser.open(f"http://{first.server.address}/")
    browser.wait("document.body.dataset.epochs === '20'")
    first.page.end(Summary("three", "streaming"))
    browser.wait("document.body.dataset.state === 'ended'")
    first.server.close()
    browser.wait("document.getElementById('connection').textContent === 'waits for the next run'")
    recorder = Recorder(compile_flow(sixty_steps()), "streaming")
    hub = Hub(recorder.status)
    second = PageServer(Access(first.server.address, None), hub)
    try:
        browser.wait("document.querySelectorAll('.node').length === 60", seconds=30)
        assert browser.text("#state") == "starting"
        assert browser.text("#connection") == ""
    finally:
        second.close()


def test_a_click_on_a_step_shows_why_it_runs_key_by_key(
    browser: Browser, site_at: Callable[..., Site]
) -> None:
    site = site_of(sixty_steps(), site_at)
    browser.resize(*LAPTOP)
    browser.open(f"http://{site.server.address}/")
    browser.wait("document.querySelectorAll('.node.works').length === 60")
    browser.run(
        "[...document.querySelectorAll('.node')].find(node => "
        "node.textContent.includes('total_3')).dispatchEvent(new MouseEvent('click'))"
    )
    browser.wait("!document.getElementById('step').hidden")
    assert "key by key: stateful_map calls Python for each key" in browser.text("#step")
    browser.run(
        "const filter = document.getElementById('filter'); filter.value = 'hourly';"
        "filter.dispatchEvent(new Event('input'))"
    )
    browser.wait("document.querySelectorAll('#steps tbody tr').length === 5")
