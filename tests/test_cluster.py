"""A flow on a real standalone cluster: a master and two workers in processes of their own."""

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
def test_a_flow_runs_on_a_cluster_that_receives_the_packages(
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
    java, checkpoint = " ".join(QUICK), tmp_path / "checkpoint"
    script.write_text(text.format(master=master, checkpoint=checkpoint, module=module, java=java))
    environment = {**os.environ, **QUICK_SUBMIT, "PYTHONPATH": str(HERE)}
    environment["PYSPARK_PYTHON"] = bare_python
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[('a', 20), ('bb', 80), ('cc', 40), ('d', 20)]", "2"]
    assert done.stderr == ""
