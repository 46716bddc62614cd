"""A headless Chromium for tests, or a skip where it is not installed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # Chromium refuses to run as root with its sandbox, as in CI.
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
)


class Browser:
    """A browser with a window of a size, light or dark."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def resize(self, width: int, height: int, *, is_dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
        is_phone = width < 600
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {**metrics, "mobile": is_phone}
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, url: str) -> None:
        self.driver.get(url)

    def run(self, code: str, *arguments: Any) -> Any:
        """Run the body of a function in the page, and return its result."""
        return self.driver.execute_script(code, *arguments)

    def wait(self, code: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({code})"):
            assert time.monotonic() < end, f"never true: {code}; the page: {self.text('body')}"
            time.sleep(0.05)

    def wait_for(self, selector: str, number: int) -> None:
        """Wait until a number of elements matches a selector."""
        self.wait(f"document.querySelectorAll({selector!r}).length === {number}")

    def click_step(self, step_id: str) -> None:
        """Click a step of the graph, by its name or by other text at its box."""
        self.run(
            "[...document.querySelectorAll('.node')].find(node => "
            "node.textContent.includes(arguments[0])).dispatchEvent(new MouseEvent('click'))",
            step_id,
        )

    def text(self, selector: str) -> str:
        found = self.run("return document.querySelector(arguments[0])?.innerText", selector)
        return str(found)

    def table(self, name: str) -> dict[str, dict[str, str]]:
        """Return the cells of the table of steps, by step and by column."""
        code = (
            "return [...document.querySelectorAll('#' + arguments[0] + ' tbody tr')].map(row => "
            "[row.dataset.step, Object.fromEntries([...row.cells].map(cell => "
            "[cell.dataset.name, cell.textContent]))])"
        )
        return dict(self.run(code, name))

    def scrolls_sideways(self) -> bool:
        root = "document.documentElement"
        return bool(self.run(f"return {root}.scrollWidth > {root}.clientWidth"))

    def assert_no_script_ran(self) -> None:
        """Assert that the page has its own two scripts, and that no other was tried."""
        assert self.run("return document.querySelectorAll('script').length") == 2
        assert [text for text in self.console() if "alert" in text or "Policy" in text] == []

    def screenshot(self, path: Path) -> None:
        assert self.driver.save_screenshot(str(path))

    def console(self) -> list[str]:
        """Return the errors and warnings of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def hosts(self) -> set[str]:
        """Return the hosts of all requests since the last call."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if url.startswith(("http", "ws")):
                    found.add(urlsplit(url).netloc)
        return found


@contextmanager
def headless_chromium(folder: Path) -> Iterator[Browser]:
    """Yield a browser with a profile in a folder; skip the test where there is none."""
    selenium = pytest.importorskip("selenium.webdriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = selenium.ChromeOptions()
    for option in (*_OPTIONS, f"--user-data-dir={folder}"):
        options.add_argument(option)
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = selenium.ChromeService(chromedriver)
    driver = selenium.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
