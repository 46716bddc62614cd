"""The command as a process, and its reaction to signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flow.cli.run_command
import flow.running
from flow.cli.run_command import main
from tests.support.commandline import ErrorOutput, Runs, Write


def test_the_run_is_in_a_thread_and_this_one_free_for_signals(runs: Runs) -> None:
    threads: list[threading.Thread] = []
    runs.action = lambda: threads.append(threading.current_thread())
    main(["mine:flow", "--quiet"])
    assert threads != [threading.main_thread()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_run_to_stop_and_says_so(
    runs: Runs, error_output: ErrorOutput, number: signal.Signals
) -> None:
    def wait_for_the_signal() -> None:
        os.kill(os.getpid(), number)
        assert runs.arguments["stop"].asked.wait(10)

    runs.action = wait_for_the_signal
    assert error_output(0, "mine:flow", "--quiet") == (
        "stopping after the current epoch; a second Ctrl-C stops at once\n"
    )


# --- the module that stands where the function does ---


def test_importing_the_entry_point_leaves_run_to_be_called_and_flow_does_not_import_it() -> None:
    code = (
        "import sys, flow\n"
        "print('flow.run' in sys.modules, 'flow.cli.run_command' in sys.modules)\n"
        "import flow.run\n"
        "from flow import run\n"
        "try:\n"
        "    run('no flow')\n"
        "except flow.FlowBuildError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False False\nrun needs a Dataflow, got str 'no flow'\n"
    assert done.stderr == ""


# --- whole runs ---

WHOLE = """\
import flow.operators as op
from flow import Dataflow
from flow.testing import TestingSink, TestingSource
from tests.support.slow_numbers import SlowNumbers


def total(state, value):
    return (state or 0) + value, (state or 0) + value


def half(value):
    return 1 / value


def numbers(count):
    flow = Dataflow("whole")
    items = op.inspect("seen", op.input("in", flow, TestingSource(list(range(count)))))
    op.input("idle", flow, TestingSource([1]))
    keyed = op.key_on("key", items, lambda x: "odd" if x % 2 else "even")
    op.output("out", op.stateful_map("total", keyed, total), TestingSink([]))
    return flow


def ever():
    flow = Dataflow("ever")
    items = op.inspect("seen", op.input("in", flow, SlowNumbers(0.2)))
    op.output("out", items, TestingSink([]))
    return flow


def failing():
    flow = Dataflow("failing")
    items = op.input("in", flow, TestingSource([2, 0]))
    op.output("out", op.map("half", items, half), TestingSink([]))
    return flow
"""


Command = Callable[..., "subprocess.Popen[bytes]"]
OUT, ERR = Path("out.txt"), Path("err.txt")


@pytest.fixture
def command(write: Write) -> Iterator[Command]:
    """Starts the command on the flows of the module ``whole`` as a shell does, in its own group."""
    write("whole.py", WHOLE)
    started: list[subprocess.Popen[bytes]] = []
    home = str(Path(flow.running.__file__).parent.parent)

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "flow.run", *arguments]
        with OUT.open("w") as out, ERR.open("w") as err:
            process = subprocess.Popen(
                [*command, "--master", "local[1]", "--shards", "2"],
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONPATH": home},
                start_new_session=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


def end(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Wait for the end of a command: its exit code, standard output and standard error."""
    return process.wait(timeout=200), OUT.read_text(), ERR.read_text()


@pytest.mark.spark
@pytest.mark.extended
def test_a_run_prints_what_the_flow_prints_and_its_summary_and_nothing_else(
    command: Command,
) -> None:
    code, out, err = end(command("whole:numbers(4)"))
    assert out == "seen: 0\nseen: 1\nseen: 2\nseen: 3\n"
    warning, progress, *table = err.splitlines()
    assert warning.startswith("warning: step 'idle' of flow 'whole' is never used by an output")
    assert progress.endswith(" INFO epoch 0 | 5 items in")
    assert [" ".join(line.split()[:3]) for line in table[:-2]] == [
        "step in out",
        "in 4",
        "seen 4 4",
        "idle 1",
        "key 4 4",
        "total 4 4",
    ]
    assert re.fullmatch(r"whole: 1 epoch, 5 items in .* s, .* items/s \(batch\)", table[-1])
    assert code == 0


@pytest.mark.spark
@pytest.mark.extended
def test_a_mapper_that_raises_is_said_without_a_word_of_spark(
    command: Command, tmp_path: Path
) -> None:
    code, out, err = end(command("whole:failing", "--engine", "streaming"))
    assert out == ""
    assert re.sub(r"\n +[~^]+\n", "\n", err) == (
        "error: step 'half': the mapper raised ZeroDivisionError: division by zero\n"
        "  item: 0\n"
        "ZeroDivisionError: division by zero\n"
        "raised in a worker at:\n"
        f'  File "{tmp_path}/whole.py", line 12, in half\n'
        "    return 1 / value\n"
    )
    assert code == 1


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_lets_a_live_flow_finish_the_epoch_in_hand(command: Command) -> None:
    live = command("whole:ever")
    while live.poll() is None and not OUT.stat().st_size:
        time.sleep(0.05)
    os.killpg(live.pid, signal.SIGINT)
    code, out, err = end(live)
    # Each epoch prints two numbers: what was begun was done.
    count = out.count("\n")
    assert out == "".join(f"seen: {number}\n" for number in range(count))
    assert count % 2 == 0
    assert err.count("stopping after the current epoch") == 1
    assert re.search(rf"ever: .*, {count} items in .* \(streaming, stopped\)\n$", err)
    assert "Traceback" not in err
    assert code == 0
