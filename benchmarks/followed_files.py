"""The cost of the list of followed files after a month: seconds to start, bytes on disk, memory.

Run with ``python benchmarks/followed_files.py [--files N ...] [--listed N]``. For each number of
files the benchmark makes the list of a source that found and read them one by one, and stores the
list as in a checkpoint; then a fresh process reads it. *Kept* files stay in their directory, so
that no entry expires; *removed* files are removed after they are read, and their entries expire
after a week. A month has 43,200 minutes and 2,592,000 seconds.

*CPU s* and *each* are processor time of Python: for the start, and for each file that is found.
*Files* is the number of files on disk, with Hadoop's checksums. With ``--listed N`` the benchmark
makes and lists a directory of N files. A source lists once a second or, if a listing is slow,
spends a tenth of the time on listings.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from flow.connectors.files.file_list import LATE_US, LEAST_FILES, SHARE, FileList
from flow.connectors.files.filesystems import File, find_files
from flow.connectors.source import MemoryLog
from flow.durations import duration_us
from flow.engine.checkpoint.storage import Storage, open_storage
from flow.engine.checkpoint.stored_log import PAGE_BYTES, StoredLog
from flow.engine.spark.session.session import SparkSettings, make_session

MONTH_US = 30 * 86_400_000_000
BEGIN_US = 1_700_000_000_000_000
LOG = "sources/in"
CASES = {"kept": duration_us(timedelta.max), "removed": LATE_US}


class Ticks:
    """Listing of the files that have appeared since the last call; earlier files are removed."""

    def __init__(self, files: int) -> None:
        self.apart_us = MONTH_US // files
        self.number = 0
        self.many = 0
        self.hours = 0

    def __call__(self, **_: Any) -> list[File]:
        """Return the newest files."""
        numbers = range(self.number, self.number + self.many)
        self.number += self.many
        return [
            File("", f"/data/in/{number:012d}.jsonl", 1_000, _written_us(number, self) * 1_000)
            for number in numbers
        ]


def _written_us(number: int, ticks: Ticks) -> int:
    return BEGIN_US + number * ticks.apart_us


def fill(files: int, late_us: int) -> tuple[MemoryLog, float]:
    """Make the log of a source that has found and read a number of files.

    A hundred listings find all files but the last, since one listing for each would take too long.

    Returns:
        The log, and microseconds of processor time for each file that a listing of its own found.
    """
    log, ticks = MemoryLog(), Ticks(files)
    listed = FileList(log, ticks, follow=True, late_us=late_us, clock=lambda: ticks.hours * 3_600.0)
    alone = min(files, max(2 * LEAST_FILES, files // SHARE))
    steps = [(files - alone) // 100] * 100 if files > alone else []
    begun = time.process_time()
    for many in [*steps, *[1] * (files - sum(steps))]:
        if many == 1 and ticks.many != 1:
            begun = time.process_time()
        ticks.many = many
        ticks.hours += 1  # The list skips a listing less than a second after the last one.
        listed.refresh()
        listed.release(len(listed), BEGIN_US + MONTH_US)
    return log, (time.process_time() - begun) / (files - sum(steps)) * 1e6


def store(storage: Storage, log: MemoryLog) -> None:
    """Write a log in the form that a checkpoint has."""
    stored = StoredLog(storage, LOG)
    summary = log.summary()
    if summary is not None:
        stored.compact(summary)
    entries = log.entries()
    most = PAGE_BYTES // 120
    for number in range(0, len(entries), most):
        content = json.dumps({"version": 1, "entries": entries[number : number + most]})
        storage.write_bytes(f"{LOG}/{number:09d}.page.json", content.encode())


def start(home: str) -> dict[str, float]:
    """Read a list as the start of a run does; called in a process of its own."""
    spark = make_session("followed files", SparkSettings("local[2]"))
    storage = open_storage(home, spark)
    storage.names("")
    before = _memory()
    begun, busy = time.perf_counter(), time.process_time()
    files = FileList(StoredLog(storage, LOG), lambda **_: [], follow=True)
    seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    return {"files": len(files), "seconds": seconds, "CPU": busy, "MB": _memory() - before}


def _memory() -> float:
    """Resident memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096 / 1e6


def measure(files: int, case: str) -> None:
    """Print a line of the table."""
    log, each_us = fill(files, CASES[case])
    with tempfile.TemporaryDirectory(prefix="flow-followed-") as home:
        store(open_storage(home), log)
        stored = [file for file in Path(home, LOG).iterdir() if file.is_file()]
        size = sum(file.stat().st_size for file in stored)
        command = [sys.executable, __file__, "--home", home]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    if found["files"] != files:
        raise SystemExit(f"{found['files']} files were read of {files}")
    times = f"{found['seconds']:>10.2f}{found['CPU']:>10.2f}"
    sizes = f"{size / 1e6:>10.1f}{len(stored):>8}{found['MB']:>10.0f}"
    print(f"{files:>12,}{case:>10}{times}{sizes}{each_us:>10.0f}", flush=True)


def measure_listing(files: int) -> None:
    """Make a directory, and print the time and memory of listing it."""
    with tempfile.TemporaryDirectory(prefix="flow-listed-") as home:
        for number in range(files):
            Path(home, f"{number:012d}.jsonl").write_bytes(b"\n")
        log = MemoryLog()
        FileList(log, lambda **_: find_files([home], required=False), follow=True)
        again = FileList(log, list, follow=True)
        peak, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        again._new(find_files([home], required=False))
        seconds = time.process_time() - begun
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
        print(f"listing {files:,} files: {seconds:.2f} s of processor time, {more / 1e3:.0f} MB")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="*", default=[43_200, 2_592_000])
    parser.add_argument("--listed", type=int)
    parser.add_argument("--home", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.home is not None:
        print(json.dumps(start(arguments.home)))
        return
    if arguments.listed is not None:
        measure_listing(arguments.listed)
        return
    titles = ("start, s", "CPU s", "disk, MB", "files", "RSS, MB", "each, µs")
    widths = (10, 10, 10, 8, 10, 10)
    shown = "".join(f"{one:>{width}}" for one, width in zip(titles, widths, strict=True))
    print(f"{'files':>12}{'':>10}{shown}", flush=True)
    for files in arguments.files:
        for case in CASES:
            measure(files, case)


if __name__ == "__main__":
    main()
