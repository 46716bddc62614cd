"""The home that Spark is started from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from flow.engine import spark_home
from flow.engine.spark_home import quick_spark_home


@pytest.fixture(autouse=True)
def no_home_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_it_is_the_installation_without_the_zip() -> None:
    installed = Path(pyspark.__file__).parent
    with quick_spark_home():
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin" / "spark-submit").samefile(installed / "bin" / "spark-submit")
        assert (home / "jars").resolve() == (installed / "jars").resolve()
        assert not (home / "python").exists()
    assert "SPARK_HOME" not in os.environ


def test_a_home_that_the_user_names_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with quick_spark_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_nothing_changes_where_other_processes_would_not_find_pyspark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_home, "_found_by_others", lambda _: False)
    with quick_spark_home():
        assert "SPARK_HOME" not in os.environ


def test_a_package_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lib" / "pyspark"
    assert not spark_home._found_by_others(package)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/other{os.pathsep}{tmp_path}/lib")
    assert spark_home._found_by_others(package)


def test_nothing_changes_where_links_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with quick_spark_home():
        assert "SPARK_HOME" not in os.environ


def test_workers_import_pyspark_as_it_is_installed(spark: SparkSession) -> None:
    def where(_: int) -> str:
        return str(pyspark.__file__)

    found = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert [Path(path).resolve() for path in found] == [Path(pyspark.__file__).resolve()]
