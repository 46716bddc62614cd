"""The machine, the versions and the commit of a measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "bytewax", "duckdb", "polars")


def describe(root: Path) -> dict[str, Any]:
    """Return machine, versions and commit, for the results file."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(root),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: _version(name) for name in PACKAGES if _version(name)},
    }


def headline(machine: dict[str, Any], rows: int, runs: int) -> str:
    """Return machine, versions and commit in two sentences, for a document."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{rows:,} rows, medians of {runs} runs, {machine['when'][:10]}, commit "
        f"{machine['commit']}. {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB; Python {machine['python']}, {machine['java']}, {versions}."
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _commit(root: Path) -> str:
    """Return the commit, with a ``+`` if tracked files of the folder have changed."""
    commit = _output("git", "-C", str(root), "rev-parse", "--short", "HEAD")
    changed = _output("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return (commit or "unknown") + ("+" if changed else "")


def _java() -> str:
    return (_output("java", "-version") or "no Java").splitlines()[0]


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_gb() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
