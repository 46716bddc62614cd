"""The footprint of a run: memory, threads, descriptors and files, and their growth."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tests.support.faults import Child

Footprint: TypeAlias = Mapping[str, float]
"""Figures by name: megabytes of memory and of files, numbers of everything else."""


def footprint(child: Child, folders: Mapping[str, Path]) -> Footprint:
    """Measure a run's processes, and the files below some folders.

    Args:
        child: the run.
        folders: the folders, by name.
    """
    groups = {
        "driver": [child.process.pid],
        "jvm": [pid for pid in [child.jvm()] if pid is not None],
        "workers": child.workers(),
    }
    figures: dict[str, float] = {"workers": len(groups["workers"])}
    for name, processes in groups.items():
        figures |= {f"{name}: {what}": value for what, value in _of_processes(processes).items()}
    for name, folder in folders.items():
        sizes = list(_sizes(folder))
        figures |= {f"{name}: files": len(sizes), f"{name}: MB": sum(sizes) / 2**20}
    return figures


def growth(epochs: Sequence[int], figures: Sequence[float]) -> float:
    """Return the growth of a figure in 1 000 epochs, by the line that fits it best."""
    slope, _ = np.polyfit(np.asarray(epochs, float), np.asarray(figures, float), 1)
    return float(slope) * 1_000


def _of_processes(processes: Iterable[int]) -> dict[str, float]:
    memory = threads = descriptors = 0.0
    for process in processes:
        with contextlib.suppress(OSError, KeyError):  # it has ended meanwhile, or is about to
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
            status = dict(line.split(":", 1) for line in lines if ":" in line)
            memory += int(status["VmRSS"].split()[0]) / 1024
            threads += int(status["Threads"])
            descriptors += len(os.listdir(f"/proc/{process}/fd"))
    return {"MB": memory, "threads": threads, "descriptors": descriptors}


def _sizes(folder: Path) -> Iterator[int]:
    """The sizes of all that is below a folder, directories too; what goes meanwhile is left out."""
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(place, name)).st_size
