"""A folder to write modules to, and a module whose flow is not run on Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import flow.cli.run_command
import flow.execution
from tests.support.commandline import FLOW, ErrorOutput, Runs, Write, run_main


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module to the current directory, an empty one of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)

    def to_file(name: str, code: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)

    yield to_file
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, write: Write) -> Runs:
    """A module ``mine`` with a flow, and nothing that would run it on Spark."""
    write("mine.py", FLOW.format(name="mine"))
    runs = Runs()
    monkeypatch.setattr(flow.cli.run_command, "run_configured", runs)
    return runs


@pytest.fixture
def error_output(capsys: pytest.CaptureFixture[str]) -> ErrorOutput:
    """Runs the command, checks its exit code and that it prints nothing, and returns its errors."""

    def run(code: int, *arguments: str) -> str:
        assert run_main(arguments) == code
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return run
