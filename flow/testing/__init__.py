"""Tools for tests of flows: a driver without Spark, and sources and sinks for runs with Spark."""

from flow.checks import no_attribute
from flow.engine.local import Part
from flow.keyed.step import key_by_key
from flow.testing.epoch_driver import TestDriver, run_once, run_source, swap_clock
from flow.testing.lists import ABORT, EOF, Advance, TestingSink, TestingSource

__all__ = [
    "ABORT",
    "EOF",
    "Advance",
    "Part",
    "TestDriver",
    "TestingSink",
    "TestingSource",
    "key_by_key",
    "run_once",
    "run_source",
    "swap_clock",
]

_ELSEWHERE = dict.fromkeys(["run_main", "cluster_main"], "use run(flow) of flow, or a TestDriver")


def __getattr__(name: str) -> object:
    raise no_attribute(__name__, name, __all__, _ELSEWHERE)
