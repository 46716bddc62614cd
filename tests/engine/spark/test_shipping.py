"""Classes of the main script, by value: the driver can load the objects that workers make."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest

import flow.operators as op
from flow import Dataflow
from flow.engine.plan.compiler import compile_flow
from flow.engine.spark.shipping import ShippedPlan
from flow.testing import TestingSink, TestingSource
from tests.support.one_stream import a_flow, as_read

SCRIPT = """
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

@dataclass(slots=True)
class Slots(Generic[T]):
    a: T

@dataclass(slots=True)
class Derived(Slots[int]):
    b: int = 2

@dataclass(slots=True, frozen=True)
class Frozen:
    a: int

class Private:
    __slots__ = ("__a", "__dict__")

    def __init__(self, a):
        self.__a, self.b = a, 2

    def __eq__(self, other):
        return (self.__a, self.b) == (other.__a, other.b)

class Outer:
    class Row(NamedTuple):
        a: int

    class Mode(Enum):
        ON = 1

class Bits(Flag):
    LEFT = 1
    RIGHT = 2

KINDS = [Slots, Derived, Frozen, Private, Outer.Row, Outer.Mode, Bits]

def made(_):
    return [kind(1) for kind in KINDS]
"""
WORKER = """
import pickle, sys

make = pickle.load(sys.stdin.buffer).plan().steps["make"].operator.mapper
sys.stdout.buffer.write(pickle.dumps(make(None)))
"""


def test_objects_of_the_main_script_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(SCRIPT, vars(main))
    flow = Dataflow("kinds")
    s = op.map("make", op.input("in", flow, TestingSource([1])), main.made)
    op.output("out", s, TestingSink([]))
    shipped = pickle.dumps(ShippedPlan.pack(compile_flow(flow)))
    command = [sys.executable, "-c", WORKER]
    worker = subprocess.run(command, input=shipped, stdout=subprocess.PIPE, check=True)
    assert pickle.loads(worker.stdout) == main.made(None)
    assert not hasattr(main.Slots(1), "__dict__")


def test_a_process_loads_each_pickle_of_a_plan() -> None:
    """As over Spark Connect: a task that opens the checkpoint has the plan before it fits that."""
    plan = compile_flow(a_flow(as_read))
    fitted = replace(plan, dropped=("gone",))
    first, second = ShippedPlan.pack(plan), ShippedPlan.pack(fitted)
    assert [first.plan().dropped, second.plan().dropped] == [(), ("gone",)]
    assert second.plan() is second.plan()


def test_each_plan_of_a_process_has_the_classes_of_its_own_main_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as of two runs of a notebook, between which a cell has defined a class again."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    shipped = []
    for version in (1, 2):
        exec(f"class Event:\n    version = {version}", vars(main))
        flow = Dataflow("events")
        made = op.map("make", op.input("in", flow, TestingSource([1])), main.Event)
        op.output("out", made, TestingSink([]))
        shipped.append(ShippedPlan.pack(compile_flow(flow)))
    for version in (1, 2, 1):
        plan = shipped[version - 1].plan()
        assert plan.steps["make"].operator.mapper is main.Event
        assert main.Event.version == version
