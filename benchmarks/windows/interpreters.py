"""The Python interpreter of a peer: this one if the peer is installed, else one in a folder.

Bytewax has no wheel for some Python versions of this project. For these the module makes a virtual
environment with Bytewax from an older Python on the path.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

OWN_ENVIRONMENTS = {"bytewax": (("python3.12", "python3.11"), "bytewax==0.21.1")}
"""For peers that need another Python: the commands to try, and the requirement to install."""

WITH_WHEELS = ((3, 11), (3, 12))
"""The versions of Python for which all peers have wheels."""


@functools.cache
def interpreter_with(package: str, home: Path) -> str | None:
    """Return the path of a Python that can import a package; ``None`` if there is none.

    Args:
        package: the package; empty if the contestant needs only this project.
        home: the folder of virtual environments.
    """
    if not package or importlib.util.find_spec(package) is not None:
        return sys.executable
    # If this Python could have the package, the user has chosen not to install it.
    if package not in OWN_ENVIRONMENTS or sys.version_info[:2] in WITH_WHEELS:
        return None
    commands, requirement = OWN_ENVIRONMENTS[package]
    pythons = (
        _environment(path, requirement, home / f"{command}-{package}")
        for command in commands
        if (path := shutil.which(command)) is not None
    )
    return next((python for python in pythons if python is not None), None)


def _environment(python: str, requirement: str, folder: Path) -> str | None:
    """Make a virtual environment with a package if needed; return its Python, or ``None``."""
    path = folder / "bin" / "python"
    install = [str(path), "-m", "pip", "install", "--quiet", requirement, "typing-extensions"]
    try:
        if not path.exists():
            subprocess.run([python, "-m", "venv", folder], check=True)
        subprocess.run(install, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return str(path)
