"""Memory and processors of a machine and of a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flow.config.machine import Machine, this_machine

GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Machine:
    """Return the machine that files below a folder describe."""
    for name, text in {"proc/meminfo": "MemTotal:        8388608 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return this_machine(root)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"sys/fs/cgroup/memory.max": f"{2 * GIB}\n"}, 2 * GIB),
        (
            # The limit of a group around the group of this process counts as well.
            {
                "proc/self/cgroup": "0::/user.slice/run.scope\n",
                "sys/fs/cgroup/user.slice/memory.max": f"{GIB}\n",
                "sys/fs/cgroup/user.slice/run.scope/memory.max": "max\n",
            },
            GIB,
        ),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        (
            {
                "proc/self/cgroup": "5:memory:/docker/abc\n1:name=systemd:/\n",
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{3 * GIB}\n",
            },
            3 * GIB,
        ),
    ],
)
def test_the_memory_limit_of_a_container_is_found(
    tmp_path: Path, files: dict[str, str], limit: int | None
) -> None:
    found = machine(tmp_path, files)
    assert (found.memory, found.limit) == (8 * GIB, limit)
    assert found.usable == (limit or 8 * GIB)
    assert found.place == ("this machine" if limit is None else "this container")


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/cpu.max": "50000 100000\n"},
        {
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    ],
)
def test_half_a_processor_counts_as_one(tmp_path: Path, files: dict[str, str]) -> None:
    assert machine(tmp_path, files).cpus == 1


def test_without_a_quota_the_processors_of_this_process_count(tmp_path: Path) -> None:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert machine(tmp_path, {"sys/fs/cgroup/cpu.max": "max 100000\n"}).cpus == count
    assert machine(tmp_path, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}).cpus == count


def test_this_machine_has_memory_and_processors() -> None:
    found = this_machine()
    assert found.cpus >= 1
    assert found.usable is None or found.usable > 1 << 20
