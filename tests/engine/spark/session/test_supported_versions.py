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
    SUPPORTED,
    check_same_version,
    check_streaming,
    installed_version,
    version_of,
)
from flow.errors import EnvironmentProblem


def test_each_supported_version_has_its_properties() -> None:
    properties = {version.name: version.has_streaming for version in SUPPORTED}
    assert properties == {"4.0": False, "4.1": True, "4.2": True, "4.3": True}


def test_the_installed_version_is_supported() -> None:
    assert pyspark.__version__.startswith(f"{installed_version().name}.")


@pytest.mark.parametrize("text", ["3.5.9", "2.4.8"])
def test_an_older_version_is_refused_with_the_supported_ones(text: str) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        version_of(text)
    assert str(caught.value) == (
        "flows run on Spark 4.1 to 4.3, and as a batch on 4.0 too; "
        f"PySpark {text} is installed: install pyspark>=4.1,<4.4"
    )


def test_a_newer_version_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flow"):
        newer = version_of("4.4.0")
    assert (newer.name, newer.has_streaming, newer.has_known_protocol) == ("4.4", True, False)
    assert caplog.messages == [
        "PySpark 4.4.0 is newer than the newest version that flows were tested with, 4.3; if a run "
        "fails, install pyspark>=4.1,<4.4"
    ]


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    """Forget the version that a test has set."""
    yield
    installed_version.cache_clear()


def set_installed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", text)
    installed_version.cache_clear()


def test_spark_4_0_runs_no_streaming_query(monkeypatch: pytest.MonkeyPatch) -> None:
    set_installed(monkeypatch, "4.0.2")
    with pytest.raises(EnvironmentProblem) as caught:
        check_streaming()
    assert str(caught.value) == (
        "streaming flows and checkpoints need Spark 4.1 to 4.3; PySpark 4.0.2, which is installed, "
        "runs a flow as a batch only, without recovery= and trigger=: install pyspark>=4.1,<4.4"
    )


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
