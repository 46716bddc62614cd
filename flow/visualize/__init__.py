"""The command ``python -m flow.visualize module:flow``: print a flow's graph as Mermaid or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flow.cli.command_line import CommandError, FlowParser, print_error
from flow.cli.loading import load_flow
from flow.reports.graph import to_json, to_mermaid

__all__ = ["main", "to_json", "to_mermaid"]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the graph of the flow that a command line names.

    Args:
        argv: the arguments; by default, those of this process.

    Returns:
        The exit code: 2 if the command line or the flow's module is wrong.
    """
    parser = FlowParser("python -m flow.visualize", "Print the graph of a flow.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Mermaid")
    try:
        options = parser.parse_args(argv)
        flow = load_flow(options.flow)
    except CommandError as error:
        print_error(str(error))
        return 2
    sys.stdout.write((to_json(flow) if options.json else to_mermaid(flow)) + "\n")
    return 0
