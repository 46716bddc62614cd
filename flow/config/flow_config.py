"""`FlowConfig`, the configuration of a run.

`FlowConfig` declares each field once: the arguments of `run`, the environment variables, the
options of ``python -m flow.run`` and the page ``docs/reference/configuration.md`` follow. A type of
fields checks the value of a program, and reads the text of a variable or an option.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict

from flow.checks import call_text, check_choice, check_flag, check_whole, wrong_type
from flow.config.machine import size_bytes
from flow.durations import Duration, natural_us
from flow.engine.packets.shards import DEFAULT_SHARDS
from flow.engine.spark.session.session_settings import LOCAL_DRIVER_MEMORY, LOG_LEVELS
from flow.errors import FlowBuildError, FlowTypeError, shorten

if TYPE_CHECKING:
    from flow.engine.checkpoint.identity import Recovery

EngineName: TypeAlias = Literal["auto", "batch", "streaming"]
Trigger: TypeAlias = Duration | Literal["available"]

LEAST_DRIVER_MEMORY = 512 << 20
"""The smallest heap in bytes; Spark does not start with less than 450 MiB."""

DEFAULT_WEB = "127.0.0.1:4041"
"""The address of ``--web`` without a value; Spark's own page is at port 4040."""

_SECRET = re.compile(r"secret|password|token|credential|access[.]?key", re.IGNORECASE)
"""Names of Spark settings whose values are not shown, as on Spark's web page."""
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def is_secret(name: str) -> bool:
    """Return True if the value of a setting of Spark must not be shown.

    >>> is_secret("spark.hadoop.fs.s3a.secret.key"), is_secret("spark.local.dir")
    (True, False)
    """
    return _SECRET.search(name) is not None


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


def web_address(text: str, what: str = "an address") -> WebAddress:
    """Return the address in a text ``HOST:PORT``; `what` names it in the error.

    >>> web_address("[::1]:4041")
    WebAddress(host='::1', port=4041)

    Raises:
        FlowBuildError: if the text has another form.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise FlowBuildError(
            f"{what} must be HOST:PORT, such as {DEFAULT_WEB!r}, with a port up to 65535; "
            f"got {shorten(text)}"
        )
    return WebAddress(found["host"].strip("[]"), int(found["port"]))


class Form(Enum):
    """The form of a field on a command line."""

    ONE = "an option with a value"
    MANY = "an option that may be given again"
    FLAG = "an option without a value, and its opposite"
    OPTIONAL = "an option whose value may be left out"


@dataclass(frozen=True)
class FieldType:
    """The type of a field.

    Attributes:
        check: returns a value of a program in its final form, and raises a `FlowBuildError` that
            begins with the given name.
        read: reads a value from the text of an environment variable or an option, without the
            check.
        metavar: the name of the option's value.
        form: the form of the option.
        bare: the text of an option that is given without its value.
    """

    check: Callable[[str, Any], Any]
    read: Callable[[str, str], Any] = lambda _, text: text
    metavar: str | None = None
    form: Form = Form.ONE
    bare: str | None = None


def _checked_by(check: Callable[..., object], *limits: object) -> Callable[[str, Any], Any]:
    """Return a check that returns the value, of one that raises or returns nothing."""

    def checked(what: str, value: Any) -> Any:
        check(what, value, *limits)
        return value

    return checked


def _check_text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong_type(f"{what} must be text", value)
    if not value.strip():
        raise FlowBuildError(f"{what} must not be empty, got {shorten(value)}")
    return value


def _check_log_level(what: str, value: Any) -> str:
    level = value.upper() if isinstance(value, str) else None
    if level not in LOG_LEVELS:
        raise FlowBuildError(f"{what} must be one of {', '.join(LOG_LEVELS)}, got {shorten(value)}")
    return str(level)


def _check_memory(what: str, value: Any) -> str:
    text = _check_text(what, value)
    size = size_bytes(text)
    if size is None:
        raise FlowBuildError(
            f"{what} must be a number and a unit of k, m, g or t, such as '4g' or '512m', "
            f"got {shorten(text)}"
        )
    if size < LEAST_DRIVER_MEMORY:
        raise FlowBuildError(f"{what} must be at least '512m', got {shorten(text)}")
    return text


def _check_conf(what: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise wrong_type(f"{what} must map names of Spark settings to text", value)
    for pair in value.items():
        if not all(isinstance(part, str) for part in pair):
            raise FlowBuildError(
                f"{what}: Spark configuration is text to text, got {shorten(pair)}"
            )
    return dict(value)


def _check_files(what: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if not is_list or not all(isinstance(file, (str, os.PathLike)) for file in value):
        raise FlowTypeError(f"{what} must be a list of paths, got {shorten(value)}")
    return tuple(os.fspath(file) for file in value)


def _check_recovery(what: str, value: Any) -> Any:
    if not hasattr(value, "admit"):
        raise wrong_type(f"{what} must be a RecoveryConfig", value)
    return value


def _read_count(_: str, text: str) -> Any:
    """Return a positive number, or the text, which the check refuses."""
    return int(text) if text.isdecimal() and int(text) else text


def _read_flag(what: str, text: str) -> bool:
    check_choice(what, text, ("on", "off"))
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


_COUNT = FieldType(_checked_by(check_whole, 1), _read_count, "N")
_FLAG = FieldType(_checked_by(check_flag), _read_flag, form=Form.FLAG)
_RECOVERY = FieldType(_check_recovery, metavar="DIR")
_ENGINE = FieldType(_checked_by(check_choice, ("auto", "batch", "streaming")), metavar="NAME")
_TRIGGER = FieldType(
    _checked_by(lambda what, value: value == "available" or natural_us(value, what)),
    metavar="INTERVAL",
)
_MASTER = FieldType(_check_text, metavar="URL")
_MEMORY = FieldType(_check_memory, metavar="SIZE")
_CONF = FieldType(_check_conf, _read_conf, "K=V", Form.MANY)
_FILES = FieldType(_check_files, lambda _, text: text.split(os.pathsep), "FILE", Form.MANY)
_LOG_LEVEL = FieldType(_check_log_level, metavar="LEVEL")
_WEB = FieldType(
    _checked_by(lambda what, value: web_address(_check_text(what, value), what)),
    metavar="ADDRESS",
    form=Form.OPTIONAL,
    bare=DEFAULT_WEB,
)


@dataclass(frozen=True)
class ConfigField:
    """The declaration of a field of `FlowConfig`.

    Attributes:
        default: the value without any setting.
        type: the type.
        meaning: the meaning, as help of the option and as a row of the documentation.
        default_text: the default as the documentation shows it.
        spark: the setting of Spark that the field stands for, if any.
        new_session: True if the field configures the Spark session, and so only a new one.
        name: the field's name, also that of an argument of `run`.
    """

    default: Any
    type: FieldType
    meaning: str
    default_text: str
    spark: str | None = None
    new_session: bool = False
    name: str = ""

    @property
    def variable(self) -> str:
        """The environment variable, such as ``FLOW_LOG_LEVEL``."""
        return f"FLOW_{self.name.upper()}"

    @property
    def option(self) -> str:
        """The option of the command line, such as ``--log-level``."""
        return f"--{self.name.replace('_', '-')}"


def _declared(
    default: Any,
    kind: FieldType,
    meaning: str,
    default_text: str,
    *,
    spark: str | None = None,
    new_session: bool = False,
) -> Any:
    """Return a field of a dataclass, with its declaration as metadata."""
    is_new = new_session or spark is not None
    declaration = ConfigField(default, kind, meaning, default_text, spark, is_new)
    if default == {}:
        return field(default_factory=dict, hash=False, metadata={"declaration": declaration})
    return field(default=default, metadata={"declaration": declaration})


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
        partitions: the number of partitions of the steps with state; fixed for a checkpoint's
            life; by default `parallelism`.
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

    recovery: Recovery | None = _declared(
        None,
        _RECOVERY,
        "the checkpoint, from which a later run continues; as text, its directory",
        "none",
    )
    engine: EngineName = _declared(
        "auto",
        _ENGINE,
        "`batch` or `streaming`; `auto` is a batch for a flow whose inputs all end, without "
        "`recovery` and `trigger`",
        "`auto`",
    )
    trigger: Trigger | None = _declared(
        None,
        _TRIGGER,
        "how often to start an epoch, such as `1s`; `available` to read all available items and "
        "stop",
        "as soon as items are available",
    )
    drain: bool | None = _declared(
        None,
        _FLAG,
        "close open windows when the run ends by itself, or leave them in the checkpoint",
        "on if all sources have an end",
    )
    shards: int | None = _declared(
        None,
        _COUNT,
        "the number of shards of the key space; fixed for a checkpoint's life",
        f"{DEFAULT_SHARDS}, or `partitions` if that is more",
    )
    partitions: int | None = _declared(
        None,
        _COUNT,
        "the number of partitions of the steps with state; fixed for a checkpoint's life",
        "`parallelism`",
    )
    parallelism: int | None = _declared(
        None,
        _COUNT,
        "the number of parts into which inputs are read",
        "the cores that `master` gives",
        spark="spark.default.parallelism",
    )
    master: str | None = _declared(
        None,
        _MASTER,
        "Spark's master, such as `local[4]` or `spark://host:7077`",
        "`local[*]`: all cores of this machine",
        spark="spark.master",
    )
    driver_memory: str | None = _declared(
        None,
        _MEMORY,
        "the heap of the JVM that this process starts, such as `4g`; Python workers need memory "
        "beside it",
        f"`{LOCAL_DRIVER_MEMORY}` with a local master, else Spark's own",
        spark="spark.driver.memory",
    )
    conf: Mapping[str, str] = _declared(
        {},
        _CONF,
        "further settings of Spark; those of several places are merged by name",
        "none",
        new_session=True,
    )
    py_files: Sequence[str | os.PathLike[str]] = _declared(
        (),
        _FILES,
        "your own modules (`.py`, `.zip`, `.egg`) to send to the workers of a cluster",
        "none",
        new_session=True,
    )
    speedups: bool = _declared(
        True,
        _FLAG,
        "the optional speed-ups, which change no results; switch them off to find out if one of "
        "them causes a problem",
        "on",
        new_session=True,
    )
    log_level: str = _declared(
        "WARN",
        _LOG_LEVEL,
        f"the level of the log of a new Spark session: {', '.join(LOG_LEVELS)}",
        "`WARN`",
    )
    web: str | None = _declared(
        None,
        _WEB,
        "the address of the live page of the run, `HOST:PORT`; port 0 is a free one",
        "none",
    )
    web_values: bool = _declared(
        False,
        _FLAG,
        "show keys, the contents of windows and late values on the live page",
        "off",
    )

    def __post_init__(self) -> None:
        for each in FIELDS:
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                checked = each.type.check(f"FlowConfig: {each.name}", value)
                object.__setattr__(self, each.name, checked)

    def __repr__(self) -> str:
        """Return the call that makes the object, without secret values of `conf`."""
        values = self.given()
        if self.conf:
            values["conf"] = {k: "***" if is_secret(k) else v for k, v in self.conf.items()}
        return call_text(self, values)

    def given(self) -> dict[str, object]:
        """Return the values of the fields that differ from their defaults, by name.

        >>> FlowConfig(shards=32, log_level="warn").given()
        {'shards': 32}
        """
        values = {each.name: getattr(self, each.name) for each in FIELDS}
        return {name: value for name, value in values.items() if value != FIELD[name].default}


class Settings(TypedDict, total=False):
    """The fields of `FlowConfig` as arguments of `run`, except `recovery`, which it names.

    ``None`` stands for an argument that is not given.
    """

    engine: EngineName | None
    trigger: Trigger | None
    drain: bool | None
    shards: int | None
    partitions: int | None
    parallelism: int | None
    master: str | None
    driver_memory: str | None
    conf: Mapping[str, str] | None
    py_files: Sequence[str | os.PathLike[str]] | None
    speedups: bool | None
    log_level: str | None
    web: str | None
    web_values: bool | None


FIELDS: Sequence[ConfigField] = tuple(
    replace(each.metadata["declaration"], name=each.name) for each in fields(FlowConfig)
)
"""The fields of `FlowConfig`, in order."""

FIELD: Mapping[str, ConfigField] = {field.name: field for field in FIELDS}
"""The fields by name."""

OWN_FIELD: Mapping[str, str] = {field.spark: field.name for field in FIELDS if field.spark}
"""The names of fields by the setting of Spark that each stands for."""
