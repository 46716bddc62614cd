"""``python -m recovery web``: the page of a run that has ended or was killed, on its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from flow.engine.checkpoint.lock import Lease
from flow.errors import FlowBuildError
from flow.monitoring.run_status import RunState, RunStatus
from flow.web.hub import Hub
from recovery.__main__ import main
from recovery.checkpoint_page import run_status, serve
from recovery.reading.checkpoint_reader import open_checkpoint
from tests.support.browsing import Browser, headless_chromium


class Served:
    """A page that is served while `look` runs, and what `look` has seen."""

    def __init__(self, path: Path, shows_values: bool, look: Callable[[str], None]) -> None:
        self.url = ""

        def wait(_: float) -> None:
            look(self.url)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            serve(str(path), "127.0.0.1:0", shows_values, self._say, wait)

    def _say(self, text: str) -> None:
        self.url = text.rpartition(" ")[2].rstrip("/")


def get(url: str) -> Any:
    with urlopen(url) as answer:
        return json.loads(answer.read())


def status_of(path: Path) -> RunStatus:
    checkpoint = open_checkpoint(path)
    lease = Lease(checkpoint.files.storage)
    is_over = lease.is_over() is True
    return run_status(checkpoint, lease.holder, is_over)


def test_the_page_has_the_graph_the_sizes_and_the_offsets(checkpoint: Path) -> None:
    found = status_of(checkpoint)
    assert (found.state, found.error) == (RunState.STOPPED, None)
    steps = {step.step_id: step for step in found.graph.steps}
    assert (steps["hourly"].role, steps["hourly"].level) == ("keyed", 1)
    assert steps["baskets"].reason == "stateful_map calls Python for each key"
    assert ("hourly", "hourly_out") in {(edge.up, edge.down) for edge in found.graph.edges}
    assert found.steps["hourly"].gauges["keys"] == 2
    assert found.steps["hourly"].gauges["open_windows"] == 2
    assert found.steps["sessions"].gauges["buffered_values"] == 2
    assert "open_windows" not in found.steps["counts"].gauges
    assert found.lag["clicks"].startswith("read up to")
    assert found.epochs == 4


def test_a_run_that_was_killed_is_said_to_be(copied: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    holder = {"pid": 2**22 + 1, "host": "elsewhere", "token": "t", "boot": boot}
    (copied / "lock.1.json").write_text(json.dumps(holder))
    (copied / "spark" / "commits" / "3").unlink()
    found = status_of(copied)
    assert found.state is RunState.FAILED
    assert found.error is not None
    assert found.error.message == (
        "process 4194305 on elsewhere, which ran the flow, has ended without an end of the run; "
        "the next run does epoch 3 again"
    )


def test_state_is_served_only_when_asked_for(checkpoint: Path) -> None:
    path = "/api/state?step=counts&key=a"

    def refused(url: str) -> None:
        with pytest.raises(HTTPError) as caught:
            get(url + path)
        assert "--values" in json.loads(caught.value.read())["error"]
        caught.value.close()

    def shown(url: str) -> None:
        (key,) = get(url + path)["keys"]
        assert (key["key"], key["state"]) == ("a", 3)

    Served(checkpoint, False, refused)
    Served(checkpoint, True, shown)


def test_a_look_that_fails_is_done_again(
    copied: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shown, looks = list[RunStatus](), iter(range(3))
    monkeypatch.setattr(Hub, "publish", lambda _, found: shown.append(found))

    def wait(_: float) -> None:
        look = next(looks)
        if look == 0:
            (copied / "spark" / "commits" / "3").unlink()
            (copied / "flow.json").rename(copied / "away")
        elif look == 1:
            (copied / "away").rename(copied / "flow.json")
        else:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(str(copied), "127.0.0.1:0", False, lambda _: None, wait)
    assert [one.epochs for one in shown] == [3]
    assert "as this one failed" in caplog.text


def test_a_wrong_directory_and_a_wrong_address_are_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["web", str(tmp_path / "missing")]) == 2
    assert "there is no directory" in capsys.readouterr().err
    with pytest.raises(FlowBuildError, match="HOST:PORT"):
        serve(str(checkpoint), "everywhere", False, print)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with headless_chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.mark.extended
@pytest.mark.browser
def test_the_page_draws_the_windows_of_a_run_that_has_ended(
    browser: Browser, checkpoint: Path, tmp_path: Path
) -> None:
    def look(url: str) -> None:
        browser.open(f"{url}/")
        browser.wait("document.querySelectorAll('.node').length === 16")
        assert browser.text("#state") == "stopped"
        assert browser.text("#about").startswith("checkpoint, last epoch at 2023-12-14T10:00")
        assert "items read" not in browser.text("#facts")
        browser.run(
            "document.querySelector('#steps tr[data-step=hourly]')"
            ".dispatchEvent(new MouseEvent('click'))"
        )
        browser.wait("document.querySelectorAll('#inside .of-key .window').length === 2")
        assert "2 keys" in browser.text("#inside")
        browser.screenshot(tmp_path / "checkpoint.png")

    Served(checkpoint, True, look)
