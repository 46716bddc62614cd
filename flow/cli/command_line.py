"""Parsers of command lines, options for the fields of a configuration, and error messages.

An option keeps its text; `flow.config.effective_config` reads and checks it as the text of an
environment variable.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn

from flow import __version__
from flow.config.effective_config import EffectiveConfig, MakeRecovery, of_environment, of_options
from flow.config.flow_config import FIELD, ConfigField, Form
from flow.errors import printable

FLOW_FORM = "MODULE:FLOW"


class CommandError(Exception):
    """A mistake in the command line, or in the module that it names; commands print the message."""


class CommandParser(argparse.ArgumentParser):
    """A parser of command lines that raises each mistake as a `CommandError`.

    It opens the null device in the place of standard streams that are closed: Python has none then,
    and another file would get their descriptors.

    Args:
        prog: the command.
        description: the description of the command in ``--help``.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog, description=description, allow_abbrev=False)
        for name in ("stdin", "stdout", "stderr"):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115 - open until the end

    def add_version(self) -> None:
        """Add ``--version``, which prints the version of flow-windows and ends the command."""
        version = f"flow-windows {__version__}"
        text = "print the version of flow-windows, and exit"
        self.add_argument("--version", action="version", version=version, help=text)

    def error(self, message: str) -> NoReturn:
        """Raise a `CommandError` for a mistake that the parser found."""
        raise CommandError(f"{message} (--help says more)")


class FlowParser(CommandParser):
    """A parser of command lines whose first argument names a flow."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog, description)
        self.add_version()
        self.add_argument(
            "flow",
            metavar=FLOW_FORM,
            help="a module, and in it a Dataflow, or a function that returns one, such as "
            "examples.flights:flow or 'examples.flights:make_flow(\"x\", n=3)'",
        )


def whole_number(text: str, least: int = 0) -> int:
    """Read a whole number of at least `least`."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least {least}, got {text!r}"
        )
    return int(text)


count = partial(whole_number, least=1)
"""Read a whole number of at least 1."""


def print_error(message: str) -> None:
    """Write an error message to standard error."""
    print_message(f"error: {message}")


def print_message(text: str) -> None:
    """Write text to standard error, without control characters."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def exit_if_hidden() -> None:
    """End the process with an error message if a file hides a package that commands import.

    A file such as ``recovery.py`` in the working directory hides the installed package of its name.
    """
    for name in ("flow_windowing", "recovery"):
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is None:
            sys.exit(
                f"{spec.origin} hides the package {name!r}, which is installed with flow: rename "
                "that file, or run the command in another folder"
            )


def add_option(parser: argparse.ArgumentParser, field: ConfigField) -> None:
    """Add the option of a field to a parser; the option is ``None`` if it is not given."""
    kind, text = field.type, field.meaning
    if field.default_text:
        text += f" (default: {field.default_text})"
    option: dict[str, Any] = {"metavar": kind.metavar}
    if kind.form is Form.FLAG:
        option = {"action": argparse.BooleanOptionalAction, "default": None}
    elif kind.form is Form.MANY:
        option["action"] = "append"
        text += "; give it again for more"
    elif kind.form is Form.OPTIONAL:
        option |= {"nargs": "?", "const": kind.bare}
        text += f"; without a value, {kind.bare}"
    parser.add_argument(field.option, help=text.replace("`", "").replace("%", "%%"), **option)


def config_of(options: argparse.Namespace, make_recovery: MakeRecovery) -> EffectiveConfig:
    """Return the configuration of a parsed command line and of environment variables.

    Args:
        options: the parsed command line.
        make_recovery: returns the recovery settings for the directory of a checkpoint.

    Raises:
        FlowError: if a value is wrong; the error names the option or the variable.
    """
    given = {name: value for name, value in vars(options).items() if name in FIELD}
    first = of_options(given, make_recovery)
    return EffectiveConfig(first, of_environment(os.environ, make_recovery, first))
