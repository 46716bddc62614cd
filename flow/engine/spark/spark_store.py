"""Headers and segments of the current shard in Spark's state, and copies on a worker's own disk.

Spark passes bytes to Python as a pickle that it writes character by character, which takes longer
than all other work on state. So a task that writes many segments of a shard also writes a copy of
them to one file, which is read instead of Spark's state. The header in Spark's state has the copy's
stamp. A header and the copy with its stamp are from the same attempt at a task, and a later write
of segments replaces or removes the stamp. If the copy is damaged, or missing because the shard has
moved to another machine, a task reads Spark's state.

A shard of a step has at most one copy. Spark removes the folder at its end.

PySpark's `MapState` sends a request for each key and waits for the answer. The JVM answers requests
in order, so `PipelinedCalls` sends requests ahead of the answers. A call then takes half the time,
and a small call a quarter. `PipelinedCalls` uses the internal client of PySpark, see
`pyspark.sql.streaming.map_state_client`, only if `SparkCapabilities` says that the protocol is
known. Else `PublicCalls` makes the calls that PySpark documents.
"""

from __future__ import annotations

import contextlib
import os
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeAlias

import numpy as np
import pyspark.sql.streaming.proto.StateMessage_pb2 as messages
from pyspark.errors import PySparkException

from flow.engine.spark.session.session_settings import has_speedups
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.session.spark_failures import NO_SPACE, RunDisks, StateLost
from flow.engine.state.step_state import Header
from flow.engine.state.store import FIRST_BLOCK, PROGRESS_SEGMENT, pack, unpack
from flow.errors import EngineError

STAMP_BYTES = 16
_LEAST = 8
"""The least number of segments for which a copy pays."""
_NUMBER = struct.Struct("<I")


@dataclass(slots=True)
class _StepEntry:
    """Header of a step in Spark's state.

    Attributes:
        header: the header without stamp; ``None`` if the step has no state.
        stamp: stamp of the worker's copy of the segments written last; empty without a copy.
    """

    header: bytes | None
    stamp: bytes

    @classmethod
    def of(cls, content: bytes | None) -> _StepEntry:
        """Return the entry of a header in Spark's state, which a stamp may follow."""
        length = 0 if content is None else Header.length_in(content)
        if content is None or len(content) != length + STAMP_BYTES:
            return cls(content, b"")
        return cls(content[:length], content[length:])

    @property
    def segments(self) -> int:
        """Number of segments of the shard."""
        return 1 if self.header is None else Header.segments_in(self.header)


class SparkStore:
    """A `StateStore` in Spark's state; a step's name in state may differ from its id.

    The stamp of a worker's copy may follow a header, see `LocalCopies`.
    A write of segments sets or removes the stamp.

    Args:
        headers: a `MapState`, step to header.
        segments: a `MapState`, step and number to packed segment.
        names: names of steps in state, by step id, where the two differ.
        folder: folder of the worker's copies; ``None`` for no copies.
        disks: disks to which Spark writes the state.
    """

    def __init__(
        self,
        headers: Any,
        segments: Any,
        names: Mapping[str, str],
        folder: Path | None = None,
        disks: RunDisks | None = None,
    ) -> None:
        self._headers = headers
        self._segments = state_calls(segments)
        self._names = names
        self._folder = folder
        self._disks = disks or RunDisks()
        self._lost: StateLost | None = None
        self.enter(0)

    def enter(self, shard: int) -> None:
        """Set the current shard, and clear the headers of the shard before."""
        self._shard = shard
        self._known: dict[str, _StepEntry] = {}

    def check(self) -> None:
        """Check that all calls have reached Spark's state.

        Raises:
            StateLost: when a call has failed, even if its caller has handled the error.
        """
        if self._lost is not None:
            raise self._lost

    def read_header(self, step_id: str) -> bytes | None:
        return self._entry(self._names.get(step_id, step_id)).header

    def write_header(self, step_id: str, content: bytes) -> None:
        name = self._names.get(step_id, step_id)
        entry = self._entry(name)
        entry.header = content
        self._update_header(name, content + entry.stamp)

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        name = self._names.get(step_id, step_id)
        segments: dict[int, Any] = dict(self._copied(name, len(numbers)))
        missing = [number for number in numbers if number not in segments]
        with self._reaching():
            values = self._segments.get((name, number) for number in missing)
        segments.update(zip(missing, values, strict=True))
        contents = (segments[number] for number in numbers)
        return [None if content is None else unpack(bytes(content)) for content in contents]

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        name = self._names.get(step_id, step_id)
        packed = {number: None if one is None else pack(one) for number, one in contents.items()}
        with self._reaching():
            self._segments.put(((name, number), one) for number, one in packed.items())
        segments = {number: one for number, one in packed.items() if number > PROGRESS_SEGMENT}
        if segments:
            self._stamp(name, segments)

    def put(self, name: str, number: int | None, content: bytes) -> None:
        """Write a segment by its name in state; a header if `number` is ``None``."""
        if number is None:
            header = _StepEntry.of(content).header
            self._known[name] = _StepEntry(header, b"")
            self._update_header(name, header)
        else:
            with self._reaching():
                self._segments.put([((name, number), pack(content))])

    def drop(self, name: str) -> None:
        """Remove the header and all segments of a name."""
        header, numbers = self._entry(name).header, range(PROGRESS_SEGMENT, 0)
        if header is not None:  # A shard without keys has stream progress alone.
            decoded = Header.decode(header, name)
            numbers = range(FIRST_BLOCK - decoded.blocks + 1, decoded.segments)
        with self._reaching():
            self._segments.put(((name, number), None) for number in numbers)
            self._headers.removeKey((name,))
        self._known[name] = _StepEntry(None, b"")

    def _entry(self, name: str) -> _StepEntry:
        """Return a step's entry; the first call for a shard reads the header."""
        if name not in self._known:
            with self._reaching():
                row = self._headers.getValue((name,))
            self._known[name] = _StepEntry.of(None if row is None else bytes(row[0]))
        return self._known[name]

    def _copied(self, name: str, count: int) -> dict[int, bytes]:
        """Return the segments in the worker's copy, if reading it pays for `count` segments."""
        if self._folder is None:
            return {}
        entry = self._entry(name)
        if not entry.stamp or not pays(count, entry.segments):
            return {}
        return LocalCopies(self._folder, name, self._shard).find(entry.stamp)

    def _stamp(self, name: str, packed: Mapping[int, bytes | None]) -> None:
        """Copy the written segments if that pays, and update the header's stamp."""
        entry = self._entry(name)
        before, entry.stamp = entry.stamp, b""
        if self._folder is not None:
            copies = LocalCopies(self._folder, name, self._shard)
            if pays(len(packed), entry.segments):
                entry.stamp = copies.keep(packed)
            elif before:
                copies.drop()
        if entry.stamp != before and entry.header is not None:
            self._update_header(name, entry.header + entry.stamp)

    def _update_header(self, name: str, content: bytes | None) -> None:
        with self._reaching():
            self._headers.updateValue((name,), (content,))

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Raise `StateLost` if the connection to Spark's state ends, often due to a full disk."""
        try:
            yield
        except (EOFError, ConnectionError) as error:
            full = self._disks.full()
            reason = f"{NO_SPACE}: {', '.join(full)}" if full else type(error).__name__
            self._lost = self._lost or StateLost(reason)
            raise self._lost from error


def worker_folder(run_id: str) -> Path | None:
    """Return the folder of a run's copies on this worker; ``None`` without local folders of Spark.

    Args:
        run_id: id of the checkpoint in sinks.
    """
    folders = local_folders()
    return Path(folders[0], "flow-segments", run_id) if folders else None


def local_folders() -> tuple[str, ...]:
    """Return Spark's folders for temporary files on this worker's machine."""
    return tuple(filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")))


def pays(count: int, segments: int) -> bool:
    """Return True if a copy of `count` segments pays: at least 8, and a quarter of the shard's.

    >>> pays(20, 60), pays(20, 100), pays(2, 2)
    (True, False, False)
    """
    return count >= _LEAST and 4 * count >= segments


class LocalCopies:
    """The copy of a step's segments in a shard.

    The name of the file is the stamp. The file has a CRC32 of the rest, the number of segments,
    their numbers and lengths, and the segments.

    Args:
        folder: the folder of a run's copies on this machine.
        name: the name of the step's state.
        shard: the shard.
    """

    def __init__(self, folder: Path, name: str, shard: int) -> None:
        self._folder = folder / str(shard) / blake2b(name.encode(), digest_size=12).hexdigest()

    def keep(self, contents: Mapping[int, bytes | None]) -> bytes:
        """Replace the copy by a copy of these segments, and return its stamp.

        The stamp is empty, and no copy exists, if the write fails or all segments are removed.
        """
        self.drop()
        present = {number: content for number, content in contents.items() if content is not None}
        if not present:
            return b""
        stamp = uuid.uuid4().bytes
        numbers = np.array(list(present), "<i8").tobytes()
        lengths = np.fromiter(map(len, present.values()), "<i8", len(present)).tobytes()
        content = b"".join([_NUMBER.pack(len(present)), numbers, lengths, *present.values()])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._file(stamp).open("wb") as file:
                file.writelines((_NUMBER.pack(zlib.crc32(content)), content))
        except OSError:
            return b""
        return stamp

    def find(self, stamp: bytes) -> dict[int, bytes]:
        """Return the segments in the copy with a stamp, by number; empty if unreadable."""
        try:
            content = self._file(stamp).read_bytes()
        except OSError:
            return {}
        body = memoryview(content)[_NUMBER.size :]
        if len(body) < _NUMBER.size or zlib.crc32(body) != _NUMBER.unpack_from(content)[0]:
            return {}
        (count,) = _NUMBER.unpack_from(body)
        numbers, lengths = np.frombuffer(body, "<i8", 2 * count, _NUMBER.size).reshape(2, count)
        ends = 2 * _NUMBER.size + 16 * count + np.cumsum(lengths)
        pieces = zip(numbers.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True)
        return {number: content[start:end] for number, start, end in pieces}

    def drop(self) -> None:
        """Remove the copy, if it exists."""
        rmtree(self._folder, ignore_errors=True)

    def _file(self, stamp: bytes) -> Path:
        return self._folder / stamp.hex()


Key: TypeAlias = tuple[Any, ...]

AHEAD = 32
"""The maximum number of requests without an answer.

The answers to 32 writes fit into the socket's buffer, and so do 32 requests for reads. So neither
side blocks in a write because the other side does not read.
"""
_PROTOCOL = 0
_HEAD = struct.Struct("!ii")


def state_calls(state: Any) -> StateCalls:
    """Return pipelined calls of a known protocol, unless `FLOW_SPEEDUPS` is off, or public ones."""
    is_known = spark_capabilities().has_known_protocol
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
