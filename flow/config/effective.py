"""Effective configuration of a run: the value of each field, and the place that set it.

The places, in the order of their precedence: arguments of `run`, or options of the command line;
environment variables; the program's `FlowConfig`; defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from flow.config.flow_config import (
    FIELD,
    FIELDS,
    OWN_FIELD,
    ConfigField,
    FlowConfig,
    Form,
    is_secret,
    read_setting,
)
from flow.engine.checkpoint.recovery import Recovery
from flow.errors import FlowBuildError, FlowError, shorten

DEFAULT = "default"
"""The origin of a value that no place sets."""
HIDDEN = "(hidden)"

MakeRecovery: TypeAlias = Callable[[str], Recovery]
"""A function that returns the recovery settings for the directory of a checkpoint."""


@dataclass(frozen=True)
class Setting:
    """A value and its origin.

    Attributes:
        value: the value, checked.
        origin: the place that set the value, as errors and listings name it.
    """

    value: Any
    origin: str

    def __str__(self) -> str:
        return f"{self.origin}={self.value!r}"


@dataclass(frozen=True)
class Layer:
    """The values that one place sets.

    Attributes:
        fields: the settings by field, except `conf`.
        conf: the settings of Spark by name.
    """

    fields: Mapping[str, Setting]
    conf: Mapping[str, Setting]


class EffectiveConfig:
    """Configuration of a run, from all places that set values.

    Args:
        layers: the places, that of the highest precedence first.

    Attributes:
        settings: the settings of the fields that some place sets, by field, except `conf`.
        conf: the settings of Spark by name.

    Raises:
        FlowBuildError: if a file to send to workers is missing.
    """

    def __init__(self, *layers: Layer) -> None:
        self.settings: dict[str, Setting] = {}
        self.conf: dict[str, Setting] = {}
        for layer in reversed(layers):
            self.settings.update(layer.fields)
            self.conf.update(layer.conf)
        for file in self.value("py_files"):
            if not os.path.isfile(file):
                raise FlowBuildError(f"{self.origin('py_files')}: there is no file {file!r}")

    def value(self, name: str) -> Any:
        """Return the value of a field."""
        if name == "conf":
            return {key: setting.value for key, setting in self.conf.items()}
        setting = self.settings.get(name)
        return FIELD[name].default if setting is None else setting.value

    def origin(self, name: str) -> str:
        """Return the origin of a field's value; of `conf`, the origins of all settings."""
        if name == "conf":
            origins = dict.fromkeys(setting.origin for _, setting in sorted(self.conf.items()))
            return ", ".join(origins) or DEFAULT
        setting = self.settings.get(name)
        return DEFAULT if setting is None else setting.origin

    def config(self) -> FlowConfig:
        """Return all values as a `FlowConfig`."""
        return FlowConfig(**{field.name: self.value(field.name) for field in FIELDS})

    def spark_conf(self) -> dict[str, str]:
        """Return the settings of Spark for a new session, also those of fields, except master."""
        own = {
            spark: str(self.value(name))
            for spark, name in OWN_FIELD.items()
            if name != "master" and self.value(name) is not None
        }
        return {**self.value("conf"), **own}

    def for_new_session(self) -> list[Setting]:
        """Return the settings that only a new session takes."""
        own = [self.settings.get(field.name) for field in FIELDS if field.new_session]
        return [setting for setting in (*own, *self.conf.values()) if setting is not None]


def of_arguments(given: Mapping[str, object], function: str = "run") -> Layer:
    """Return the settings of the arguments of `run`; ``None`` stands for an argument not given.

    Args:
        given: the arguments.
        function: the name of the function that takes them.

    Raises:
        FlowBuildError: if a value is wrong.
    """
    return _of_values(given, f"{function}: ")


def of_program(config: FlowConfig) -> Layer:
    """Return the settings of a program's `FlowConfig` that differ from the defaults."""
    return _of_values(config.given(), "FlowConfig: ")


def of_environment(
    environ: Mapping[str, str],
    make_recovery: MakeRecovery,
    above: Layer | None = None,
) -> Layer:
    """Return the settings of environment variables; an empty variable sets nothing.

    Args:
        environ: the variables.
        make_recovery: returns the recovery settings for the directory in ``FLOW_RECOVERY``.
        above: a place of a higher precedence; a variable that has no effect is not read.

    Raises:
        FlowBuildError: if a value is wrong.
    """
    texts = {field.name: environ.get(field.variable, "") for field in FIELDS}
    covered = () if above is None else above.fields
    given = {name: text for name, text in texts.items() if text and name not in covered}
    return _of_texts(given, {field.name: field.variable for field in FIELDS}, make_recovery)


def of_options(
    given: Mapping[str, str | bool | Sequence[str] | None], make_recovery: MakeRecovery
) -> Layer:
    """Return the settings of options of a command line.

    Args:
        given: by field, the text of an option, a list of texts, or True and False of a flag;
            ``None`` and an empty list stand for an option not given.
        make_recovery: returns the recovery settings for the directory in ``--recovery``.

    Raises:
        FlowBuildError: if a value is wrong.
    """
    options = {field.name: field.option for field in FIELDS}
    present = {name: text for name, text in given.items() if text is not None and text != []}
    return _of_texts(present, options, make_recovery)


def _of_values(given: Mapping[str, object], prefix: str) -> Layer:
    checked = {
        name: Setting(FIELD[name].check(f"{prefix}{name}", value), f"{prefix}{name}")
        for name, value in given.items()
        if value is not None
    }
    return _layer(checked)


def _of_texts(
    given: Mapping[str, Any], names: Mapping[str, str], make_recovery: MakeRecovery
) -> Layer:
    """Return the settings in texts.

    Args:
        given: by field, a text, a list of texts, or True and False.
        names: the name of each field's place.
        make_recovery: returns the recovery settings for a directory.
    """
    settings = {
        name: Setting(_read(name, names[name], text, make_recovery), names[name])
        for name, text in given.items()
    }
    return _layer(settings)


def _read(name: str, what: str, text: Any, make_recovery: MakeRecovery) -> Any:
    """Return the checked value of a field that is given as text."""
    field = FIELD[name]
    if name == "recovery":
        try:
            return make_recovery(text)
        except FlowError as error:
            raise FlowBuildError(f"{what}={text!r}: {error}") from error
    if isinstance(text, str):
        return field.check(what, field.read(what, text))
    if field.form is Form.MANY and name == "conf":
        return dict(read_setting(what, part) for part in text)
    return field.check(what, text)


def _layer(settings: Mapping[str, Setting]) -> Layer:
    """Return the settings of a place; settings of Spark that stand for a field become the field.

    Raises:
        FlowBuildError: if the place sets a field and the setting of Spark to different values.
    """
    fields = {name: setting for name, setting in settings.items() if name != "conf"}
    given = settings.get("conf", Setting({}, ""))
    conf: dict[str, Setting] = {}
    for key, value in given.value.items():
        setting = Setting(value, f"{given.origin} {key}")
        if key not in OWN_FIELD:
            conf[key] = setting
            continue
        field = FIELD[OWN_FIELD[key]]
        read = replace(
            setting, value=field.check(setting.origin, field.read(setting.origin, value))
        )
        other = fields.setdefault(field.name, read)
        if other.value != read.value:
            raise FlowBuildError(f"{other} contradicts {read}: give one of the two")
    return Layer(fields, conf)


def recovery_of_program(config: FlowConfig) -> MakeRecovery:
    """Return a function that moves the recovery settings of a program to another directory."""

    def moved(path: str) -> Recovery:
        if config.recovery is None:
            raise FlowBuildError(
                "run has no RecoveryConfig whose directory this could be: pass "
                "config=FlowConfig(recovery=RecoveryConfig(...)), unset the variable, or start the "
                "flow with python -m flow.run"
            )
        return replace(config.recovery, path=path)  # type: ignore[type-var]

    return moved


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
