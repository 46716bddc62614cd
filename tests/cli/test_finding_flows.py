"""Search of a flow in a module by the command line, and its errors."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from flow.cli.command_line import CommandError
from flow.cli.loading import load_flow
from tests.support.commandline import ErrorOutput, Write, run_main

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


@pytest.fixture(autouse=True)
def things(write: Write) -> None:
    """A module with flows, functions that make flows, and other things."""
    write("things.py", FACTORIES)


# --- finding the flow ---


@pytest.mark.parametrize(
    ("target", "flow_id"),
    [
        ("things:second", "second"),
        ("pack.inner:first", "first"),
        ("things:make", "unnamed-1"),
        ("things:make()", "unnamed-1"),
        ("things:make('x')", "x-1"),
        ('things:make("x", n=3)', "x-3"),
        ("things:make(n=-2)", "unnamed--2"),
        ("things:make(n=[1, {'a': (True, None)}])", "unnamed-[1, {'a': (True, None)}]"),
        ("things:make('a:b')", "a:b-1"),
        ("things:Dataflow('straight')", "straight"),
    ],
)
def test_the_flow_is_an_attribute_or_made_by_a_function(
    write: Write, target: str, flow_id: str
) -> None:
    write("pack/inner.py", FACTORIES)
    assert load_flow(target).flow_id == flow_id


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
    write: Write, error_output: ErrorOutput, target: str, message: str
) -> None:
    write("empty.py", "")
    error = error_output(2, target)
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


def test_the_current_directory_is_searched_although_python_would_not() -> None:
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    assert load_flow("things:first").flow_id == "first"


# --- modules that raise ---


def test_a_flow_put_together_wrongly_is_one_message_with_its_place(
    write: Write, error_output: ErrorOutput, tmp_path: Path
) -> None:
    write("broken.py", "from flow import Dataflow\n\nflow = Dataflow('')\n")
    for target, place in (
        ("broken:flow", "broken.py, line 3"),
        ("things:build_error", "things.py, line 15"),
    ):
        message = f"error: a Dataflow needs a name, got an empty one ({tmp_path}/{place})\n"
        assert error_output(2, target) == message


def test_a_module_that_raises_shows_only_its_own_frames(
    write: Write, error_output: ErrorOutput, tmp_path: Path
) -> None:
    write("deep.py", "import json\n\ndef read():\n    return json.loads('{')\n")
    write("raising.py", "import deep\n\nflow = deep.read()\n")
    error = error_output(2, "raising:flow")
    assert error.startswith(
        "error: module 'raising' failed while loading\nTraceback (most recent call last):\n"
    )
    assert re.findall(r'File "(.*)", line (\d+)', error) == [
        (f"{tmp_path}/raising.py", "3"),
        (f"{tmp_path}/deep.py", "4"),
    ]
    assert "JSONDecodeError: Expecting property name" in error.splitlines()[-1]


def test_a_factory_that_raises_shows_only_its_own_frames(
    error_output: ErrorOutput, tmp_path: Path
) -> None:
    error = error_output(2, "things:any_error()")
    assert error.startswith("error: things:any_error failed while loading\nTraceback")
    assert re.findall(r'File "(.*)", line', error) == [f"{tmp_path}/things.py"]


def test_a_module_that_lacks_another_says_where_it_is_wanted(
    write: Write, error_output: ErrorOutput, tmp_path: Path
) -> None:
    write("wanting.py", "import not_installed_at_all\n")
    error = error_output(2, "wanting:flow")
    assert f'File "{tmp_path}/wanting.py", line 1' in error
    assert error.endswith("ModuleNotFoundError: No module named 'not_installed_at_all'\n")


def test_a_module_that_cannot_be_read_shows_the_place_and_no_trace(
    write: Write, error_output: ErrorOutput
) -> None:
    write("garbled.py", "flow = = 3\n")
    error = error_output(2, "garbled:flow")
    assert "Traceback" not in error
    assert 'garbled.py", line 1' in error
    assert error.endswith("SyntaxError: invalid syntax\n")


def test_ctrl_c_while_the_module_loads_says_nothing(
    write: Write, error_output: ErrorOutput
) -> None:
    write("patient.py", "raise KeyboardInterrupt\n")
    assert error_output(130, "patient:flow") == ""


def test_a_removed_working_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(CommandError, match="the working directory was removed: use one that "):
        load_flow("mine:flow")


def test_closed_standard_streams_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit, match="0"):
        run_main(["--help"])
    assert sys.stdout.name == sys.stderr.name == sys.stdin.name == os.devnull
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()
