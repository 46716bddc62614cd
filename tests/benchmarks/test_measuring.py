"""Measurements in processes of their own, and contestants that cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.windows.measuring import Bench, as_json
from benchmarks.windows.memory import WorkerMemory, descendants
from benchmarks.windows.works import Contestant, Scale, Work

ABSENT = Contestant("absent", "duckdb_peer", "batch", needs="no_such_package")
BROKEN = Contestant("broken", "no_such_module", "batch")


def bench_at(home: Path, runs: int = 1) -> tuple[Bench, list[str]]:
    messages: list[str] = []
    return Bench(home, Scale(rows=1_000), runs, messages.append), messages


def test_a_peer_that_is_not_installed_is_skipped_and_has_no_figures(tmp_path: Path) -> None:
    bench, messages = bench_at(tmp_path)
    measured = bench.measure(Work("one", "one thing", (ABSENT,)))
    assert measured.standings["absent"].problem == "no_such_package is not installed"
    assert measured.standings["absent"].median is None
    assert "no_such_package is not installed" in messages[1]
    [found] = as_json([measured])
    assert found["work"] == "one"
    assert found["contestants"]["absent"]["figures"] == []


def test_a_failed_contestant_reports_its_error_runs_once_and_leaves_no_files(
    tmp_path: Path,
) -> None:
    bench, messages = bench_at(tmp_path, runs=3)
    standing = bench.measure(Work("one", "one thing", (BROKEN,))).standings["broken"]
    assert "No module named 'benchmarks.windows.no_such_module'" in standing.problem
    assert standing.failed
    assert len(messages) == 2
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_contestant_over_its_time_limit_is_stopped_without_failing(tmp_path: Path) -> None:
    messages: list[str] = []
    bench = Bench(tmp_path, Scale(rows=1_000), 3, messages.append, patience=0.001)
    measured = bench.measure(Work("one", "one thing", (BROKEN,)))
    standing = measured.standings["broken"]
    assert standing.problem == "over 0.001 s, stopped"
    assert standing.stopped_after == 0.001
    assert not standing.failed
    assert len(messages) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_memory_of_python_child_processes_is_measured() -> None:
    program = "held = bytearray(80_000_000); print('held', flush=True); input()"
    with (
        WorkerMemory() as used,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        children = descendants(os.getpid())
        while child.pid not in used.megabytes or used.megabytes[child.pid] < 76:
            pass
        child.communicate(b"\n")
    assert child.pid in children
    assert 76 < used.largest_megabytes < 300
