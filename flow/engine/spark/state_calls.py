"""Calls of Spark's state for many keys: pipelined, or one by one by PySpark's public calls.

PySpark's `MapState` sends a request for each key and waits for its answer. The JVM answers requests
in order, so `PipelinedCalls` sends requests ahead of the answers: a call takes half the time, a
small one a quarter. It speaks PySpark's own protocol through the parts of its client, see
`pyspark.sql.streaming.map_state_client`, of the versions in `PIPELINED` alone; with any other
version, `PublicCalls` makes the calls that PySpark documents.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import pyspark
import pyspark.sql.streaming.proto.StateMessage_pb2 as messages
from pyspark.errors import PySparkException

from flow.engine.spark.startup.switch import has_speedups
from flow.errors import EngineError

Key: TypeAlias = tuple[Any, ...]

PIPELINED = frozenset({("4", "3")})
"""Versions of PySpark, major and minor, whose protocol `PipelinedCalls` speaks."""

AHEAD = 32
"""Maximum number of requests without an answer.

The answers to 32 writes, a few bytes each, fit into the socket's buffer, and so do 32 read
requests: so neither side blocks in a write until the other reads.
"""
_PROTOCOL = 0
_HEAD = struct.Struct("!ii")


class StateCalls(Protocol):
    """Access to many keys of a `MapState` whose value is one column."""

    def get(self, keys: Iterable[Key]) -> list[Any | None]:
        """Return the values of keys, in order; ``None`` for a missing key."""

    def put(self, values: Iterable[tuple[Key, Any | None]]) -> None:
        """Replace the values of keys; ``None`` removes a key."""


def state_calls(state: Any) -> StateCalls:
    """Return the calls that fit the installed PySpark, and `FLOW_SPEEDUPS`."""
    is_known = tuple(pyspark.__version__.split(".")[:2]) in PIPELINED
    return PipelinedCalls(state) if is_known and has_speedups() else PublicCalls(state)


class PublicCalls:
    """One public call of PySpark's `MapState` for each key."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, keys: Iterable[Key]) -> list[Any | None]:
        """Return the values of keys, in order; ``None`` for a missing key."""
        with _named_failure():
            found = [self._state.getValue(key) for key in keys]
        return [None if row is None else row[0] for row in found]

    def put(self, values: Iterable[tuple[Key, Any | None]]) -> None:
        """Replace the values of keys; ``None`` removes a key."""
        for key, value in values:
            with _named_failure():
                if value is None:
                    self._state.removeKey(key)
                else:
                    self._state.updateValue(key, (value,))


@contextlib.contextmanager
def _named_failure() -> Iterator[None]:
    """Raise an `EngineError` where Spark answers that a call failed."""
    try:
        yield
    except PySparkException as error:
        raise EngineError(f"Spark's state could not be reached: {error}") from error


class PipelinedCalls:
    """Pipelined access to a `MapState` whose value is one column."""

    def __init__(self, state: Any) -> None:
        client = state._mapStateClient
        self._client = client._stateful_processor_api_client
        self._key_schema = client.user_key_schema
        self._value_schema = client.value_schema
        self._name: str = state._stateName

    def get(self, keys: Iterable[Key]) -> list[Any | None]:
        """Return the values of keys, in order; ``None`` for a missing key."""
        answers = self._answers(self._getting(key) for key in keys)
        return [self._client._deserialize_from_bytes(one)[0] if one else None for one in answers]

    def put(self, values: Iterable[tuple[Key, Any | None]]) -> None:
        """Replace the values of keys; ``None`` removes a key."""
        self._answers(self._putting(key, value) for key, value in values)

    def _getting(self, key: Key) -> Any:
        return messages.MapStateCall(
            stateName=self._name, getValue=messages.GetValue(userKey=self._key(key))
        )

    def _putting(self, key: Key, value: Any | None) -> Any:
        if value is None:
            removal = messages.RemoveKey(userKey=self._key(key))
            return messages.MapStateCall(stateName=self._name, removeKey=removal)
        content = self._client._serialize_to_bytes(self._value_schema, (value,))
        update = messages.UpdateValue(userKey=self._key(key), value=content)
        return messages.MapStateCall(stateName=self._name, updateValue=update)

    def _key(self, key: Key) -> bytes:
        return bytes(self._client._serialize_to_bytes(self._key_schema, key))

    def _answers(self, calls: Iterable[Any]) -> list[bytes]:
        """Send calls, up to `AHEAD` before their answers; return the values in the answers.

        All answers are read also after a failure, so that none remains for a later call.
        """
        found: list[bytes] = []
        sent = 0
        try:
            for call in calls:
                self._send(call)
                sent += 1
                if sent - len(found) == AHEAD:
                    self._receive(found, AHEAD // 2)
        finally:
            self._receive(found, sent - len(found))
        return found

    def _send(self, call: Any) -> None:
        variable = messages.StateVariableRequest(mapStateCall=call)
        text = messages.StateRequest(stateVariableRequest=variable).SerializeToString()
        self._client.sockfile.write(_HEAD.pack(_PROTOCOL, len(text)) + text)

    def _receive(self, found: list[bytes], count: int) -> None:
        self._client.sockfile.flush()
        for _ in range(count):
            status, problem, value = self._client._receive_proto_message()
            found.append(value)
            if status:
                raise EngineError(f"Spark's state could not be reached: {problem}")
