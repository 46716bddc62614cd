"""``dev.py``: what it does when the process that it runs is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHILD = """
import pathlib, signal, sys, time

def end(number, frame):
    time.sleep(1)
    sys.exit(7)

signal.signal(signal.SIGINT, end)
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""

DEV = "import dev, sys; dev.VENV_PYTHON = sys.executable; sys.exit(dev.run(sys.argv[1:]))"


def test_ctrl_c_lets_the_process_end_in_its_own_time(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", DEV, "-c", CHILD, str(ready)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        while process.poll() is None and not ready.exists():
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(30) == 7
