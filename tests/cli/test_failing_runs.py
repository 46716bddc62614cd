"""Messages of the command line about failed runs and warnings."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flow.errors import FlowBuildError, FlowError, SourceError, StepError
from tests.support.commandline import FLOW, ErrorOutput, Runs, Write, run_main


def test_a_step_that_failed_is_said_with_the_users_exception(
    runs: Runs, error_output: ErrorOutput
) -> None:
    error = StepError("half", "the mapper raised ZeroDivisionError", "LHR", "0")
    error.__cause__ = ZeroDivisionError("division by zero")
    error.__cause__.add_note("raised in a worker at:\n  File a.py, line 3")
    runs.fail(error)
    assert error_output(1, "mine:flow") == (
        "error: step 'half': the mapper raised ZeroDivisionError\n"
        "  key:  'LHR'\n"
        "  item: 0\n"
        "ZeroDivisionError: division by zero\n"
        "raised in a worker at:\n"
        "  File a.py, line 3\n"
    )


def test_an_exception_without_frames_of_the_user_is_in_the_message_alone(
    runs: Runs, error_output: ErrorOutput
) -> None:
    cause = ValueError("invalid literal")
    error = StepError("number", "the mapper raised ValueError: invalid literal", item="'x'")
    error.__cause__ = cause
    runs.fail(error)
    assert error_output(1, "mine:flow") == f"error: {error}\n"


def test_verbose_shows_all_frames_of_a_failure(runs: Runs, error_output: ErrorOutput) -> None:
    runs.fail(StepError("half", "the mapper raised ZeroDivisionError"))
    error = error_output(1, "mine:flow", "--verbose")
    assert error.startswith("error: Traceback (most recent call last):\n")
    assert "run_command.py" in error
    assert error.endswith("StepError: step 'half': the mapper raised ZeroDivisionError\n")


@pytest.mark.parametrize(
    ("error", "code"), [(SourceError("no file"), 1), (FlowBuildError("no output"), 2)]
)
def test_the_exit_code_tells_a_failed_run_from_one_that_could_not_start(
    runs: Runs, error_output: ErrorOutput, error: FlowError, code: int
) -> None:
    runs.fail(error)
    assert error_output(code, "mine:flow") == f"error: {error}\n"


def test_an_exception_nobody_foresaw_has_its_frames_shown(
    runs: Runs, error_output: ErrorOutput
) -> None:
    runs.action = lambda: {}["inside"]
    error = error_output(1, "mine:flow")
    assert error.startswith("error: the run failed\nTraceback (most recent call last):\n")
    assert set(re.findall(r'File "(.*)", line', error)) == {__file__, inspect.getfile(Runs)}
    assert error.endswith("KeyError: 'inside'\n")
    whole = error_output(1, "mine:flow", "--verbose")
    assert "run_command.py" in whole


def test_a_flow_without_an_output_is_refused_before_spark_starts(
    write: Write, error_output: ErrorOutput
) -> None:
    write("things.py", "from flow import Dataflow\n\nfirst = Dataflow('first')\n")
    error = error_output(2, "things:first")
    assert error.startswith("error: flow 'first' has no input: start with op.input(")


@pytest.mark.filterwarnings("default")
def test_a_step_that_is_not_used_is_a_warning_of_one_line(
    write: Write, error_output: ErrorOutput
) -> None:
    write("mine.py", FLOW.format(name="mine") + "op.input('idle', flow, TestingSource([1]))\n")
    error = error_output(2, "mine:flow", "--engine=batch", "--recovery=state")
    assert error.splitlines()[0] == (
        "warning: step 'idle' of flow 'mine' is never used by an output: its items go nowhere"
    )
    assert error.count("\n") == 2


@pytest.mark.filterwarnings("default")
def test_other_warnings_are_shown_as_ever(runs: Runs) -> None:
    code = "import warnings\nwarnings.warn('mind this', stacklevel=1)\n" + FLOW.format(name="a")
    Path("warning_module.py").write_text(code)
    with pytest.warns(UserWarning, match="mind this"):
        assert run_main(["warning_module:flow", "--quiet"]) == 0


def run_beside(file: str, folder: Path, *arguments: str) -> str:
    """Run Python in a folder with a file that hides a package, and return its errors."""
    (folder / file).write_text("graph = None\n")
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize(
    ("file", "program"),
    [
        ("flow.py", "import flow_windowing"),
        ("flow.py", "from recovery import RecoveryConfig"),
        ("flow_windowing.py", "from recovery import RecoveryConfig"),
    ],
)
def test_a_file_that_hides_a_package_is_named(file: str, program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    assert run_beside(file, tmp_path, "program.py").splitlines()[-1] == (
        f"ImportError: {tmp_path / file} hides the package {file[:-3]!r}, which is installed: "
        "rename that file, or run the program in another folder"
    )


@pytest.mark.parametrize(
    ("file", "arguments", "where"),
    [
        (
            "flow.py",
            ["recovery", "status", "state"],
            "installed: rename that file, or run the program",
        ),
        ("flow_windowing.py", ["flow.run", "mine:flow"], "installed with flow"),
        ("recovery.py", ["flow.run", "mine:flow"], "installed with flow"),
        ("recovery.py", ["flow.visualize", "mine:flow"], "installed with flow"),
    ],
)
def test_a_command_names_the_file_in_one_sentence(
    file: str, arguments: list[str], where: str, tmp_path: Path
) -> None:
    error = run_beside(file, tmp_path, "-m", *arguments)
    assert error.startswith(f"{tmp_path / file} hides the package {file[:-3]!r}, which is {where}")
    assert error.count("\n") == 1
