"""The inside of a step in a real browser: windows on an axis, late values, a key's state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flow.engine.epoch.statistics import LateItem
from flow.errors import CheckpointError
from tests.support.browsing import Browser
from tests.support.monitored import SCRIPT, epoch_report
from tests.web.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.slow]

S = 1_000_000
MINUTE = "2026-01-01T10:0{}:00Z"


def key_state(key: str, *, minutes: tuple[int, ...], watermark: int, value: Any) -> dict[str, Any]:
    windows = [
        {"id": n, "open": MINUTE.format(n), "close": MINUTE.format(n + 1), "value": value}
        for n in minutes
    ]
    waiting = [{"timestamp": MINUTE.format(watermark + 1), "value": value}]
    state = {"watermark": MINUTE.format(watermark), "windows": windows, "waiting": waiting}
    return {"key": key, "due": None, "state": state}


KEYS = {
    one["key"]: one
    for one in (
        key_state("ann", minutes=(1, 2, 4), watermark=3, value={"n": 7, "mean": 2.5}),
        key_state(SCRIPT, minutes=(2,), watermark=1, value=SCRIPT),
    )
}


def read(step_id: str, key: str | None) -> Any:
    if key is not None and key not in KEYS:
        raise CheckpointError(f"step {step_id!r} keeps nothing of key {key!r} at epoch 3")
    keys = list(KEYS.values()) if key is None else [KEYS[key]]
    return {"step": step_id, "epoch": 3, "now": MINUTE.format(9), "total": 2, "keys": keys}


@pytest.fixture
def site(site_at: Callable[..., Site]) -> Site:
    """Return a site with a late value whose key and value are scripts."""
    site = site_at(shows_values=True)
    site.page.start(read)
    item = LateItem(
        *("hours", SCRIPT, SCRIPT, "late", 10 * S, 75 * S), windows=((0, 0, 60 * S),), missed=1
    )
    site.page.report(epoch_report(late_items=(item,)))
    return site


def open_hours(browser: Browser, site: Site) -> None:
    browser.open(f"http://{site.server.address}/")
    browser.wait_for(".node", 4)
    browser.click_step("hours")
    browser.wait_for("#inside .of-key", 2)


@pytest.mark.parametrize(
    "size", [(1366, 768), pytest.param((390, 844), marks=pytest.mark.extended)]
)
def test_a_click_shows_windows_on_an_axis_and_late_values(
    browser: Browser, site: Site, tmp_path: Path, size: tuple[int, int]
) -> None:
    browser.resize(*size)
    open_hours(browser, site)
    drawn = browser.run(
        "return [...document.querySelectorAll('#inside .of-key')].map(key => "
        "['.window', '.watermark', '.buffered'].map(one => key.querySelectorAll(one).length))"
    )
    assert drawn == [[3, 1, 1], [1, 1, 1]]
    # The watermark of ann, 10:03, lies after the end of her second window and before the third.
    second, third, line = browser.run(
        "const key = document.querySelector('#inside .of-key');"
        "const at = (one, name) => parseFloat(one.getAttribute(name));"
        "const [, second, third] = key.querySelectorAll('.window');"
        "return [at(second, 'x') + at(second, 'width'), at(third, 'x'),"
        "at(key.querySelector('.watermark'), 'x1')]"
    )
    assert second == pytest.approx(line, abs=1)
    assert line < third
    shown = browser.text("#inside .late table")
    assert "65 s behind the watermark, 1970-01-01 00:01:15: its windows had closed" in shown
    assert "missed 1970-01-01 00:00:00 to 1970-01-01 00:01:00" in shown
    of_ann = browser.text("#inside .of-key table")
    assert of_ann.splitlines()[:2] == [
        "open\tclose\tn\tmean",
        "2026-01-01 10:01:00\t2026-01-01 10:02:00\t7\t2.5",
    ]
    assert not browser.scrolls_sideways()
    browser.run("document.getElementById('inside').scrollIntoView()")
    browser.screenshot(tmp_path / f"inside-{size[0]}.png")
    assert browser.console() == []


def test_a_key_is_asked_for_by_its_name(browser: Browser, site: Site) -> None:
    open_hours(browser, site)
    submit = (
        "document.querySelector('#inside input').value = arguments[0];"
        "document.querySelector('#inside form').requestSubmit()"
    )
    browser.run(submit, "ann")
    browser.wait_for("#inside .of-key", 1)
    assert "2026-01-01 10:04:00" in browser.text("#inside .of-key table")
    held = browser.run(
        "return [...document.querySelectorAll('#inside .of-key table')].pop().innerText"
    )
    assert held.splitlines() == ["timestamp\tvalue", '2026-01-01 10:04:00\t{"n":7,"mean":2.5}']
    browser.run(submit, "bob")
    browser.wait("document.querySelector('#inside').innerText.includes('keeps nothing of key')")


def test_a_script_in_a_key_or_a_value_is_text(browser: Browser, site: Site) -> None:
    open_hours(browser, site)
    browser.wait("document.querySelector('#inside td button') !== null")
    assert browser.text("#inside td button") == SCRIPT
    browser.run("document.querySelector('#inside td button').click()")
    browser.wait_for("#inside .of-key", 1)
    assert SCRIPT in browser.text("#inside .of-key table")
    assert browser.text("#inside .of-key strong") == SCRIPT
    browser.assert_no_script_ran()


def test_five_late_values_are_listed_newest_first_and_a_button_lists_all_and_further_ones(
    browser: Browser, site: Site
) -> None:
    items = [LateItem("hours", "bob", str(n), "gap", n * S, None) for n in range(7)]
    site.page.report(epoch_report(1, late_items=tuple(items)))
    open_hours(browser, site)
    browser.wait_for("#inside .late tr", 1 + 5)
    browser.run(
        "[...document.querySelectorAll('#inside button')]"
        ".find(button => button.textContent === 'show all 8').click()"
    )
    browser.wait_for("#inside .late tr", 1 + 8)
    newer = LateItem("hours", "bob", "newer", "gap", 10 * S, None)
    site.page.report(epoch_report(2, late_items=(newer,)))
    browser.wait_for("#inside .late tr", 1 + 9)
    assert "newer" in browser.text("#inside .late tr:nth-child(2)")


def test_without_values_the_page_says_how_to_show_them(
    browser: Browser, site_at: Callable[..., Site]
) -> None:
    site = site_at()
    site.page.report(epoch_report())
    browser.open(f"http://{site.server.address}/")
    browser.wait_for(".node", 4)
    browser.click_step("hours")
    browser.wait("!document.getElementById('inside').hidden")
    assert "web_values=True" in browser.text("#inside")
    assert browser.console() == []
    browser.click_step("visits")
    browser.wait("document.getElementById('inside').hidden")
