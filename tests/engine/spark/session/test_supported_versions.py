"""The supported versions of Spark, and the errors for other ones."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pyspark
import pytest

from flow import Dataflow, run
from flow.engine.spark.session.versions import (
    WAY_OUT,
    check_same_version,
    installed_version,
    is_supported,
)
from flow.errors import EnvironmentProblem


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    """Forget the version that a test has set."""
    yield
    installed_version.cache_clear()


def set_installed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", text)
    installed_version.cache_clear()


def test_the_installed_version_is_supported() -> None:
    assert installed_version() == pyspark.__version__
    assert is_supported(pyspark.__version__)


@pytest.mark.parametrize("text", ["3.5.9", "2.4.8"])
def test_an_older_version_is_refused_with_the_supported_ones(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_installed(monkeypatch, text)
    with pytest.raises(EnvironmentProblem) as caught:
        installed_version()
    assert str(caught.value) == (
        f"flows run on Spark 4.0 to 4.3; PySpark {text} is installed: install pyspark>=4.0,<4.4"
    )


def test_a_newer_version_gets_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_installed(monkeypatch, "4.4.0")
    with caplog.at_level(logging.WARNING, "flow"):
        assert installed_version() == "4.4.0"
    assert caplog.messages == [
        "PySpark 4.4.0 is newer than the newest version that flows were tested with, 4.3; if a run "
        f"fails, {WAY_OUT}"
    ]


def test_run_checks_the_version_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    set_installed(monkeypatch, "3.5.9")
    with pytest.raises(EnvironmentProblem, match=r"PySpark 3\.5\.9 is installed"):
        run(Dataflow("empty"))


def test_a_missing_pyspark_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(EnvironmentProblem, match=r"PySpark cannot be imported .*: install pyspark"):
        installed_version.__wrapped__()


def test_a_session_of_another_version_is_refused() -> None:
    other = SimpleNamespace(version="3.5.1")
    with pytest.raises(EnvironmentProblem) as caught:
        check_same_version(other)
    assert str(caught.value) == (
        f"the session runs Spark 3.5.1, and Python imports PySpark {pyspark.__version__}: install "
        "pyspark==3.5.1, or unset SPARK_HOME"
    )
    check_same_version(SimpleNamespace(version=pyspark.__version__))
