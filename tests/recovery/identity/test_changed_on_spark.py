"""Flows that change between two runs on Spark: their input and their state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow, StepError, run
from flow.engine.spark.session.query_conf import query_conf
from flow.testing import EOF, TestingSink, TestingSource
from flow_windowing import EventClock, TumblingWindower
from recovery import RecoveryConfig, rewind, status, verify

pytestmark = pytest.mark.spark

PARTITIONS = 2


def numbered(count: int | None, value: Any) -> tuple[Any, int]:
    return (count or 0) + 1, (value, (count or 0) + 1)


class Case:
    """Runs of flows on one checkpoint, one after the other, and the output of each."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = path

    def run(self, flow: Dataflow, **settings: Any) -> None:
        recovery = RecoveryConfig(self.path, **settings)
        options: dict[str, Any] = {"shards": 4, "partitions": PARTITIONS, "system_time": 0}
        run(flow, spark=self.spark, recovery=recovery, drain=False, **options)

    def names_in_state(self) -> set[str]:
        """The names that anything is kept under, as Spark itself reads its state."""
        names: set[str] = set()
        with query_conf(self.spark, PARTITIONS):
            for variable in ("headers", "segments"):
                reader = self.spark.read.format("statestore").option("stateVarName", variable)
                rows = reader.load(f"{self.path}/spark").select("user_map_key.step").collect()
                names |= {row.step for row in rows}
        return names

    def keys(self) -> dict[str, int]:
        """Return the number of keys of each step."""
        return {step.step: step.keys for step in status(self.path, spark=self.spark).steps}


# --- inputs that come and go ---


def letters(**inputs: list[str]) -> tuple[Dataflow, list[Any]]:
    """Numbers the letters of some inputs by letter; each run reads up to the next EOF."""
    flow, out = Dataflow("letters"), []  # type: ignore[var-annotated]
    streams = [
        op.input(name, flow, TestingSource([EOF() if one == "|" else (one, name) for one in text]))
        for name, text in inputs.items()
    ]
    merged = op.merge("merged", *streams)
    op.output("out", op.stateful_map("numbered", merged, numbered), TestingSink(out))
    return flow, out


#  run    1      2      3      4
#  one    a b |  a |    a |    b
#  two           a b |         a
def test_added_and_removed_inputs_read_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(spark, tmp_path / "checkpoint")
    one, two = "ab|a|a|b", "ab|a"
    received = []
    for inputs in ({"one": one}, {"one": one, "two": two}, {"one": one}, {"one": one, "two": two}):
        flow, out = letters(**inputs)
        case.run(flow)
        received.append(sorted(out))
    assert received == [
        [("a", ("one", 1)), ("b", ("one", 1))],
        # The new input is read from its beginning, the other goes on; the counts go on too.
        [("a", ("one", 2)), ("a", ("two", 3)), ("b", ("two", 2))],
        [("a", ("one", 4))],
        # An input that comes back goes on where it was.
        [("a", ("two", 5)), ("b", ("one", 3))],
    ]
    assert verify(case.path, spark=spark) == []


#  run    1            2      3
#  one    a b (fails)  a b a
#  two    a b                 a b
def test_an_input_of_an_interrupted_epoch_may_be_removed(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one does that a run has failed of. When it comes back it goes on where it was."""
    case = Case(spark, tmp_path / "checkpoint")

    def failing(item: Any) -> Any:
        raise OSError("two is down")

    def run_with(text: str, two: str = "", mapper: Any = None) -> list[Any]:
        flow, out = Dataflow("letters"), list[Any]()
        items = [EOF() if one == "|" else (one, "one") for one in text]
        stream = op.input("one", flow, TestingSource(items))
        if two:
            others = op.input("two", flow, TestingSource([(one, "two") for one in two]))
            if mapper is not None:
                others = op.map("mapper", others, mapper)
            stream = op.merge("merged", stream, others)
        op.output("out", op.stateful_map("numbered", stream, numbered), TestingSink(out))
        case.run(flow)
        return sorted(out)

    with pytest.raises(StepError, match="two is down"):
        run_with("ab|a", two="ab", mapper=failing)
    assert run_with("ab|a") == [("a", ("one", 1)), ("a", ("one", 2)), ("b", ("one", 1))]
    messages = [
        record.getMessage() for record in caplog.records if "was removed or reset" in record.msg
    ]
    assert len(messages) == 1
    assert "input 'two' was removed or reset: skipping its records" in messages[0]
    assert run_with("ab|a", two="ab") == [("a", ("two", 3)), ("b", ("two", 2))]
    assert verify(case.path, spark=spark) == []


# --- steps that change, and go ---


def visits(hours: int, items: list[Any], totals: bool = True) -> tuple[Dataflow, dict[str, Any]]:
    """Windows of `hours` hours, and optionally a count by key without an end."""
    flow = Dataflow("visits")
    received: dict[str, Any] = {"windows": [], "totals": []}
    stream = op.input("in", flow, TestingSource(items))
    clock = EventClock(lambda hour: hour * 3600, "0s", on_idle="hold")
    windows = win.collect_window("windows", stream, clock, TumblingWindower(f"{hours}h"))
    values = op.map("value", windows.down, lambda pair: (pair[0], pair[1][1]))
    op.output("windows_out", values, TestingSink(received["windows"]))
    if totals:
        counted = op.stateful_map("totals", stream, numbered)
        op.output("totals_out", counted, TestingSink(received["totals"]))
    return flow, received


#  hour      0  0.5  1  1.5  |  2  2.5  3  |  5
#  before    [a   b )[a   b
#  after                        [a  b   a      )[a    in windows of two hours, without 1 and 1.5
HOURS = [("a", 0), ("b", 0.5), ("a", 1), ("b", 1.5), EOF()]
HOURS += [("a", 2), ("b", 2.5), ("a", 3), EOF(), ("a", 5)]


def test_old_state_of_reset_and_removed_steps_is_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path / "checkpoint")
    flow, received = visits(1, HOURS)
    case.run(flow)
    assert sorted(received["windows"]) == [("a", [0]), ("b", [0.5])]
    assert case.names_in_state() == {"windows", "totals"}

    # Another length: refused, then with state of its own from here on.
    flow, received = visits(2, HOURS)
    with pytest.raises(CheckpointError, match=r"windower\.length was '1h' and is '2h'"):
        case.run(flow)
    case.run(flow, reset_steps=["windows"])
    assert received["windows"] == []
    assert sorted(received["totals"]) == [("a", (2, 3)), ("a", (3, 4)), ("b", (2.5, 3))]
    assert case.names_in_state() == {'["windows", 1]', "totals"}
    assert case.keys() == {"windows": 2, "totals": 2}

    # No totals any more: refused, then given up.
    flow, received = visits(2, HOURS, totals=False)
    with pytest.raises(CheckpointError, match="step 'totals': is not in the flow any more"):
        case.run(flow)
    case.run(flow, reset_steps=["windows"], on_removed="drop")
    assert received["windows"] == [("a", [2, 3])]
    assert case.names_in_state() == {'["windows", 1]'}
    assert case.keys() == {"windows": 2}
    assert verify(case.path, spark=spark) == []


#  hour      0  0.5  1  1.5  |  2  2.5  3  |  5
#  before    [a   b )[a   b
#  reset                        [a  b   a
#  set back                  |  )[a  b)[a      )[a
def test_a_rewind_before_a_reset_restores_the_state(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(spark, tmp_path / "checkpoint")
    flow, received = visits(1, HOURS)
    case.run(flow)
    epoch = status(case.path, spark=spark).epochs[-1]
    changed, _ = visits(2, HOURS, totals=False)
    case.run(changed, reset_steps=["windows"], on_removed="drop")
    assert case.names_in_state() == {'["windows", 1]'}

    found = rewind(case.path, epoch, yes=True, spark=spark)
    assert "flow.json" in found.moved
    assert (
        "  steps that were reset, added or dropped since have their earlier state"
        in str(found).splitlines()
    )
    assert case.names_in_state() == {"windows", "totals"}
    assert verify(case.path, spark=spark) == []
    with pytest.raises(CheckpointError, match=r"windows'.*\n.*step 'totals': is not in the flow"):
        case.run(changed)
    flow, received = visits(1, HOURS)
    case.run(flow)
    assert sorted(received["windows"]) == [("a", [1]), ("a", [2]), ("b", [1.5])]
    assert sorted(received["totals"]) == [("a", (2, 3)), ("a", (3, 4)), ("b", (2.5, 3))]


#  run       1     2                       3                    4
#  one       a b   b a (from the start)    -                    b a (goes on)
#  two       -     -                       c                    -
def test_a_reset_input_comes_back_at_its_offset(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(spark, tmp_path / "checkpoint")
    received = []
    runs: list[tuple[dict[str, str], list[str]]] = [
        ({"one": "ab|ba|c"}, []),
        ({"one": "ba|cd|"}, ["one"]),
        ({"two": "c"}, []),
        ({"one": "ba|cd|"}, []),
    ]
    for inputs, reset in runs:
        flow, out = letters(**inputs)
        case.run(flow, reset_steps=reset)
        received.append(sorted(out))
    assert received == [
        [("a", ("one", 1)), ("b", ("one", 1))],
        [("a", ("one", 2)), ("b", ("one", 2))],
        [("c", ("two", 1))],
        [("c", ("one", 2)), ("d", ("one", 1))],
    ]
    messages = "step 'one' is back: it is read from where it was left"
    assert [one.getMessage().endswith(messages) for one in caplog.records].count(True) == 1
