"""The checkpoint that all tests of the tools read, and a copy for tests that change it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from recovery.__main__ import main
from tests.recovery.kept_flow import run_on


@pytest.fixture(scope="session")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of `tests.recovery.kept_flow` after epoch 3; not to be changed.

    The first process of a run that needs it makes it for all.
    """
    folder = tmp_path_factory.getbasetemp()
    kept = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "kept"
    kept.mkdir(exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept / "made").exists():
            shutil.rmtree(kept / "checkpoint", ignore_errors=True)
            run_on(kept)
            (kept / "made").touch()
    return kept / "checkpoint"


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
