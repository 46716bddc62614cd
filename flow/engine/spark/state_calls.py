"""Calls of Spark's state for many keys: pipelined, or by PySpark's public calls, key by key.

PySpark's `MapState` sends a request for each key and waits for the answer. The JVM answers requests
in order, so `PipelinedCalls` sends requests ahead of the answers. A call then takes half the time,
and a small call a quarter. `PipelinedCalls` uses the internal client of PySpark, see
`pyspark.sql.streaming.map_state_client`, only with the versions for which `SparkVersion` says that
the protocol is known. With other versions `PublicCalls` makes the calls that PySpark documents.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyspark.sql.streaming.proto.StateMessage_pb2 as messages
from pyspark.errors import PySparkException

from flow.engine.spark.session.settings import has_speedups
from flow.engine.spark.session.versions import installed_version
from flow.errors import EngineError

Key: TypeAlias = tuple[Any, ...]

AHEAD = 32
"""The maximum number of requests without an answer.

The answers to 32 writes fit into the socket's buffer, and so do 32 requests for reads. So neither
side blocks in a write because the other side does not read.
"""
_PROTOCOL = 0
_HEAD = struct.Struct("!ii")


def state_calls(state: Any) -> StateCalls:
    """Return pipelined calls if PySpark's version and `FLOW_SPEEDUPS` allow, else public calls."""
    is_known = installed_version().has_known_protocol
    return PipelinedCalls(state) if is_known and has_speedups() else PublicCalls(state)


class PublicCalls:
    """One public call of PySpark's `MapState` for each key."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, keys: Iterable[Key]) -> list[Any | None]:
        """Return the values of keys, in order; ``None`` for a missing key."""
        with _named_failure():
            rows = [self._state.getValue(key) for key in keys]
        return [None if row is None else row[0] for row in rows]

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
    """Raise an `EngineError` for a failed call of the block."""
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
        deserialize = self._client._deserialize_from_bytes
        return [deserialize(value)[0] if value else None for value in answers]

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

        All answers are read also after a failure, because an unread answer would be taken for that
        of a later call.
        """
        values: list[bytes] = []
        count = 0
        try:
            for call in calls:
                self._send(call)
                count += 1
                if count - len(values) == AHEAD:
                    self._receive(values, AHEAD // 2)
        finally:
            self._receive(values, count - len(values))
        return values

    def _send(self, call: Any) -> None:
        variable = messages.StateVariableRequest(mapStateCall=call)
        text = messages.StateRequest(stateVariableRequest=variable).SerializeToString()
        self._client.sockfile.write(_HEAD.pack(_PROTOCOL, len(text)) + text)

    def _receive(self, values: list[bytes], count: int) -> None:
        """Read a number of answers, and append their values to a list."""
        self._client.sockfile.flush()
        for _ in range(count):
            status, problem, value = self._client._receive_proto_message()
            values.append(value)
            if status:
                raise EngineError(f"Spark's state could not be reached: {problem}")


StateCalls: TypeAlias = PublicCalls | PipelinedCalls
"""Access to many keys of a `MapState` whose value is one column."""
