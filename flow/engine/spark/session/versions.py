"""The versions of Spark and Java that flows run on, and the checks of the installed ones."""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from functools import cache
from typing import Any
from zipimport import zipimporter

from flow.errors import EnvironmentProblem, shorten

OLDEST_JAVA = 17
_GET_JAVA = (
    "install one, e.g. with `apt-get install openjdk-17-jre-headless`, "
    "`brew install openjdk@17` or from https://adoptium.net, and let JAVA_HOME point to it"
)

_HOST = socket.gethostname()
_SIGNS = {
    "current working directory": "the working directory was removed: use one that exists",
    r"must be absolute: \?|null input: name": "this user has no name: add its id to /etc/passwd",
    rf"HostException: {re.escape(_HOST)}:": f"host {_HOST!r} is unknown: add it to /etc/hosts",
    "Too many open files": "this process may open too few files: raise the limit (ulimit -n)",
    "nsufficient memory|not reserve|not allocate": "too little memory: raise this process's limit",
}
"""Causes, with remedies, for which Java or Spark does not start, by signs in the output."""

logger = logging.getLogger("flow")


SUPPORTED = ("4.0", "4.1", "4.2", "4.3")
"""The minor versions of Spark that flows are tested with, in order.

Older ones are refused by their number, because a batch on them was never compared with the other
engines. `flow.engine.spark.session.spark_capabilities` probes all else that differs.
"""


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor version in the text of a version of Spark.

    >>> parse_version("4.1.4"), parse_version("4.2.0.dev1")
    ((4, 1), (4, 2))

    Raises:
        ValueError: if the text has no major and minor version.
    """
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"no version of Spark: {text!r}")
    return int(match[1]), int(match[2])


_MAJOR, _MINOR = parse_version(SUPPORTED[-1])
WAY_OUT = f"install pyspark>={SUPPORTED[0]},<{_MAJOR}.{_MINOR + 1}"
"""The remedy for an unsupported version of PySpark."""


def state_format(text: str, *, is_remote: bool = False) -> int:
    """Return the newest format of Spark's state that a session reads and writes.

    Files of format 2 have unique names, so that no late write of a task replaces one. Spark 4.0
    puts the number of the format into its snapshots of state where later versions expect 1, and its
    reader of state reads format 1 alone. Over Spark Connect, versions before 4.3 do not run the
    batches of a stream in the session of the query, and do not find the names of its files.
    Nothing but the version shows this before a snapshot is read, or the first epoch ends.

    Args:
        text: the text of the version.
        is_remote: True for a session of Spark Connect.

    >>> state_format("4.0.5"), state_format("4.1.0"), state_format("4.2.0", is_remote=True)
    (1, 2, 1)
    """
    return 1 if parse_version(text) < ((4, 3) if is_remote else (4, 1)) else 2


def is_supported(text: str) -> bool:
    """Return True if flows are tested with the minor version in the text of a version."""
    return parse_version(text) in map(parse_version, SUPPORTED)


@cache
def installed_version() -> str:
    """Return the version of the installed PySpark, with a warning in the log for a newer one.

    Raises:
        EnvironmentProblem: if PySpark is missing, or older than the supported versions.
    """
    version = _installed()
    if parse_version(version) < parse_version(SUPPORTED[0]):
        raise EnvironmentProblem(
            f"flows run on Spark {SUPPORTED[0]} to {SUPPORTED[-1]}; PySpark {version} is "
            f"installed: {WAY_OUT}"
        )
    if not is_supported(version):
        logger.warning(
            "PySpark %s is newer than the newest version that flows were tested with, %s; if a run "
            "fails, %s",
            *(version, SUPPORTED[-1], WAY_OUT),
        )
    return version


def check_same_version(spark: Any) -> None:
    """Check that a session runs the version of Spark that is installed as PySpark.

    PySpark sends plans and pickles to another Spark without a check, which may read them otherwise.

    Args:
        spark: the session.

    Raises:
        EnvironmentProblem: if major or minor version differs.
    """
    if parse_version(spark.version) != parse_version(_installed()):
        raise EnvironmentProblem(
            f"the session runs Spark {spark.version}, and Python imports PySpark {_installed()}: "
            f"install pyspark=={spark.version}, or unset SPARK_HOME"
        )


def _installed() -> str:
    try:
        module: Any = importlib.import_module("pyspark")
    except ImportError as error:
        raise EnvironmentProblem(
            f"PySpark cannot be imported ({error}): {WAY_OUT.replace('pyspark', 'pyspark[sql]')}"
        ) from error
    if not hasattr(module, "__path__"):
        raise EnvironmentProblem(f"{module.__file__} hides the package 'pyspark': rename that file")
    return str(module.__version__)


def forget_zip_importers() -> None:
    """Remove the importers of zip files from the cache, so that the next task reads none again.

    An import that needs such an importer makes a new one, from the directory that was read before.

    The path of a worker's modules has zip files: Spark's jar and, except in sessions that this
    project makes, PySpark. Up to 4.1, workers of Spark invalidate all importers before each task.
    Up to 3.11, Python then reads the directory of a zip file again for each of its importers
    (CPython issue 103200), in a sixth of a second for those of the jar, and in more for those of
    PySpark: longer than a small task. From 4.2 on, workers invalidate importers only after a change
    of the path.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


def check_java() -> tuple[str, int]:
    """Check, before a session starts, that Java is installed in a version for Spark.

    Returns:
        The path of the executable, and its major version.

    Raises:
        EnvironmentProblem: when Java is missing or too old; the error says how to install it.
    """
    java = _find_java()
    if java is None:
        raise EnvironmentProblem(
            f"Spark needs Java {OLDEST_JAVA} or newer and none was found: {_GET_JAVA}"
        )
    output = _output_of(java)
    version = java_major(output)
    if version is None:
        cause = cause_in(output) or f"{shorten(output)}: {_GET_JAVA}"
        raise EnvironmentProblem(f"{java} does not run: {cause}")
    if version < OLDEST_JAVA:
        raise EnvironmentProblem(
            f"Spark needs Java {OLDEST_JAVA} or newer, {java} is version {version}: {_GET_JAVA}"
        )
    return java, version


def java_major(text: str) -> int | None:
    """Return the major version in the output of ``java -version``.

    >>> java_major('openjdk version "17.0.15" 2025-04-15'), java_major('java version "1.8.0_392"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])


def _find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        return java if os.access(java, os.X_OK) else None
    return shutil.which("java")


def _output_of(java: str) -> str:
    """Return the version that Java prints, or the reason why it does not run."""
    try:
        command = [java, "-version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stderr + done.stdout


def cause_in(output: str) -> str | None:
    """Return the cause, with the remedy, in the output of a Java that failed, if it is known."""
    return next((cause for sign, cause in _SIGNS.items() if re.search(sign, output)), None)
