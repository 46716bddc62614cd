"""The six steps of the tutorial, as a reader does them: files, commands and what they print."""

from __future__ import annotations

import doctest
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STEPS = sorted((ROOT / "docs/tutorial").glob("[1-9]_*.md"))
BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.py)\n")


def blocks(step: int) -> list[tuple[str, str]]:
    """Return the kind and the text of each block of a step that the reader types or sees."""
    return BLOCK.findall(STEPS[step - 1].read_text("utf-8"))


def environment() -> dict[str, str]:
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def shell(folder: Path, command: str) -> str:
    """Run a block of commands and return their standard output."""
    done = subprocess.run(
        ["bash", "-euc", command], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def same(expected: str, got: str) -> bool:
    return doctest.OutputChecker().check_output(expected, got, doctest.ELLIPSIS)


def only_block(step: int, part: str, kind: str = "sh") -> str:
    """Return the only block of a kind and a step that has a part."""
    (found,) = [text for one, text in blocks(step) if one == kind and part in text]
    return found


def write_files(folder: Path, step: int) -> None:
    """Write the files of a step and of those before it."""
    for number in range(1, step + 1):
        for kind, text in blocks(number):
            name = FILE.match(text)
            if kind == "python" and name:
                (folder / name.group(1)).write_text(text)


def follow(folder: Path, step: int) -> None:
    """Run a step's commands one by one, and compare what they print with the page."""
    write_files(folder, step)
    output = ""
    for kind, text in blocks(step):
        if kind == "sh":
            output = shell(folder, text)
        elif kind == "text":
            assert same(text, output), output


def test_there_are_six_steps_and_each_leads_to_the_next() -> None:
    assert len(STEPS) == 6
    for page, following in itertools.pairwise(STEPS):
        assert f"]({following.name}).\n" in page.read_text("utf-8").splitlines(True)[-1]


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_step_without_spark_prints_what_the_page_says(step: int, tmp_path: Path) -> None:
    follow(tmp_path, step)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.extended
def test_the_step_on_spark_prints_what_the_page_says(tmp_path: Path) -> None:
    follow(tmp_path, 5)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The service of step 6, started on the orders of step 5."""
    write_files(tmp_path, 5)
    shell(tmp_path, only_block(5, "monday"))
    line = only_block(6, "", "python").split("\n")[1]
    program = (tmp_path / "shop.py").read_text()
    changed = re.sub(r"^orders = .*$", line, program, flags=re.MULTILINE)
    assert changed != program
    (tmp_path / "shop.py").write_text(changed)
    started = subprocess.Popen(
        [sys.executable, *only_block(6, "flow.run").split()[1:]],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield started
    started.kill()
    started.communicate()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.extended
def test_the_service_writes_what_the_page_says_and_stops(
    service: subprocess.Popen[str], tmp_path: Path
) -> None:
    shell(tmp_path, only_block(6, "tuesday"))
    # Before the first epoch there are no files, and the pattern would name none.
    showing = only_block(6, "cat out").replace("cat ", "cat /dev/null ")
    output, expected = "", only_block(6, "", "text")
    deadline = time.monotonic() + 120
    while not same(expected, output) and time.monotonic() < deadline:
        assert service.poll() is None, service.communicate()[0]
        time.sleep(0.5)
        output = shell(tmp_path, f"shopt -s nullglob; {showing}")
    assert same(expected, output), output
    service.send_signal(signal.SIGINT)
    printed = service.communicate(timeout=120)[0]
    assert service.returncode == 0, printed
    assert "hourly     2" in shell(tmp_path, only_block(6, "recovery status"))
    assert "ok       Java" in shell(tmp_path, only_block(6, "flow.doctor"))
