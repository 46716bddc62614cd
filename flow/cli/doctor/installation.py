"""Checks of the installation: Java, Python, PySpark and optional packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from flow.cli.doctor.finding import Finding, ok, problem, warning
from flow.engine.spark.session.versions import (
    SUPPORTED,
    check_java,
    installed_version,
    parse_version,
)
from flow.errors import EnvironmentProblem

WORKER_SECONDS = 60
"""The seconds after which the start of a worker's Python counts as failed."""

_NEEDED = ("pyspark", "pandas", "pyarrow", "numpy", "google.protobuf", "pendulum")
_PROBE = """
import sys
from importlib.util import find_spec
def is_missing(name):
    try:
        return find_spec(name) is None
    except ImportError:
        return True
print("%d.%d" % sys.version_info[:2], *(name for name in sys.argv[1:] if is_missing(name)))
"""
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "kafka": ("confluent-kafka", "fastavro", "msgspec"),
    "postgres": ("psycopg",),
    "sketches": ("datasketches",),
}
"""The packages of each extra of this project that a flow may need."""
_JAR = re.compile(r"spark-core_[\d.]+-(\d+\.\d+[^/]*)\.jar")


def java_findings() -> Iterator[Finding]:
    """Check the Java that Spark would start with."""
    try:
        path, version = check_java()
    except EnvironmentProblem as error:
        yield problem("Java", str(error))
    else:
        yield ok("Java", f"{path}, version {version}")


def python_findings(conf: Mapping[str, str], is_local: bool) -> Iterator[Finding]:
    """Check this Python, and the Python of Spark's workers.

    Args:
        conf: the settings of Spark.
        is_local: True if the workers run on this machine.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield ok("Python", f"{sys.executable}, version {sys.version.split()[0]}")
    name, origin = _python_of_workers(conf)
    path = shutil.which(name)
    subject = "Python of workers"
    if path is None:
        what = "is not executable" if os.path.exists(name) else "does not exist"
        yield problem(
            subject, f"{origin} names {name!r}, which {what}: set it to a Python {own}, or unset it"
        )
        return
    found = _probed(path)
    if found is None:
        yield problem(subject, f"{path} ({origin}) does not run: set {origin} to a Python {own}")
        return
    version, *missing = found
    if version != own:
        yield problem(
            subject,
            f"{path} ({origin}) is version {version}, and this Python is {own}: run both with the "
            "same minor version",
        )
    elif missing:
        yield problem(subject, f"{path} ({origin}) lacks {', '.join(missing)}: install it there")
    else:
        where = "" if is_local else "; those on the cluster's machines were not checked"
        yield ok(subject, f"{path} ({origin}), version {version}{where}")


def _python_of_workers(conf: Mapping[str, str]) -> tuple[str, str]:
    """Return the command of the workers' Python, and its origin."""
    if "spark.pyspark.python" in conf:
        return conf["spark.pyspark.python"], "spark.pyspark.python"
    if os.environ.get("PYSPARK_PYTHON"):
        return os.environ["PYSPARK_PYTHON"], "PYSPARK_PYTHON"
    return sys.executable, "default"


def _probed(path: str) -> list[str] | None:
    """Return the version of a Python, and needed packages that it lacks; ``None`` if it fails."""
    try:
        done = subprocess.run(
            [path, "-c", _PROBE, *_NEEDED],
            capture_output=True,
            text=True,
            timeout=WORKER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split() or None


def pyspark_findings() -> Iterator[Finding]:
    """Check the version of PySpark, and that of another Spark home."""
    try:
        version = installed_version()
    except EnvironmentProblem as error:
        yield problem("PySpark", str(error))
        return
    text = _version("pyspark") or version.name
    if version.number not in [each.number for each in SUPPORTED]:
        yield warning(
            "PySpark",
            f"version {text} is newer than those that flows were tested with: if a run fails, "
            f"install pyspark<{SUPPORTED[-1].major}.{SUPPORTED[-1].minor + 1}",
        )
    elif not version.has_streaming:
        streaming = next(each for each in SUPPORTED if each.has_streaming)
        yield warning(
            "PySpark",
            f"version {text} runs flows as batches only, without recovery and trigger: install "
            f"pyspark>={streaming.name} for streams",
        )
    else:
        yield ok("PySpark", f"version {text}")
    yield from _spark_home_findings(text)


def _spark_home_findings(version: str) -> Iterator[Finding]:
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    jars = [_JAR.fullmatch(path.name) for path in Path(home, "jars").glob("spark-core_*.jar")]
    versions = [match[1] for match in jars if match is not None]
    if not versions:
        yield problem(
            "SPARK_HOME", f"{home} has no jars of Spark: unset SPARK_HOME, or set it to a Spark"
        )
    elif parse_version(versions[0]) != parse_version(version):
        yield problem(
            "SPARK_HOME",
            f"{home} is Spark {versions[0]}, and Python imports PySpark {version}: unset "
            f"SPARK_HOME, or install pyspark=={versions[0]}",
        )
    else:
        yield ok("SPARK_HOME", f"{home}, Spark {versions[0]}")


def package_findings() -> Iterator[Finding]:
    """Check the optional packages: those of one extra are installed together."""
    for extra, names in _OPTIONAL.items():
        versions = {name: _version(name) for name in names}
        present = [f"{name} {version}" for name, version in versions.items() if version]
        missing = [name for name, version in versions.items() if not version]
        subject, install = f"Extra {extra}", f"pip install 'flow-windows[{extra}]'"
        if not present:
            yield ok(subject, f"not installed; a flow that needs it: {install}")
        elif missing:
            yield warning(
                subject, f"{', '.join(present)}, and {', '.join(missing)} is missing: {install}"
            )
        else:
            yield ok(subject, ", ".join(present))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
