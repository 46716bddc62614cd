"""A daemon for Spark's Python workers that looks, many times a second, at what each is doing.

Spark starts it in place of `flow.engine.spark.daemon` when ``spark.python.daemon.module``
says so, and forks the workers from it. The engine is not changed and not asked: a
timer interrupts each worker, and the stack it is interrupted in says what the time is spent for
(`sampling`).
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import daemon

from benchmarks.windows.sampling import FOLDER_VARIABLE, Sampler
from flow.engine.spark.daemon import prepare

_worker = daemon.worker


def sampled_worker(*arguments: Any) -> Any:
    """What a forked worker runs: one task, as ever; what it was seen doing goes to a file."""
    with Sampler(os.environ[FOLDER_VARIABLE]):
        return _worker(*arguments)


if __name__ == "__main__":
    prepare()
    daemon.worker = sampled_worker
    daemon.manager()
