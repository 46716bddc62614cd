"""The states of a run as a browser shows them, on a laptop and on a phone; each has a picture."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flow import EpochReport
from flow.errors import StepError
from tests.support.browsing import Browser
from tests.support.monitored import Clock
from tests.web.conftest import Site
from tests.web.page_states import (
    SECONDS,
    behind_report,
    idle_report,
    play,
    report_at,
    shop_flow,
)
from tests.web.test_live_run import free_address

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
LAPTOP, PHONE = (1280, 900), (390, 844)
BEHIND_BOXES = """
const boxes = [...document.querySelectorAll('#graph .box')].map(box => box.getBoundingClientRect());
return [...document.querySelectorAll('#graph .edge')].filter(edge => {
  const place = edge.getScreenCTM(), length = edge.getTotalLength();
  return Array.from({length: 200}, (_, at) => edge.getPointAtLength(length * at / 199)).some(
    point => {
      const {x, y} = point.matrixTransform(place);
      return boxes.some(box =>
        x > box.left + 2 && x < box.right - 2 && y > box.top + 2 && y < box.bottom - 2);
    });
}).length
"""
"""The number of edges that lead through a box."""

CUT_OFF = """
const whole = document.querySelector('#graph svg').viewBox.baseVal;
return [...document.querySelectorAll('#graph .edge')].filter(edge => {
  const box = edge.getBBox();
  return box.x < whole.x || box.x + box.width > whole.x + whole.width
    || box.y < whole.y || box.y + box.height > whole.y + whole.height;
}).length
"""
"""The number of edges of which a part lies outside the picture."""

Show = Callable[..., Site]


@pytest.fixture
def show(browser: Browser, site_at: Callable[..., Site]) -> Show:
    """Return a function that opens the page of a run in a state, in a window of a size."""

    def opened(
        make: Callable[[int], EpochReport] = report_at, size: tuple[int, int] = LAPTOP
    ) -> Site:
        clock = Clock(time.time() - SECONDS - 1)
        site = site_at(flow=shop_flow(), clock=clock, trigger=5.0)
        site.page.start()
        play(site.page.report, clock, make)
        browser.resize(*size)
        browser.open(f"http://{site.server.address}/")
        browser.wait_for(".node", len(shop_flow().steps))
        browser.wait("document.querySelectorAll('#steps tbody tr').length > 0")
        return site

    return opened


def facts(browser: Browser) -> dict[str, list[str]]:
    """Return the lines of each card by its name."""
    cards = browser.run(
        "return [...document.querySelectorAll('#facts > div')].map(e => e.innerText)"
    )
    return {name: lines for name, *lines in map(str.splitlines, cards)}


def limits(browser: Browser) -> list[str]:
    return list(
        browser.run("return [...document.querySelectorAll('#limits li')].map(e => e.innerText)")
    )


def names(browser: Browser, kind: str) -> list[str]:
    """Return the first words of the boxes of a kind."""
    code = (
        "return [...document.querySelectorAll('.node.' + arguments[0] + ' .name')]"
        ".map(e => e.textContent)"
    )
    return list(browser.run(code, kind))


def assert_sound(browser: Browser) -> None:
    text = browser.text("body")
    assert not [word for word in ("undefined", "NaN", "null", "\N{EN DASH}") if word in text]
    assert not browser.scrolls_sideways()
    assert browser.console() == []


def is_inside_window(browser: Browser, selector: str) -> bool:
    code = (
        "const at = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return at.width > 0 && at.left >= 0 && at.right <= innerWidth && at.top >= 0 "
        "&& at.top < innerHeight"
    )
    return bool(browser.run(code, selector))


def test_a_run_that_keeps_up_with_two_levels_and_the_details_of_a_step(
    browser: Browser, show: Show, tmp_path: Path
) -> None:
    show()
    found = facts(browser)
    assert found["behind by"] == ["0 s", "all that has arrived is read"]
    assert found["items read"] == ["1,810,000", "2,000/s now"]
    assert found["watermark lag"][0] == "14 s"
    assert found["length of an epoch"] == ["1.6 s", "181 epochs", "trigger every 5.0 s"]
    assert found["state"] == ["4.2 MB", "12K keys"]
    assert limits(browser) == []
    browser.wait_for("#facts .spark", 5)  # Of a browser that has come after 15 minutes.
    assert browser.run(BEHIND_BOXES) == browser.run(CUT_OFF) == 0
    whole = "const at = document.getElementById('graph');"
    assert browser.run(f"{whole} return at.scrollHeight <= at.clientHeight + 1")
    assert browser.run(f"{whole} return at.scrollWidth <= at.clientWidth + 1")
    wide = "const at = document.getElementById('steps').parentElement;"
    assert browser.run(f"{wide} return at.scrollWidth <= at.clientWidth")
    row = browser.table("steps")["hourly_by_customer"]
    assert (row["windows"], row["watermark lag"]) == ("25,000", "11 s, at most 14 s")
    assert browser.table("steps")["orders"]["in"] == "", "an input reads no stream"
    browser.screenshot(tmp_path / "feeding.png")

    browser.click_step("daily")
    browser.wait("!document.getElementById('detail').hidden")
    assert is_inside_window(browser, "#detail")
    assert browser.run(
        "return document.getElementById('detail').getBoundingClientRect().left >= "
        "document.querySelector('#graph svg').getBoundingClientRect().right"
    )
    shown = browser.text("#step")
    assert "in\n18,100 items" in shown
    assert "state\n9.0 kB" in shown
    assert "open windows\n40" in shown
    browser.screenshot(tmp_path / "details.png")
    browser.driver.back()
    browser.wait("document.getElementById('detail').hidden")
    browser.driver.forward()
    browser.wait("!document.getElementById('detail').hidden")
    browser.run("document.getElementById('back').click()")
    browser.wait("document.getElementById('detail').hidden")
    assert_sound(browser)


def test_a_run_that_is_behind_names_the_time_the_end_and_the_bottleneck(
    browser: Browser, show: Show, tmp_path: Path
) -> None:
    show(behind_report)
    assert facts(browser)["behind by"] == [
        "37 min 45 s",
        "orders: 37 min 45 s, 5.4M values, caught up in about 23 min",
        "refunds: 37 min 45 s, caught up in about 24 min",
    ]
    bottleneck, *held = limits(browser)
    assert bottleneck == "step 'score' takes 81% of each epoch: it limits the run to 2,000 items/s"
    assert [one.partition(", since")[0] for one in held] == [
        "source partition 2 of input 'refunds' holds the watermarks of 'hourly_by_customer' "
        "at 2023-11-14 22:13:20 UTC",
        "step 'hourly_by_customer' holds the watermarks of 'daily' at 2023-11-14 22:13:20 UTC",
    ]
    assert names(browser, "bottleneck") == ["score"]
    assert len(names(browser, "held")) == 2
    assert "all\torders\t37 min 45 s\t5,400,000" in browser.text("#sources")
    browser.screenshot(tmp_path / "behind.png")
    assert_sound(browser)


@pytest.mark.parametrize("make", [report_at, behind_report])
def test_a_phone_shows_the_run_and_covers_it_with_the_details_of_a_step(
    browser: Browser, show: Show, tmp_path: Path, make: Callable[[int], EpochReport]
) -> None:
    show(make, PHONE)
    assert facts(browser)["behind by"][0] == ("37 min 45 s" if make is behind_report else "0 s")
    assert is_inside_window(browser, "#facts")
    graph = "const at = document.getElementById('graph'); return at.scrollWidth <= at.clientWidth"
    assert browser.run(graph), "the whole graph fits"
    assert browser.run(CUT_OFF) == 0
    browser.screenshot(tmp_path / f"phone-{make.__name__}.png")
    assert_sound(browser)
    browser.click_step("daily")
    browser.wait("!document.getElementById('detail').hidden")
    covering = "return document.elementFromPoint(195, 400).closest('#detail') !== null"
    assert browser.run(covering)
    browser.run("document.getElementById('back').click()")
    browser.wait("document.getElementById('detail').hidden")
    assert not browser.run(covering)


def test_an_idle_run_says_since_when(browser: Browser, show: Show, tmp_path: Path) -> None:
    show(idle_report)
    (idle,) = limits(browser)
    assert idle.startswith("all data is read: the run waits for new items, since ")
    assert "(2 min " in idle
    assert facts(browser)["items read"][1] == "0/s now"
    assert names(browser, "works") == []
    browser.screenshot(tmp_path / "idle.png")
    assert_sound(browser)


def test_a_failed_run_says_when_which_step_key_and_item_once_and_what_to_do(
    browser: Browser, show: Show, tmp_path: Path
) -> None:
    site = show()
    error = StepError("score", "the mapper raised KeyError: 'amount'", key="ann", item="{'n': 1}")
    site.page.fail(error)
    browser.wait("document.body.dataset.state === 'failed'")
    browser.wait("!document.getElementById('error').hidden")
    shown = browser.text("#error")
    title, message, *call, remedy = [line for line in shown.splitlines() if line]
    assert title.startswith("Step score failed at ")
    assert title.endswith("and 181 epochs")
    assert message == "the mapper raised KeyError: 'amount'"
    assert call == ["key", "'ann'", "item", "{'n': 1}"]
    assert remedy.startswith("Correct step 'score', or the data, and start the run again")
    assert names(browser, "wrong") == ["score"]
    assert names(browser, "works") == []
    assert facts(browser)["last commit"][0].endswith(" UTC")
    assert limits(browser) == []
    browser.screenshot(tmp_path / "failed.png")
    assert_sound(browser)


SERVING = """
import sys, time
from flow.engine.plan.compiler import compile_flow
from flow.web.server import live_page
from tests.web.page_states import report_at, shop_flow

with live_page(sys.argv[1], compile_flow(shop_flow()), "streaming") as page:
    page.start()
    for epoch in range(int(sys.argv[2])):
        page.report(report_at(epoch))
    print("serving", flush=True)
    time.sleep(120)
"""


@contextmanager
def serving(address: str, epochs: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process that serves a page of a run with a number of epochs, and kill it."""
    command = [sys.executable, "-c", SERVING, address, str(epochs)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "serving\n"
            yield process
        finally:
            process.kill()


def wait_for_the_loss(browser: Browser) -> dict[str, list[str]]:
    """Wait for ten seconds until the page shows that the run is lost; return its cards."""
    browser.wait("document.getElementById('state').textContent === 'no answer'", seconds=10)
    browser.wait("document.querySelectorAll('.node.works, .edge.works').length === 0", seconds=1)
    assert "may have been killed" in browser.text("#connection")
    return facts(browser)


def test_every_card_of_a_run_that_was_killed_says_of_when_it_is(
    browser: Browser, tmp_path: Path
) -> None:
    address = free_address()
    browser.resize(*LAPTOP)
    with serving(address, epochs=3):
        browser.open(f"http://{address}/")
        browser.wait("document.body.dataset.epochs === '3'")
        browser.wait("document.querySelectorAll('.edge.works').length > 0")
    cards = wait_for_the_loss(browser)
    assert cards["items read"][0] == "30,000", "the last numbers stay"
    assert all(lines[-1].startswith("as of ") for lines in cards.values())
    browser.screenshot(tmp_path / "killed.png")
    assert_sound(browser)


@pytest.mark.extended
def test_a_run_that_hangs_is_seen_too_and_the_page_follows_the_next_one(browser: Browser) -> None:
    address = free_address()
    with serving(address, epochs=3) as process:
        browser.open(f"http://{address}/")
        browser.wait("document.body.dataset.epochs === '3'")
        process.send_signal(signal.SIGSTOP)
        wait_for_the_loss(browser)
    with serving(address, epochs=5):
        browser.wait("document.body.dataset.epochs === '5'", seconds=30)
        browser.wait("document.getElementById('state').textContent === 'running'")
        assert browser.text("#connection") == ""
        assert facts(browser)["items read"][0] == "50,000"
