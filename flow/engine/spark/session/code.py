"""The packages of this project for the workers of a cluster."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from flow.engine.temporary import new_directory

PACKAGES = ("flow", "flow_windowing", "recovery")
_sent: set[str] = set()
"""The ids of the applications whose workers have the packages."""


def send_packages(context: Any) -> None:
    """Send the packages of this project to the workers of a cluster, once for each application.

    Args:
        context: the Spark context.
    """
    if context.applicationId not in _sent:
        context.addPyFile(str(_zipped()))
        _sent.add(context.applicationId)


def _zipped() -> Path:
    """Write the packages of this project to a zip file."""
    home = Path(__file__).resolve().parents[4]
    path = new_directory("code-") / "flow_packages.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((home / package).rglob("*.py")):
                archive.write(file, file.relative_to(home))
    return path
