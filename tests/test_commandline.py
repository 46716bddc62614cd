"""The command line: finding a flow, the options, what is said when something is wrong."""

from __future__ import annotations

import inspect
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flow.commandline
import flow.running
from flow import Dataflow
from flow.commandline import main
from flow.engine.context import Stats
from flow.engine.summary import Summary
from flow.errors import FlowBuildError, FlowError, SourceError, StepError
from flow.loading import load_flow
from flow.running import run as run_function
from recovery import RecoveryConfig

Write = Callable[..., None]

FLOW = """\
import flow.operators as op
from flow import Dataflow
from flow.testing import TestingSink, TestingSource

flow = Dataflow("{name}")
op.output("out", op.input("in", flow, TestingSource([1])), TestingSink([]))
"""

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


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module to the current directory, an empty one of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)

    def to_file(name: str, code: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)

    yield to_file
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


class Runs:
    """In the place of `run`: remembers what it was called with, and does as it is told."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.action: Callable[[], None] = lambda: None

    def __call__(self, flow: Dataflow, **arguments: Any) -> Summary:
        self.arguments = {"flow": flow, **arguments}
        self.action()
        counts = Counter({("in", "out"): 1})
        return Summary(flow.flow_id, "batch", epochs=1, seconds=1.0, counts=counts)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, write: Write) -> Runs:
    """A module ``mine`` with a flow, and nothing that would run it on Spark."""
    write("mine.py", FLOW.format(name="mine"))
    runs = Runs()
    monkeypatch.setattr(flow.commandline, "run", runs)
    return runs


def without_other_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when nobody has set up logging: pytest has handlers of its own from a test's beginning."""
    monkeypatch.setattr(logging.getLogger("flow"), "propagate", False)


def said(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    """What the command says on standard error, once it has ended with this code."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    return err


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
            'what it takes as literals, such as things:needy("x", n=3)',
        ),
        (
            "things:make(3, 4)",
            "things:make cannot be called like that: too many positional arguments; give",
        ),
        (
            "things:number()",
            "things:number is int 7, not a function: leave the parentheses out",
        ),
        ("things:leaves", "things:leaves called sys.exit(3) while loading"),
    ],
)
def test_a_wrong_target_is_one_clear_message(
    write: Write, capsys: pytest.CaptureFixture[str], target: str, message: str
) -> None:
    write("things.py", FACTORIES)
    write("empty.py", "")
    error = said(capsys, 2, target)
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
    error = said(capsys, 2, "broken:flow")
    place = f"{tmp_path}/broken.py, line 3"
    assert error == f"error: a Dataflow needs a name, got an empty one ({place})\n"


def test_a_factory_that_puts_a_flow_together_wrongly_is_one_message_too(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write("things.py", FACTORIES)
    error = said(capsys, 2, "things:build_error")
    place = f"{tmp_path}/things.py, line 15"
    assert error == f"error: a Dataflow needs a name, got an empty one ({place})\n"


def test_a_module_that_raises_shows_only_its_own_frames(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write("deep.py", "import json\n\ndef read():\n    return json.loads('{')\n")
    write("raising.py", "import deep\n\nflow = deep.read()\n")
    error = said(capsys, 2, "raising:flow")
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
    error = said(capsys, 2, "things:any_error()")
    assert error.startswith("error: things:any_error failed while loading\nTraceback")
    assert re.findall(r'File "(.*)", line', error) == [f"{tmp_path}/things.py"]


def test_a_module_that_lacks_another_says_where_it_is_wanted(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write("wanting.py", "import not_installed_at_all\n")
    error = said(capsys, 2, "wanting:flow")
    assert f'File "{tmp_path}/wanting.py", line 1' in error
    assert error.endswith("ModuleNotFoundError: No module named 'not_installed_at_all'\n")


def test_a_module_that_cannot_be_read_shows_the_place_and_no_trace(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("garbled.py", "flow = = 3\n")
    error = said(capsys, 2, "garbled:flow")
    assert "Traceback" not in error
    assert 'garbled.py", line 1' in error
    assert error.endswith("SyntaxError: invalid syntax\n")


def test_ctrl_c_while_the_module_loads_says_nothing(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("patient.py", "raise KeyboardInterrupt\n")
    assert said(capsys, 130, "patient:flow") == ""


# --- options ---


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("--recovery=state/mine", "recovery", RecoveryConfig("state/mine")),
        ("--master=local[3]", "master", "local[3]"),
        ("--trigger=1s", "trigger", "1s"),
        ("--trigger=available", "trigger", "available"),
        ("--drain", "drain", True),
        ("--no-drain", "drain", False),
        ("--engine=batch", "engine", "batch"),
        ("--engine=streaming", "engine", "streaming"),
        ("--engine=auto", "engine", "auto"),
        ("--conf=spark.a=b", "conf", {"spark.a": "b"}),
        ("--conf=spark.a=b=c", "conf", {"spark.a": "b=c"}),
        ("--conf=spark.a=", "conf", {"spark.a": ""}),
        ("--log-level=ERROR", "log_level", "ERROR"),
        ("--shards=64", "shards", 64),
        ("--partitions=3", "partitions", 3),
        ("--py-files=mine.py", "py_files", ("mine.py",)),
    ],
)
def test_an_option_reaches_the_run(runs: Runs, option: str, name: str, value: object) -> None:
    assert main(["mine:flow", option]) == 0
    assert runs.arguments[name] == value


def test_settings_add_up_and_the_last_of_a_name_counts(runs: Runs) -> None:
    main(["mine:flow", "--conf", "spark.a=1", "--conf", "spark.b=2", "--conf", "spark.a=3"])
    assert runs.arguments["conf"] == {"spark.a": "3", "spark.b": "2"}


def test_what_is_not_given_is_what_run_does_by_itself(runs: Runs) -> None:
    main(["mine:flow"])
    given = runs.arguments
    own = {one.name: one.default for one in inspect.signature(run_function).parameters.values()}
    by_itself = {name: own[name] or {} if name == "conf" else own[name] for name in own}
    for name in set(given) - {"flow", "on_epoch", "stop"}:
        assert given[name] == by_itself[name], name
    assert given["flow"].flow_id == "mine"


def test_the_summary_is_printed_in_the_end(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, 0, "mine:flow").splitlines() == [
        "step  in  out  keys",
        "in          1",
        "out",
        "mine: 1 epoch, 1 items in 1.0 s, 1 items/s (batch)",
    ]


def test_progress_is_logged_where_there_is_no_terminal(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_other_handlers(monkeypatch)
    runs.action = lambda: runs.arguments["on_epoch"](4, Stats(Counter({("in", "out"): 3})), None)
    first = said(capsys, 0, "mine:flow").splitlines()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO epoch 4 \| 3 items in", first)


def test_quiet_leaves_out_progress_and_summary_but_no_warning(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_other_handlers(monkeypatch)
    runs.action = lambda: logging.getLogger("flow").warning("dropped something")
    shown = said(capsys, 0, "mine:flow", "--quiet")
    assert "on_epoch" not in runs.arguments
    assert re.fullmatch(r"\S+Z WARNING dropped something\n", shown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: MODULE:FLOW"),
        (["mine:flow", "--colour"], "unrecognized arguments: --colour"),
        (["mine:flow", "--rec=x"], "unrecognized arguments: --rec=x"),
        (["mine:flow", "--conf", "spark.a"], "argument --conf: 'spark.a' is no setting: write it"),
        (["mine:flow", "--conf", "=b"], "argument --conf: '=b' is no setting: write it as "),
        (
            ["mine:flow", "--trigger", "soon"],
            "argument --trigger: it 'soon' is not a duration: write it as a timedelta",
        ),
        (
            ["mine:flow", "--trigger=-1s"],
            "argument --trigger: it must not be negative, got '-1s'",
        ),
        (["mine:flow", "--engine", "fast"], "argument --engine: invalid choice: 'fast'"),
        (
            ["mine:flow", "--recovery", ""],
            "argument --recovery: RecoveryConfig needs a directory's path, got an empty one",
        ),
        (
            ["mine:flow", "--shards", "0"],
            "argument --shards: it must be a whole number of at least 1, got '0'",
        ),
        (
            ["mine:flow", "--partitions", "two"],
            "argument --partitions: it must be a whole number of at least 1, got 'two'",
        ),
    ],
)
def test_a_wrong_option_is_one_clear_message(
    runs: Runs, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    error = said(capsys, 2, *arguments)
    assert error.startswith(f"error: {message}")
    assert error.endswith("(--help says more)\n")
    assert error.count("\n") == 1
    assert runs.arguments == {}


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--recovery", "--master", "--trigger", "--drain", "--no-drain", "--engine"):
        assert option in shown
    for option in ("--conf", "--log-level", "--shards", "--partitions", "--quiet", "MODULE:FLOW"):
        assert option in shown


# --- runs that fail ---


def failing(runs: Runs, error: Exception) -> None:
    def fail() -> None:
        raise error

    runs.action = fail


def test_a_step_that_failed_is_said_with_the_users_exception(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    error = StepError("half", "the mapper raised ZeroDivisionError", "LHR", "0")
    error.__cause__ = ZeroDivisionError("division by zero")
    error.__cause__.add_note("raised in a worker at:\n  File a.py, line 3")
    failing(runs, error)
    assert said(capsys, 1, "mine:flow") == (
        "error: step 'half': the mapper raised ZeroDivisionError\n"
        "  key:  'LHR'\n"
        "  item: 0\n"
        "ZeroDivisionError: division by zero\n"
        "raised in a worker at:\n"
        "  File a.py, line 3\n"
    )


@pytest.mark.parametrize(
    ("error", "code"), [(SourceError("no file"), 1), (FlowBuildError("no output"), 2)]
)
def test_the_exit_code_tells_a_failed_run_from_one_that_could_not_start(
    runs: Runs, capsys: pytest.CaptureFixture[str], error: FlowError, code: int
) -> None:
    failing(runs, error)
    assert said(capsys, code, "mine:flow") == f"error: {error}\n"


def test_an_exception_nobody_foresaw_has_its_frames_shown(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(runs, KeyError("inside"))
    error = said(capsys, 1, "mine:flow")
    assert error.startswith("error: the run failed\nTraceback (most recent call last):\n")
    assert set(re.findall(r'File "(.*)", line', error)) == {__file__}
    assert error.endswith("KeyError: 'inside'\n")


def test_a_flow_without_an_output_is_refused_before_spark_starts(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("things.py", FACTORIES)
    error = said(capsys, 2, "things:first")
    assert error.startswith("error: flow 'first' has no input: start with op.input(")


def test_a_wrong_log_level_is_refused_before_spark_starts(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("mine.py", FLOW.format(name="mine"))
    error = said(capsys, 2, "mine:flow", "--log-level", "LOUD")
    assert error.startswith("error: log_level must be one of ALL, TRACE, ")
    assert error.count("\n") == 1


@pytest.mark.filterwarnings("default")
def test_a_step_that_is_not_used_is_a_warning_of_one_line(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("mine.py", FLOW.format(name="mine") + "op.input('idle', flow, TestingSource([1]))\n")
    error = said(capsys, 2, "mine:flow", "--log-level", "LOUD")
    assert error.splitlines()[0] == (
        "warning: step 'idle' of flow 'mine' is never used by an output: its items go nowhere"
    )
    assert error.count("\n") == 2


@pytest.mark.filterwarnings("default")
def test_other_warnings_are_shown_as_ever(runs: Runs) -> None:
    code = "import warnings\nwarnings.warn('mind this', stacklevel=1)\n" + FLOW.format(name="a")
    Path("warning_module.py").write_text(code)
    with pytest.warns(UserWarning, match="mind this"):
        assert main(["warning_module:flow", "--quiet"]) == 0


# --- what is logged, and where ---


def test_a_module_that_sets_up_logging_has_its_way(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    own: list[str] = []

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            own.append(record.getMessage())

    handler = Own()
    logging.getLogger("flow").addHandler(handler)
    runs.action = lambda: logging.getLogger("flow").info("epoch 1")
    try:
        assert said(capsys, 0, "mine:flow", "--quiet") == ""
    finally:
        logging.getLogger("flow").removeHandler(handler)
    assert own == ["epoch 1"]


def test_logging_is_left_as_it_was(runs: Runs) -> None:
    logger = logging.getLogger("flow")
    before = list(logger.handlers), logger.level
    main(["mine:flow"])
    assert (list(logger.handlers), logger.level) == before


# --- signals ---


def test_the_run_is_in_a_thread_and_this_one_free_for_signals(runs: Runs) -> None:
    threads: list[threading.Thread] = []
    runs.action = lambda: threads.append(threading.current_thread())
    main(["mine:flow", "--quiet"])
    assert threads != [threading.main_thread()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_run_to_stop_and_says_so(
    runs: Runs, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def wait_for_the_signal() -> None:
        os.kill(os.getpid(), number)
        assert runs.arguments["stop"].asked.wait(10)

    runs.action = wait_for_the_signal
    assert said(capsys, 0, "mine:flow", "--quiet") == (
        "stopping when the epoch in hand is done; a second Ctrl-C stops at once\n"
    )


# --- the module that stands where the function does ---


def test_importing_the_entry_point_leaves_run_to_be_called() -> None:
    code = (
        "import flow.run, flow\n"
        "from flow import run\n"
        "try:\n"
        "    run('no flow')\n"
        "except flow.FlowBuildError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("run needs a Dataflow, got str 'no flow'\n", "")


def test_the_package_does_not_import_its_entry_point() -> None:
    code = "import flow, sys; print('flow.run' in sys.modules, 'flow.commandline' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False False\n"


# --- whole runs ---

WHOLE = """\
import time

import flow.operators as op
from flow import Dataflow
from flow.connectors.source import PartitionedSource
from flow.testing import TestingSink, TestingSource


class Ever(PartitionedSource):
    bounded = False

    def partitions(self):
        return ["all"]

    def first_offset(self, partition):
        return 0

    def next_offset(self, partition, start):
        return start + 2

    def read_partition(self, partition, start, end):
        time.sleep(0.2)
        yield list(range(start, end))


def total(state, value):
    return (state or 0) + value, (state or 0) + value


def half(value):
    return 1 / value


def make(source):
    flow = Dataflow("whole")
    items = op.inspect("seen", op.input("in", flow, source))
    op.input("idle", flow, TestingSource([1]))
    keyed = op.key_on("key", items, lambda x: "odd" if x % 2 else "even")
    op.output("out", op.stateful_map("total", keyed, total), TestingSink([]))
    return flow


def numbers(count):
    return make(TestingSource(list(range(count))))


def ever():
    flow = Dataflow("ever")
    items = op.inspect("seen", op.input("in", flow, Ever()))
    op.output("out", items, TestingSink([]))
    return flow


def failing():
    flow = Dataflow("failing")
    items = op.input("in", flow, TestingSource([2, 0]))
    op.output("out", op.map("half", items, half), TestingSink([]))
    return flow
"""


class Command:
    """The command as a shell starts it, in a process group of its own."""

    def __init__(self, *arguments: str) -> None:
        home = str(Path(flow.running.__file__).parent.parent)
        self._streams = Path("out.txt"), Path("err.txt")
        with self._streams[0].open("w") as out, self._streams[1].open("w") as err:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments, "--master", "local[1]", "--shards", "2"],
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONPATH": home},
                start_new_session=True,
            )

    def shown(self) -> tuple[str, str]:
        """What it has written to standard output and standard error so far."""
        return self._streams[0].read_text(), self._streams[1].read_text()

    def wait_for_output(self) -> None:
        """Wait for the first line on standard output."""
        while self.process.poll() is None and "\n" not in self.shown()[0]:
            time.sleep(0.05)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: the exit code, standard output, standard error."""
        return self.process.wait(timeout=200), *self.shown()


COMMAND = [sys.executable, "-m", "flow.run"]


@pytest.fixture
def command(write: Write) -> Iterator[Callable[..., Command]]:
    """Starts the command on the flows of the module ``whole``."""
    write("whole.py", WHOLE)
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_prints_what_the_flow_prints_and_its_summary_and_nothing_else(
    command: Callable[..., Command],
) -> None:
    code, out, err = command("whole:numbers(4)").end()
    assert out == "seen: 0\nseen: 1\nseen: 2\nseen: 3\n"
    warning, progress, *table = err.splitlines()
    assert warning.startswith("warning: step 'idle' of flow 'whole' is never used by an output")
    assert progress.endswith(" INFO epoch 0 | 5 items in")
    assert [line.split()[:3] for line in table[:-2]] == [
        ["step", "in", "out"],
        ["in", "4"],
        ["seen", "4", "4"],
        ["idle", "1"],
        ["key", "4", "4"],
        ["total", "4", "4"],
    ]
    assert re.fullmatch(r"whole: 1 epoch, 5 items in .* s, .* items/s \(batch\)", table[-1])
    assert code == 0


@pytest.mark.spark
@pytest.mark.slow
def test_a_mapper_that_raises_is_said_without_a_word_of_spark(
    command: Callable[..., Command], tmp_path: Path
) -> None:
    code, out, err = command("whole:failing", "--engine", "streaming").end()
    assert out == ""
    assert re.sub(r"\n +[~^]+\n", "\n", err) == (
        "error: step 'half': the mapper raised ZeroDivisionError: division by zero\n"
        "  item: 0\n"
        "ZeroDivisionError: division by zero\n"
        "raised in a worker at:\n"
        f'  File "{tmp_path}/whole.py", line 31, in half\n'
        "    return 1 / value\n"
    )
    assert code == 1


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_lets_a_live_flow_finish_the_epoch_in_hand(
    command: Callable[..., Command],
) -> None:
    live = command("whole:ever")
    live.wait_for_output()
    os.killpg(live.process.pid, signal.SIGINT)
    code, out, err = live.end()
    # Each epoch prints two numbers: what was begun was done.
    count = out.count("\n")
    assert out == "".join(f"seen: {number}\n" for number in range(count))
    assert count % 2 == 0
    assert err.count("stopping when the epoch in hand is done") == 1
    assert re.search(rf"ever: .*, {count} items in .* \(streaming, stopped\)\n$", err)
    assert "Traceback" not in err
    assert code == 0
