"""The state of an epoch in a checkpoint: headers, segments, and the keys in segments."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from flow.columns.chunks import key_array
from flow.engine.packets.shards import hash_keys, shard_of
from flow.engine.state.header import Header
from flow.engine.state.packed import unpack
from flow.engine.state.store import PROGRESS_SEGMENT
from flow.errors import CheckpointError
from flow.instants import NEVER
from flow.keyed.segments import IDS, WINDOWS, WholeKeys, kind_of
from flow.keyed.state_counts import StateCounts
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.storage.snapshots import (
    counts_by_key,
    snapshots_of_content,
    split_by_key,
)
from flow_windowing.deduplication.segments import IdSegment, snapshots_of_segment
from recovery.reading.checkpoint import CheckpointReader
from recovery.reading.inert import load_inert
from recovery.reading.problems import java_reason
from recovery.reading.rendering import command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flow.engine.progress.stream_progress import StepProgress


class KeySnapshot(NamedTuple):
    """A key with its snapshot.

    Attributes:
        key: the key.
        snapshot: the pickled snapshot of the key's logic, or a columnar segment of only this key.
        due_us: the key's due time, int µs; `NEVER` without a timer.
        shard: the key's shard.
        counts: the key's open windows and buffered values; ``None`` if they are not counted.
    """

    key: str
    snapshot: bytes
    due_us: int
    shard: int
    counts: StateCounts | None = None


@dataclass(frozen=True)
class StepTotals:
    """Totals of a step's state over all shards.

    Attributes:
        keys: the number of keys.
        size: the approximate size in bytes.
        segments: the number of segments.
        due_us: the least due time of a key.
        counts: the open windows and buffered values; ``None`` if they are not counted.
    """

    keys: int
    size: int
    segments: int
    due_us: int
    counts: StateCounts | None


@dataclass(frozen=True)
class EpochState:
    """The state at the end of an epoch.

    Attributes:
        checkpoint: the checkpoint.
        epoch: a finished epoch of the checkpoint.
    """

    checkpoint: CheckpointReader
    epoch: int

    def headers(self) -> dict[str, dict[int, Header]]:
        """Return the header of each shard, by the name of the state.

        Raises:
            CheckpointError: if the state cannot be read.
        """
        found: dict[str, dict[int, Header]] = defaultdict(dict)
        for name, shard, _, content in self._rows("headers"):
            found[name][shard] = Header.decode(content, self.checkpoint.step_of(name))
        return dict(found)

    def keys(self, name: str, key: str | None = None) -> Iterator[KeySnapshot]:
        """Yield the keys of a name of state, or only the given key.

        Raises:
            CheckpointError: if the state cannot be read.
        """
        step_id = self.checkpoint.step_of(name)
        shard = None if key is None else self._shard(key, step_id)
        for _, of_shard, number, content in self._rows("segments", name, shard):
            if number != PROGRESS_SEGMENT:
                for kept in decode_segment(content, of_shard, number, step_id):
                    if key in (None, kept.key):
                        yield kept

    def progress(self, name: str) -> StepProgress | None:
        """Return the stream progress of a step; ``None`` for a step that measures none."""
        from flow.engine.progress.stream_progress import StepProgress

        for _, _, _, content in self._rows("segments", name, number=PROGRESS_SEGMENT):
            return StepProgress.decode(content, self.checkpoint.step_of(name))
        return None

    def rows(self) -> Iterator[tuple[str, int, int, bytes]]:
        """Yield all segments: name, shard, number and content."""
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
        # Tasks on Spark 4.1 look for an endpoint that the manager of streaming queries makes.
        _ = checkpoint.spark.streams
        reader = checkpoint.spark.read.format("statestore").option("operatorId", operator)
        reader = reader.option("batchId", checkpoint.batch(self.epoch))
        reader = reader.option("stateVarName", variable)
        return reader.load(f"{root}/{checkpoint.identity.spark}")


def _chosen(
    frame: DataFrame, group_of: Any, name: str | None, shard: int | None, number: int | None
) -> Iterator[Any]:
    """Yield the rows of a state variable: name, group, number and content."""
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
    """Return the totals of the headers of a step's shards."""
    every = list(headers.values())
    is_counted = all(one.is_counted for one in every)
    return StepTotals(
        keys=sum(one.keys for one in every),
        size=sum(one.size for one in every),
        segments=sum(one.segments for one in every),
        due_us=min((int(one.dues.min()) for one in every), default=NEVER),
        counts=StateCounts.total(one.total for one in every) if is_counted else None,
    )


def decode_segment(content: bytes, shard: int, number: int, step_id: str) -> list[KeySnapshot]:
    """Return the keys in a segment, with their snapshots still pickled.

    Raises:
        CheckpointError: if the segment cannot be read, or has another format.
    """
    where = f"the state of step {step_id!r}: segment {number} of shard {shard}"
    if kind_of(content) == WINDOWS:
        return _apart(content, where, shard)
    if kind_of(content) == IDS:
        return [KeySnapshot(*kept, shard) for kept in _of_ids(content, where)]
    try:
        stored = WholeKeys.decode(content, where, load_inert)
        rows = zip(stored.keys, stored.snapshots, stored.due_us.tolist(), strict=True)
        kept = [KeySnapshot(key, bytes(snapshot), due, shard) for key, snapshot, due in rows]
        if stored.windows:
            counts = map(StateCounts._make, stored.counts)
            kept = [one._replace(counts=of) for one, of in zip(kept, counts, strict=True)]
    except (pickle.UnpicklingError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} cannot be read: {error}") from error
    return kept


def _apart(content: bytes, where: str, shard: int) -> list[KeySnapshot]:
    """Return the keys of a columnar segment, each with a segment of only this key."""
    try:
        columns = SegmentContent.decode(content, load_inert)
        keys = zip(split_by_key(columns), counts_by_key(columns), strict=True)
        return [KeySnapshot(*of_key, shard, counts) for of_key, counts in keys]
    except (pickle.UnpicklingError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} cannot be read: {error}") from error


def _of_ids(content: bytes, where: str) -> list[tuple[str, bytes, int]]:
    """Return the keys of a segment of ids in columns, each with its pickled snapshot."""
    try:
        states = snapshots_of_segment(IdSegment.decode(content, load_inert))
        return [(key, pickle.dumps(state, 5), due_us) for key, state, due_us in states]
    except (pickle.UnpicklingError, pa.ArrowInvalid, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} cannot be read: {error}") from error


def load_snapshot(kept: KeySnapshot, step_id: str) -> Any:
    """Return a key's snapshot, with `Inert` objects for values that are not plain.

    Raises:
        CheckpointError: if the snapshot cannot be read.
    """
    try:
        if kind_of(kept.snapshot) == WINDOWS:
            columns = SegmentContent.decode(kept.snapshot, load_inert)
            ((_, state, _),) = snapshots_of_content(columns, load_inert)
            return state
        return load_inert(kept.snapshot)
    except pickle.UnpicklingError as error:
        problem = f"the state of step {step_id!r}: key {kept.key!r} cannot be read: {error}"
        raise CheckpointError(problem) from error
