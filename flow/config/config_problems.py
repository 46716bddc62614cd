"""Problems of a configuration: contradictions, values without effect, what a machine lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from flow.config.effective_config import DEFAULT, EffectiveConfig, Setting
from flow.config.flow_config import FIELD, LEAST_DRIVER_MEMORY, OWN_FIELD, is_secret
from flow.config.machine import Machine, size_bytes, size_text
from flow.engine.packets.shards import DEFAULT_SHARDS
from flow.engine.spark.session.session_settings import (
    LOCAL_DRIVER_MEMORY,
    QUERY_CONF,
    SPEEDUPS_OF_WORKERS,
    local_tasks,
)

_FIELD_FOR: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "partitions",
    "spark.sql.streaming.minBatchesToRetain": "keep_epochs of RecoveryConfig",
    "spark.app.name": "the name of the Dataflow",
}
"""Fields to set in the place of settings of Spark that a flow replaces."""

WORKER_MEMORY = 300 << 20
"""The bytes of memory that a Python worker needs at least, with the modules of a flow."""
JVM_OVERHEAD = 400 << 20
"""The bytes of memory that a JVM needs beside its heap: code, threads, RocksDB."""
MUCH_PARALLELISM = 4
"""Partitions for each core beyond which a further one costs time, and gains none."""


def refused(effective: EffectiveConfig) -> Iterator[str]:
    """Yield the contradictions for which a run is refused, each with what to do."""
    if effective.value("engine") == "batch" and effective.value("recovery") is not None:
        yield (
            f"engine batch ({effective.origin('engine')}) keeps no state to recover, and recovery "
            f"is set ({effective.origin('recovery')}): leave out one of the two"
        )
    options = effective.conf.get("spark.driver.extraJavaOptions")
    if options is not None and "-Xmx" in options.value:
        yield f"{options.origin} sets the heap with -Xmx, which Spark refuses: set driver_memory"


def without_effect(effective: EffectiveConfig) -> Iterator[str]:
    """Yield the values that have no effect in a run, each with what to do."""
    if effective.value("engine") == "batch" and effective.value("trigger") is not None:
        yield (
            f"trigger ({effective.origin('trigger')}) has no effect with engine batch "
            f"({effective.origin('engine')}): leave out one of the two"
        )
    if effective.value("drain") is False and effective.value("recovery") is None:
        yield (
            f"drain off ({effective.origin('drain')}) leaves windows open for the next run, and "
            "without recovery no run continues them: set recovery, or drain to on"
        )
    for name, field in _FIELD_FOR.items():
        if name in effective.conf:
            yield f"{effective.conf[name].origin} has no effect: set {field}"
    for name, value in QUERY_CONF.items():
        setting = effective.conf.get(name)
        if setting is not None and setting.value != value:
            yield f"{setting.origin} has no effect, because a flow needs {value!r}: remove it"


def with_session(
    effective: EffectiveConfig, setting_in: Callable[[str], str | None]
) -> Iterator[str]:
    """Yield the settings that a session which exists contradicts, each with what to do.

    The variable ``FLOW_SPEEDUPS`` is an exception: workers of any session read it.

    Args:
        effective: the configuration.
        setting_in: returns the session's value of a setting of Spark; ``None`` if it has none.
    """
    for name, setting in _settings_of_sessions(effective):
        found = setting_in(name)
        if found is None or not _same(setting.value, found):
            secret = is_secret(name)
            own = "***" if secret else repr(setting.value)
            value = "has no value" if found is None else f"is {'***' if secret else repr(found)}"
            yield (
                f"{setting.origin}={own} cannot change the active Spark session, in which {name} "
                f"{value}: set it where that session is made, stop the session before the run, or "
                "leave the setting out"
            )


def with_jvm(effective: EffectiveConfig, heap: str) -> Iterator[str]:
    """Yield the settings of a new session that a running JVM contradicts, each with what to do.

    Args:
        effective: the configuration.
        heap: the size of the heap that the JVM was started with.
    """
    setting = effective.settings.get("driver_memory")
    if setting is not None and not _same(setting.value, heap):
        yield (
            f"{setting} cannot change the heap of Spark's JVM, which runs already with {heap!r}: "
            "give the size to spark-submit (--driver-memory), or run the flow in a new process"
        )


def _settings_of_sessions(effective: EffectiveConfig) -> Iterator[tuple[str, Setting]]:
    """Yield the settings of Spark that only a new session takes, by name."""
    for name, field in OWN_FIELD.items():
        if field in effective.settings:
            yield name, effective.settings[field]
    speedups = effective.settings.get("speedups")
    if speedups is not None and speedups.origin != FIELD["speedups"].variable:
        yield SPEEDUPS_OF_WORKERS, replace(speedups, value="on" if speedups.value else "off")
    yield from effective.conf.items()


def _same(given: object, found: str) -> bool:
    """Return True if two values of a setting mean the same; ``2g`` is ``2048m``."""
    size = size_bytes(str(given))
    return str(given) == found or (size is not None and size == size_bytes(found))


def advice(effective: EffectiveConfig, machine: Machine) -> Iterator[str]:
    """Yield advice on memory and parallelism: the value, its origin, and what to set.

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
    beside_it = "1 Python worker" if workers == 1 else f"{workers} Python workers"
    if driver > usable:
        yield (
            f"{given}: {there}, so the system kills the run when it needs more: set driver_memory "
            f"to at most {best}"
        )
    elif driver + beside > usable:
        yield (
            f"{given}: {there}, which leaves {size_text(usable - driver)} beside the heap for the "
            f"rest of the JVM and {beside_it}: set driver_memory to at most {best}, or "
            "master to fewer cores"
        )


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
