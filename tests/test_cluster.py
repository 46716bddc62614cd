"""A flow on a real standalone cluster: a master and two workers, processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

HERE = Path(__file__).parents[1]
SPARK_HOME = Path(pyspark.__file__).parent
FLOW = """
    import os
    import flow.operators as op
    from flow import Dataflow, run
    from flow.testing import TestingSink, TestingSource
    from lengths import length
    from recovery import RecoveryConfig
    import flow_windowing as win

    def where(word):
        return word, os.environ["SPARK_EXECUTOR_DIRS"]

    counted, places = [], []
    flow = Dataflow("cluster")
    words = op.input("words", flow, TestingSource(["a", "bb", "cc", "d", "bb"] * 20, 40))
    keyed = op.key_on("by_word", words, str)
    lengths = op.map_value("length", keyed, length)
    totals = op.reduce_final("total", lengths, lambda left, right: left + right)
    op.output("counted", totals, TestingSink(counted))
    spread = op.redistribute("spread", words)
    op.output("places", op.map("where", spread, where), TestingSink(places))
    run(
        flow,
        master="{master}",
        recovery=RecoveryConfig("{checkpoint}"),
        py_files=["{module}"],
        conf={{"spark.executor.memory": "512m", "spark.executor.cores": "1"}},
    )
    print(sorted(counted))
    print(len({{place for _, place in places}}))
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter with the dependencies, but without this project: what a cluster has."""
    home = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    libraries = next((home / "lib").glob("python*/site-packages"))
    packages = Path(pyspark.__file__).parents[1]
    (libraries / "dependencies.pth").write_text(f"{packages}\n")
    return str(home / "bin" / "python")


@pytest.fixture
def master(tmp_path: Path, bare_python: str) -> Iterator[str]:
    """The URL of a standalone cluster of two workers with one core each."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = tmp_path / f"{name}.log"
        environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": bare_python}
        environment.pop("PYTHONPATH", None)
        command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=tmp_path)
            )
        return log

    package = "org.apache.spark.deploy"
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    log = start("master", f"{package}.master.Master", *local)
    url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
    for name in ("one", "two"):
        work = ("-c", "1", "-m", "600m", "-d", str(tmp_path / name))
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


@pytest.mark.cluster
def test_a_flow_runs_on_a_cluster_of_two_workers_to_which_the_packages_are_sent(
    tmp_path: Path, master: str, bare_python: str
) -> None:
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bare = [bare_python, "-c", "import pandas, flow"]
    refused = subprocess.run(bare, capture_output=True, text=True, cwd=tmp_path, env=alone)
    assert "No module named 'flow'" in refused.stderr
    (tmp_path / "app").mkdir()
    module = tmp_path / "app" / "lengths.py"
    module.write_text("def length(word):\n    return len(word)\n")
    script = tmp_path / "app" / "script.py"
    text = textwrap.dedent(FLOW)
    script.write_text(text.format(master=master, checkpoint=tmp_path / "checkpoint", module=module))
    environment = {**os.environ, "PYSPARK_PYTHON": bare_python, "PYTHONPATH": str(HERE)}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[('a', 20), ('bb', 80), ('cc', 40), ('d', 20)]", "2"]
    assert done.stderr == ""
