"""Advice on memory and parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from flow.config.config_problems import advice
from flow.config.effective_config import EffectiveConfig, of_arguments
from flow.config.machine import Machine

GIB = 1 << 30
LARGE = Machine(cpus=8, memory=64 * GIB)


def given(machine: Machine, **arguments: Any) -> list[str]:
    """Return the advice on arguments of `run`."""
    return list(advice(EffectiveConfig(of_arguments(arguments)), machine))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"driver_memory": "32g", "master": "local[8]", "partitions": 32, "shards": 32},
        {"master": "spark://host:7077", "partitions": 400, "shards": 400},
        {"master": "local[2]", "shards": 2},
    ],
)
def test_what_fits_the_machine_needs_no_advice(arguments: dict[str, Any]) -> None:
    assert given(LARGE, **arguments) == []


@pytest.mark.parametrize(
    ("machine", "arguments", "problem"),
    [
        (
            Machine(1, 8 * GIB),
            {"driver_memory": "16g"},
            "driver_memory 16g (run: driver_memory): this machine has 8.0 GiB of memory, so the "
            "system kills the run when it needs more: set driver_memory to at most 7492m",
        ),
        (
            Machine(1, 64 * GIB, 2 * GIB),
            {},
            "driver_memory 4g (default): this container has 2.0 GiB of memory, so the system kills "
            "the run when it needs more: set driver_memory to at most 1348m",
        ),
        (
            Machine(8, 64 * GIB, 5 * GIB),
            {},
            "driver_memory 4g (default): this container has 5.0 GiB of memory, which leaves 1.0 "
            "GiB beside the heap for the rest of the JVM and 8 Python workers: set driver_memory "
            "to at most 2320m, or master to fewer cores",
        ),
        (
            LARGE,
            {"master": "local[16]"},
            "master local[16] (run: master): this process may use 8 CPUs, so tasks wait for each "
            "other and use memory: set master to local[8] or local[*]",
        ),
        (
            LARGE,
            {"partitions": 33, "shards": 64},
            "partitions 33 (run: partitions): 8 tasks run at a time, and each further one costs "
            "time in every epoch: set partitions to 8, or to at most 32",
        ),
        (
            LARGE,
            {"parallelism": 100, "partitions": 8},
            "parallelism 100 (run: parallelism): 8 tasks run at a time, and each further one costs "
            "time in every epoch: set parallelism to 8, or to at most 32",
        ),
        (
            LARGE,
            {"shards": 4, "master": "spark://host:7077", "partitions": 20},
            "shards 4 (run: shards): fewer than partitions 20 (run: partitions), so 16 partitions "
            "hold no keys: set shards to at least 20, or partitions to 4",
        ),
        (
            LARGE,
            {"shards": 4},
            "shards 4 (run: shards): fewer than partitions 8 (default), so 4 partitions hold no "
            "keys: set shards to at least 16, or partitions to 4",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_origin_and_what_to_set(
    machine: Machine, arguments: dict[str, Any], problem: str
) -> None:
    assert given(machine, **arguments) == [problem]


def test_without_a_known_memory_there_is_no_advice_on_memory() -> None:
    assert given(Machine(2), driver_memory="900g") == []
