"""Listing of an effective configuration, for people."""

from __future__ import annotations

from collections.abc import Iterator

from flow.config.effective import EffectiveConfig
from flow.config.fields import FIELDS, ConfigField, is_secret
from flow.errors import shorten

HIDDEN = "(hidden)"


def listing(effective: EffectiveConfig) -> Iterator[str]:
    """Yield a line for each field and setting of Spark: name, value, and the value's origin."""
    rows = [
        (field.name, _value(field, effective), effective.origin(field.name))
        for field in FIELDS
        if field.name != "conf" or not effective.conf
    ]
    rows += [
        (f"conf {name}", HIDDEN if is_secret(name) else setting.value, setting.origin)
        for name, setting in sorted(effective.conf.items())
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, text, origin in rows:
        yield f"{name:{widths[0]}}  {text:{widths[1]}}  {origin}"


def _value(field: ConfigField, effective: EffectiveConfig) -> str:
    value = effective.value(field.name)
    if value == field.default:
        return field.default_text.replace("`", "")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else shorten(value)
