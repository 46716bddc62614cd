"""The command ``python -m flow.run module:flow``: load a flow, run it, and print a summary.

The output of the flow goes to standard output; progress, the summary and errors go to standard
error. An environment variable such as ``FLOW_MASTER`` replaces an option that is not given, see
`flow.config.effective_config`.

The exit code is 0 if the flow ended, also after a first Ctrl-C or SIGTERM; 1 if the flow failed; 2
if the command line, a variable, the module or the flow is wrong, and nothing ran; 130 or 143 if a
second Ctrl-C or SIGTERM ended the process.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from flow.cli.command_line import (
    CommandError,
    FlowParser,
    add_option,
    config_of,
    print_error,
    print_message,
)
from flow.cli.loading import load_flow
from flow.config.config_problems import advice
from flow.config.effective_config import EffectiveConfig, MakeRecovery, listing
from flow.config.flow_config import FIELDS
from flow.config.machine import this_machine
from flow.dataflow import Dataflow
from flow.engine.feed.feed import StopFlag
from flow.errors import FlowBuildError, FlowError, UnusedStepWarning, printable
from flow.execution import run_configured
from flow.process import print_text, stopping_on_signals
from flow.reports.failure_text import describe_failure, users_trace, whole_trace
from flow.reports.progress import Progress, StatusLine

if TYPE_CHECKING:
    from flow.engine.epoch.summary import Summary


def main(make_recovery: MakeRecovery, argv: Sequence[str] | None = None) -> int:
    """Run the flow that a command line names.

    Args:
        make_recovery: returns the recovery settings for the directory of a checkpoint.
        argv: the arguments; by default, those of this process.

    Returns:
        The exit code.
    """
    parser = _parser()
    line = StatusLine.on(sys.stderr)
    with line.below_output() if line else contextlib.nullcontext(), _short_warnings():
        try:
            options = parser.parse_args(argv)
            effective = _config(options, make_recovery)
            if options.show_config:
                _show(effective)
                return 0
            flow = load_flow(options.flow)
            progress = None if options.quiet else Progress(flow, line)
            with _log_to_stderr(options.verbose):
                summary = _run(flow, effective, progress)
        except (CommandError, FlowBuildError) as error:
            print_error(str(error))
            return 2
        except FlowError as error:
            print_error(whole_trace(error) if options.verbose else describe_failure(error))
            return 1
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            trace = whole_trace(error) if options.verbose else users_trace(error)
            print_error(f"the run failed\n{trace}")
            return 1
        print_message(str(summary))
    return 0


def _parser() -> FlowParser:
    """Return the parser of the command's arguments."""
    parser = FlowParser("python -m flow.run", "Run a flow.")
    for field in FIELDS:
        add_option(parser, field)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    text = "show log messages of level DEBUG, and all frames of a failure"
    parser.add_argument("--verbose", action="store_true", help=text)
    parser.add_argument(
        "--show-config",
        action="store_true",
        help="print each value of the configuration with its origin, and advice; run nothing",
    )
    return parser


def _config(options: argparse.Namespace, make_recovery: MakeRecovery) -> EffectiveConfig:
    """Return the effective configuration; an error about a value points to the help."""
    try:
        return config_of(options, make_recovery)
    except FlowError as error:
        raise CommandError(f"{error} (--help says more)") from error


def _show(effective: EffectiveConfig) -> None:
    """Print the configuration, and advice on it."""
    for row in listing(effective):
        print_text(printable(row))
    for text in advice(effective, this_machine()):
        print_text(f"warning: {printable(text)}")


def _run(flow: Dataflow, effective: EffectiveConfig, progress: Progress | None) -> Summary:
    """Run the flow in a second thread, so that this thread handles signals from the start.

    Spark would replace the signal handlers if it started in the main thread.
    """
    stop = StopFlag()
    work = partial(run_configured, flow, effective, stop=stop)
    if progress is not None:
        work = partial(work, on_epoch=progress, on_start=progress.begin_reading)
    with stopping_on_signals(stop.ask), ThreadPoolExecutor(1) as pool:
        if progress is not None:
            progress.begin_spark()
        return pool.submit(work).result()


@contextlib.contextmanager
def _log_to_stderr(is_verbose: bool) -> Iterator[None]:
    """Write this package's log to standard error, unless the flow's module has set up logging."""
    logger = logging.getLogger("flow")
    level, handler = logger.level, logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    if not logger.hasHandlers():
        logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if is_verbose else level or logging.INFO)
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

        def show(message: Warning | str, category: type[Warning], *place: Any, **to: Any) -> None:
            if issubclass(category, UnusedStepWarning):
                print_message(f"warning: {message}")
            else:
                show_default(message, category, *place, **to)

        warnings.showwarning = show
        yield
