"""The command as a process, and its reaction to signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import flow.cli.run_command
import flow.execution
from tests.support.commandline import ErrorOutput, Runs, Write, run_main


def test_the_run_is_in_a_thread_and_this_one_free_for_signals(runs: Runs) -> None:
    threads: list[threading.Thread] = []
    runs.action = lambda: threads.append(threading.current_thread())
    run_main(["mine:flow", "--quiet"])
    assert threads != [threading.main_thread()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_run_to_stop_and_says_so(
    runs: Runs, error_output: ErrorOutput, number: signal.Signals
) -> None:
    def wait_for_the_signal() -> None:
        os.kill(os.getpid(), number)
        assert runs.arguments["stop"].asked.wait(10)

    runs.action = wait_for_the_signal
    assert error_output(0, "mine:flow", "--quiet").startswith(
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

LIVE = """\
from pathlib import Path

import flow.operators as op
from flow import Dataflow
from flow.testing import TestingSink
from tests.support.slow_numbers import SlowNumbers

flow = Dataflow("ever")
numbers = SlowNumbers(0.2, folder=str(Path(__file__).parent))
op.output("out", op.inspect("seen", op.input("in", flow, numbers)), TestingSink([]))
"""
SHOWN = (
    r"\S+Z INFO (starting Spark [\d.]+|reading in|first result after [\d.]+ s)",
    r"\S+Z INFO epoch \d+ \| \d+ items in.*",
    r"stopping after the current epoch; a second Ctrl-C stops at once",
    r"(step|in|seen|out)\b.*",
    r"ever: \d+ epochs?, .* \(streaming, stopped\)",
)
"""The lines on standard error."""


@pytest.mark.spark
def test_ctrl_c_lets_a_live_flow_finish_the_epoch_in_hand(
    spark: SparkSession, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the process and the session of the tests."""
    write("live.py", LIVE)

    def interrupt() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if any(query.lastProgress for query in spark.streams.active):
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.05)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    assert run_main(["live:flow", "--shards=2"]) == 0
    interrupting.join()
    out, err = capsys.readouterr()
    # Each epoch prints two numbers: what was begun was done.
    count = out.count("\n")
    assert out == "".join(f"seen: {number}\n" for number in range(count))
    assert count % 2 == 0
    assert err.count("stopping after the current epoch") == 1
    assert re.search(rf"ever: .*, {count} items in .* \(streaming, stopped\)\n$", err)


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_lets_a_live_flow_finish_the_epoch_in_hand_and_nothing_else_is_printed(
    write: Write, tmp_path: Path
) -> None:
    write("live.py", LIVE)
    files = (tmp_path / "out.txt", tmp_path / "err.txt")
    with files[0].open("w") as out_file, files[1].open("w") as err_file:
        live = subprocess.Popen(
            [sys.executable, "-m", "flow.run", "live:flow", "--master=local[1]", "--shards=2"],
            stdout=out_file,
            stderr=err_file,
            env={**os.environ, "PYTHONPATH": str(Path(flow.execution.__file__).parents[1])},
            start_new_session=True,
        )
    try:
        while live.poll() is None and not files[0].stat().st_size:
            time.sleep(0.05)
        os.killpg(live.pid, signal.SIGINT)
        code = live.wait(timeout=200)
    finally:
        live.kill()
    out, err = (file.read_text() for file in files)
    # Each epoch prints two numbers: what was begun was done.
    count = out.count("\n")
    assert out == "".join(f"seen: {number}\n" for number in range(count))
    assert count % 2 == 0
    assert err.count("stopping after the current epoch") == 1
    lines = err.splitlines()
    assert [line for line in lines if not any(re.fullmatch(one, line) for one in SHOWN)] == []
    assert re.search(rf"ever: .*, {count} items in .* \(streaming, stopped\)\n$", err)
    assert code == 0
