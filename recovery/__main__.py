"""The commands ``python -m recovery COMMAND DIR``: show, check and change checkpoints.

Results go to standard output, errors to standard error. The exit code is 0 on success; 1 if
`verify` found problems; 2 if the command line or the checkpoint is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeAlias

from flow.cli.command_line import (
    FLOW_FORM,
    CommandError,
    CommandParser,
    count,
    print_error,
    whole_number,
)
from flow.cli.loading import load_flow
from flow.config.flow_config import DEFAULT_WEB
from flow.dataflow import Dataflow
from flow.errors import FlowError, brief, package_of_extra, printable
from flow.process import print_text
from recovery import export, inspect, relocate, rescale, rewind, seed, status, verify
from recovery.tools.exporting import read_states
from recovery.tools.inspecting import LIMIT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of a command line.

    Args:
        argv: the arguments; by default, those of this process.

    Returns:
        The exit code.
    """
    try:
        options = _parser().parse_args(argv)
        result = options.command(options)  # The result to print, or an exit code.
        return result if isinstance(result, int) else _print_result(result, options)
    except (CommandError, FlowError) as error:
        print_error(str(error))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print_error(brief(error).splitlines()[0])
    return 2


Option: TypeAlias = tuple[str, dict[str, Any]]
"""The name of an argument, and the settings of its parser."""


def _option(name: str, text: str, **settings: Any) -> Option:
    return name, {"help": text, **settings}


_STEP = _option("--step", "the step's id", required=True)
_EPOCH = _option(
    "--epoch",
    "a finished epoch of the checkpoint, at whose end to read the state; by default the last",
    type=whole_number,
)
_LIMIT = _option(
    "--limit",
    f"the greatest number of keys to show; by default {LIMIT}",
    type=count,
    default=LIMIT,
)
_SHARDS = _option("--shards", "the number of shards of the key space", type=count)
_PARTITIONS = _option("--partitions", "the number of partitions after each shuffle", type=count)
_YES = _option("--yes", "make the changes; by default they are only shown", action="store_true")
_JSON = _option("--json", "print JSON, for programs", action="store_true")


def _parser() -> CommandParser:
    parser = CommandParser("python -m recovery", "Show, check and change a flow's checkpoint.")
    parser.add_version()
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_readers(partial(_add_tool, commands))
    _add_changes(partial(_add_tool, commands))
    return parser


def _add_tool(
    commands: Any, name: str, text: str, tool: Callable[..., object], *options: Option
) -> None:
    """Add the parser of a tool, which gets the directory and the options, except ``--json``."""
    parser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("path", metavar="DIR", help="the checkpoint's directory, a path or a URI")
    for option, settings in options:
        parser.add_argument(option, **settings)
    names = [option.removeprefix("--") for option, _ in options if option != "--json"]
    parser.set_defaults(
        command=lambda given: tool(given.path, **{each: getattr(given, each) for each in names})
    )


def _add_readers(add: Callable[..., None]) -> None:
    """Add the tools that only read a checkpoint."""
    brief = _option(
        "--brief", "leave out the sizes of steps, which need Spark", action="store_true"
    )
    add("status", "show the contents of a checkpoint", status, brief, _JSON)
    key = _option("--key", "the one key to show")
    text = "show the state of a step, or a table, key by key"
    of_flow = (
        "the flow, for results of your own aggregates; by default their accumulators are shown"
    )
    flow = _option("--flow", of_flow, metavar=FLOW_FORM, type=load_flow)
    add("inspect", text, inspect, _STEP, key, _EPOCH, _LIMIT, flow, _JSON)
    text = "serve the page of a run that has ended or crashed, on its checkpoint"
    place = f"the address, HOST:PORT; by default {DEFAULT_WEB}, and port 0 is a free one"
    address = _option("--address", place, default=DEFAULT_WEB)
    shown = "show keys, the contents of windows and other state"
    add("web", text, _web, address, _option("--values", shown, action="store_true"), flow)
    add("verify", "check that all files that the next run needs exist and can be read", _verify)
    file = _option("file", "the Parquet file to write", metavar="FILE")
    text = "write the state of a step, or a table, to a Parquet file"
    add("export", text, export, file, _STEP, _EPOCH, flow)


def _add_changes(add: Callable[..., None]) -> None:
    """Add the tools that change or make a checkpoint."""
    text = "set a checkpoint back, so that the next run continues after an earlier epoch"
    after = "the epoch after which the next run continues"
    epoch = _option("--epoch", after, type=whole_number, required=True)
    add("rewind", text, rewind, epoch, _YES, _JSON)
    text = "rewrite the paths in a checkpoint that was moved or copied, so that a run can continue"
    add("relocate", text, relocate, _YES, _JSON)
    text = "move a checkpoint's state to another layout, with which the next run continues"
    add("rescale", text, rescale, _SHARDS, _PARTITIONS)
    text = "make a checkpoint for a flow that starts with state made elsewhere"
    flow = _option("flow", "the flow", metavar=FLOW_FORM)
    file = _option("file", "a Parquet file with columns key and state", metavar="FILE")
    trusted = "read the pickled snapshots of an export of your own"
    trust = _option("--trust", trusted, action="store_true")
    add("seed", text, _seed, flow, file, _STEP, trust, _SHARDS, _PARTITIONS)


def _web(path: str, *, address: str, values: bool, flow: Dataflow | None) -> int:
    with package_of_extra("web", "prometheus-client", "the live page"):
        from recovery.checkpoint_page import serve
    serve(path, address, values, _print, flow=flow)
    return 0


def _verify(path: str) -> int:
    problems = verify(path)
    _print("\n".join(map(str, problems)) or f"{path} is whole")
    return 1 if problems else 0


def _seed(path: str, *, flow: str, file: str, step: str, trust: bool, **layout: Any) -> str:
    keys = seed(path, load_flow(flow), {step: read_states(file, trust=trust)}, **layout)
    return f"{path}: step {step} starts with {keys:,} keys"


def _print_result(result: Any, options: argparse.Namespace) -> int:
    is_json = getattr(options, "json", False)
    _print(json.dumps(asdict(result), indent=1) if is_json else str(result))
    return 0


def _print(text: str) -> None:
    print_text(printable(text))


if __name__ == "__main__":
    sys.exit(main())
