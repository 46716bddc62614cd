"""The interpreter of workers, which Spark also starts on the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flow import run
from flow.engine.spark import streaming
from flow.engine.spark.session.session import check_driver_python
from flow.errors import EnvironmentProblem
from tests.support.one_stream import a_flow, as_read


def test_a_packed_environment_that_only_workers_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        check_driver_python("./env/bin/python", str(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"PYSPARK_PYTHON names './env/bin/python', and {tmp_path}/env/bin")
    assert "mkdir env && tar -xzf env.tar.gz -C env" in message


def test_a_path_counts_from_the_folder_of_the_jvm(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    check_driver_python("./env/bin/python", str(tmp_path))


@pytest.mark.parametrize("python", ["python3", "python-that-path-may-have", sys.executable])
def test_names_and_existing_paths_are_accepted(python: str, tmp_path: Path) -> None:
    check_driver_python(python, str(tmp_path))


@pytest.mark.spark
def test_a_refused_run_starts_no_query(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = EnvironmentProblem("the driver has no such Python")

    def refuse(_: SparkSession) -> None:
        raise refused

    monkeypatch.setattr(streaming, "check_python_of", refuse)
    with pytest.raises(EnvironmentProblem) as caught:
        run(a_flow(as_read), spark=spark, engine="streaming")
    assert caught.value is refused


OUTSIDE_OF_RUNS = """
from flow.engine.spark.session.session import SparkSettings, make_session
spark = make_session("own", SparkSettings("local[1]"))
print(spark.sparkContext.pythonExec)
"""


@pytest.mark.spark
@pytest.mark.extended
def test_a_session_keeps_the_python_that_the_user_named(tmp_path: Path) -> None:
    own = tmp_path / "python"
    own.symlink_to(sys.executable)
    made = subprocess.run(
        [sys.executable, "-c", OUTSIDE_OF_RUNS],
        env={**os.environ, "PYSPARK_PYTHON": str(own)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert made.stdout.split()[-1] == str(own)
