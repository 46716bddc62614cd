"""Kills of a child's own processes, also where other processes have their ids."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.faults import Child, Victims

SLEEPS = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '100'])"]


def test_processes_of_a_child_are_killed_with_it(tmp_path: Path) -> None:
    child = Child.start(SLEEPS, tmp_path)
    child.wait_for(lambda: len(child.members()) == 2)
    assert sorted(line.split()[0] for line in child.members().values()) == sorted(
        [sys.executable, "sleep"]
    )
    child.kill(Victims.EVERYTHING)
    child.die()
    assert child.members() == {}


def test_a_session_that_reuses_the_id_of_an_ended_one_is_not_killed(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        # In the middle of exec a process has no environment, as one that is ending.
        while not Path(f"/proc/{other.pid}/environ").read_bytes():
            time.sleep(0.001)
        ended = Child(other, tmp_path / "log", "the token of a child that has ended")
        assert ended.members() == {}
        ended.kill(Victims.EVERYTHING)
        assert ended.vanish() < 1
        assert other.poll() is None
        os.kill(other.pid, 0)
    finally:
        other.kill()
        other.wait()
