"""Programs of Python in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def printed_by(*arguments: object, **variables: str) -> str:
    """Run Python with arguments in the project's folder, and return what it prints.

    Args:
        arguments: the arguments of the interpreter, such as ``-c`` and a program.
        variables: variables that the environment has besides those of this process.
    """
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
