"""Search of a flow in a module by the command line, and its errors."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from flow.cli.loading import load_flow
from tests.support.commandline import Write, error_output

FACTORIES = """\
from flow import Dataflow

first, second, number = Dataflow("first"), Dataflow("second"), 7

def make(name="unnamed", *, n=1):
    return Dataflow(f"{name}-{n}")

def needy(name):
    return Dataflow(name)

def wrong():
    return [1, 2]

def build_error():
    Dataflow("")

def any_error():
    raise KeyError("inside")

def leaves():
    raise SystemExit(3)
"""


# --- finding the flow ---


def test_the_flow_may_be_an_attribute(write: Write) -> None:
    write("things.py", FACTORIES)
    assert load_flow("things:second").flow_id == "second"


def test_the_flow_may_be_in_a_package(write: Write) -> None:
    write("pack/inner.py", FACTORIES)
    assert load_flow("pack.inner:first").flow_id == "first"


@pytest.mark.parametrize(
    ("call", "flow_id"),
    [
        ("make", "unnamed-1"),
        ("make()", "unnamed-1"),
        ("make('x')", "x-1"),
        ('make("x", n=3)', "x-3"),
        ("make(n=-2)", "unnamed--2"),
        ("make(n=[1, {'a': (True, None)}])", "unnamed-[1, {'a': (True, None)}]"),
        ("make('a:b')", "a:b-1"),
        ("Dataflow('straight')", "straight"),
    ],
)
def test_the_flow_may_be_made_by_a_function(write: Write, call: str, flow_id: str) -> None:
    write("things.py", FACTORIES)
    assert load_flow(f"things:{call}").flow_id == flow_id


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("things", "'things' names no flow: write MODULE:FLOW, such as things:flow"),
        ("things:", "'things:' names no flow: write MODULE:FLOW, such as things:flow"),
        (
            "examples/things.py:flow",
            "'examples/things.py' is not the name of a module: write MODULE:FLOW, "
            "such as examples.things:flow",
        ),
        (
            ":flow",
            "'' is not the name of a module: write MODULE:FLOW, such as examples.flights:flow",
        ),
        (
            "things:first.second",
            "'first.second' is neither a name nor a call: write MODULE:FLOW, such as things:flow "
            'or things:make_flow("x", n=3)',
        ),
        ("things:make(", "'make(' is neither a name nor a call: write MODULE:FLOW, such as "),
        ("things:make(**{})", "'make(**{})' is neither a name nor a call: write MODULE:FLOW"),
        ("things:make(n)", "'n' is not a literal: the arguments of a call can be text in quotes"),
        ("things:make(*[1])", "'*[1]' is not a literal: "),
        ("things:make({[]: 1})", "'{[]: 1}' is not a literal: "),
        ("nothing:flow", "there is no module 'nothing' in /"),
        ("nothing.inner:flow", "there is no module 'nothing.inner' in /"),
        ("things.inner:flow", "there is no module 'things.inner' in /"),
        ("things:third", "module 'things' has no 'third'; its flows are: first, second"),
        ("empty:flow", "module 'empty' has no 'flow'; it has no Dataflow at all"),
        ("things:number", "things:number is no Dataflow but int 7"),
        ("things:wrong", "things:wrong returned no Dataflow but list [1, 2]"),
        (
            "things:needy",
            "things:needy cannot be called like that: missing a required argument: 'name'; give "
            'its arguments as literals, such as things:needy("x", n=3)',
        ),
        (
            "things:make(3, 4)",
            "things:make cannot be called like that: too many positional arguments; give",
        ),
        ("things:number()", "things:number is int 7, not a function: leave out the parentheses"),
        ("things:leaves", "things:leaves called sys.exit(3) while loading"),
    ],
)
def test_a_wrong_target_is_one_clear_message(
    write: Write, capsys: pytest.CaptureFixture[str], target: str, message: str
) -> None:
    write("things.py", FACTORIES)
    write("empty.py", "")
    error = error_output(capsys, 2, target)
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


def test_the_current_directory_is_searched_although_python_would_not(write: Write) -> None:
    write("things.py", FACTORIES)
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    assert load_flow("things:first").flow_id == "first"


# --- modules that raise ---


def test_a_flow_put_together_wrongly_is_one_message_with_its_place(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write("broken.py", "from flow import Dataflow\n\nflow = Dataflow('')\n")
    error = error_output(capsys, 2, "broken:flow")
    place = f"{tmp_path}/broken.py, line 3"
    assert error == f"error: a Dataflow needs a name, got an empty one ({place})\n"


def test_a_factory_that_puts_a_flow_together_wrongly_is_one_message_too(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write("things.py", FACTORIES)
    error = error_output(capsys, 2, "things:build_error")
    place = f"{tmp_path}/things.py, line 15"
    assert error == f"error: a Dataflow needs a name, got an empty one ({place})\n"


def test_a_module_that_raises_shows_only_its_own_frames(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write("deep.py", "import json\n\ndef read():\n    return json.loads('{')\n")
    write("raising.py", "import deep\n\nflow = deep.read()\n")
    error = error_output(capsys, 2, "raising:flow")
    assert error.startswith(
        "error: module 'raising' failed while loading\nTraceback (most recent call last):\n"
    )
    assert re.findall(r'File "(.*)", line (\d+)', error) == [
        (f"{tmp_path}/raising.py", "3"),
        (f"{tmp_path}/deep.py", "4"),
    ]
    assert "JSONDecodeError: Expecting property name" in error.splitlines()[-1]


def test_a_factory_that_raises_shows_only_its_own_frames(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write("things.py", FACTORIES)
    error = error_output(capsys, 2, "things:any_error()")
    assert error.startswith("error: things:any_error failed while loading\nTraceback")
    assert re.findall(r'File "(.*)", line', error) == [f"{tmp_path}/things.py"]


def test_a_module_that_lacks_another_says_where_it_is_wanted(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write("wanting.py", "import not_installed_at_all\n")
    error = error_output(capsys, 2, "wanting:flow")
    assert f'File "{tmp_path}/wanting.py", line 1' in error
    assert error.endswith("ModuleNotFoundError: No module named 'not_installed_at_all'\n")


def test_a_module_that_cannot_be_read_shows_the_place_and_no_trace(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("garbled.py", "flow = = 3\n")
    error = error_output(capsys, 2, "garbled:flow")
    assert "Traceback" not in error
    assert 'garbled.py", line 1' in error
    assert error.endswith("SyntaxError: invalid syntax\n")


def test_ctrl_c_while_the_module_loads_says_nothing(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("patient.py", "raise KeyboardInterrupt\n")
    assert error_output(capsys, 130, "patient:flow") == ""
