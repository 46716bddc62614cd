"""The state of an epoch in a checkpoint: headers, segments, the keys in segments, and tables."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from flow.columns.chunks import key_array
from flow.engine.packets.shards import hash_keys, shard_of
from flow.engine.progress.stream_progress import StepProgress
from flow.engine.state.step_state import Header
from flow.engine.state.store import FIRST_BLOCK, PROGRESS_SEGMENT, unpack
from flow.engine.tables.contents import Contents, History, Newest
from flow.engine.tables.table_files import TableVersion, decode, files_of, folder_of
from flow.errors import CheckpointError
from flow.instants import NEVER
from flow.keyed.state import (
    IDS,
    WHOLE_KEYS,
    WINDOWS,
    StateCounts,
    WholeKeys,
    kind_of,
)
from flow_windowing.columnar.state.segments import SegmentContent, without_blocks
from flow_windowing.columnar.state.snapshots import (
    counts_by_key,
    snapshots_of_content,
    split_by_key,
)
from flow_windowing.deduplication.segments import IdSegment, snapshots_of_segment
from flow_windowing.rules.key_state import DriverState, moved_snapshot, read_snapshot
from flow_windowing.rules.leaves import BLOCK_MISSING, Leaves
from recovery.reading.checkpoint_reader import CheckpointReader
from recovery.reading.file_problems import command, java_reason
from recovery.reading.inert import load_inert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        hold_us: the least hold of a key.
    """

    keys: int
    size: int
    segments: int
    due_us: int
    counts: StateCounts | None
    hold_us: int = NEVER


@dataclass(frozen=True)
class EpochState:
    """The state at the end of an epoch.

    Attributes:
        checkpoint: the checkpoint, with the flow of the epoch.
        epoch: a finished epoch of the checkpoint.
    """

    checkpoint: CheckpointReader
    epoch: int

    def __post_init__(self) -> None:
        # A later run may have reset steps, which gives their state other names.
        object.__setattr__(self, "checkpoint", self.checkpoint.at(self.epoch))

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
        shards = self.checkpoint.layout.shards
        shard = None if key is None else shard_of_key(key, step_id, shards)
        for _, of_shard, number, content in self._rows("segments", name, shard):
            if number != PROGRESS_SEGMENT:
                for kept in decode_segment(content, of_shard, number, step_id):
                    if key in (None, kept.key):
                        yield kept

    def progress(self, name: str) -> StepProgress | None:
        """Return the stream progress of a step; ``None`` for a step that measures none."""
        for _, _, _, content in self._rows("segments", name, number=PROGRESS_SEGMENT):
            return StepProgress.decode(content, self.checkpoint.step_of(name))
        return None

    def tables(self) -> Mapping[str, TableVersion]:
        """Return the version of each table that the epoch saw, by the table's step."""
        control = self.checkpoint.log(self.epoch).offset.control
        versions = {} if control is None else control.tables
        return {self.checkpoint.step_of(name): version for name, version in versions.items()}

    def table(self, step_id: str) -> TableState | None:
        """Return the version of a table that the epoch saw; ``None`` for a step that is no table.

        Raises:
            CheckpointError: if a file of the table is missing or damaged.
        """
        version = self.tables().get(step_id)
        return None if version is None else self.table_at(step_id, version)

    def table_at(self, step_id: str, version: TableVersion) -> TableState:
        """Return a version of a table.

        Raises:
            CheckpointError: if a file of the table is missing or damaged.
        """
        files, folder = self.checkpoint.files, folder_of(self.checkpoint.state_name(step_id))
        changes = [
            change
            for file in files_of(version)
            for change in decode(file, files.storage.read_bytes(f"{folder}/{file}"), load_inert)
        ]
        described = self.checkpoint.fingerprint["tables"].get(step_id, {})
        has_history = described.get("as_of") is not None or any(one.at_us for one in changes)
        contents: Contents = History() if has_history else Newest()
        return TableState(step_id, version, contents, contents.apply(changes))

    def key_count(self, step_id: str) -> int:
        """Return the number of a step's keys.

        Raises:
            CheckpointError: if the step has no state; the error lists the steps that have.
        """
        checkpoint, headers = self.checkpoint, self.headers()
        name = checkpoint.state_name(step_id)
        if name in headers:
            return totals(headers[name]).keys
        stored = map(checkpoint.step_of, sorted(headers))
        kept = list(dict.fromkeys([*checkpoint.fingerprint["keyed"], *stored]))
        if step_id in kept:
            return 0
        there = [*kept, *self.tables()]
        listed = f"steps that do: {', '.join(map(repr, there))}" if there else "no step does"
        raise CheckpointError(
            f"{checkpoint.root}: step {step_id!r} keeps no state at epoch {self.epoch}; {listed}"
        )

    def rows(self) -> Iterator[tuple[str, int, int, bytes]]:
        """Yield all segments: name, shard, number and content."""
        yield from self._rows("segments")

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
                query_conf(checkpoint.spark, layout.partitions, extra=checkpoint.identity.conf),
                checkpoint.files.readable_by_spark() as root,
            ):
                for operator in checkpoint.operators:
                    frame = self._frame(root, operator, variable)
                    rows = _chosen(frame, layout.group_of, name, shard, number)
                    yield from _without_blocks(
                        (row[0], layout.shard_of(row[1]), row[2], unpack(bytes(row[3])))
                        for row in rows
                    )
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
    # A partition of the frame has whole shards; the blocks of each come before its segments.
    frame = frame.sortWithinPartitions(names, groups, numbers)
    yield from frame.select(*columns).toLocalIterator()


def _without_blocks(
    rows: Iterable[tuple[str, int, int, bytes]],
) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield headers and segments; the values of blocks are in their segments.

    Args:
        rows: headers, segments and blocks by name, shard and number, sorted by number in a shard.
    """
    blocks: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
    for name, shard, number, content in rows:
        if number <= FIRST_BLOCK:
            blocks[name, shard][number] = content
        else:
            yield name, shard, number, _whole(content, blocks[name, shard])


def _whole(content: bytes, blocks: dict[int, bytes]) -> bytes:
    """Return a segment without blocks; unchanged if it or a block is missing or damaged."""
    if not blocks or kind_of(content) not in {WINDOWS, WHOLE_KEYS}:
        return content
    try:
        if kind_of(content) == WHOLE_KEYS:
            stored = WholeKeys.decode(content, "a segment", load_inert)
            moved = [_with_blocks(snapshot, blocks) for snapshot in stored.snapshots]
            return stored._replace(snapshots=moved).encode()
        columns = SegmentContent.decode(content, load_inert)
        return without_blocks(
            columns, lambda numbers: [*map(blocks.pop, numbers)], load_inert
        ).encode()
    except (*_UNREADABLE, CheckpointError, KeyError):
        return content  # Its reader names it.


def _with_blocks(snapshot: bytes, blocks: dict[int, bytes]) -> bytes:
    """Return the snapshot of a key with the blocks that it refers to."""
    state = load_inert(snapshot)
    if not isinstance(state, DriverState) or not state.leaves:
        return snapshot
    numbers = Leaves(state.leaves).blocks
    return moved_snapshot(snapshot, {one: blocks.pop(one) for one in numbers if one in blocks})


def shard_of_key(key: str, step_id: str, shards: int) -> int:
    """Return the shard of a key of a step."""
    return int(shard_of(hash_keys(key_array([key], step_id)), shards)[0])


def totals(headers: dict[int, Header]) -> StepTotals:
    """Return the totals of the headers of a step's shards."""
    every = list(headers.values())
    is_counted = all(one.is_counted for one in every)
    return StepTotals(
        keys=sum(one.keys for one in every),
        size=sum(one.weight for one in every),
        segments=sum(one.segments for one in every),
        due_us=min((int(one.dues.min()) for one in every), default=NEVER),
        counts=StateCounts.total(one.total for one in every) if is_counted else None,
        hold_us=min((int(one.holds.min(initial=NEVER)) for one in every), default=NEVER),
    )


def decode_segment(content: bytes, shard: int, number: int, step_id: str) -> list[KeySnapshot]:
    """Return the keys in a segment, with their snapshots still pickled.

    Raises:
        CheckpointError: if the segment cannot be read, or has another format.
    """
    where = f"the state of step {step_id!r}: segment {number} of shard {shard}"
    decode = {WINDOWS: _windows_by_key, IDS: _ids_by_key}.get(kind_of(content), _whole_keys)
    try:
        return [
            KeySnapshot(key, snapshot, due_us, shard, counts)
            for key, snapshot, due_us, counts in decode(content, where)
        ]
    except _UNREADABLE as error:
        raise CheckpointError(f"{where} cannot be read: {error}") from error


_UNREADABLE = pickle.UnpicklingError, pa.ArrowInvalid, TypeError, ValueError
_KeyInSegment: TypeAlias = tuple[str, bytes, int, StateCounts | None]
"""A key, its snapshot, its due time and its counts."""


def _whole_keys(content: bytes, where: str) -> Iterator[_KeyInSegment]:
    stored = WholeKeys.decode(content, where, load_inert)
    counts: Iterable[StateCounts | None] = [None] * len(stored.keys)
    if stored.windows:
        counts = map(StateCounts._make, stored.counts)
    dues = stored.due_us.tolist()
    return zip(stored.keys, map(bytes, stored.snapshots), dues, counts, strict=True)


def _windows_by_key(content: bytes, _: str) -> Iterator[_KeyInSegment]:
    """Yield the keys of a columnar segment, each with a segment of only this key."""
    columns = SegmentContent.decode(content, load_inert)
    if columns.has_blocks:
        raise ValueError("a block of values is missing or damaged")
    for of_key, counts in zip(split_by_key(columns), counts_by_key(columns), strict=True):
        yield *of_key, counts


def _ids_by_key(content: bytes, _: str) -> Iterator[_KeyInSegment]:
    """Yield the keys of a segment of ids in columns, each with its pickled snapshot."""
    for key, state, due_us in snapshots_of_segment(IdSegment.decode(content, load_inert)):
        yield key, pickle.dumps(state, 5), due_us, None


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
        state = read_snapshot(kept.snapshot, load_inert)
        if isinstance(state, DriverState) and state.leaves:
            raise CheckpointError(BLOCK_MISSING)
        return state
    except (pickle.UnpicklingError, CheckpointError) as error:
        problem = f"the state of step {step_id!r}: key {kept.key!r} cannot be read: {error}"
        raise CheckpointError(problem) from error


class TableValue(NamedTuple):
    """A value of a key.

    Attributes:
        key: the key.
        at_us: the time from which the value holds, in µs; 0 in a table without history.
        value: the value, with `Inert` objects in the place of objects that are not plain; ``None``
            where the key was removed.
        content: the pickled value; ``None`` where the key was removed.
    """

    key: str
    at_us: int
    value: Any
    content: bytes | None


@dataclass(frozen=True)
class TableState:
    """A version of a table.

    Attributes:
        step: the table's step.
        version: the version.
        contents: the values by key, pickled. A history may have values that `keep` lets the next
            run drop.
        size: the size of the pickled values and their keys, in bytes.
    """

    step: str
    version: TableVersion
    contents: Contents
    size: int

    @property
    def has_history(self) -> bool:
        """True if the table has the values of earlier times."""
        return isinstance(self.contents, History)

    def values(self) -> Iterator[TableValue]:
        """Yield the values by key, those of one key by time.

        Raises:
            CheckpointError: if a value cannot be read.
        """
        for key, content, at_us in sorted(self.contents.changes(), key=lambda each: each.key):
            yield TableValue(key, at_us, self._loaded(key, content), content)

    def _loaded(self, key: str, content: bytes | None) -> Any:
        try:
            return None if content is None else load_inert(content)
        except pickle.UnpicklingError as error:
            problem = f"table {self.step!r}: the value of key {key!r} cannot be read: {error}"
            raise CheckpointError(problem) from error
