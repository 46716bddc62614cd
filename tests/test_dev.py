"""``dev.py``: interruption, set-up and checks in parallel, the choice of Spark, and the docs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

CHILD = """
import pathlib, signal, sys, time

def end(number, frame):
    time.sleep(1)
    sys.exit(7)

signal.signal(signal.SIGINT, end)
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""

HERE = """
import sys
import dev
here = dev.Environment()
here.python = sys.executable
"""
DEV = f"{HERE}sys.exit(dev.run(here, sys.argv[1:]))"


def test_ctrl_c_waits_for_the_process_to_end(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", DEV, "-c", CHILD, str(ready)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        while process.poll() is None and not ready.exists():
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(30) == 7


CHECKING = f"""{HERE}
wait = "import pathlib, sys, time; print('one waits'); there = pathlib.Path(sys.argv[1]).exists"
wait += "\\nwhile not there(): time.sleep(0.02)"
touch = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); sys.exit(3)"
dev.CHECKS = {{"one": ["-c", wait, sys.argv[1]], "two": ["-c", touch, sys.argv[1]]}}
sys.exit(dev.check(here))
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's folder."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_checks_run_in_parallel_and_are_shown_in_order_with_the_failing_code(
    tmp_path: Path,
) -> None:
    """The first waits for what the second does."""
    done = python("-c", CHECKING, str(tmp_path / "done"))
    assert done.stdout.splitlines() == ["one ...", "one waits", "two ...", "failed: two"]
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        (["test", "--spark"], "nothing"),
        (["test", "--spark", "newest"], "'newest'"),
        (["test", "--spark", "4.1.4"], "'4.1.4'"),
        (["test", "--spark", "-m", "spark"], "'-m'"),
        (["setup", "4.1.4"], "'4.1.4'"),
    ],
)
def test_a_version_of_spark_that_is_no_number_is_refused(arguments: list[str], got: str) -> None:
    done = python("dev.py", *arguments)
    message = f"dev.py: a version of Spark is written like 4.1, and here it is {got}.\n"
    assert (done.stderr, done.returncode) == (message, 2)


BUILDING = """
import dev
def missing(): raise dev.SetupError("no Java")
dev.require_java = missing
dev.set_up = lambda *wanted: print(*[sorted(extras) for _, extras in wanted])
dev.run = lambda place, arguments: print(arguments) or 0
dev.main(["docs", "--check"])
"""


def test_the_site_of_the_docs_needs_no_java_and_no_tools_of_developers() -> None:
    done = python("-c", BUILDING)
    assert done.stdout == "['docs']\n['-m', 'docs.pages', '--check']\n", done.stderr


SETTING_UP = """
import dev
def install(place, extras):
    print("install", place.folder.name, *sorted(extras))
    if place.spark == "4.2":
        raise dev.SetupError("no network")
    return [] if place.spark == "4.0" else ["dev"]
dev.require_java = lambda: None
dev.install = install
dev.prepare = lambda place: print("prepare", place.folder.name)
dev.Environment.write_stamp = lambda place, names: print("installed", place.folder.name)
try:
    dev.main(["setup", "4.0", "4.1", "4.2"])
except dev.SetupError as error:
    print(error)
"""


def test_environments_are_installed_in_turn_and_the_first_is_prepared() -> None:
    """4.0 is there already, and 4.2 cannot be installed: the others are completed."""
    done = python("-c", SETTING_UP)
    assert done.stdout.splitlines() == [
        *("install .venv dev docs examples", "prepare .venv", "installed .venv"),
        "install .venv-spark-4.0 dev examples",
        *("install .venv-spark-4.1 dev examples", "installed .venv-spark-4.1"),
        *("install .venv-spark-4.2 dev examples", "no network"),
    ], done.stderr


INSTALLING = """
import dev
def quietly(command, env=None):
    print(*command[2:4], command[-1])
    if command[2] == "uv":
        raise dev.SetupError("no index")
dev.quietly = quietly
dev.install_packages(dev.Environment(), ["numpy"])
"""


def test_pip_installs_what_uv_does_not() -> None:
    assert python("-c", INSTALLING).stdout.splitlines() == [
        *("pip install uv", "uv pip numpy", "installing with pip, as uv has failed ..."),
        "pip install numpy",
    ]
