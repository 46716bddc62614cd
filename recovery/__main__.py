"""The commands ``python -m recovery COMMAND DIR``: show, check and change checkpoints.

Results go to standard output, errors to standard error. The exit code is 0 on success; 1 if
`verify` found problems; 2 if the command line or the checkpoint is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from flow.cli.command_line import CommandError, CommandParser, count, print_error, whole_number
from flow.cli.loading import load_flow
from flow.config.flow_config import DEFAULT_WEB
from flow.errors import FlowError, brief, package_of_extra, printable
from flow.process import print_text
from recovery import export, inspect, relocate, rescale, rewind, seed, status, verify
from recovery.tools.exporting import read_states
from recovery.tools.inspecting import LIMIT

Command: TypeAlias = Callable[[argparse.Namespace], object]
"""A function that runs a tool, and returns its result to print, or an exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of a command line.

    Args:
        argv: the arguments; by default, those of this process.

    Returns:
        The exit code.
    """
    try:
        options = _parser().parse_args(argv)
        command: Command = options.command
        result = command(options)
        return result if isinstance(result, int) else _print_result(result, options)
    except (CommandError, FlowError) as error:
        print_error(str(error))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print_error(brief(error).splitlines()[0])
    return 2


class _ToolParser(CommandParser):
    """A parser of the arguments of one tool, the first of which is the checkpoint."""

    def __init__(self, prog: str, description: str, command: Command) -> None:
        super().__init__(prog, description)
        self.set_defaults(command=command)
        text = "the checkpoint's directory, a path or a URI"
        self.add_argument("path", metavar="DIR", help=text)


def _parser() -> CommandParser:
    parser = CommandParser("python -m recovery", "Show, check and change a flow's checkpoint.")
    parser.add_version()
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_ToolParser)
    for add in (
        _add_status,
        _add_inspect,
        _add_web,
        _add_rewind,
        _add_relocate,
        _add_verify,
        _add_rescale,
        _add_export,
        _add_seed,
    ):
        add(commands)
    return parser


def _new(commands: Any, name: str, text: str, command: Command) -> CommandParser:
    parser: CommandParser = commands.add_parser(name, help=text, description=text, command=command)
    return parser


def _add_status(commands: Any) -> None:
    text = "show the contents of a checkpoint"
    _add_json(_new(commands, "status", text, lambda options: status(options.path)))


def _add_inspect(commands: Any) -> None:
    parser = _new(commands, "inspect", "show the state of a step, or a table, key by key", _inspect)
    _add_step(parser)
    parser.add_argument("--key", help="the one key to show")
    _add_epoch(parser)
    text = f"the greatest number of keys to show; by default {LIMIT}"
    parser.add_argument("--limit", type=count, default=LIMIT, help=text)
    _add_json(parser)


def _add_web(commands: Any) -> None:
    text = "serve the page of a run that has ended or crashed, on its checkpoint"
    parser = _new(commands, "web", text, _web)
    text = f"the address, HOST:PORT; by default {DEFAULT_WEB}, and port 0 is a free one"
    parser.add_argument("--address", default=DEFAULT_WEB, help=text)
    text = "show keys, the contents of windows and other state"
    parser.add_argument("--values", action="store_true", help=text)


def _add_rewind(commands: Any) -> None:
    text = "set a checkpoint back, so that the next run goes on after an earlier epoch"
    parser = _new(commands, "rewind", text, _rewind)
    text = "the epoch after which the next run goes on"
    parser.add_argument("--epoch", type=whole_number, required=True, help=text)
    _add_yes(parser)
    _add_json(parser)


def _add_relocate(commands: Any) -> None:
    text = "rewrite the paths in a checkpoint that was moved or copied, so that a run can go on"
    parser = _new(commands, "relocate", text, _relocate)
    _add_yes(parser)
    _add_json(parser)


def _add_verify(commands: Any) -> None:
    text = "check that all files that the next run needs exist and can be read"
    _new(commands, "verify", text, _verify)


def _add_export(commands: Any) -> None:
    text = "write the state of a step, or a table, to a Parquet file"
    parser = _new(commands, "export", text, _export)
    parser.add_argument("file", metavar="FILE", help="the Parquet file to write")
    _add_step(parser)
    _add_epoch(parser)


def _add_rescale(commands: Any) -> None:
    text = "move a checkpoint's state to another layout, with which the next run goes on"
    _add_layout(_new(commands, "rescale", text, _rescale))


def _add_seed(commands: Any) -> None:
    text = "make a checkpoint for a flow that starts with state made elsewhere"
    parser = _new(commands, "seed", text, _seed)
    parser.add_argument("flow", metavar="MODULE:FLOW", help="the flow")
    parser.add_argument("file", metavar="FILE", help="a Parquet file with columns key and state")
    _add_step(parser)
    text = "read the pickled snapshots of an export of your own"
    parser.add_argument("--trust", action="store_true", help=text)
    _add_layout(parser)


def _add_step(parser: CommandParser) -> None:
    parser.add_argument("--step", required=True, help="the step's id")


def _add_epoch(parser: CommandParser) -> None:
    text = "a finished epoch of the checkpoint, at whose end to read the state; by default the last"
    parser.add_argument("--epoch", type=whole_number, help=text)


def _add_layout(parser: CommandParser) -> None:
    parser.add_argument("--shards", type=count, help="the number of shards of the key space")
    parser.add_argument("--partitions", type=count, help="the number of partitions of each level")


def _add_yes(parser: CommandParser) -> None:
    text = "make the changes; by default they are only shown"
    parser.add_argument("--yes", action="store_true", help=text)


def _add_json(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _inspect(options: argparse.Namespace) -> object:
    return inspect(
        options.path, options.step, key=options.key, epoch=options.epoch, limit=options.limit
    )


def _web(options: argparse.Namespace) -> int:
    with package_of_extra("web", "prometheus-client", "the live page"):
        from recovery.checkpoint_page import serve
    serve(options.path, options.address, options.values, _print)
    return 0


def _rewind(options: argparse.Namespace) -> object:
    return rewind(options.path, options.epoch, yes=options.yes)


def _relocate(options: argparse.Namespace) -> object:
    return relocate(options.path, yes=options.yes)


def _verify(options: argparse.Namespace) -> int:
    problems = verify(options.path)
    _print("\n".join(map(str, problems)) or f"{options.path} is whole")
    return 1 if problems else 0


def _export(options: argparse.Namespace) -> object:
    return export(options.path, options.step, options.file, epoch=options.epoch)


def _rescale(options: argparse.Namespace) -> object:
    return rescale(options.path, shards=options.shards, partitions=options.partitions)


def _seed(options: argparse.Namespace) -> str:
    states = {options.step: read_states(options.file, trust=options.trust)}
    layout = {"shards": options.shards, "partitions": options.partitions}
    keys = seed(options.path, load_flow(options.flow), states, **layout)
    return f"{options.path}: step {options.step} starts with {keys:,} keys"


def _print_result(result: Any, options: argparse.Namespace) -> int:
    is_json = getattr(options, "json", False)
    _print(json.dumps(result.to_json(), indent=1) if is_json else str(result))
    return 0


def _print(text: str) -> None:
    print_text(printable(text))


if __name__ == "__main__":
    sys.exit(main())
