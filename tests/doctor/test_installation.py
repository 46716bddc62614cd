"""Checks of the installation: Python of workers, Spark home, versions and packages."""

from __future__ import annotations

import socket
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from flow.doctor import findings
from flow.doctor.findings import (
    Level,
    java_findings,
    package_findings,
    pyspark_findings,
    python_findings,
)
from flow.engine.spark.session import spark_capabilities
from flow.engine.spark.session.spark_capabilities import LevelAdapter, SparkCapabilities
from flow.engine.spark.session.versions import installed_version
from tests.doctor.findings import OK, PROBLEM, WARNING, is_last

ROOT = Path(__file__).resolve().parents[2]
HOST = socket.gethostname()
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def executable(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_python_of_workers_is_this_one_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    *_, found = python_findings({}, True)
    assert (found.level, found.text) == (OK, f"{sys.executable} (default), version {OWN}")
    end = "those on the cluster's machines were not checked"
    assert is_last(python_findings({}, False), found.level, end=end)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 3.9", f"is version 3.9, and this Python is {OWN}: run both with the same minor"),
        (f"echo {OWN} pandas pyarrow", "lacks pandas, pyarrow: install it there"),
        ("exit 1", "does not run: set PYSPARK_PYTHON to a Python"),
    ],
)
def test_another_python_of_workers_is_named(
    script: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = executable(tmp_path / "python", script)
    monkeypatch.setenv("PYSPARK_PYTHON", path)
    assert is_last(python_findings({}, True), PROBLEM, f"{path} (PYSPARK_PYTHON) {problem}")


def test_a_python_that_is_missing_or_not_executable_is_named(tmp_path: Path) -> None:
    conf = {"spark.pyspark.python": str(tmp_path / "python")}
    expected = f"spark.pyspark.python names {str(tmp_path / 'python')!r}, which"
    text = f"{expected} does not exist: set it to a Python {OWN}"
    assert is_last(python_findings(conf, True), PROBLEM, text)
    (tmp_path / "python").write_text("")
    text = f"{expected} is not executable: set it to"
    assert is_last(python_findings(conf, True), PROBLEM, text)


FOUND = (
    "keyed steps by transformWithStateInPandas, source without admission and availableNow, "
    "pipelined calls of state"
)


@pytest.mark.parametrize(
    ("version", "adapters", "level", "text"),
    [
        ("4.0.5", [LevelAdapter.FRAMES], OK, f"version 4.0.5: {FOUND}"),
        ("4.9.0", [LevelAdapter.FRAMES], WARNING, f"version 4.9.0: {FOUND}; newer than those that"),
        ("4.0.5", [], WARNING, "streaming flows and checkpoints need transformWithState or"),
    ],
)
def test_version_and_capabilities_of_pyspark_are_judged(
    version: str,
    adapters: list[LevelAdapter],
    level: Level,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    found = SparkCapabilities(tuple(adapters), False, True)
    for module in (findings, spark_capabilities):
        monkeypatch.setattr(module, "installed_version", lambda: version)
        monkeypatch.setattr(module, "spark_capabilities", lambda: found)
    (judged,) = pyspark_findings()
    assert is_last([judged], level, text)


def test_a_spark_home_of_another_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(findings, "installed_version", lambda: "4.3.0")
    (tmp_path / "jars").mkdir()
    assert list(pyspark_findings())[1].text.startswith(f"{tmp_path} has no jars of Spark: unset")
    (tmp_path / "jars" / "spark-core_2.13-4.1.1.jar").touch()
    text = f"{tmp_path} is Spark 4.1.1, and Python imports PySpark 4.3.0"
    assert is_last(pyspark_findings(), PROBLEM, text)


def versions(**known: str) -> Callable[[str], str | None]:
    return {name.replace("_", "-"): version for name, version in known.items()}.get


def test_an_extra_that_is_installed_in_part_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_version", versions(confluent_kafka="2.9", psycopg="3.2"))
    kafka, registry, postgres, *_, sketches = package_findings()
    assert kafka.level is WARNING
    assert kafka.text == (
        "confluent-kafka 2.9, and fastavro, msgspec is missing: pip install 'flow-windows[kafka]'"
    )
    assert (postgres.level, postgres.text) == (OK, "psycopg 3.2")
    for absent in (registry, sketches):
        assert is_last([absent], OK, "not installed; a flow that needs it: pip install")


def test_each_extra_that_a_flow_may_need_is_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    checked = {found.subject.removeprefix("Extra ") for found in package_findings()}
    others = {"examples", "benchmarks", "docs", "dev"}
    assert checked == {*project["optional-dependencies"]} - others


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    java = executable(tmp_path / "bin" / "java", "echo 'java version \"1.8.0_392\"'")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    text = f"Spark needs Java 17 or newer, {java} is version 8: install"
    assert is_last(java_findings(), PROBLEM, text)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("Could not determine current working directory.", "the working directory was removed: "),
        ("There is insufficient memory for the Java Runtime", "too little memory: "),
        ("Could not reserve enough space for 1048576KB", "too little memory: "),
        ("basedir must be absolute: ?/.ivy2.5.2/local", "this user has no name: "),
        ("NullPointerException: invalid null input: name", "this user has no name: "),
        (
            f"UnknownHostException: {socket.gethostname()}: x",
            f"host {socket.gethostname()!r} is unknown: ",
        ),
        ("lib/tzdb.dat (Too many open files)", "this process may open too few files: "),
        ("UnknownHostException: master: x", "'UnknownHostException: master: x\\n': install one, "),
    ],
)
def test_a_java_that_does_not_run_has_its_cause_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, cause: str
) -> None:
    (tmp_path / "bin").mkdir()
    java = executable(tmp_path / "bin" / "java", f"echo '{output}' >&2; exit 1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert is_last(java_findings(), PROBLEM, f"{java} does not run: {cause}")


def test_a_file_that_hides_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ModuleType("pyspark")
    mine.__file__ = "/mine/pyspark.py"
    monkeypatch.setitem(sys.modules, "pyspark", mine)
    installed_version.cache_clear()
    assert is_last(pyspark_findings(), PROBLEM, "/mine/pyspark.py hides the package 'pyspark': ")
