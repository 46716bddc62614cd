"""The page of a run whose process is killed, and started again at the same address."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.browsing import Browser
from tests.web.test_live_run import free_address

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.extended]

SERVING = """
import sys, time
from flow.web.live_page import live_page
from tests.support.monitored import epoch_report, hourly_plan

with live_page(sys.argv[1], hourly_plan(), "streaming") as page:
    page.start()
    for epoch in range(int(sys.argv[2])):
        page.report(epoch_report(epoch))
    print("serving", flush=True)
    time.sleep(120)
"""


@contextmanager
def serving(address: str, epochs: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process that serves a page of a run with a number of epochs, and kill it."""
    command = [sys.executable, "-c", SERVING, address, str(epochs)]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "serving\n"
            yield process
        finally:
            process.kill()


def test_the_page_says_that_the_run_was_killed_and_recovers_with_the_next_one(
    browser: Browser,
) -> None:
    address = free_address()
    with serving(address, epochs=3):
        browser.open(f"http://{address}/")
        browser.wait("document.body.dataset.epochs === '3'")
        browser.wait("document.querySelectorAll('.node.works').length > 0")
    browser.wait("document.getElementById('state').textContent === 'no answer'")
    assert "may have been killed" in browser.text("#connection")
    assert browser.run("return document.querySelectorAll('.node.works').length") == 0
    assert browser.text("#facts").startswith("items read\n300"), "the last numbers stay"
    with serving(address, epochs=5):
        browser.wait("document.body.dataset.epochs === '5'", seconds=30)
        browser.wait("document.getElementById('state').textContent === 'running'")
        assert browser.text("#connection") == ""
        assert browser.text("#facts").startswith("items read\n500")
