"""The home that Spark is started from."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from flow.engine.spark.session import jvm
from flow.engine.spark.session.jvm import prepare_home, prepared_home, quick_spark_home
from flow.errors import EnvironmentProblem
from tests.support.programs import printed_by

INSTALLED = Path(pyspark.__file__).parent
ENVIRONMENT = sys.prefix


@pytest.fixture(autouse=True)
def no_home_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No home of the user's, no options of theirs, and a Python environment with nothing in it."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))


def make_prepared(jars: Path = INSTALLED / "jars") -> Path:
    """Make the home of a prepared environment, with an archive that holds no classes."""
    home = prepared_home()
    home.mkdir(parents=True)
    (home / "bin").symlink_to(INSTALLED / "bin")
    (home / "jars").symlink_to(jars)
    (home / "classes.jsa").write_bytes(b"classes")
    (home / "classes.size").write_text("7")
    return home


def test_the_home_is_the_installation_without_the_zip() -> None:
    with quick_spark_home():
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin" / "spark-submit").samefile(INSTALLED / "bin" / "spark-submit")
        assert (home / "jars").resolve() == (INSTALLED / "jars").resolve()
        assert not (home / "python").exists()
    assert "SPARK_HOME" not in os.environ


def test_a_home_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with quick_spark_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_no_home_is_set_if_others_cannot_find_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "_is_importable", lambda _: False)
    with quick_spark_home():
        assert "SPARK_HOME" not in os.environ


def test_a_package_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lib" / "pyspark"
    (package / "bin").mkdir(parents=True)
    (package / "jars").mkdir()
    assert not jvm._is_importable(package)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/other{os.pathsep}{tmp_path}/lib")
    assert jvm._is_importable(package)
    (package / "jars").rmdir()
    assert not jvm._is_importable(package)


def test_no_home_is_set_if_links_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_link(*_: Any, **__: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse_link)
    with quick_spark_home():
        assert "SPARK_HOME" not in os.environ


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    def pyspark_path(_: int) -> str:
        return str(pyspark.__file__)

    found = spark.sparkContext.parallelize([0], 1).map(pyspark_path).collect()
    assert [Path(path).resolve() for path in found] == [Path(pyspark.__file__).resolve()]


def test_a_prepared_home_is_used_with_its_archive() -> None:
    home = make_prepared()
    with quick_spark_home():
        assert os.environ["SPARK_HOME"] == str(home)
        assert f'"-XX:SharedArchiveFile={home}/classes.jsa"' in os.environ["SPARK_SUBMIT_OPTS"]
    assert not {"SPARK_HOME", "SPARK_SUBMIT_OPTS"} & set(os.environ)


def test_java_options_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    make_prepared()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    with quick_spark_home():
        assert os.environ["SPARK_SUBMIT_OPTS"].startswith("-Dmine=1 ")
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"


@pytest.mark.parametrize("archive", [None, b"class"], ids=["missing", "truncated"])
def test_a_home_without_its_whole_archive_is_not_used(archive: bytes | None) -> None:
    home = make_prepared()
    (home / "classes.jsa").unlink()
    if archive is not None:
        (home / "classes.jsa").write_bytes(archive)
    with quick_spark_home():
        assert os.environ["SPARK_HOME"] != str(home)
        assert "SPARK_SUBMIT_OPTS" not in os.environ


def test_a_home_of_another_installation_is_not_used(tmp_path: Path) -> None:
    home = make_prepared(jars=tmp_path / "gone")
    with quick_spark_home():
        assert os.environ["SPARK_HOME"] != str(home)


def fail_if_called() -> None:
    raise AssertionError("Spark was started")


def test_preparation_is_refused_for_a_home_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with pytest.raises(EnvironmentProblem, match=r"SPARK_HOME names '/opt/spark'.*unset it"):
        prepare_home(fail_if_called)


def test_preparation_is_refused_while_spark_runs(spark: SparkSession) -> None:
    with pytest.raises(EnvironmentProblem, match="Spark runs in this process"):
        prepare_home(fail_if_called)


def test_preparation_needs_a_pyspark_that_others_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "_is_importable", lambda _: False)
    with pytest.raises(EnvironmentProblem, match="only this process finds it"):
        prepare_home(fail_if_called)


def test_an_unwritable_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm.SparkContext, "_gateway", None)
    (tmp_path / "environment").touch()
    with pytest.raises(
        EnvironmentProblem, match=r"environment/.* cannot be written: .*as its owner"
    ):
        prepare_home(fail_if_called)


PREPARE = """
import sys
sys.prefix = sys.argv[1]
from flow.prepare import main
sys.stderr = sys.stdout
sys.exit(main([]))
"""

START = """
import os, sys
sys.prefix = sys.argv[1]
os.environ["SPARK_SUBMIT_OPTS"] = f"-Xlog:class+load:file={sys.argv[2]}"
from flow.engine.spark.session.session import SparkSettings, make_session
make_session("shared", SparkSettings("local[1]")).range(3).collect()
"""


def assert_java_loads_classes_from_the_archive(environment: str, log: Path) -> None:
    printed_by("-W", "error", "-c", START, environment, log)
    loaded = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    of_files = [line for line in loaded if "$$Lambda" not in line]
    shared = [line for line in of_files if "shared objects file (top)" in line]
    assert len(shared) > 0.95 * len(of_files) > 1_000


@pytest.mark.spark
@pytest.mark.extended
def test_java_loads_classes_from_a_prepared_archive(tmp_path: Path) -> None:
    environment = str(tmp_path / "an environment")
    assert "classes.jsa" in printed_by("-W", "error", "-c", PREPARE, environment)
    assert_java_loads_classes_from_the_archive(environment, tmp_path / "classes.log")


@pytest.mark.spark
@pytest.mark.extended
@pytest.mark.skipif(
    not Path(ENVIRONMENT, "installed.json").exists() or "-spark-" in Path(ENVIRONMENT).name,
    reason="dev.py has not prepared this environment",
)
def test_java_loads_classes_from_the_archive_that_dev_py_has_prepared(tmp_path: Path) -> None:
    assert_java_loads_classes_from_the_archive(ENVIRONMENT, tmp_path / "classes.log")
