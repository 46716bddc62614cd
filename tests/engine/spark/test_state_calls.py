"""Pipelined calls of Spark's state, with a server that answers as Spark's does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyspark.sql.streaming.proto.StateMessage_pb2 as messages
import pytest
from pyspark.serializers import CPickleSerializer, read_int
from pyspark.sql.streaming.map_state_client import MapStateClient
from pyspark.sql.streaming.stateful_processor import MapState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import StructType

from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.spark_store import (
    AHEAD,
    PipelinedCalls,
    PublicCalls,
    StateCalls,
    state_calls,
)
from flow.errors import EngineError, EnvironmentProblem

PICKLER = CPickleSerializer()


class Server(threading.Thread):
    """Keeps a map in a dict, and answers one request after the other over a local socket."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.kept: dict[Any, Any] = {}
        self.refused: set[Any] = set()
        self.requests = 0
        self._socket = socket.create_server(("localhost", 0))
        self.port: int = self._socket.getsockname()[1]
        self.start()

    def run(self) -> None:
        with self._socket:
            connection, _ = self._socket.accept()
        with connection, connection.makefile("rwb") as stream:
            while True:
                try:
                    assert read_int(stream) == 0  # the protocol's version
                except EOFError:
                    return
                request = messages.StateRequest.FromString(stream.read(read_int(stream)))
                answer = self._answered(request.stateVariableRequest.mapStateCall)
                content = answer.SerializeToString()
                stream.write(len(content).to_bytes(4, "big") + content)
                stream.flush()

    def _answered(self, call: Any) -> Any:
        self.requests += 1
        assert call.stateName == "segments"
        method = call.WhichOneof("method")
        key = PICKLER.loads(getattr(call, method).userKey)
        if key in self.refused:
            return messages.StateResponse(statusCode=1, errorMessage="no room")
        if method == "getValue":
            return messages.StateResponse(value=self.kept.get(key, b""))
        if method == "updateValue":
            self.kept[key] = call.updateValue.value
        else:
            self.kept.pop(key, None)
        return messages.StateResponse()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def state(server: Server) -> Iterator[MapState]:
    key = StructType().add("step", "string").add("number", "integer")
    client = StatefulProcessorApiClient(server.port, StructType())
    value = StructType().add("content", "binary")
    yield MapState(MapStateClient(client, key, value), "segments")
    client.sockfile.close()
    client._client_socket.close()
    server.join(10)


@pytest.fixture(params=[PipelinedCalls, PublicCalls])
def calls(request: pytest.FixtureRequest, state: MapState) -> StateCalls:
    made: StateCalls = request.param(state)
    return made


def test_calls_are_pipelined_with_a_supported_pyspark(state: MapState) -> None:
    assert isinstance(state_calls(state), PipelinedCalls)


def test_calls_of_an_unknown_protocol_are_public(
    state: MapState, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = replace(spark_capabilities(), has_known_protocol=False)
    monkeypatch.setattr("flow.engine.spark.spark_store.spark_capabilities", lambda: unknown)
    assert isinstance(state_calls(state), PublicCalls)


def test_the_switch_chooses_public_calls(state: MapState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOW_SPEEDUPS", "off")
    assert isinstance(state_calls(state), PublicCalls)


def test_a_switch_is_either_on_or_off(state: MapState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOW_SPEEDUPS", "no")
    with pytest.raises(EnvironmentProblem, match="FLOW_SPEEDUPS must be 'on' or 'off', got 'no'"):
        state_calls(state)


@pytest.mark.parametrize("count", [0, 1, AHEAD - 1, AHEAD, AHEAD + 1, 10 * AHEAD + 7])
def test_values_come_in_order_of_their_keys(calls: StateCalls, server: Server, count: int) -> None:
    keys = [("step", number) for number in range(count)]
    calls.put((key, b"%d" % key[1]) for key in keys if key[1] % 3)
    found = calls.get(reversed(keys))
    assert found == [b"%d" % number if number % 3 else None for _, number in reversed(keys)]
    assert server.requests == count + sum(1 for _, number in keys if number % 3)


def test_none_removes_a_key(calls: StateCalls, server: Server) -> None:
    calls.put([(("step", 1), b"one"), (("step", 2), b"two")])
    calls.put([(("step", 1), None), (("step", 3), None)])
    assert list(server.kept) == [("step", 2)]


@pytest.mark.timeout(60)
def test_large_values_do_not_deadlock_client_and_server(calls: StateCalls) -> None:
    large = {("step", number): bytes([number]) * 1_000_000 for number in range(3 * AHEAD)}
    calls.put(large.items())
    assert calls.get(large) == list(large.values())


def test_calls_after_a_failed_call_get_their_own_answers(calls: StateCalls, server: Server) -> None:
    server.refused = {("step", 5)}
    with pytest.raises(EngineError, match="no room"):
        calls.put((("step", number), b"%d" % number) for number in range(100))
    # Calls that are sent ahead of the answer that fails are made.
    later = b"6" if isinstance(calls, PipelinedCalls) else None
    assert calls.get([("step", 1), ("step", 6)]) == [b"1", later]


def test_no_answers_remain_after_values_that_cannot_be_made(calls: StateCalls) -> None:
    def values() -> Iterator[tuple[tuple[str, int], bytes]]:
        yield ("step", 1), b"one"
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        calls.put(values())
    assert calls.get([("step", 1)]) == [b"one"]
