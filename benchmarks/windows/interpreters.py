"""Which Python runs a peer: this one if the peer is installed, else one with a folder of its own.

Bytewax has no wheel for every Python that this project runs on; then an older one on the path is
given a virtual environment with nothing else in it.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

OWN_ENVIRONMENTS = {"bytewax": (("python3.12", "python3.11"), "bytewax==0.21.1")}
"""For peers that need another Python: the commands to try, and what to install."""

WITH_WHEELS = ((3, 11), (3, 12))
"""The versions of Python that can have all peers themselves."""


@functools.cache
def interpreter_with(package: str, home: Path) -> str | None:
    """The path of a Python that can import a package; ``None`` when there is none.

    Args:
        package: the package; empty for no more than what this project needs.
        home: where environments are made.
    """
    if not package or importlib.util.find_spec(package) is not None:
        return sys.executable
    # Where this Python could have it, not having it is the user's choice.
    if package not in OWN_ENVIRONMENTS or sys.version_info[:2] in WITH_WHEELS:
        return None
    commands, requirement = OWN_ENVIRONMENTS[package]
    made = (
        _environment(path, requirement, home / f"{command}-{package}")
        for command in commands
        if (path := shutil.which(command)) is not None
    )
    return next((python for python in made if python is not None), None)


def _environment(python: str, requirement: str, folder: Path) -> str | None:
    """A virtual environment with a package, made if needed; ``None`` where that fails."""
    made = folder / "bin" / "python"
    install = [str(made), "-m", "pip", "install", "--quiet", requirement, "typing-extensions"]
    try:
        if not made.exists():
            subprocess.run([python, "-m", "venv", folder], check=True)
        subprocess.run(install, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return str(made)
