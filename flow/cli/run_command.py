"""The command ``python -m flow.run module:flow``: load a flow, run it, and print a summary.

The output of the flow goes to standard output; progress, the summary and errors go to standard
error. The exit code is 0 if the flow ended, also after a first Ctrl-C or SIGTERM; 1 if the flow
failed; 2 if the command line, the module or the flow is wrong, and nothing ran; 130 or 143 if a
second Ctrl-C or SIGTERM ended the process.
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

from flow.cli.arguments import CommandError, FlowParser, count
from flow.cli.loading import load_flow
from flow.cli.output import print_error, print_message
from flow.dataflow import Dataflow
from flow.durations import duration_us
from flow.engine.feed.stop import StopFlag
from flow.errors import DurationError, FlowBuildError, FlowError, UnusedStepWarning
from flow.reports.failure_text import describe_failure, users_trace
from flow.reports.progress import Progress
from flow.reports.status_line import StatusLine
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
        argv: the arguments; by default, those of this process.

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
            print_error(str(error))
            return 2
        except FlowError as error:
            print_error(describe_failure(error))
            return 1
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            print_error(f"the run failed\n{users_trace(error)}")
            return 1
        if not options.quiet:
            print_message(summary_table(flow, summary))
    return 0


def _parser() -> FlowParser:
    """Return the parser of the command's arguments."""
    parser = FlowParser("python -m flow.run", "Run a flow.")
    add = parser.add_argument
    add("--recovery", metavar="DIR", type=_typed(RecoveryConfig), help="where to keep state")
    add("--master", metavar="URL", help="Spark's master, such as local[4] or spark://host:7077")
    add(
        "--trigger",
        type=_typed(_trigger),
        help="how often to start an epoch, such as 1s; 'available' to read all there is and stop",
    )
    add(
        "--drain",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="close open windows when the run ends by itself, or leave them in the checkpoint; by "
        "default, close them if all sources have an end",
    )
    add("--engine", choices=("auto", "batch", "streaming"), default="auto", help="how to run it")
    add(
        "--conf",
        metavar="K=V",
        type=_typed(_setting),
        action="append",
        default=[],
        help="a Spark setting; give it again for more",
    )
    add("--log-level", default="WARN", help="the level of Spark's log file")
    add(
        "--py-files",
        metavar="FILE",
        action="append",
        default=[],
        help="a module of your own to send to a cluster's workers; give it again for more",
    )
    add("--shards", type=count, help="the number of shards of the key space")
    add("--partitions", type=count, help="the number of partitions of each level")
    add("--quiet", action="store_true", help="show neither progress nor the summary")
    return parser


def _typed(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a type for an argument that reports a `FlowError` of `read` with its message."""

    def convert(text: str) -> T:
        try:
            return read(text)
        except FlowError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def _trigger(text: str) -> str:
    if text != "available" and duration_us(text, "trigger") < 0:
        raise DurationError(f"must not be negative, got {text!r}")
    return text


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise FlowBuildError(f"{text!r} is no setting: write it as spark.some.name=value")
    return name.strip(), value


def _run(flow: Dataflow, options: argparse.Namespace, line: StatusLine | None) -> Summary:
    """Run the flow in a second thread, so that this thread handles signals from the start.

    Spark would replace the signal handlers if it started in the main thread.
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
    """Write this package's log to standard error, unless the flow's module has set up logging."""
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
    """Print a warning about the flow as one line."""
    with warnings.catch_warnings():
        show_default = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, UnusedStepWarning):
                print_message(f"warning: {message}")
            else:
                show_default(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
