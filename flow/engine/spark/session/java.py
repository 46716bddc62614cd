"""Check, before the session starts, that Java is installed in a version for Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from flow.errors import EnvironmentProblem

LEAST_VERSION = 17
_HOW = (
    "install one, e.g. with `apt-get install openjdk-17-jre-headless`, "
    "`brew install openjdk@17` or from https://adoptium.net, and let JAVA_HOME point to it"
)


@dataclass(frozen=True)
class InstalledJava:
    """The Java that Spark starts with.

    Attributes:
        path: the executable.
        version: the major version.
    """

    path: str
    version: int


def check_java() -> InstalledJava:
    """Check that a Java of at least `LEAST_VERSION` is installed, and return it.

    Raises:
        EnvironmentProblem: when Java is missing or too old; the error says how to install it.
    """
    java = _find()
    if java is None:
        raise EnvironmentProblem(
            f"Spark needs Java {LEAST_VERSION} or newer and none was found: {_HOW}"
        )
    version = _version(java)
    if version is None:
        raise EnvironmentProblem(f"{java} does not run: {_HOW}")
    if version < LEAST_VERSION:
        raise EnvironmentProblem(
            f"Spark needs Java {LEAST_VERSION} or newer, {java} is version {version}: {_HOW}"
        )
    return InstalledJava(java, version)


def java_major(text: str) -> int | None:
    """Return the major version in the output of ``java -version``.

    >>> java_major('openjdk version "17.0.15" 2025-04-15'), java_major('java version "1.8.0_392"')
    (17, 8)
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first = int(match[1])
    return int(match[2]) if first == 1 and match[2] else first


def _find() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        return java if os.access(java, os.X_OK) else None
    return shutil.which("java")


def _version(java: str) -> int | None:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return java_major(done.stderr + done.stdout)
