"""`FlowConfig`, the configuration of a run, and its fields: name, meaning, check, and form as text.

`FIELDS` is the one table that `FlowConfig`, environment variables, the options of
``python -m flow.run`` and the page ``docs/reference/configuration.md`` agree with.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from flow.checks import check_choice, check_flag, check_whole, wrong_type
from flow.config.machine import size_bytes
from flow.durations import Duration, natural_us
from flow.engine.checkpoint.recovery import Recovery
from flow.engine.packets.shards import DEFAULT_SHARDS
from flow.engine.spark.session.session_settings import LOCAL_DRIVER_MEMORY, LOG_LEVELS
from flow.errors import FlowBuildError, FlowError, FlowTypeError, shorten

if TYPE_CHECKING:
    from flow.engine.checkpoint.recovery import Recovery


EngineName: TypeAlias = Literal["auto", "batch", "streaming"]
Trigger: TypeAlias = Duration | Literal["available"]

_SECRET = re.compile(r"secret|password|token|credential|access[.]?key", re.IGNORECASE)
"""Names of Spark settings whose values are not shown, as on Spark's web page."""

LEAST_DRIVER_MEMORY = 512 << 20
"""The smallest heap in bytes; Spark does not start with less than 450 MiB."""


DEFAULT_WEB = "127.0.0.1:4041"
"""The address of ``--web`` without a value; Spark's own page is at port 4040."""

_FORM = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


class WebAddress(NamedTuple):
    """The address on which the live page listens.

    Attributes:
        host: a name or an IP address, without brackets.
        port: the port; 0 for a free one.
    """

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches the address."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def web_address(text: str) -> WebAddress:
    """Return the address in a text ``HOST:PORT``.

    >>> web_address("[::1]:4041")
    WebAddress(host='::1', port=4041)

    Raises:
        FlowBuildError: if the text has another form.
    """
    found = _FORM.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise FlowBuildError(
            f"an address must be HOST:PORT, such as {DEFAULT_WEB!r}, with a port up to 65535; "
            f"got {shorten(text)}"
        )
    return WebAddress(found["host"].strip("[]"), int(found["port"]))


def check_web_address(what: str, value: object) -> str:
    """Return the text of an address.

    Raises:
        FlowTypeError: if the value is no text.
        FlowBuildError: if the text is no address.
    """
    if not isinstance(value, str):
        raise wrong_type(f"{what} must be text", value)
    try:
        web_address(value)
    except FlowBuildError as error:
        raise FlowBuildError(f"{what}: {error}") from None
    return value


def missing_package(error: ModuleNotFoundError) -> FlowBuildError:
    """Return the error for a live page whose packages are not installed."""
    return FlowBuildError(
        f"web: the live page needs the package {error.name}: pip install 'flow-windows[web]'"
    )


class Form(Enum):
    """The form of a field on a command line."""

    ONE = "an option with a value"
    MANY = "an option that may be given again"
    FLAG = "an option without a value, and its opposite"
    OPTIONAL = "an option whose value may be left out"


@dataclass(frozen=True)
class ConfigField:
    """A field of `FlowConfig`.

    Attributes:
        name: the field's name, also that of an argument of `run`.
        meaning: the meaning, as help of the option and as a row of the documentation.
        check: returns a value of a program in its final form, and raises a `FlowBuildError` that
            begins with the given name.
        read: reads a value from the text of an environment variable or an option, without the
            check.
        default: the value without any setting.
        default_text: the default as the documentation shows it.
        form: the form of the option.
        metavar: the name of the option's value.
        new_session: True if the field configures the Spark session, and so only a new one.
        spark: the setting of Spark that the field stands for, if any.
        bare: the text of an option that is given without its value.
    """

    name: str
    meaning: str
    check: Callable[[str, Any], Any]
    read: Callable[[str, str], Any]
    default: Any = None
    default_text: str = ""
    form: Form = Form.ONE
    metavar: str | None = None
    new_session: bool = False
    spark: str | None = None
    bare: str | None = None

    @property
    def variable(self) -> str:
        """The environment variable, such as ``FLOW_LOG_LEVEL``."""
        return f"FLOW_{self.name.upper()}"

    @property
    def option(self) -> str:
        """The option of the command line, such as ``--log-level``."""
        return f"--{self.name.replace('_', '-')}"


def is_secret(name: str) -> bool:
    """Return True if the value of a setting of Spark must not be shown.

    >>> is_secret("spark.hadoop.fs.s3a.secret.key"), is_secret("spark.local.dir")
    (True, False)
    """
    return _SECRET.search(name) is not None


def check_text(what: str, value: object) -> str:
    """Return text that is not empty.

    Raises:
        FlowTypeError: if the value is no text.
        FlowBuildError: if the text is empty.
    """
    if not isinstance(value, str):
        raise wrong_type(f"{what} must be text", value)
    if not value.strip():
        raise FlowBuildError(f"{what} must not be empty, got {shorten(value)}")
    return value


def _count(what: str, value: Any) -> int:
    check_whole(what, value, 1)
    return int(value)


def _flag(what: str, value: Any) -> bool:
    check_flag(what, value)
    return bool(value)


def _engine(what: str, value: Any) -> str:
    check_choice(what, value, ("auto", "batch", "streaming"))
    return str(value)


def _log_level(what: str, value: Any) -> str:
    level = value.upper() if isinstance(value, str) else None
    if level not in LOG_LEVELS:
        raise FlowBuildError(f"{what} must be one of {', '.join(LOG_LEVELS)}, got {shorten(value)}")
    return str(level)


def _trigger(what: str, value: Any) -> Any:
    if value == "available":
        return value
    natural_us(value, what)
    return value


def _driver_memory(what: str, value: Any) -> str:
    text = check_text(what, value)
    size = size_bytes(text)
    if size is None:
        raise FlowBuildError(
            f"{what} must be a number and a unit of k, m, g or t, such as '4g' or '512m', "
            f"got {shorten(text)}"
        )
    if size < LEAST_DRIVER_MEMORY:
        raise FlowBuildError(f"{what} must be at least '512m', got {shorten(text)}")
    return text


def _conf(what: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise wrong_type(f"{what} must map names of Spark settings to text", value)
    for pair in value.items():
        if not all(isinstance(part, str) for part in pair):
            raise FlowBuildError(
                f"{what}: Spark configuration is text to text, got {shorten(pair)}"
            )
    return dict(value)


def _py_files(what: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if not is_list or not all(isinstance(file, (str, os.PathLike)) for file in value):
        raise FlowTypeError(f"{what} must be a list of paths, got {shorten(value)}")
    return tuple(os.fspath(file) for file in value)


def _recovery(what: str, value: Any) -> Any:
    if not hasattr(value, "admit"):
        raise wrong_type(f"{what} must be a RecoveryConfig", value)
    return value


def _same(_: str, text: str) -> str:
    return text


def _read_count(what: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise FlowBuildError(f"{what} must be a whole number of at least 1, got {text!r}")
    return int(text)


def _read_flag(what: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise FlowBuildError(f"{what} must be 'on' or 'off', got {text!r}")
    return text == "on"


def _read_conf(what: str, text: str) -> dict[str, str]:
    """Read settings ``name=value``, separated by blanks and quoted as in a shell."""
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise FlowBuildError(f"{what}: {shorten(text)} has an open quote ({error})") from error
    return dict(read_setting(what, part) for part in parts)


def read_setting(what: str, text: str) -> tuple[str, str]:
    """Return the name and the value of a Spark setting ``name=value``.

    Raises:
        FlowBuildError: if the text has another form.
    """
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise FlowBuildError(f"{what}: {text!r} is no setting: write it as spark.some.name=value")
    return name.strip(), value


def _read_files(_: str, text: str) -> tuple[str, ...]:
    return tuple(text.split(os.pathsep))


FIELDS = (
    ConfigField(
        "recovery",
        "the checkpoint, from which a later run continues; as text, its directory",
        *(_recovery, _same),
        default_text="none",
        metavar="DIR",
    ),
    ConfigField(
        "engine",
        "`batch` or `streaming`; `auto` is a batch for a flow whose inputs all end, without "
        "`recovery` and `trigger`",
        *(_engine, _same, "auto", "`auto`"),
        metavar="NAME",
    ),
    ConfigField(
        "trigger",
        "how often to start an epoch, such as `1s`; `available` to read all available items and "
        "stop",
        *(_trigger, _same),
        default_text="as soon as items are available",
        metavar="INTERVAL",
    ),
    ConfigField(
        "drain",
        "close open windows when the run ends by itself, or leave them in the checkpoint",
        *(_flag, _read_flag),
        default_text="on if all sources have an end",
        form=Form.FLAG,
    ),
    ConfigField(
        "shards",
        "the number of shards of the key space; fixed for a checkpoint's life",
        *(_count, _read_count),
        default_text=f"{DEFAULT_SHARDS}, or `partitions` if that is more",
        metavar="N",
    ),
    ConfigField(
        "partitions",
        "the number of partitions of each level; fixed for a checkpoint's life",
        *(_count, _read_count),
        default_text="`parallelism`",
        metavar="N",
    ),
    ConfigField(
        "parallelism",
        "the number of parts into which inputs are read",
        *(_count, _read_count),
        default_text="the cores that `master` gives",
        metavar="N",
        new_session=True,
        spark="spark.default.parallelism",
    ),
    ConfigField(
        "master",
        "Spark's master, such as `local[4]` or `spark://host:7077`",
        *(check_text, _same),
        default_text="`local[*]`: all cores of this machine",
        metavar="URL",
        new_session=True,
        spark="spark.master",
    ),
    ConfigField(
        "driver_memory",
        "the heap of the JVM that this process starts, such as `4g`; Python workers need memory "
        "beside it",
        *(_driver_memory, _same),
        default_text=f"`{LOCAL_DRIVER_MEMORY}` with a local master, else Spark's own",
        metavar="SIZE",
        new_session=True,
        spark="spark.driver.memory",
    ),
    ConfigField(
        "conf",
        "further settings of Spark; those of several places are merged by name",
        *(_conf, _read_conf, {}, "none"),
        form=Form.MANY,
        metavar="K=V",
        new_session=True,
    ),
    ConfigField(
        "py_files",
        "your own modules (`.py`, `.zip`, `.egg`) to send to the workers of a cluster",
        *(_py_files, _read_files, (), "none"),
        form=Form.MANY,
        metavar="FILE",
        new_session=True,
    ),
    ConfigField(
        "speedups",
        "the optional speed-ups, which change no results; switch them off to find out if one of "
        "them causes a problem",
        *(_flag, _read_flag, True, "on"),
        form=Form.FLAG,
        new_session=True,
    ),
    ConfigField(
        "log_level",
        f"the level of the log of a new Spark session: {', '.join(LOG_LEVELS)}",
        *(_log_level, _same, "WARN", "`WARN`"),
        metavar="LEVEL",
    ),
    ConfigField(
        "web",
        "the address of the live page of the run, `HOST:PORT`; port 0 is a free one",
        *(check_web_address, _same),
        default_text="none",
        form=Form.OPTIONAL,
        metavar="ADDRESS",
        bare=DEFAULT_WEB,
    ),
    ConfigField(
        "web_values",
        "show keys, the contents of windows and late values on the live page",
        *(_flag, _read_flag, False, "off"),
        form=Form.FLAG,
    ),
)
"""The fields of `FlowConfig`, in order."""

FIELD: Mapping[str, ConfigField] = {field.name: field for field in FIELDS}
"""The fields by name."""

OWN_FIELD: Mapping[str, str] = {field.spark: field.name for field in FIELDS if field.spark}
"""The names of fields by the setting of Spark that each stands for."""


@dataclass(frozen=True, repr=False)
class FlowConfig:
    """The configuration of a run: how a flow runs, and not what it computes.

    ``run(flow, config=FlowConfig(...))`` takes it beside its other arguments. A value comes from
    the first of these places that sets it: an option of ``python -m flow.run``, or an argument of
    `run`; an environment variable, such as ``FLOW_MASTER``; this object; the default. Only `conf`
    is merged from all places, each setting of Spark by this rule.

    Args:
        recovery: the checkpoint, a `RecoveryConfig`; by default none.
        engine: ``"batch"`` or ``"streaming"``; ``"auto"`` is a batch for a flow whose inputs all
            end, without `recovery` and `trigger`.
        trigger: the interval at which epochs start; ``"available"`` to read all available items
            and stop; by default, an epoch starts as soon as items are available.
        drain: True to close open windows when the run ends by itself, False to leave them in the
            checkpoint; by default, True if all sources have an end.
        shards: the number of shards of the key space; fixed for a checkpoint's life.
        partitions: the number of partitions of each level; fixed for a checkpoint's life; by
            default `parallelism`.
        parallelism: the number of parts into which inputs are read; by default the cores that
            `master` gives.
        master: Spark's master URL; by default ``local[*]``.
        driver_memory: the heap of the JVM that this process starts, such as ``"4g"``.
        conf: further settings of Spark. A setting that has a field of its own, such as
            ``spark.driver.memory``, counts as that field.
        py_files: the user's modules to send to a cluster's workers.
        speedups: False to switch off the optional speed-ups.
        log_level: the level of Spark's log.
        web: the address of the live page, such as ``"127.0.0.1:4041"``.
        web_values: True to show keys, the contents of windows and late values on the live page.

    `parallelism`, `master`, `driver_memory`, `conf`, `py_files`, `speedups` and `log_level` are for
    a new Spark session.

    Raises:
        FlowBuildError: if a value is wrong; the error names the field, the value and what is
            allowed.

    >>> FlowConfig(master="local[4]", driver_memory="8g")
    FlowConfig(master='local[4]', driver_memory='8g')
    """

    recovery: Recovery | None = None
    engine: EngineName = "auto"
    trigger: Trigger | None = None
    drain: bool | None = None
    shards: int | None = None
    partitions: int | None = None
    parallelism: int | None = None
    master: str | None = None
    driver_memory: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict, hash=False)
    py_files: Sequence[str | os.PathLike[str]] = ()
    speedups: bool = True
    log_level: str = "WARN"
    web: str | None = None
    web_values: bool = False

    def __post_init__(self) -> None:
        for each in FIELDS:
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                checked = each.check(f"FlowConfig: {each.name}", value)
                object.__setattr__(self, each.name, checked)

    def __repr__(self) -> str:
        """Return the call that makes the object, without secret values of `conf`."""
        values = self.given()
        if self.conf:
            values["conf"] = {k: "***" if is_secret(k) else v for k, v in self.conf.items()}
        return f"FlowConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def given(self) -> dict[str, object]:
        """Return the values of the fields that differ from their defaults, by name.

        >>> FlowConfig(shards=32, log_level="warn").given()
        {'shards': 32}
        """
        defaults = {each.name: each.default for each in FIELDS}
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value != defaults[name]}


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
