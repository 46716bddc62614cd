"""Schema registry with the schemas of values, and its client."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

from flow.checks import check_choice, check_flag
from flow.connectors.kafka.client import Properties, as_properties
from flow.connectors.kafka.cluster import Unreachable
from flow.connectors.source import TaskServers
from flow.errors import (
    FlowBuildError,
    FlowError,
    FlowTypeError,
    package_of_extra,
    shorten,
)

SchemaFormat: TypeAlias = Literal["avro", "protobuf", "json"]
"""Format of the values that a registry has the schemas of."""

Evolve: TypeAlias = Literal["widen", "pinned", "stop"]
"""Action for a new version of a subject."""

ASKING_SECONDS = 10.0
"""Timeout of one request, unless the properties have another."""

_LOGIN = "basic.auth.user.info"
_OWN_PROPERTIES = {
    "url": "it is the registry's first argument",
    _LOGIN: "use the argument auth",
    "max.retries": "the flow waits for the registry itself",
}
_UNKNOWN = frozenset({40401, 40402, 40403})
"""Codes of the errors for a subject, a version or a schema that the registry does not have."""

_PASSING = frozenset({408, 429})

Answer = TypeVar("Answer")

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class Registry:
    """Schema registry with the schemas of the values of topics, in the place of a format.

    Values have the framing of Confluent's serializers: a zero byte, the id of a schema in four
    bytes, for Protobuf the position of the message in its file, and the value.

    The source reads all values of a subject as one schema, which the checkpoint holds: its newest
    version when the flow starts. `evolve` is the action when the subject has a newer version, from
    the next epoch on: ``"widen"`` adds its new columns and promotes numbers; columns that a value's
    own schema lacks have their default, or are null. ``"pinned"`` reads values of any version as
    the first schema, by Avro's rules of resolution, or Protobuf's numbers. ``"stop"`` ends the run.

    Args:
        url: address of the registry, such as ``"https://registry:8081"``, or several separated by
            commas.
        format: format of the schemas: ``"avro"``, ``"protobuf"`` or ``"json"``.
        auth: name of the user, and password.
        subject: subject of the schemas; by default the name of the topic and ``-value``.
        message: full name of the Protobuf message; by default the first of the file.
        evolve: action for a new version, in a source.
        schema: schema of the values that a sink writes: an Avro or JSON schema, or the class of a
            Protobuf message; by default that of the columns.
        auto_register: True if a sink registers its schema; False if it must be registered.
        properties: other properties of confluent-kafka's ``SchemaRegistryClient``, such as
            ``ssl.ca.location``; values that may be secret are never shown.

    Raises:
        FlowTypeError, FlowBuildError: an argument is not valid.
        EnvironmentProblem: the packages of the extra ``registry`` are not installed.

    >>> Registry("https://registry:8081", auth=("orders", "s3cr3t"))
    Registry(url='https://registry:8081', format='avro', evolve='widen')
    """

    url: str
    _: KW_ONLY
    format: SchemaFormat = "avro"
    auth: tuple[str, str] | None = None
    subject: str | None = None
    message: str | None = None
    evolve: Evolve = "widen"
    schema: Any = field(default=None, hash=False)
    auto_register: bool = True
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_choice("Registry: format", self.format, get_args(SchemaFormat))
        check_choice("Registry: evolve", self.evolve, get_args(Evolve))
        check_flag("Registry: auto_register", self.auto_register)
        _check_url(self.url)
        for name in ("subject", "message"):
            if not isinstance(getattr(self, name), (str, type(None))):
                raise FlowTypeError(f"Registry: {name} must be text, got {getattr(self, name)!r}")
        object.__setattr__(self, "properties", as_properties(self.properties, _OWN_PROPERTIES))
        pair: Any = self.auth
        if pair is None:
            return
        if not isinstance(pair, (tuple, list)) or [*map(type, pair)] != [str, str]:
            raise FlowTypeError("Registry: auth must be a name and a password, two texts")
        object.__setattr__(self, "auth", tuple(pair))

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in ("url", "format", "evolve")]
        if self.properties:
            shown.append(f"properties={self.properties!r}")
        return f"Registry({', '.join(shown)})"

    def __str__(self) -> str:
        return f"the schema registry at {self.url}"

    def subject_of(self, topic: str) -> str:
        """Return the subject of a topic's values."""
        return self.subject or f"{topic}-value"

    @property
    def task_servers(self) -> TaskServers:
        """The registry's addresses, which tasks ask for schemas."""
        parts = [urlsplit(url.strip()) for url in self.url.split(",")]
        addresses = [
            f"{part.hostname}:{part.port or (443 if part.scheme == 'https' else 80)}"
            for part in parts
        ]
        return TaskServers(addresses, "open the network of the workers")


def _check_url(url: object) -> None:
    """Raise a `FlowError` unless an argument is the address of a registry, without a login."""
    if not isinstance(url, str):
        raise FlowTypeError(f"Registry: url must be text, got {shorten(url)}")
    for part in map(urlsplit, map(str.strip, url.split(","))):
        if "@" in part.netloc:
            raise FlowBuildError(
                "Registry: the url has a login: pass it as auth=(name, password), which is not "
                "shown"
            )
        if part.scheme not in ("http", "https") or not part.hostname:
            raise FlowBuildError(
                f"Registry: url must be an address such as 'http://localhost:8081', got {url!r}"
            )


_WANTED = {"protobuf": "serialized"}
"""Format in which the registry gives schemas, where it is not their own text."""


class RegistryClient:
    """Client of a registry.

    Args:
        registry: the registry.
        error: type of the errors.
    """

    def __init__(self, registry: Registry, error: type[FlowError]) -> None:
        self._registry, self._error = registry, error
        self._wanted = _WANTED.get(registry.format)
        login = {} if registry.auth is None else {_LOGIN: ":".join(registry.auth)}
        password = {} if registry.auth is None else {"password": registry.auth[1]}
        self._secrets = Properties({**registry.properties, **password})
        with package_of_extra(
            "registry", "confluent-kafka[schemaregistry]", "Registry", on_workers=True
        ):
            from confluent_kafka import schema_registry
        self._package = schema_registry
        own = {"url": registry.url, "timeout": ASKING_SECONDS}
        try:
            self._client = schema_registry.SchemaRegistryClient(
                {**own, **registry.properties, **login, "max.retries": 0}
            )
        except (ValueError, TypeError, OSError) as problem:
            reason = self._secrets.mask(str(problem))
            raise error(
                f"the client of {registry} does not take its properties: {reason}"
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._client.__exit__()

    def check(self, subject: str) -> None:
        """Raise the client's error if the registry answers, but not as it should."""
        try:
            self.versions(subject)
        except Unreachable:
            return  # The run waits for it.

    def versions(self, subject: str) -> list[int]:
        """Return the numbers of a subject's versions; none if there is no such subject."""
        return sorted(self._ask(lambda: self._client.get_versions(subject)) or ())

    def version(self, subject: str, number: int) -> Any:
        """Return a version of a subject, as the package has it."""
        found = self._ask(lambda: self._client.get_version(subject, number, fmt=self._wanted))
        if found is None:
            raise self._error(f"{self._registry} has no version {number} of subject {subject!r}")
        return found

    def schema(self, schema_id: int) -> Any | None:
        """Return the schema with an id, as the package has it; ``None`` if there is none."""
        return self._ask(lambda: self._client.get_schema(schema_id, fmt=self._wanted))

    def references(self, schema: Any) -> dict[str, str]:
        """Return the schemas that a schema refers to by name, those that need no other first."""
        found: dict[str, str] = {}
        for one in schema.references or ():
            referred = self.version(one.subject, one.version).schema
            found |= {**self.references(referred), one.name: referred.schema_str}
        return found

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema, after its registration if that is allowed."""
        wanted = self._package.Schema(schema, self._registry.format.upper())
        if self._registry.auto_register:
            number = self._ask(lambda: int(self._client.register_schema(subject, wanted)))
            if number is None:
                raise self._error(f"{self._registry} did not register a schema of {subject!r}")
            return number
        found = self._ask(lambda: self._client.lookup_schema(subject, wanted))
        if found is None:
            raise self._error(
                f"subject {subject!r} of {self._registry} does not have the schema "
                f"{shorten(schema)}: register it, or pass auto_register=True"
            )
        return int(found.schema_id)

    def _ask(self, question: Callable[[], Answer]) -> Answer | None:
        """Return the registry's answer; ``None`` if it does not have what is asked for.

        Raises:
            Unreachable: the registry does not answer now.
        """
        where = str(self._registry)
        try:
            return question()
        except self._package.SchemaRegistryError as problem:
            status, code = problem.http_status_code, problem.error_code
            reason = self._secrets.mask(f"{problem.error_message} ({status})")
            if status in _PASSING or status >= 500:
                raise Unreachable(
                    f"{where} does not answer: {reason}", "the schema registry"
                ) from None
            if status == 404 and code in _UNKNOWN:
                return None
            raise self._error(f"{where} refuses to answer: {reason}{_hint(status)}") from None
        except Exception as problem:
            reason = self._secrets.mask(f"{type(problem).__name__}: {problem}")
            # The package takes one of two HTTP libraries, by its version.
            if any(each.__name__ == "TransportError" for each in type(problem).__mro__):
                raise Unreachable(
                    f"{where} does not answer: {reason}", "the schema registry"
                ) from None
            raise self._error(f"{where} gives no answer of a registry: {reason}") from None


def _hint(status: int) -> str:
    if status in (401, 403):
        return ": check the name and the password of auth, and the rights of the user"
    if status == 409:
        return ": the schema does not fit the earlier versions of its subject"
    return ": check the url, with its path" if status == 404 else ""


_clients: dict[tuple[Any, ...], RegistryClient] = {}


def client_of(registry: Registry, error: type[FlowError]) -> RegistryClient:
    """Return this process's client of a registry."""
    key = (registry, error, os.getpid())
    if key not in _clients:
        _clients[key] = RegistryClient(registry, error)
    return _clients[key]


def close_client(registry: Registry, error: type[FlowError]) -> None:
    """Close the connections of this process's client of a registry, if there is one."""
    client = _clients.pop((registry, error, os.getpid()), None)
    if client is not None:
        client.close()


def patiently(question: Callable[[], Answer], seconds: float, error: type[FlowError]) -> Answer:
    """Return the answer to a question, after a wait while the registry does not answer.

    Raises:
        FlowError: the registry has not answered for a time.
    """
    silent_since: float | None = None
    while True:
        try:
            answer = question()
        except Unreachable as problem:
            if silent_since is None:
                silent_since = time.monotonic()
                logger.warning("%s; waiting for it", problem)
            waited = time.monotonic() - silent_since
            if waited >= seconds:
                raise error(f"{problem}; waited {waited:.0f} s") from None
            time.sleep(min(1.0, seconds))
            continue
        if silent_since is not None:
            logger.warning("the schema registry answers again")
        return answer
