"""``python -m recovery``: its output and exit codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.__main__ import main
from tests.recovery.damage import cut_off
from tests.support.strict_python import strict_python

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("spark")  # which the commands use
Capture = pytest.CaptureFixture[str]


@pytest.mark.extended
def test_rewind(copied: Path, printed: Callable[..., str]) -> None:
    arguments = ("rewind", copied, "--epoch", 2)
    assert "nothing has been changed: give --yes to do it" in printed(*arguments)
    assert (copied / "spark" / "commits" / "3").exists()
    assert json.loads(printed(*arguments, "--yes", "--json"))["undone"] == [3]
    assert not (copied / "spark" / "commits" / "3").exists()


def test_verify(copied: Path, capsys: Capture) -> None:
    cut_off(copied / "spark" / "commits" / "1")
    assert main(["verify", str(copied)]) == 1
    output = capsys.readouterr()
    assert output.out.startswith("spark/commits/1 ")
    assert (output.out.count("\n"), output.err) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["status"], "the following arguments are required: DIR"),
        (["nix", "dir"], "invalid choice: 'nix'"),
        (["inspect", "dir"], "the following arguments are required: --step"),
        (["rewind", "dir"], "the following arguments are required: --epoch"),
        (["rewind", "dir", "--epoch", "-1"], "argument --epoch: "),
        (["inspect", "dir", "--step=a", "--limit=0"], "a whole number of at least 1, got '0'"),
        (["inspect", "dir", "--step=a", "--flow=nix:flow"], "there is no module 'nix'"),
        (["status", "/nowhere"], "there is no directory /nowhere"),
        (["verify", "/"], "/ is not a flow's checkpoint"),
    ],
)
def test_invalid_arguments_are_one_line_and_exit_code_2(
    arguments: list[str], problem: str, capsys: Capture
) -> None:
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert problem in output.err
    assert output.err.count("\n") == 1


def test_damaged_state_is_one_line_with_the_command_that_finds_the_file(
    copied: Path, capsys: Capture
) -> None:
    for file in (copied / "spark" / "state" / "0" / "0").glob("*.changelog"):
        cut_off(file)
    assert main(["status", str(copied)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("error: the state of epoch 3 cannot be read: ")
    assert output.endswith(f"python -m recovery verify {copied} says which file is at fault\n")
    assert output.count("\n") == 1


@pytest.mark.extended
# The process has run no query, which would start parts of Spark that a reader of state needs.
@pytest.mark.slow
@pytest.mark.each_spark
def test_the_process_prints_its_answer_only(checkpoint: Path) -> None:
    command = [*strict_python(), "-m", "recovery", "verify", str(checkpoint)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{checkpoint} is whole\n", "")
    assert done.returncode == 0
