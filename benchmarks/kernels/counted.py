"""The process in which instructions are counted: `counting` starts it under Callgrind.

Callgrind counts while a function of C is running that has a name, and writes what it has counted
whenever that returns. So each kernel is called through ``ctypes``, whose calls all go through one
that nothing else uses. Until all is ready nothing is observed at all, which is ten times as fast;
the process then asks, through ``vgdb``, to be.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys

import pyarrow as pa

from benchmarks.kernels.kernels import Work, all_kernels

GATE = "ffi_call"
"""The function in which instructions count."""


def call_within_gate(work: Work) -> None:
    """Do work where its instructions count.

    Raises:
        Exception: what the work raises.
    """
    raised: list[Exception] = []

    def call() -> None:
        try:
            work()
        except Exception as error:  # C cannot pass it on
            raised.append(error)

    ctypes.CFUNCTYPE(None)(call)()
    if raised:
        raise raised[0]


def observe(vgdb_prefix: str) -> None:
    """Have Valgrind observe this process from now on."""
    # Valgrind looks for requests between instructions. Who sleeps would have to be woken up, which
    # takes the right to trace a process, and that is not given everywhere.
    vgdb = ["vgdb", f"--vgdb-prefix={vgdb_prefix}", f"--pid={os.getpid()}", "--max-invoke-ms=0"]
    asking = subprocess.Popen(
        [*vgdb, "instrumentation", "on"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    while asking.poll() is None:
        pass
    said, _ = asking.communicate()
    if asking.returncode:
        raise RuntimeError(f"vgdb could not start the counting: {said.decode(errors='replace')}")


def main(vgdb_prefix: str, names: list[str]) -> None:
    """Do the work of some kernels, in order, once unobserved and once observed."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    kernels = all_kernels()
    for name in names:
        kernels[name].prepare()()
    works = [kernels[name].prepare() for name in names]
    gc.collect()
    gc.disable()
    observe(vgdb_prefix)
    for work in works:
        call_within_gate(work)
    # Nothing after this is of interest, and taking an interpreter apart takes long.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
