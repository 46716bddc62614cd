"""The values of the settings of a run, and the places that set them.

The places, in the order of their precedence: arguments of `run`, or options of the command line;
environment variables; the program's `FlowConfig`; defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from flow.config.flow_config import (
    FIELD,
    FIELDS,
    OWN_FIELD,
    ConfigField,
    FlowConfig,
    is_secret,
    read_setting,
)
from flow.errors import FlowBuildError, FlowError, shorten

if TYPE_CHECKING:
    from flow.engine.checkpoint.identity import Recovery

MakeRecovery: TypeAlias = "Callable[[str], Recovery]"
"""A function that returns the recovery settings for the directory of a checkpoint."""

DEFAULT = "default"
"""The origin of a value that no place sets."""
HIDDEN = "(hidden)"
CONF = "conf "
"""The prefix of the name of a setting of Spark among the settings of a run."""


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


Layer: TypeAlias = Mapping[str, Setting]
"""The settings of one place: by field, and of Spark by `CONF` and the setting's name."""


class EffectiveConfig:
    """Configuration of a run, from all places that set values.

    Args:
        layers: the places, that of the highest precedence first.

    Attributes:
        settings: the settings of all places, by name as in a `Layer`.

    Raises:
        FlowBuildError: if a file to send to workers is missing.
    """

    def __init__(self, *layers: Layer) -> None:
        self.settings: dict[str, Setting] = {}
        for layer in reversed(layers):
            self.settings.update(layer)
        for file in self.value("py_files"):
            if not os.path.isfile(file):
                raise FlowBuildError(f"{self.origin('py_files')}: there is no file {file!r}")

    @property
    def conf(self) -> dict[str, Setting]:
        """The settings of Spark by name, without those that have a field."""
        found = sorted(name for name in self.settings if name.startswith(CONF))
        return {name.removeprefix(CONF): self.settings[name] for name in found}

    def value(self, name: str) -> Any:
        """Return the value of a field."""
        if name == "conf":
            return {key: setting.value for key, setting in self.conf.items()}
        setting = self.settings.get(name)
        return FIELD[name].default if setting is None else setting.value

    def origin(self, name: str) -> str:
        """Return the origin of a field's value; of `conf`, the origins of all settings."""
        if name == "conf":
            return ", ".join(setting.origin for setting in self.conf.values()) or DEFAULT
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


def of_arguments(given: Mapping[str, object], owner: str = "run") -> Layer:
    """Return the settings of arguments; ``None`` stands for an argument that is not given.

    Args:
        given: the arguments, fields of `FlowConfig`.
        owner: the name of the function or class that takes them.

    Raises:
        FlowBuildError: if a value is wrong.
    """
    places = {name: f"{owner}: {name}" for name, value in given.items() if value is not None}
    return _layer(
        {
            name: Setting(FIELD[name].type.check(place, given[name]), place)
            for name, place in places.items()
        }
    )


def of_program(config: FlowConfig) -> Layer:
    """Return the settings of a program's `FlowConfig` that differ from the defaults."""
    return of_arguments(config.given(), "FlowConfig")


def of_environment(
    environ: Mapping[str, str], make_recovery: MakeRecovery, above: Collection[str] = ()
) -> Layer:
    """Return the settings of environment variables; an empty variable sets nothing.

    Args:
        environ: the variables.
        make_recovery: returns the recovery settings for the directory in ``FLOW_RECOVERY``.
        above: the names that a place of a higher precedence sets; a variable that has no effect is
            not read.

    Raises:
        FlowBuildError: if a value is wrong.
    """
    return _layer(
        {
            field.name: _of_text(field, field.variable, text, make_recovery)
            for field in FIELDS
            if field.name not in above and (text := environ.get(field.variable))
        }
    )


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
    return _layer(
        {
            name: _of_text(FIELD[name], FIELD[name].option, text, make_recovery)
            for name, text in given.items()
            if text is not None and text != []
        }
    )


def _of_text(field: ConfigField, place: str, text: Any, make_recovery: MakeRecovery) -> Setting:
    """Return the setting of a field that is given as text, a list of texts or a flag."""
    value = field.type.read(place, text) if isinstance(text, str) else text
    if field.name == "recovery":
        try:
            return Setting(make_recovery(text), place)
        except FlowError as error:
            raise FlowBuildError(f"{place}={text!r}: {error}") from error
    if field.name == "conf" and isinstance(text, list):
        value = dict(read_setting(place, part) for part in text)
    return Setting(field.type.check(place, value), place)


def _layer(settings: dict[str, Setting]) -> Layer:
    """Return the settings of a place; settings of Spark that stand for a field become the field.

    Raises:
        FlowBuildError: if the place sets a field and the setting of Spark to different values.
    """
    given = settings.pop("conf", Setting({}, ""))
    for key, value in given.value.items():
        setting = Setting(value, f"{given.origin} {key}")
        if key not in OWN_FIELD:
            settings[CONF + key] = setting
            continue
        field = FIELD[OWN_FIELD[key]]
        own = field.type.check(setting.origin, field.type.read(setting.origin, value))
        other = settings.setdefault(field.name, replace(setting, value=own))
        if other.value != own:
            raise FlowBuildError(
                f"{other} contradicts {replace(setting, value=own)}: give one of the two"
            )
    return settings


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
        (field.name, _shown(field, effective), effective.origin(field.name))
        for field in FIELDS
        if field.name != "conf" or not effective.conf
    ]
    rows += [
        (CONF + name, HIDDEN if is_secret(name) else setting.value, setting.origin)
        for name, setting in effective.conf.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, text, origin in rows:
        yield f"{name:{widths[0]}}  {text:{widths[1]}}  {origin}"


def _shown(field: ConfigField, effective: EffectiveConfig) -> str:
    value = effective.value(field.name)
    if value == field.default:
        return field.default_text.replace("`", "")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else shorten(value)
