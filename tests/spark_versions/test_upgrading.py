"""A checkpoint that runs on one version of Spark after another.

The other versions are in the environments of ``dev.py test --spark 4.1`` and the like.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dev
from flow.engine.spark.session.versions import SUPPORTED, installed_version, parse_version
from tests.spark_versions.four_runs import Outputs, driver_outputs, merged, run_parts

pytestmark = [pytest.mark.spark, pytest.mark.extended]

OLDER = [
    version for version in SUPPORTED if parse_version(version) < parse_version(installed_version())
]


@pytest.fixture(scope="module")
def expected(spark: SparkSession) -> Outputs:
    """The outputs of the in-process driver, which four runs on one version have, too.

    The runs of this process need the session.
    """
    return driver_outputs()


def python_with(version: str) -> str:
    """Return the Python of the environment with a version of Spark, or skip the test."""
    place = dev.Environment(version)
    if not place.read_stamp():  # while an installation runs, too
        pytest.skip(f"no environment with Spark {version}: dev.py test --spark {version} makes it")
    return str(place.python)


def run_on(version: str, directory: Path, number: int) -> subprocess.CompletedProcess[str]:
    """Run a part of the flow on another version of Spark."""
    command = [python_with(version), "-m", "tests.spark_versions.four_runs", str(directory)]
    return subprocess.run(
        [*command, str(number), _file(directory, number)],
        cwd=dev.ROOT,
        env=dev.Environment(version).variables(),
        capture_output=True,
        text=True,
        timeout=240,
    )


def outputs_on(version: str, directory: Path, number: int) -> Outputs:
    done = run_on(version, directory, number)
    assert done.returncode == 0, done.stderr
    found: Outputs = json.loads(Path(_file(directory, number)).read_text())
    return found


def _file(directory: Path, number: int) -> str:
    return str(directory / f"outputs-{number}.json")


@pytest.mark.parametrize("version", OLDER)
def test_a_checkpoint_of_an_older_spark_continues(
    version: str, expected: Outputs, tmp_path: Path
) -> None:
    first = outputs_on(version, tmp_path, 0)
    assert merged([first, *run_parts(tmp_path, 1, 2, 3)]) == expected


@pytest.mark.skipif(len(OLDER) < 3, reason="needs three older versions")
def test_a_checkpoint_continues_through_all_versions(expected: Outputs, tmp_path: Path) -> None:
    """With the adapter and the format of state of 4.0, which it records."""
    older = [outputs_on(version, tmp_path, number) for number, version in enumerate(OLDER)]
    identity = json.loads((tmp_path / "checkpoint/flow.json").read_bytes())
    assert identity["adapter"] == "transformWithStateInPandas"
    assert merged([*older, *run_parts(tmp_path, 3)]) == expected
    files = {path.stem for path in (tmp_path / "checkpoint/spark/state/0/0").glob("*.changelog")}
    assert files == {str(number) for number in range(1, len(files) + 1)}


@pytest.mark.skipif(not OLDER, reason="needs an older version")
def test_a_checkpoint_of_a_newer_spark_is_refused_and_left_unchanged(
    spark: SparkSession, tmp_path: Path
) -> None:
    python_with(OLDER[-1])
    run_parts(tmp_path, 0)
    identity = (tmp_path / "checkpoint/flow.json").read_bytes()
    done = run_on(OLDER[-1], tmp_path, 1)
    assert done.returncode != 0
    assert (
        f"{tmp_path}/checkpoint was last written with Spark {spark.version}, and Spark {OLDER[-1]}."
    ) in done.stderr
    assert (tmp_path / "checkpoint/flow.json").read_bytes() == identity
    assert not Path(_file(tmp_path, 1)).exists()
