"""A flow on a real cluster, whose executors are processes of their own without the packages."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.java import QUICK, QUICK_SUBMIT

HERE = Path(__file__).parents[1]
FLOW = """
    import os
    import flow.operators as op
    from flow import Dataflow, run
    from flow.testing import TestingSink, TestingSource
    from lengths import length
    from recovery import RecoveryConfig
    import flow_windowing as win

    def where(word):
        return word, os.getcwd()

    counted, places = [], []
    flow = Dataflow("cluster")
    words = op.input("words", flow, TestingSource(["a", "bb", "cc", "d", "bb"] * 4, {batch}))
    keyed = op.key_on("by_word", words, str)
    lengths = op.map_value("length", keyed, length)
    totals = op.reduce_final("total", lengths, lambda left, right: left + right)
    op.output("counted", totals, TestingSink(counted))
    spread = op.redistribute("spread", words)
    op.output("places", op.map("where", spread, where), TestingSink(places))
    run(
        flow,
        master="{master}",
        recovery={recovery},
        py_files=["{module}"],
        conf={{
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": "{java}",
        }},
    )
    print(sorted(counted))
    print(len({{place for _, place in places}}))
"""


@pytest.mark.cluster
def test_a_flow_runs_on_an_executor_that_receives_the_packages(
    tmp_path: Path, bare_python: str
) -> None:
    """The driver starts the cluster, of one executor, for a batch."""
    assert run_on("local-cluster[1,1,600]", tmp_path, bare_python, batch=20, recovery="None") == 1


@pytest.mark.extended
@pytest.mark.cluster
def test_a_flow_runs_on_a_standalone_cluster_that_receives_the_packages(
    tmp_path: Path, master: str, bare_python: str
) -> None:
    """A master and two workers in processes of their own, for a stream."""
    recovery = f"RecoveryConfig({str(tmp_path / 'checkpoint')!r})"
    assert run_on(master, tmp_path, bare_python, batch=8, recovery=recovery) == 2


def run_on(master: str, tmp_path: Path, bare_python: str, batch: int, recovery: str) -> int:
    """Run the flow on a cluster, and return the number of executors that it has used."""
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bare = [bare_python, "-c", "import pyspark, flow"]
    refused = subprocess.run(bare, capture_output=True, text=True, cwd=tmp_path, env=alone)
    assert "No module named 'flow'" in refused.stderr
    (tmp_path / "app").mkdir()
    module = tmp_path / "app" / "lengths.py"
    module.write_text("def length(word):\n    return len(word)\n")
    script = tmp_path / "app" / "script.py"
    text = textwrap.dedent(FLOW)
    places = {"master": master, "module": module, "recovery": recovery}
    script.write_text(text.format(**places, batch=batch, java=" ".join(QUICK)))
    environment = {**os.environ, **QUICK_SUBMIT, "PYTHONPATH": str(HERE)}
    environment["PYSPARK_PYTHON"] = bare_python
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr
    counted, executors = done.stdout.splitlines()
    assert counted == "[('a', 4), ('bb', 16), ('cc', 8), ('d', 4)]"
    assert done.stderr == ""
    return int(executors)
