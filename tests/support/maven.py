"""Jars that tests need of Maven Central, fetched once into a cache.

The cache is the folder that ``FLOW_KAFKA_JARS`` names, or one in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>flow.tests</groupId>
  <artifactId>fetched</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId>
      <artifactId>{}</artifactId>
      <version>{}</version>
      <exclusions>{}</exclusions>
    </dependency>
"""
_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>*</artifactId></exclusion>"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_RESOLVING_SECONDS = 240


def jars_of(coordinates: str, *without: str) -> tuple[str, Path]:
    """Return the reason why artifacts are missing, or "", and the folder of their jars.

    Args:
        coordinates: group, name and version of each, with colons between; artifacts with spaces.
        without: groups of which nothing is needed.
    """
    artifacts = [one.split(":") for one in coordinates.split()]
    jars = _cache() / "-".join(artifacts[-1][1:])
    if jars.is_dir():
        return "", jars
    if shutil.which("mvn") is None:
        return f"mvn, which fetches it, is not here, nor is {jars}", jars
    exclusions = "".join(_EXCLUSION.format(name) for name in without)
    pom = _POM.format(
        dependencies="".join(_DEPENDENCY.format(*one, exclusions) for one in artifacts)
    )
    arguments = ["-f", "{folder}/pom.xml", f"{_COPY}-dependencies", "-DincludeScope=runtime"]
    return _fetch(pom, arguments, jars), jars


def archive_of(artifact: str) -> tuple[str, Path]:
    """Return the reason why an archive is missing, or "", and the folder of its files.

    Args:
        artifact: group, name, version, type and classifier, with colons between.
    """
    files = _cache() / "-".join(artifact.split(":")[1:3])
    if files.is_dir():
        return "", files
    if shutil.which("mvn") is None:
        return f"mvn, which fetches it, is not here, nor is {files}", files
    return _fetch("", [_COPY, f"-Dartifact={artifact}"], files), files


def _cache() -> Path:
    given = os.environ.get("FLOW_KAFKA_JARS")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else caches / "flow-tests"


def _fetch(pom: str, arguments: list[str], files: Path) -> str:
    """Fetch files, take an archive apart, and return the reason of a failure, or ""."""
    files.parent.mkdir(parents=True, exist_ok=True)
    with (files.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Maven's own cache does not bear two of it.
        return "" if files.is_dir() else _fetch_alone(pom, arguments, files)


def _fetch_alone(pom: str, arguments: list[str], jars: Path) -> str:
    with tempfile.TemporaryDirectory(dir=jars.parent) as folder:
        (Path(folder) / "pom.xml").write_text(pom)
        command = ["mvn", "-B", "-q", *(one.format(folder=folder) for one in arguments)]
        command += [f"-DoutputDirectory={folder}/jars"]
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        try:
            done = subprocess.run(command, timeout=_RESOLVING_SECONDS, **quiet)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"mvn did not fetch it: {error}"
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
            return f"mvn did not fetch it: {lines[0]}"
        for archive in Path(folder).glob("jars/*.tar.gz"):
            with tarfile.open(archive) as opened:
                opened.extractall(archive.parent, filter="data")
            archive.unlink()
        # At once, or not at all.
        with contextlib.suppress(OSError):
            (Path(folder) / "jars").rename(jars)
    return "" if jars.is_dir() else f"{jars} could not be made"
