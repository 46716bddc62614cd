"""The process in which instructions are counted: `counting` starts it under Callgrind.

Callgrind counts while a named function of C runs, and writes the count whenever the function
returns. So the process calls each kernel through ``ctypes``, whose calls all go through one C
function that no other code uses. Valgrind does not observe the preparation, which is ten times as
fast; the process then starts the observation through ``vgdb``.
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
"""The C function in which Callgrind counts instructions."""


def call_within_gate(work: Work) -> None:
    """Do work inside the gate, where its instructions count.

    Raises:
        Exception: any exception of the work.
    """
    raised: list[Exception] = []

    def call() -> None:
        try:
            work()
        except Exception as error:  # C cannot propagate an exception.
            raised.append(error)

    ctypes.CFUNCTYPE(None)(call)()
    if raised:
        raise raised[0]


def observe(vgdb_prefix: str) -> None:
    """Have Valgrind observe this process from now on."""
    # Valgrind looks for requests between instructions. To wake a sleeping process it needs the
    # right to trace processes, which some systems refuse. So this process polls without sleeping.
    vgdb = ["vgdb", f"--vgdb-prefix={vgdb_prefix}", f"--pid={os.getpid()}", "--max-invoke-ms=0"]
    asking = subprocess.Popen(
        [*vgdb, "instrumentation", "on"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    while asking.poll() is None:
        pass
    output, _ = asking.communicate()
    if asking.returncode:
        raise RuntimeError(f"vgdb could not start the counting: {output.decode(errors='replace')}")


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
    # The shutdown of an interpreter under Valgrind takes long, and its instructions do not count.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
