"""``python -m flow.run module:flow``: load a flow, run it, and say in the end what it did.

What the flow prints goes to standard output; progress, the summary and everything that goes wrong
go to standard error. The exit code is 0 when the flow has ended, also when it was asked to by
Ctrl-C or a SIGTERM; 1 when it failed; 2 when the command line, the module or the flow is not fit to
run, so that nothing ran; 130 or 143 when it was stopped at once, by a second Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TextIO, TypeVar

from flow.cli.loading import CommandError, CommandParser, load_flow
from flow.dataflow import Dataflow
from flow.durations import duration_us
from flow.engine.feed.feed import StopFlag
from flow.errors import DurationError, FlowBuildError, FlowError, UnusedStepWarning, printable
from flow.reports.failure_text import describe_failure, users_trace
from flow.reports.progress import Progress, StatusLine
from flow.reports.summary_table import summary_table
from flow.running import run
from flow.signals import stopping_on_signals
from recovery import RecoveryConfig

if TYPE_CHECKING:
    from flow.engine.epoch.summary import Summary

T = TypeVar("T")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the flow that a command line names.

    Args:
        argv: the arguments; those of this process when left out.

    Returns:
        The exit code.
    """
    line = StatusLine.on(sys.stderr)
    with line.below_output() if line else contextlib.nullcontext(), _short_warnings():
        try:
            options = _parser().parse_args(argv)
            flow = load_flow(options.flow)
            summary = _run(flow, options, line)
        except (CommandError, FlowBuildError) as error:
            complain(str(error))
            return 2
        except FlowError as error:
            complain(describe_failure(error))
            return 1
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            complain(f"the run failed\n{users_trace(error)}")
            return 1
        if not options.quiet:
            _say(summary_table(flow, summary))
    return 0


def complain(message: str) -> None:
    """Say what is wrong, on standard error."""
    _say(f"error: {message}")


def _parser() -> CommandParser:
    parser = CommandParser("python -m flow.run", "Run a flow.")
    add = parser.add_argument
    add("--recovery", metavar="DIR", type=_told(RecoveryConfig), help="where to keep state")
    add("--master", metavar="URL", help="Spark's master, such as local[4] or spark://host:7077")
    add(
        "--trigger",
        type=_told(_trigger),
        help="how often to start an epoch, such as 1s; 'available' to read what there is and stop",
    )
    add(
        "--drain",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="close what is open when the run ends by itself, or leave it in the checkpoint; when "
        "left out, close it if all sources have an end",
    )
    add("--engine", choices=("auto", "batch", "streaming"), default="auto", help="how to run it")
    add(
        "--conf",
        metavar="K=V",
        type=_told(_setting),
        action="append",
        default=[],
        help="a Spark setting; give it again for more",
    )
    add("--log-level", default="WARN", help="how much Spark writes to its log file")
    add(
        "--py-files",
        metavar="FILE",
        action="append",
        default=[],
        help="a module of your own to send to a cluster's workers; give it again for more",
    )
    add("--shards", type=_told(_count), help="how many slices the key space has")
    add("--partitions", type=_told(_count), help="how many partitions each level has")
    add("--quiet", action="store_true", help="show neither progress nor the summary")
    return parser


def _told(read: Callable[[str], T]) -> Callable[[str], T]:
    """Let an argument's error reach the user in its own words."""

    def told(text: str) -> T:
        try:
            return read(text)
        except FlowError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return told


def _trigger(text: str) -> str:
    if text != "available" and duration_us(text, "it") < 0:
        raise DurationError(f"it must not be negative, got {text!r}")
    return text


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise FlowBuildError(f"{text!r} is no setting: write it as spark.some.name=value")
    return name.strip(), value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise FlowBuildError(f"it must be a whole number of at least 1, got {text!r}")
    return int(text)


def _run(flow: Dataflow, options: argparse.Namespace, line: StatusLine | None) -> Summary:
    """Run the flow in a thread, so that this one is free for signals.

    So they are answered from the first moment on: Spark, when it starts in this thread, takes them.
    """
    stop = StopFlag()
    arguments = {**vars(options), "conf": dict(options.conf), "stop": stop}
    arguments["py_files"] = tuple(options.py_files)
    del arguments["flow"], arguments["quiet"]
    if not options.quiet:
        arguments["on_epoch"] = Progress(flow, line)
    with _log_to_stderr(), stopping_on_signals(stop.ask), ThreadPoolExecutor(1) as pool:
        return pool.submit(run, flow, **arguments).result()


@contextlib.contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Show what this package logs, unless the flow's module has set logging up itself."""
    logger = logging.getLogger("flow")
    level, handler = logger.level, logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    if not logger.hasHandlers():
        logger.addHandler(handler)
    logger.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Show a warning about the flow as one line."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, UnusedStepWarning):
                _say(f"warning: {message}")
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def _say(text: str) -> None:
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()
