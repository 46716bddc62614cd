"""Advice on a configuration whose memory or parallelism does not fit the machine."""

from __future__ import annotations

from collections.abc import Iterator

from flow.config.effective import DEFAULT, EffectiveConfig
from flow.config.fields import LEAST_DRIVER_MEMORY
from flow.config.machine import Machine
from flow.config.sizes import size_bytes, size_text
from flow.engine.packets.shards import DEFAULT_SHARDS
from flow.engine.spark.session.settings import LOCAL_DRIVER_MEMORY, local_tasks

WORKER_MEMORY = 300 << 20
"""The bytes of memory that a Python worker needs at least, with the modules of a flow."""
JVM_OVERHEAD = 400 << 20
"""The bytes of memory that a JVM needs beside its heap: code, threads, RocksDB."""
MUCH_PARALLELISM = 4
"""Partitions for each core beyond which a further one costs time, and gains none."""


def advice(effective: EffectiveConfig, machine: Machine) -> Iterator[str]:
    """Yield advice, each in one sentence or two: the value, its origin, and what to set.

    Args:
        effective: the configuration of a run with a new session.
        machine: this machine.
    """
    cores = local_tasks(effective.value("master"), machine.cpus)
    yield from _on_memory(effective, machine, cores)
    if cores is not None:
        yield from _on_cores(effective, machine, cores)
        yield from _on_parts(effective, cores)
    yield from _on_shards(effective, cores)


def _on_memory(effective: EffectiveConfig, machine: Machine, cores: int | None) -> Iterator[str]:
    usable = machine.usable
    text = effective.value("driver_memory") or (LOCAL_DRIVER_MEMORY if cores else None)
    if usable is None or text is None:
        return
    driver, there = size_bytes(text) or 0, f"{machine.place} has {size_text(usable)} of memory"
    workers = cores or 0
    beside = JVM_OVERHEAD + workers * WORKER_MEMORY
    best = f"{max(LEAST_DRIVER_MEMORY, usable - beside) >> 20}m"
    given = f"driver_memory {text} ({effective.origin('driver_memory')})"
    if driver > usable:
        yield (
            f"{given}: {there}, so the system kills the run when it needs more: set driver_memory "
            f"to at most {best}"
        )
    elif driver + beside > usable:
        yield (
            f"{given}: {there}, which leaves {size_text(usable - driver)} beside the heap for the "
            f"rest of the JVM and {_workers(workers)}: set driver_memory to at most {best}, or "
            "master to fewer cores"
        )


def _workers(count: int) -> str:
    return "1 Python worker" if count == 1 else f"{count} Python workers"


def _on_cores(effective: EffectiveConfig, machine: Machine, cores: int) -> Iterator[str]:
    if cores > machine.cpus:
        yield (
            f"master {effective.value('master')} ({effective.origin('master')}): this process may "
            f"use {machine.cpus} CPUs, so tasks wait for each other and use memory: set master to "
            f"local[{machine.cpus}] or local[*]"
        )


def _on_parts(effective: EffectiveConfig, cores: int) -> Iterator[str]:
    for name in ("partitions", "parallelism"):
        count = effective.value(name)
        if count is not None and count > MUCH_PARALLELISM * cores:
            yield (
                f"{name} {count} ({effective.origin(name)}): {cores} tasks run at a time, and each "
                f"further one costs time in every epoch: set {name} to {cores}, or to at most "
                f"{MUCH_PARALLELISM * cores}"
            )


def _on_shards(effective: EffectiveConfig, cores: int | None) -> Iterator[str]:
    shards, partitions = effective.value("shards"), effective.value("partitions")
    origin = effective.origin("partitions")
    if partitions is None:
        partitions = effective.value("parallelism") or cores
        origin = DEFAULT
    if shards is not None and partitions is not None and shards < partitions:
        yield (
            f"shards {shards} ({effective.origin('shards')}): fewer than partitions {partitions} "
            f"({origin}), so {partitions - shards} partitions hold no keys: set shards to at least "
            f"{max(partitions, DEFAULT_SHARDS)}, or partitions to {shards}"
        )
