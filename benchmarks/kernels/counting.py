"""Counting the instructions of kernels, with Valgrind's Callgrind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kernels.counted import GATE
from benchmarks.kernels.kernels import Kernel

ROOT = Path(__file__).resolve().parents[2]
_MOST_SECONDS = 280

# One thread, one hash seed, and the allocator that Valgrind knows make counts repeatable.
_STEADY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


class CountingError(Exception):
    """Instructions could not be counted; the message has the reason and the remedy."""


def can_count() -> bool:
    """Return True if Valgrind is installed."""
    return shutil.which("valgrind") is not None and shutil.which("vgdb") is not None


def count(kernels: Sequence[Kernel], root: Path = ROOT) -> dict[str, float]:
    """Return the instructions of kernels for each of their rows, by name.

    Args:
        kernels: the kernels.
        root: the checkout whose code is counted.

    Raises:
        CountingError: when Valgrind is missing, or has not counted all kernels.
    """
    if not can_count():
        raise CountingError("Valgrind is not installed: 'apt-get install valgrind' gets it")
    with tempfile.TemporaryDirectory(prefix="flow-kernels-") as folder:
        _run([one.name for one in kernels], Path(folder), root)
        totals = _totals(Path(folder))
    counted = sum(total > 0 for total in totals)
    if not counted == len(totals) == len(kernels):
        raise CountingError(
            f"Callgrind has {counted} counts of {len(kernels)} kernels: it tells them apart by "
            f"calls of {GATE}, which it finds where Python uses libffi as a shared library; take a "
            "Python that does, such as the system's"
        )
    pairs = zip(kernels, totals, strict=True)
    return {one.name: total / one.rows for one, total in pairs}


def _run(names: list[str], folder: Path, root: Path) -> None:
    vgdb_prefix = folder / "vgdb"
    valgrind = [
        *["valgrind", "--tool=callgrind", "--quiet", "--instr-atstart=no"],
        *[f"--toggle-collect={GATE}", f"--dump-after={GATE}"],
        *[f"--callgrind-out-file={folder / 'counts'}", f"--vgdb-prefix={vgdb_prefix}"],
    ]
    command = [sys.executable, "-m", "benchmarks.kernels.counted", str(vgdb_prefix), *names]
    try:
        done = subprocess.run(
            [*valgrind, *command],
            cwd=root,
            env={**os.environ, **_STEADY, "PYTHONPATH": str(root)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_MOST_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise CountingError(
            f"counting took more than {_MOST_SECONDS} seconds: try again when the machine has time"
        ) from error
    if done.returncode:
        output = "\n".join(done.stdout.splitlines()[-15:])
        raise CountingError(f"counting ended with exit code {done.returncode}, saying:\n{output}")


def _totals(folder: Path) -> list[int]:
    """Return the count of each call through the gate, in order."""
    totals: list[int] = []
    while (part := folder / f"counts.{len(totals) + 1}").exists():
        lines = part.read_text().splitlines()
        (total,) = (line.split()[1] for line in lines if line.startswith("totals:"))
        totals.append(int(total))
    return totals
