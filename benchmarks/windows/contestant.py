"""One measurement in a process of its own.

``python -m benchmarks.windows.contestant MODULE FUNCTION JOB.json FIGURE.json`` calls a function of
a module of this package with the job, and writes the `Figure` that it returns.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.windows.job import Figure, Job


def main(module: str, function: str, job_file: str, figure_file: str) -> None:
    """Run one measurement, and write its result."""
    job = Job(**json.loads(Path(job_file).read_text()))
    _stay_on(job.cores)
    measure = getattr(importlib.import_module(f"benchmarks.windows.{module}"), function)
    figure: Figure = measure(job)
    Path(figure_file).write_text(json.dumps(asdict(figure)))


def _stay_on(cores: int) -> None:
    """Pin this process to a number of cores, on Linux only.

    The JVM has more threads than those that run tasks, so the number of tasks does not limit cores.
    """
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


if __name__ == "__main__":
    main(*sys.argv[1:])
