"""The state of an epoch, as it is kept: headers, segments, and in them keys."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flow.columns.chunks import key_array
from flow.engine.packets.shards import hash_keys, shard_of
from flow.engine.state.header import Header, check_format
from flow.engine.state.packed import unpack
from flow.engine.state.segment import FORMAT_OF_SHARDS
from flow.engine.state.store import PROGRESS_SEGMENT
from flow.errors import CheckpointError
from flow.instants import NEVER
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.storage.snapshots import snapshots_of_content, split_by_key
from recovery.reading.checkpoint import KeptCheckpoint
from recovery.reading.inert import load_inert
from recovery.reading.problems import java_reason
from recovery.reading.rendering import command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flow.engine.progress.stream_progress import StepProgress


class KeptKey(NamedTuple):
    """A key and what is kept of it.

    Attributes:
        key: the key.
        snapshot: a pickle of its logic's snapshot, or a segment in columns of this key alone.
        due_us: when it is due; `NEVER` when it is not.
        shard: the shard it is in.
    """

    key: str
    snapshot: bytes
    due_us: int
    shard: int


@dataclass(frozen=True)
class StepTotals:
    """What a step keeps, all in all.

    Attributes:
        keys: how many keys.
        size: about how many bytes they weigh.
        segments: in how many segments they are.
        due_us: the least time at which one is due.
    """

    keys: int
    size: int
    segments: int
    due_us: int


@dataclass(frozen=True)
class KeptState:
    """The state as it was at the end of an epoch.

    Attributes:
        checkpoint: the checkpoint.
        epoch: the epoch, one that is kept.
    """

    checkpoint: KeptCheckpoint
    epoch: int

    def headers(self) -> dict[str, dict[int, Header]]:
        """For each name that state is kept under, the header of each shard.

        Raises:
            CheckpointError: when the state cannot be read.
        """
        found: dict[str, dict[int, Header]] = defaultdict(dict)
        for name, shard, _, content in self._rows("headers"):
            found[name][shard] = Header.decode(content, self.checkpoint.step_of(name))
        return dict(found)

    def keys(self, name: str, key: str | None = None) -> Iterator[KeptKey]:
        """The keys that are kept under a name, or the one that is asked for, if it is there.

        Raises:
            CheckpointError: when the state cannot be read.
        """
        step_id = self.checkpoint.step_of(name)
        shard = None if key is None else self._shard(key, step_id)
        for _, of_shard, number, content in self._rows("segments", name, shard):
            if number != PROGRESS_SEGMENT:
                for kept in decode_segment(content, of_shard, number, step_id):
                    if key in (None, kept.key):
                        yield kept

    def progress(self, name: str) -> StepProgress | None:
        """How far the step's stream has come, for a step that measures that."""
        from flow.engine.progress.stream_progress import StepProgress

        for _, _, _, content in self._rows("segments", name, number=PROGRESS_SEGMENT):
            return StepProgress.decode(content, self.checkpoint.step_of(name))
        return None

    def rows(self) -> Iterator[tuple[str, int, int, bytes]]:
        """All segments: name, shard, number and content."""
        yield from self._rows("segments")

    def _shard(self, key: str, step_id: str) -> int:
        hashes = hash_keys(key_array([key], step_id))
        return int(shard_of(hashes, self.checkpoint.layout.shards)[0])

    def _rows(
        self,
        variable: str,
        name: str | None = None,
        shard: int | None = None,
        number: int | None = None,
    ) -> Iterator[tuple[str, int, int, bytes]]:
        from flow.engine.spark.session.session import query_conf

        checkpoint = self.checkpoint
        layout = checkpoint.layout
        try:
            with (
                query_conf(checkpoint.spark, layout.partitions),
                checkpoint.files.readable_by_spark() as root,
            ):
                for operator in checkpoint.operators:
                    frame = self._frame(root, operator, variable)
                    for row in _chosen(frame, layout.group_of, name, shard, number):
                        yield row[0], layout.shard_of(row[1]), row[2], unpack(bytes(row[3]))
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"the state of epoch {self.epoch} cannot be read: {java_reason(error)}; "
                f"{command('verify', checkpoint.root)} says which file is at fault"
            ) from error

    def _frame(self, root: str, operator: int, variable: str) -> DataFrame:
        checkpoint = self.checkpoint
        reader = checkpoint.spark.read.format("statestore").option("operatorId", operator)
        reader = reader.option("batchId", checkpoint.batch(self.epoch))
        reader = reader.option("stateVarName", variable)
        return reader.load(f"{root}/{checkpoint.identity.spark}")


def _chosen(
    frame: DataFrame, group_of: Any, name: str | None, shard: int | None, number: int | None
) -> Iterator[Any]:
    """The rows of a variable's frame: name, group, number and content."""
    names, groups = frame["user_map_key"]["step"], frame["key"]["shard"]
    has_number = "number" in frame.schema["user_map_key"].dataType.names  # type: ignore[attr-defined]
    numbers = frame["user_map_key"]["number"] if has_number else groups
    if name is not None:
        frame = frame.filter(names == name)
    if shard is not None:
        frame = frame.filter(groups == group_of(shard))
    if number is not None:
        frame = frame.filter(numbers == number)
    columns = [names, groups, numbers, frame["user_map_value"]["content"]]
    yield from frame.select(*columns).toLocalIterator()


def totals(headers: dict[int, Header]) -> StepTotals:
    """What the headers of a step's shards say together."""
    every = list(headers.values())
    return StepTotals(
        keys=sum(one.keys for one in every),
        size=sum(one.size for one in every),
        segments=sum(one.segments for one in every),
        due_us=min((int(one.dues.min()) for one in every), default=NEVER),
    )


def decode_segment(content: bytes, shard: int, number: int, step_id: str) -> list[KeptKey]:
    """The keys in a segment, none of whose snapshots is read.

    Raises:
        CheckpointError: when it cannot be read, or was written in another format.
    """
    where = f"the state of step {step_id!r}: segment {number} of shard {shard}"
    if content[:1] == bytes([FORMAT_OF_SHARDS]):
        return [KeptKey(*kept, shard) for kept in _apart(content, where)]
    check_format(content, step_id)
    try:
        keys, snapshots, dues = load_inert(memoryview(content)[1:])
        due_list = np.frombuffer(dues, "<i8").tolist()
        rows = zip(keys, snapshots, due_list, strict=True)
        kept = [KeptKey(key, bytes(snapshot), due, shard) for key, snapshot, due in rows]
    except (pickle.UnpicklingError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} cannot be read: {error}") from error
    return kept


def _apart(content: bytes, where: str) -> list[tuple[str, bytes, int]]:
    """The keys of a segment in columns, each with a segment of its own."""
    try:
        return list(split_by_key(SegmentContent.decode(content, load_inert)))
    except (pickle.UnpicklingError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} cannot be read: {error}") from error


def load_snapshot(kept: KeptKey, step_id: str) -> Any:
    """A key's snapshot; what is not plain is an `Inert`.

    Raises:
        CheckpointError: when it cannot be read.
    """
    try:
        if kept.snapshot[:1] == bytes([FORMAT_OF_SHARDS]):
            columns = SegmentContent.decode(kept.snapshot, load_inert)
            ((_, state, _),) = snapshots_of_content(columns, load_inert)
            return state
        return load_inert(kept.snapshot)
    except pickle.UnpicklingError as error:
        problem = f"the state of step {step_id!r}: key {kept.key!r} cannot be read: {error}"
        raise CheckpointError(problem) from error
