"""``python -m recovery COMMAND DIR``: look into a checkpoint, check it, set it back or move it.

What was asked for goes to standard output, what is wrong to standard error. The exit code is 0 when
all is well; 1 when `verify` found something wrong; 2 when the command line, the checkpoint or what
was asked of it is not fit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from flow.cli.loading import CommandError as LoadingError
from flow.cli.loading import load_flow
from flow.errors import FlowError, brief, printable
from recovery.tools.exporting import export
from recovery.tools.importing import read_states
from recovery.tools.inspecting import LIMIT, inspect
from recovery.tools.overview import status
from recovery.tools.relocating import relocate
from recovery.tools.rescaling import rescale
from recovery.tools.rewinding import rewind
from recovery.tools.seeding import seed
from recovery.tools.verifying import verify

Command: TypeAlias = Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """A mistake in the command line; the message is all there is."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one message."""

    def error(self, message: str) -> NoReturn:
        """Called for every mistake that the parser finds."""
        raise CommandError(f"{message} (--help says more)")


def main(argv: Sequence[str] | None = None) -> int:
    """Do what a command line asks for.

    Args:
        argv: the arguments; those of this process when left out.

    Returns:
        The exit code.
    """
    try:
        options = _parser().parse_args(argv)
        command: Command = options.command
        return command(options)
    except (CommandError, LoadingError, FlowError) as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _complain(brief(error).splitlines()[0])


def _complain(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 2


def _parser() -> _Parser:
    parser = _Parser(
        "python -m recovery",
        description="Look into a flow's checkpoint, check it, set it back or move it.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for add in _COMMANDS:
        add(commands)
    return parser


def _new(commands: Any, name: str, help_text: str, command: Command) -> _Parser:
    parser: _Parser = commands.add_parser(
        name, help=help_text, description=help_text, allow_abbrev=False
    )
    parser.set_defaults(command=command)
    parser.add_argument("path", metavar="DIR", help="the checkpoint's directory, a path or a URI")
    return parser


def _add_status(commands: Any) -> None:
    parser = _new(commands, "status", "say what a checkpoint holds", _status)
    _add_json(parser)


def _add_inspect(commands: Any) -> None:
    parser = _new(commands, "inspect", "show what a step keeps, key by key", _inspect)
    parser.add_argument("--step", required=True, help="the step's id")
    parser.add_argument("--key", help="the one key to show")
    _add_epoch(parser)
    parser.add_argument(
        "--limit", type=_count, default=LIMIT, help=f"how many keys to show at most, else {LIMIT}"
    )
    _add_json(parser)


def _add_rewind(commands: Any) -> None:
    text = "set a checkpoint back, so that the next run goes on after an earlier epoch"
    parser = _new(commands, "rewind", text, _rewind)
    parser.add_argument("--epoch", type=_number, required=True, help="the epoch to go on after")
    _add_yes(parser)
    _add_json(parser)


def _add_relocate(commands: Any) -> None:
    text = "tell a checkpoint that was moved or copied where it is, so that a run can go on"
    parser = _new(commands, "relocate", text, _relocate)
    _add_yes(parser)
    _add_json(parser)


def _add_verify(commands: Any) -> None:
    text = "look whether all that the next run needs is there and can be read"
    _new(commands, "verify", text, _verify)


def _add_export(commands: Any) -> None:
    parser = _new(commands, "export", "write a step's state to a Parquet file", _export)
    parser.add_argument("file", metavar="FILE", help="the Parquet file to write")
    parser.add_argument("--step", required=True, help="the step's id")
    _add_epoch(parser)


def _add_rescale(commands: Any) -> None:
    text = "move a checkpoint's state to another layout, with which the next run goes on"
    parser = _new(commands, "rescale", text, _rescale)
    parser.add_argument("--shards", type=_count, help="how many slices the key space is to have")
    parser.add_argument(
        "--partitions", type=_count, help="how many partitions each level is to have"
    )


def _add_seed(commands: Any) -> None:
    text = "make a checkpoint for a flow that starts with state made elsewhere"
    parser = _new(commands, "seed", text, _seed)
    parser.add_argument("flow", metavar="MODULE:FLOW", help="the flow")
    parser.add_argument("file", metavar="FILE", help="a Parquet file with columns key and state")
    parser.add_argument("--step", required=True, help="the step whose state it is")
    parser.add_argument(
        "--trust", action="store_true", help="read the pickled snapshots of an export of your own"
    )
    parser.add_argument("--shards", type=_count, help="how many slices the key space is to have")
    parser.add_argument(
        "--partitions", type=_count, help="how many partitions each level is to have"
    )


def _add_epoch(parser: _Parser) -> None:
    text = "the epoch at whose end to look, one that is kept; else the newest"
    parser.add_argument("--epoch", type=_number, help=text)


def _add_yes(parser: _Parser) -> None:
    text = "do it; else only say what would be done"
    parser.add_argument("--yes", action="store_true", help=text)


def _add_json(parser: _Parser) -> None:
    parser.add_argument("--json", action="store_true", help="answer in JSON, for programs")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be a whole number, got {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number of at least 1, got {text!r}")
    return int(text)


def _status(options: argparse.Namespace) -> int:
    return _answer(status(options.path), options)


def _inspect(options: argparse.Namespace) -> int:
    found = inspect(
        options.path, options.step, key=options.key, epoch=options.epoch, limit=options.limit
    )
    return _answer(found, options)


def _rewind(options: argparse.Namespace) -> int:
    return _answer(rewind(options.path, options.epoch, yes=options.yes), options)


def _relocate(options: argparse.Namespace) -> int:
    return _answer(relocate(options.path, yes=options.yes), options)


def _verify(options: argparse.Namespace) -> int:
    problems = verify(options.path)
    _say("\n".join(map(str, problems)) or f"{options.path} is whole")
    return 1 if problems else 0


def _export(options: argparse.Namespace) -> int:
    _say(str(export(options.path, options.step, options.file, epoch=options.epoch)))
    return 0


def _rescale(options: argparse.Namespace) -> int:
    _say(str(rescale(options.path, shards=options.shards, partitions=options.partitions)))
    return 0


def _seed(options: argparse.Namespace) -> int:
    states = {options.step: read_states(options.file, trust=options.trust)}
    layout = {"shards": options.shards, "partitions": options.partitions}
    keys = seed(options.path, load_flow(options.flow), states, **layout)
    _say(f"{options.path}: step {options.step} starts with {keys:,} keys")
    return 0


def _answer(found: Any, options: argparse.Namespace) -> int:
    as_json = options.json
    _say(json.dumps(found.to_json(), indent=1) if as_json else str(found))
    return 0


_COMMANDS = (
    _add_status,
    _add_inspect,
    _add_rewind,
    _add_relocate,
    _add_verify,
    _add_rescale,
    _add_export,
    _add_seed,
)


def _say(text: str) -> None:
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()
