"""A daemon for Spark's Python workers that samples the stack of each many times a second.

Spark starts it in place of `flow.engine.spark.daemon` if ``spark.python.daemon.module`` names it,
and forks the workers from it. The engine is unchanged: a timer interrupts each worker, and
`sampling` assigns the time to the purpose of the interrupted stack.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import daemon

from benchmarks.windows.sampling import FOLDER_VARIABLE, Sampler
from flow.engine.spark.daemon import prepare

_worker = daemon.worker


def sampled_worker(*arguments: Any) -> Any:
    """Run a forked worker's task, and write its samples to a file."""
    with Sampler(os.environ[FOLDER_VARIABLE]):
        return _worker(*arguments)


if __name__ == "__main__":
    prepare()
    daemon.worker = sampled_worker
    daemon.manager()
