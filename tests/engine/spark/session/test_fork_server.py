"""The process from which Spark's Python processes are forked, and the script that asks it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flow.engine.spark.session import fork_server
from flow.engine.spark.session.fork_server import forked_python, start_fork_server

MODULE = """
import atexit, json, os, sys, time
atexit.register(lambda: print("ended"))
print(json.dumps([sys.argv[1:], os.environ["ASKED"], os.getcwd(), sys.stdin.read(), __name__]))
print(os.getpid(), "pyspark.worker" in sys.modules, hash("a"), file=sys.stderr)
sys.stdout.flush()
if "wait" in sys.argv:
    open("waiting", "w").close()
    time.sleep(100)
sys.exit(7)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The script of a server of this test's own, and a module in the current directory."""
    folder = Path(tempfile.mkdtemp())  # A short path, with room for a socket's name.
    monkeypatch.setattr(fork_server, "new_directory", lambda _: folder)
    monkeypatch.setattr(fork_server, "_started", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asked.py").write_text(MODULE)
    start_fork_server(["pyspark.worker"])
    yield forked_python()
    (server, _) = fork_server._started[os.getpid()]
    server.communicate(timeout=60)
    shutil.rmtree(folder)


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "ASKED": "yes", "PYTHONPATH": os.getcwd()}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([script, *arguments], env=variables, text=True, **pipes)


def test_a_module_runs_in_a_fork_as_in_a_python_of_its_own(script: str) -> None:
    """With its arguments, variables, directory, standard files and exit code, and imported modules.

    Strings have the hashes of Spark's workers, which are equal in all of them.
    """
    answers = []
    for python in (script, sys.executable):
        child = start(python, "-m", "asked", "-x", "1")
        out, err = child.communicate("given", timeout=60)
        printed, ended = out.splitlines()
        assert json.loads(printed) == [["-x", "1"], "yes", os.getcwd(), "given", "__main__"]
        assert ended == "ended"
        assert child.returncode == 7
        answers.append(err.split())
    (forked, is_imported, _), (other, in_other, _) = answers
    assert forked != other
    assert (is_imported, in_other) == ("True", "False")
    seeded = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", "print(hash('a'))"]
    assert answers[0][2] == subprocess.check_output(command, env=seeded, text=True).strip()


def test_a_fork_ends_with_its_script(script: str, tmp_path: Path) -> None:
    child = start(script, "-m", "asked", "wait")
    assert child.stdin is not None
    assert child.stderr is not None
    child.stdin.close()
    child.stdin = None
    pid = int(child.stderr.readline().split()[0])
    wait_for(lambda: (tmp_path / "waiting").exists())
    child.kill()
    child.communicate(timeout=60)
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    child = start(script, "-m", "asked")
    child.communicate("", timeout=60)
    assert child.returncode == 7, "the server continues"


def test_without_the_server_the_script_is_python(script: str) -> None:
    (server, _) = fork_server._started[os.getpid()]
    server.kill()
    server.wait(60)
    assert forked_python() == sys.executable
    out, err = start(script, "-m", "asked").communicate("given", timeout=60)
    assert json.loads(out.splitlines()[0])[1:4] == ["yes", os.getcwd(), "given"]
    assert err.split()[1] == "False"


def test_a_fork_with_another_time_zone_is_a_python_of_its_own(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that ``spark.executorEnv.TZ`` sets: Python reads it as it starts."""
    monkeypatch.setenv("TZ", "America/New_York")
    child = start(script, "-m", "asked")
    assert child.communicate("", timeout=60)[1].split()[1] == "False"
    assert child.returncode == 7


def test_a_script_that_was_removed_is_not_used(script: str) -> None:
    Path(script).unlink()
    assert forked_python() == sys.executable


def test_a_session_s_workers_are_forked(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == forked_python() != sys.executable
    (server, _) = fork_server._started[os.getpid()]
    daemon = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getppid()).first()
    parent = Path(f"/proc/{daemon}/stat").read_text().rpartition(") ")[2].split()[1]
    assert int(parent) == server.pid


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_server_that_ends_with_a_waiting_script_leaves_it_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asked.py").write_text(MODULE)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        names = {"python": sys.executable, "address": f"{folder}/socket", "files": 3, "size": 8}
        script = Path(folder, "python")
        script.write_text(fork_server._SCRIPT.format(**names))
        script.chmod(0o700)
        listener.bind(names["address"])
        listener.listen()
        child = start(str(script), "-m", "asked")
        listener.accept()[0].close()
        out, _ = child.communicate("given", timeout=60)
    assert json.loads(out.splitlines()[0])[3] == "given"
    assert child.returncode == 7
