"""Pictures of a flow, as Mermaid and as JSON."""

from __future__ import annotations

import json
import re

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestingSink, TestingSource
from flow.visualize import main, to_json, to_mermaid
from tests.support.commandline import Write


def sum_up(state: int | None, value: int) -> tuple[int, int]:
    total = (state or 0) + value
    return total, total


@pytest.fixture
def flow() -> Dataflow:
    """Two levels: a branch, a keyed sum of one side, and a join of the sum with the other."""
    flow = Dataflow("example")
    numbers = op.input("numbers", flow, TestingSource([1]))
    small, large = op.branch("small", numbers, lambda n: n < 10)
    total = op.stateful_map("total", op.key_on("key", small, str), sum_up)
    other = op.map_value("half", op.key_on("large_key", large, str), lambda n: n / 2)
    op.output("out", op.join("pair", total, other), TestingSink([]))
    return flow


def test_mermaid_has_a_box_a_level_and_thick_arrows_for_shuffles(flow: Dataflow) -> None:
    assert (
        f"{to_mermaid(flow)}\n"
        == """\
flowchart TD
    subgraph level0["before any shuffle"]
        s0(["numbers<br/>input"])
        s1["small<br/>branch"]
        s2["key<br/>key_on"]
        s4["large_key<br/>key_on"]
        s5["half<br/>map_value"]
    end
    subgraph level1["after shuffle 1"]
        s3["total<br/>stateful_map<br/>key by key#58; stateful_map calls Python for each key"]
    end
    subgraph level2["after shuffle 2"]
        s6["pair<br/>join<br/>key by key#58; join calls Python for each key"]
        s7[("out<br/>output")]
    end
    s0 --> s1
    s1 -->|"trues"| s2
    s2 ==> s3
    s1 -->|"falses"| s4
    s4 --> s5
    s3 ==> s6
    s5 ==> s6
    s6 --> s7
"""
    )


def test_keyed_steps_say_whether_they_run_over_columns_and_why_not(flow: Dataflow) -> None:
    numbers = op.key_on("by_key", op.input("in", flow, TestingSource([])), str)
    hours = win.TumblingWindower("1h", grace="5m")
    clock = win.EventClock("at", "1m")
    win.sum_window("columns", numbers, clock, hours, by="n")
    win.collect_window("keys", numbers, clock, hours, ordered=True)
    steps = {step["step_id"]: step for step in json.loads(to_json(flow))["steps"]}
    assert steps["columns"]["runs"] == "over columns"
    assert (steps["keys"]["runs"], steps["keys"]["reason"]) == (
        "key by key",
        "`ordered=True` with `grace`",
    )
    assert "runs" not in steps["by_key"]


def test_json_has_the_steps_with_operator_ups_and_level(flow: Dataflow) -> None:
    graph = json.loads(to_json(flow))
    assert graph["flow_id"] == "example"
    assert [f"{one['step_id']} {one['operator']} {one['level']}" for one in graph["steps"]] == [
        *("numbers input 0", "small branch 0", "key key_on 0", "total stateful_map 1"),
        *("large_key key_on 0", "half map_value 0", "pair join 2", "out output 2"),
    ]
    assert graph["steps"][2]["ups"] == [{"step_id": "small", "port": "trues"}]
    assert graph["steps"][6]["ups"] == [
        {"step_id": "total", "port": "down"},
        {"step_id": "half", "port": "down"},
    ]


def test_a_flow_without_an_output_or_a_step_can_be_drawn() -> None:
    flow = Dataflow("unfinished")
    assert to_mermaid(flow) == "flowchart TD"
    assert json.loads(to_json(flow))["steps"] == []
    op.redistribute("spread", op.input("in", flow, TestingSource([1])))
    assert to_mermaid(flow).splitlines()[-1] == "    s0 ==> s1"
    assert [step["level"] for step in json.loads(to_json(flow))["steps"]] == [0, 1]


@pytest.mark.parametrize(
    ("step_id", "label"),
    [
        ("count.key", "count.key"),
        ("by-origin_2", "by-origin_2"),
        ("größe 数", "größe 数"),
        ('say "hi"', "say #34;hi#34;"),
        ("a[0](b){c}<d>", "a#91;0#93;#40;b#41;#123;c#125;#60;d#62;"),
        ("two\nlines\r\nthree", "two<br/>lines<br/>three"),
        ("#quot; & |;", "#35;quot#59; #38; #124;#59;"),
        ("%%{init: 1}%%", "#37;#37;#123;init#58; 1#125;#37;#37;"),
        ("`bold` **x** __init__", "#96;bold#96; #42;#42;x#42;#42; #95;#95;init#95;#95;"),
        ("1. first", "1#46; first"),
        ("- item", "#45; item"),
        ("back\\n$$x$$", "back#92;n#36;#36;x#36;#36;"),
        ("tab\tend", "tab#9;end"),
        ("😀", "#128512;"),
        ("end", "end"),
    ],
)
def test_odd_step_ids_are_shown_as_they_are(step_id: str, label: str) -> None:
    flow = Dataflow("odd")
    op.input(step_id, flow, TestingSource([1]))
    node = to_mermaid(flow).splitlines()[2].strip()
    assert node == f's0(["{label}<br/>input"])'
    assert re.fullmatch(r's0\(\["[^"\n]*"\]\)', node)
    assert json.loads(to_json(flow))["steps"][0]["step_id"] == step_id


DRAWN = "from flow import Dataflow\nflow = Dataflow('drawn')\n"
Capture = pytest.CaptureFixture[str]


def test_the_command_prints_mermaid_or_json(write: Write, capsys: Capture) -> None:
    write("drawn.py", DRAWN)
    assert main(["drawn:flow"]) == 0
    assert capsys.readouterr().out == "flowchart TD\n"
    assert main(["drawn:flow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flow_id"] == "drawn"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["drawn:nothing"], "error: module 'drawn' has no 'nothing'; its flows are: flow\n"),
        ([], "error: the following arguments are required: MODULE:FLOW (--help says more)\n"),
    ],
)
def test_the_command_says_what_is_wrong(
    write: Write, capsys: Capture, arguments: list[str], message: str
) -> None:
    write("drawn.py", DRAWN)
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", message)
