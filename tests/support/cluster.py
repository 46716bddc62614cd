"""A standalone Spark cluster on this machine, and an interpreter for its workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.support.java import QUICK_CLUSTER

SPARK_HOME = Path(pyspark.__file__).parent


def make_bare_python(home: Path) -> str:
    """Make an environment with the dependencies but without this project, as clusters have.

    Returns:
        The path of its interpreter.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    libraries = next((home / "lib").glob("python*/site-packages"))
    packages = Path(pyspark.__file__).parents[1]
    (libraries / "dependencies.pth").write_text(f"{packages}\n")
    return str(home / "bin" / "python")


@contextmanager
def running_cluster(folder: Path, python: str) -> Iterator[str]:
    """Run a standalone cluster of two workers with one core each, and give its master's URL."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        environment = {**os.environ, **QUICK_CLUSTER, "SPARK_HOME": str(SPARK_HOME)}
        environment["PYSPARK_PYTHON"] = python
        environment.pop("PYTHONPATH", None)
        command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=folder)
            )
        return log

    package = "org.apache.spark.deploy"
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    log = start("master", f"{package}.master.Master", *local)
    url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
    for name in ("one", "two"):
        work = ("-c", "1", "-m", "600m", "-d", str(folder / name))
        log = start(name, f"{package}.worker.Worker", *local, *work, url)
        _wait_for(log, r"(Successfully registered)")
    yield url
    for process in reversed(started):
        process.terminate()
        process.wait(30)


def _wait_for(log: Path, pattern: str, seconds: float = 60) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text()) if log.exists() else None
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{pattern!r} did not appear in:\n{log.read_text()}")
