"""The checkpoint that all tests of the tools read, and a copy for tests that change it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from recovery.__main__ import main
from tests.recovery.kept_flow import run_on


@pytest.fixture(scope="session")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of `tests.recovery.kept_flow` after epoch 3; not to be changed."""
    return run_on(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def copied(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint, which a test may change."""
    return Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))


@pytest.fixture
def printed(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command of ``python -m recovery`` that ends well, and returns its output."""

    def run(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run
