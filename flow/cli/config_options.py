"""Options of command lines for the fields of a configuration.

An option keeps its text; `flow.config.effective` reads and checks it as the text of an environment
variable.
"""

from __future__ import annotations

import argparse

from flow.config.fields import ConfigField, Form


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
    else:
        parser.add_argument(field.option, metavar=field.metavar, help=text)
