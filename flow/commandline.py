"""``python -m flow.run module:flow``: load a flow, run it, and say in the end what it did.

What the flow prints goes to standard output; progress, the summary and everything that goes wrong
go to standard error. The exit code is 0 when the flow has ended, also when it was asked to by
Ctrl-C or a SIGTERM; 1 when it failed; 2 when the command line, the module or the flow is not fit to
run, so that nothing ran; 130 when it was stopped at once, by a second Ctrl-C.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import logging
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

from flow.dataflow import Dataflow
from flow.durations import duration_us
from flow.errors import DurationError, FlowBuildError, FlowError, UnusedStepWarning, shorten
from flow.progress import (
    Progress,
    StatusLine,
    describe_failure,
    summary_table,
    users_place,
    users_trace,
)
from flow.running import run
from recovery import RecoveryConfig

if TYPE_CHECKING:
    from flow.engine.summary import Summary

T = TypeVar("T")

_TARGET = "MODULE:FLOW"


class CommandError(Exception):
    """A mistake in the command line, or in the module it names; the message is all there is."""


class CommandParser(argparse.ArgumentParser):
    """A parser of command lines that name a flow, whose errors are one message.

    Args:
        prog: the command.
        description: what it does.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog, description=description, allow_abbrev=False)
        self.add_argument(
            "flow",
            metavar=_TARGET,
            help="a module, and in it a Dataflow, or a function that returns one, such as "
            "examples.flights:flow or 'examples.flights:make_flow(\"x\", n=3)'",
        )

    def error(self, message: str) -> NoReturn:
        """Called for every mistake that the parser finds."""
        raise CommandError(f"{message} (--help says more)")


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


def load_flow(text: str) -> Dataflow:
    """Find the flow that ``module:flow`` or ``module:make_flow("x", n=3)`` names.

    The current directory is where modules are looked for first.

    Raises:
        CommandError: when there is no such flow, or the module's own code raised.
    """
    target = Target.parse(text)
    module = _import(target.module)
    if not hasattr(module, target.name):
        flows = [name for name, value in vars(module).items() if isinstance(value, Dataflow)]
        there = f"its flows are: {', '.join(flows)}" if flows else "it has no Dataflow at all"
        raise CommandError(f"module {target.module!r} has no {target.name!r}; {there}")
    found, verb = getattr(module, target.name), "is"
    if target.called or (callable(found) and not isinstance(found, Dataflow)):
        found, verb = _call(found, target), "returned"
    if not isinstance(found, Dataflow):
        raise CommandError(f"{text} {verb} no Dataflow but {type(found).__name__} {shorten(found)}")
    return found


@dataclass(frozen=True)
class Target:
    """Where a flow is to be found.

    Attributes:
        module: the module's name.
        name: the name in it.
        called: whether the name is written as a call.
        args: the call's arguments by position.
        kwargs: the call's arguments by name.
    """

    module: str
    name: str
    called: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``module:name`` or ``module:name(literals)``.

        Raises:
            CommandError: when the text is neither.

        >>> Target.parse("flights:make_flow('x', n=3)")
        Target(module='flights', name='make_flow', called=True, args=('x',), kwargs={'n': 3})
        """
        module, colon, flow = text.partition(":")
        if not all(part.isidentifier() for part in module.split(".")):
            parts = re.split(r"[/\\]", module.removesuffix(".py"))
            named = ".".join(filter(str.isidentifier, parts)) or "examples.flights"
            raise CommandError(
                f"{module!r} is not the name of a module: write {_TARGET}, such as {named}:flow"
            )
        if not colon or not flow.strip():
            raise CommandError(f"{text!r} names no flow: write {_TARGET}, such as {module}:flow")
        try:
            node = ast.parse(flow.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            node = ast.Constant(None)
        match node:
            case ast.Name(id=name):
                return cls(module, name, False, (), {})
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                by_name = {str(one.arg): _literal(one.value) for one in keywords if one.arg}
                if len(by_name) == len(keywords):
                    return cls(module, name, True, tuple(map(_literal, args)), by_name)
        raise CommandError(
            f"{flow!r} is neither a name nor a call: write {_TARGET}, such as {module}:flow "
            f'or {module}:make_flow("x", n=3)'
        )


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise CommandError(
            f"{ast.unparse(node)!r} is not a literal: the arguments of a call can be text in "
            "quotes, numbers, True, False, None, and lists, tuples, dicts and sets of them"
        ) from error


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    with _users_code(f"module {name!r}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise CommandError(f"there is no module {name!r} in {here} or on sys.path") from error


def _call(factory: Any, target: Target) -> Any:
    name = f"{target.module}:{target.name}"
    if not callable(factory):
        raise CommandError(
            f"{name} is {type(factory).__name__} {shorten(factory)}, not a function: "
            "leave the parentheses out"
        )
    try:
        inspect.signature(factory).bind(*target.args, **target.kwargs)
    except (TypeError, ValueError) as error:
        raise CommandError(
            f"{name} cannot be called like that: {error}; give what it takes as literals, "
            f'such as {name}("x", n=3)'
        ) from error
    with _users_code(name):
        return factory(*target.args, **target.kwargs)


@contextlib.contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Turn whatever a user's code raises into a message."""
    try:
        yield
    except CommandError:
        raise
    except FlowError as error:
        raise CommandError(f"{describe_failure(error)}{users_place(error)}") from error
    except SystemExit as error:
        raise CommandError(f"{what} called sys.exit({error.code!r}) while loading") from error
    except Exception as error:
        raise CommandError(f"{what} failed while loading\n{users_trace(error)}") from error


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
        default=True,
        help="close what is open when the input ends, or leave it in the checkpoint",
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
    """Run the flow in a thread, so that this one is free for signals, which Spark takes else."""
    from flow.engine.streaming import StopFlag

    stop = StopFlag()
    arguments = {**vars(options), "conf": dict(options.conf), "stop": stop}
    del arguments["flow"], arguments["quiet"]
    if not options.quiet:
        arguments["on_epoch"] = Progress(flow, line)
    with _log_to_stderr(), stopping_on_signals(stop.ask), ThreadPoolExecutor(1) as pool:
        return pool.submit(run, flow, **arguments).result()


@contextlib.contextmanager
def stopping_on_signals(ask: Callable[[], None]) -> Iterator[None]:
    """Let a first Ctrl-C or SIGTERM ask for a stop, and a second one end the process."""
    asked = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if asked.is_set():
            _say("stopped at once")
            sys.stdout.flush()
            os._exit(130)
        asked.set()
        _say("stopping when the epoch in hand is done; a second Ctrl-C stops at once")
        ask()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [(number, signal.signal(number, on_signal)) for number in signals]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


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
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
