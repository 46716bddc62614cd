"""The packages of this project, and the user's modules, for workers on other machines."""

from __future__ import annotations

import marshal
import os
import zipfile
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Any

from flow.engine.spark.session.access import is_remote
from flow.engine.temporary import new_directory
from flow.errors import FlowBuildError

PACKAGES = ("flow", "flow_windowing", "recovery")
_UNCHECKED = 0b01
"""Flags of a compiled form with its source's hash, which Python does not check."""
_sent: set[str] = set()
"""The ids of the applications, or sessions of Spark Connect, whose workers have the packages."""


def send_packages(spark: Any) -> None:
    """Send the packages of this project to the workers of a session, once."""
    remote = is_remote(spark)
    name = spark.session_id if remote else spark.sparkContext.applicationId
    if name in _sent:
        return
    path = str(_zipped())
    if remote:
        spark.addArtifacts(path, pyfile=True)
    else:
        spark.sparkContext.addPyFile(path)
    _sent.add(name)


def send_files(spark: Any, files: Iterable[str | os.PathLike[str]]) -> None:
    """Send the user's modules to the workers of a session.

    Raises:
        FlowBuildError: if there is no such file.
    """
    for file in files:
        path = os.fspath(file)
        if not os.path.isfile(path):
            raise FlowBuildError(f"py_files: there is no file {path!r}")
        if is_remote(spark):
            spark.addArtifacts(path, pyfile=True)
        else:
            spark.sparkContext.addPyFile(path)


def _zipped() -> Path:
    """Write the packages of this project to a zip file, each module also in its compiled form.

    Python stores no compiled form of a module that it imports from a zip, so each worker would
    compile the packages again. A worker with another version of Python compiles the sources.
    """
    home = Path(__file__).resolve().parents[4]
    path = new_directory("code-") / "flow_packages.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((home / package).rglob("*.py")):
                name = file.relative_to(home)
                archive.write(file, name)
                archive.writestr(str(name.with_suffix(".pyc")), _compiled(file))
    return path


def _compiled(file: Path) -> bytes:
    """Return a compiled module that Python does not compare with its source (PEP 552).

    Python reads the form that it has stored, or compiles and stores the module.
    """
    code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    flags = _UNCHECKED.to_bytes(4, "little")
    return MAGIC_NUMBER + flags + source_hash(file.read_bytes()) + marshal.dumps(code)
