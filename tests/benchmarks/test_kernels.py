"""Instruction counts of the columnar kernels, and their budgets."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from benchmarks.kernels import run
from benchmarks.kernels.budgets import Budgets, Setting
from benchmarks.kernels.counting import CountingError, can_count, count
from benchmarks.kernels.kernels import Kernel, all_kernels

KERNELS = all_kernels()
BUDGETS = Budgets.read()
SETTING = Setting("a machine", "3.11.7", "2.4.6", "26.0.1")

# In the place of Valgrind: runs the program that stands after the options.
PLAIN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""

needs_valgrind = pytest.mark.skipif(not can_count(), reason="Valgrind is not installed")
needs_this_machine = pytest.mark.skipif(
    platform.machine() != BUDGETS.setting.machine,
    reason=f"instructions were counted on {BUDGETS.setting.machine}",
)


GROUPS = [tuple(KERNELS)[first::5] for first in range(5)]
"""All kernels, in groups: each pays for a start of Python under Valgrind."""


@needs_valgrind
@needs_this_machine
@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_a_kernel_takes_at_most_twice_its_budget(names: tuple[str, ...]) -> None:
    counts = count([KERNELS[name] for name in names])
    problems = [problem for name in names if (problem := BUDGETS.problem(name, counts[name]))]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_every_budget_belongs_to_a_kernel() -> None:
    assert sorted(BUDGETS.by_kernel) == sorted(KERNELS)


def test_the_error_of_a_kernel_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever counts: here it is a program that counts nothing, which is faster."""
    for program in (tmp_path / "valgrind", tmp_path / "vgdb"):
        program.write_text(PLAIN)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(
        CountingError, match=r"exit code 1, saying:\n[^$]*KeyError: 'no-such-kernel'"
    ):
        count([Kernel("no-such-kernel", lambda: dict)])


def test_twice_the_budget_is_allowed_and_more_is_not() -> None:
    budgets = Budgets(SETTING, {"sums": 100.0})
    assert budgets.problem("sums", 200.0) is None
    assert budgets.problem("sums", 200.1) == (
        "the kernel sums takes 200.1 instructions a row, 2.00 times its budget of 100.0, and may "
        "take 2 times that (counted with Python 3.11.7, numpy 2.4.6, pyarrow 26.0.1; now with "
        f"{Setting.here()}): make it cheaper, or, where it has to cost as much, renew its budget "
        "with 'python benchmarks/kernels/run.py --write sums'"
    )


def test_a_kernel_without_a_budget_is_a_problem() -> None:
    assert Budgets(SETTING, {}).problem("sums", 200.0) == (
        "the kernel sums takes 200.0 instructions a row and has no budget: write one with 'python "
        "benchmarks/kernels/run.py --write sums'"
    )


def test_budgets_survive_writing_and_reading(tmp_path: Path) -> None:
    file = tmp_path / "budgets.json"
    Budgets(SETTING, {"sums": 12.34, "hashes": 5.0}).write(file)
    assert Budgets.read(file) == Budgets(SETTING, {"sums": 12.3, "hashes": 5.0})


def test_the_table_has_a_line_for_each_kernel() -> None:
    kernels = [Kernel("sums", lambda: dict), Kernel("hashes", lambda: dict, 500)]
    text = run.table(kernels, {"sums": 1_500.0, "hashes": 7.0}, Budgets(SETTING, {"sums": 1e3}))
    assert [line.split() for line in text.splitlines()] == [
        ["kernel", "rows", "instructions", "a", "row", "budget", "ratio"],
        ["sums", "20,000", "1,500.0", "1,000.0", "1.50"],
        ["hashes", "500", "7.0"],
    ]


def test_unknown_kernels_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["hash-keys", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("there is no kernel called nonsense: they are hash-")


@pytest.mark.parametrize(
    "names", [(*KERNELS,)[:4], pytest.param((*KERNELS,), marks=pytest.mark.extended)], ids=len
)
def test_every_kernel_can_be_timed(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "REPEATS", 1)
    lines = run.times([KERNELS[name] for name in names]).splitlines()
    assert [line.split()[0] for line in lines] == ["kernel", *names]
