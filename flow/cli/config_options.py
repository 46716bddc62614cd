"""Options of command lines for the fields of a configuration.

An option keeps its text; `flow.config.effective` reads and checks it as the text of an environment
variable.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from flow.config.effective import EffectiveConfig, of_environment, of_options
from flow.config.flow_config import FIELD, ConfigField, Form
from recovery import RecoveryConfig


def add_option(parser: argparse.ArgumentParser, field: ConfigField) -> None:
    """Add the option of a field to a parser; the option is ``None`` if it is not given."""
    text = field.meaning.replace("`", "").replace("%", "%%")
    if field.default_text:
        text += f" (default: {field.default_text.replace('`', '')})"
    if field.form is Form.FLAG:
        action = argparse.BooleanOptionalAction
        parser.add_argument(field.option, action=action, default=None, help=text)
    elif field.form is Form.MANY:
        text += "; give it again for more"
        parser.add_argument(field.option, metavar=field.metavar, action="append", help=text)
    elif field.form is Form.OPTIONAL:
        text += f"; without a value, {field.bare}"
        option: dict[str, Any] = {"metavar": field.metavar, "nargs": "?", "const": field.bare}
        parser.add_argument(field.option, help=text, **option)
    else:
        parser.add_argument(field.option, metavar=field.metavar, help=text)


def config_of(options: argparse.Namespace) -> EffectiveConfig:
    """Return the configuration of a parsed command line and of environment variables.

    Raises:
        FlowError: if a value is wrong; the error names the option or the variable.
    """
    given = {name: value for name, value in vars(options).items() if name in FIELD}
    first = of_options(given, RecoveryConfig)
    return EffectiveConfig(first, of_environment(os.environ, RecoveryConfig, first))
