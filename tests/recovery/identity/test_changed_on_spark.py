"""Flows that change between two runs on Spark: their input and their state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow, StepError
from flow.engine.spark.session.session import query_conf
from flow.testing import EOF, TestingSink, TestingSource
from flow_windowing import EventClock, TumblingWindower
from recovery import RecoveryConfig, rewind, status, verify
from tests.recovery.checkpoints import run_flow

pytestmark = pytest.mark.usefixtures("spark")

PARTITIONS = 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def numbered(count: int | None, value: Any) -> tuple[Any, int]:
    return (count or 0) + 1, (value, (count or 0) + 1)


def go_on(path: Path, flow: Dataflow, **settings: Any) -> None:
    run_flow(path, flow, recovery=RecoveryConfig(path, **settings), partitions=PARTITIONS)


def names_in_state(spark: SparkSession, path: Path) -> set[str]:
    """Return the names that anything is kept under, as Spark itself reads its state."""
    names: set[str] = set()
    with query_conf(spark, PARTITIONS):
        for variable in ("headers", "segments"):
            reader = spark.read.format("statestore").option("stateVarName", variable)
            rows = reader.load(f"{path}/spark").select("user_map_key.step").collect()
            names |= {row.step for row in rows}
    return names


def keys_of_steps(path: Path) -> dict[str, int]:
    return {step.step: step.keys for step in status(path).steps}


# --- inputs that come and go ---


def letters(mapper: Any = None, **inputs: str) -> tuple[Dataflow, list[Any]]:
    """Numbers the letters of some inputs by letter; each run reads up to the next ``|``."""
    flow, out = Dataflow("letters"), list[Any]()
    streams = [
        op.input(name, flow, TestingSource([EOF() if one == "|" else (one, name) for one in text]))
        for name, text in inputs.items()
    ]
    if mapper is not None:
        streams[-1] = op.map("mapper", streams[-1], mapper)
    merged = op.merge("merged", *streams)
    op.output("out", op.stateful_map("numbered", merged, numbered), TestingSink(out))
    return flow, out


def received_from(path: Path, **inputs: Any) -> list[Any]:
    """Run the flow over some inputs, and return what it emits, sorted."""
    flow, out = letters(**inputs)
    go_on(path, flow)
    return sorted(out)


#  run    1      2      3      4
#  one    a b |  a |    a |    b
#  two           a b |         a
@pytest.mark.extended
def test_added_and_removed_inputs_read_nothing_twice(path: Path) -> None:
    one, two = "ab|a|a|b", "ab|a"
    assert received_from(path, one=one) == [("a", ("one", 1)), ("b", ("one", 1))]
    # The new input is read from its beginning, the other continues; the counts continue too.
    assert received_from(path, one=one, two=two) == [
        ("a", ("one", 2)),
        ("a", ("two", 3)),
        ("b", ("two", 2)),
    ]
    assert received_from(path, one=one) == [("a", ("one", 4))]
    # An input that comes back continues where it was.
    assert received_from(path, one=one, two=two) == [("a", ("two", 5)), ("b", ("one", 3))]
    assert verify(path) == []


@pytest.mark.extended
#  run    1            2      3
#  one    a b (fails)  a b a
#  two    a b                 a b
def test_an_input_of_an_interrupted_epoch_may_be_removed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one does that a run has failed of. When it comes back it continues where it was."""

    def failing(item: Any) -> Any:
        raise OSError("two is down")

    with pytest.raises(StepError, match="two is down"):
        received_from(path, one="ab|a", two="ab", mapper=failing)
    assert received_from(path, one="ab|a") == [
        ("a", ("one", 1)),
        ("a", ("one", 2)),
        ("b", ("one", 1)),
    ]
    (message,) = (
        record.getMessage() for record in caplog.records if "was removed or reset" in record.msg
    )
    assert "input 'two' was removed or reset, or feeds tables alone now: skipping" in message
    assert received_from(path, one="ab|a", two="ab") == [("a", ("two", 3)), ("b", ("two", 2))]
    assert verify(path) == []


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


def test_old_state_of_reset_and_removed_steps_is_deleted(spark: SparkSession, path: Path) -> None:
    flow, received = visits(1, HOURS)
    go_on(path, flow)
    assert sorted(received["windows"]) == [("a", [0]), ("b", [0.5])]

    # Another length and no totals: refused, then the first has new state and the second none.
    flow, received = visits(2, HOURS, totals=False)
    with pytest.raises(CheckpointError) as caught:
        go_on(path, flow)
    assert "windower.length was '1h' and is '2h'" in str(caught.value)
    assert "step 'totals': is not in the flow any more" in str(caught.value)
    go_on(path, flow, reset_steps=["windows"], on_removed="drop")
    assert received["windows"] == []
    assert names_in_state(spark, path) == {'["windows", 1]'}
    assert keys_of_steps(path) == {"windows": 2}
    assert verify(path) == []


#  hour      0  0.5  1  1.5  |  2  2.5  3  |  5
#  before    [a   b )[a   b
#  reset                        [a  b   a
#  set back                  |  )[a  b)[a      )[a
@pytest.mark.extended
def test_a_rewind_before_a_reset_restores_the_state(spark: SparkSession, path: Path) -> None:
    go_on(path, visits(1, HOURS)[0])
    epoch = status(path).epochs[-1]
    changed, _ = visits(2, HOURS, totals=False)
    go_on(path, changed, reset_steps=["windows"], on_removed="drop")
    assert names_in_state(spark, path) == {'["windows", 1]'}

    found = rewind(path, epoch, yes=True)
    assert "flow.json" in found.moved
    note = "  steps that were reset, added or dropped since have their earlier state"
    assert note in str(found).splitlines()
    assert names_in_state(spark, path) == {"windows", "totals"}
    assert verify(path) == []
    with pytest.raises(CheckpointError, match=r"windows'.*\n.*step 'totals': is not in the flow"):
        go_on(path, changed)
    flow, received = visits(1, HOURS)
    go_on(path, flow)
    assert sorted(received["windows"]) == [("a", [1]), ("a", [2]), ("b", [1.5])]
    assert sorted(received["totals"]) == [("a", (2, 3)), ("a", (3, 4)), ("b", (2.5, 3))]
