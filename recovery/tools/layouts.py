"""Layouts: the move of a checkpoint's state to another layout, and a checkpoint with given state.

The state of a new layout is in *seeds*, Parquet files with the keys of steps by new shards and
segments. The first run on the layout loads them. No run may use the checkpoint meanwhile.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from flow.checks import check_whole, wrong_type
from flow.columns.chunks import key_array
from flow.connectors.files.filesystems import locate
from flow.dataflow import Dataflow
from flow.engine.epoch.context import Control
from flow.engine.feed.offsets import EpochOffset
from flow.engine.packets.shards import hash_keys, shard_of
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.engine.state.segment import lay_out
from flow.engine.state.store import (
    PROGRESS_SEGMENT,
    SEED_SCHEMA,
    SEED_SUMS,
    Seed,
    seed_files,
    seeds_in,
)
from flow.errors import CheckpointError, FlowBuildError, brief, step_error
from flow.instants import Moment
from flow.keyed.state import WINDOWS, StateCounts, kind_of
from flow.keyed.step import Stateful
from flow_windowing import EventClock
from recovery.identity.admitting import admit
from recovery.identity.fingerprint import without_levels
from recovery.reading.checkpoint_reader import (
    CheckpointReader,
    files_in,
    new_session,
    open_checkpoint,
)
from recovery.reading.epoch_state import EpochState, KeySnapshot, decode_segment, load_snapshot
from recovery.reading.file_problems import PathLike, directory_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.connectors.source import Json
    from flow.engine.checkpoint.identity import Identity
    from recovery.reading.checkpoint_files import CheckpointFiles


def seed(
    path: str | os.PathLike[str],
    flow: Dataflow,
    states: Mapping[str, Mapping[str, Any]],
    *,
    shards: int | None = None,
    partitions: int | None = None,
    spark: SparkSession | None = None,
) -> int:
    """Make a checkpoint for a flow that starts with given state.

    The flow's first run on the checkpoint reads its inputs from their beginning.

    Args:
        path: the checkpoint's directory, which must not have a checkpoint yet.
        flow: the flow.
        states: for each keyed step the state of each key, in the form of a snapshot of the step's
            logic: for `stateful_map` the state itself, for `reduce_final` and `fold_final` a tuple
            with the state.
        shards: the number of shards of the key space; by default 16.
        partitions: the number of partitions after each shuffle; by default Spark's cores.
        spark: the session to use; by default the active one, else a new local one.

    Returns:
        The number of keys.

    Raises:
        FlowBuildError: when a step has no state, or an argument is wrong.
        StepError: when a step's logic does not accept a state.
        CheckpointError: when the directory has a checkpoint already.
    """
    if not isinstance(flow, Dataflow):
        raise wrong_type("seed needs a Dataflow", flow)
    check_layout(shards, partitions)
    root, plan = directory_path(path, "seed"), compile_flow(flow)
    unplaced = [_state_of(plan, step_id, keys) for step_id, keys in states.items()]
    session = spark or new_session()
    files = files_in(root, session)
    with files.locked():
        if files.storage.exists(files.IDENTITY) or files.storage.names("spark"):
            raise CheckpointError(f"{files.root} holds a checkpoint already: seed another one")
        identity = _new_identity(session, files.root, plan, shards, partitions)
        store_seeds(files, replace(identity, start=_start(plan, unplaced)), unplaced)
    return sum(len(state.keys) for state in unplaced)


def _new_identity(
    spark: SparkSession, root: str, plan: Plan, shards: int | None, partitions: int | None
) -> Identity:
    from flow.engine.checkpoint.identity import Identity

    cores = spark.sparkContext.defaultParallelism
    identity = Identity.new(plan.flow_id, cores, shards, partitions, spark.version)
    kept = admit(None, plan, root, (), drop_removed=False).kept
    return replace(identity, generation=1, recovery=kept)


def _start(plan: Plan, states: Iterable[UnplacedState]) -> Json:
    """Return the offset before the first epoch, of the last time in the state of event clocks.

    The time until the first run advances no watermark, as if the flow had not run meanwhile.
    """
    times: list[int] = []
    for state in states:
        operator: Any = plan.steps[state.step_id].operator
        if isinstance(getattr(operator.builder, "clock", None), EventClock):
            # The state of the clock is the first part of each snapshot, for remembered ids too.
            clocks = (pickle.loads(kept.snapshot)[0] for kept in state.keys)
            times += (us for clock in clocks for us in (clock or ())[1:3])
    return EpochOffset(Control(Moment(max(times)), number=-1)).to_json() if times else None


def _state_of(plan: Plan, step_id: str, keys: Mapping[str, Any]) -> UnplacedState:
    step = plan.steps.get(step_id)
    if step is None or not isinstance(step.operator, Stateful):
        keyed = (name for name, one in plan.steps.items() if isinstance(one.operator, Stateful))
        known = ", ".join(map(repr, keyed)) or "none"
        raise FlowBuildError(f"step {step_id!r} keeps no state; those that do: {known}")
    operator = step.operator
    kept = [_snapshot(step_id, operator, key, state) for key, state in keys.items()]
    return UnplacedState(step_id, step_id, kept)


def _snapshot(step_id: str, operator: Stateful, key: str, state: Any) -> KeySnapshot:
    """Return a key's pickled snapshot, due time and counts, from a logic built from the state."""
    if not isinstance(key, str):
        raise wrong_type(f"step {step_id!r}: a key of its state must be a text", key)
    try:
        made, due_us = state, 0  # Without logic of a key, the first epoch finds the due time.
        if getattr(operator.builder, "has_keyed_form", True):
            logic = operator.builder(state)
            made, due_us = logic.snapshot(), int(logic.notify_at_us())
        elif not isinstance(state, tuple):
            raise TypeError("a state as in an export is needed")
        counter = operator.capabilities.counter
        counts = None if counter is None else StateCounts(*counter(made))
        return KeySnapshot(key, pickle.dumps(made, 5), due_us, 0, counts)
    except Exception as error:
        problem = f"cannot continue from a state that it is seeded with: {brief(error)}"
        raise step_error(step_id, problem, key=key, item=state) from error


FILES = 32
"""The number of files, which tasks read in parallel."""
_ROWS = 1_000


@dataclass(frozen=True)
class UnplacedState:
    """The state of a step without a layout.

    Attributes:
        step_id: the step.
        name: the name of the step's state.
        keys: the step's keys.
        progress: the encoded stream progress, for a step that has it.
        settings: the step's settings in headers, if all shards agree; else empty.
    """

    step_id: str
    name: str
    keys: list[KeySnapshot]
    progress: bytes | None = None
    settings: str = ""


def check_layout(shards: int | None, partitions: int | None) -> None:
    """Check the arguments of a layout, of which ``None`` leaves the choice to the tool.

    Raises:
        FlowBuildError: when a number is not a positive whole number.
    """
    for name, count in (("shards", shards), ("partitions", partitions)):
        if count is not None:
            check_whole(name, count, 1)


def store_seeds(files: CheckpointFiles, identity: Identity, states: list[UnplacedState]) -> None:
    """Write the seeds of a generation, then their checksums, then its identity.

    Seeds that an interrupted attempt has left are replaced.

    Raises:
        CheckpointError: if a key is missing in the seeds, duplicate or different.
    """
    files.storage.remove(identity.seed)
    root = f"{files.root}/{identity.seed}"
    write_seeds(root, (seed for state in states for seed in seeds_of(state, identity.shards)))
    check_seeds(root, states, identity.shards)
    names = [f"{identity.seed}/{os.path.basename(path)}" for path in seed_files(root)]
    sums = {name: zlib.crc32(files.content(name)) for name in names}
    files.storage.write(f"{identity.seed}/{SEED_SUMS}", sums)
    files.storage.write(files.IDENTITY, identity.to_json())


def seeds_of(state: UnplacedState, shards: int) -> Iterator[Seed]:
    """Yield the headers and segments of a step's state in a new layout."""
    step_id, name = state.step_id, state.name
    dealt: dict[int, list[KeySnapshot]] = defaultdict(list)
    for shard, kept in zip(_shards_of(state.keys, step_id, shards), state.keys, strict=True):
        dealt[shard].append(kept)
    for shard, of_shard in sorted(dealt.items()):
        contents = {kept.key: (kept.snapshot, kept.due_us) for kept in of_shard}
        counts = {kept.key: kept.counts for kept in of_shard if kept.counts is not None}
        is_counted = len(counts) == len(of_shard)
        header, segments = lay_out(
            contents, step_id, state.settings, counts if is_counted else None
        )
        yield Seed(step_id, shard, name, None, header.encode())
        for number, segment in enumerate(segments):
            content = segment.encode()
            if content is not None:
                yield Seed(step_id, shard, name, number, content)
    if state.progress is not None:
        for shard in range(shards):
            yield Seed(step_id, shard, name, PROGRESS_SEGMENT, state.progress)


def _shards_of(keys: list[KeySnapshot], step_id: str, shards: int) -> list[int]:
    """Return the shard of each key in a layout."""
    array = key_array([kept.key for kept in keys], step_id)
    return [*map(int, shard_of(hash_keys(array), shards))]


def write_seeds(root: str, seeds: Iterable[Seed]) -> None:
    """Write seeds to a new directory; without seeds, a file without rows.

    So a missing directory, or a directory without files, is damage.
    """
    place = locate(root)
    place.filesystem.create_dir(place.path)
    rows: dict[int, list[Seed]] = defaultdict(list, {0: []})
    for seed in seeds:
        rows[seed.shard % FILES].append(seed)
    for number, of_file in rows.items():
        columns = {
            field.name: [getattr(seed, field.name) for seed in of_file] for field in SEED_SCHEMA
        }
        pq.write_table(
            pa.table(columns, SEED_SCHEMA),
            f"{place.path}/part-{number:02d}.parquet",
            filesystem=place.filesystem,
            row_group_size=_ROWS,
        )


def check_seeds(root: str, states: Iterable[UnplacedState], shards: int) -> None:
    """Read written seeds, and compare them with the original state.

    Raises:
        CheckpointError: if a key is missing, duplicate or different.
    """
    found: dict[str, list[tuple[str, bytes, int]]] = defaultdict(list)
    for seed in seeds_in(root, seed_files(root)):
        if seed.number is None or seed.number == PROGRESS_SEGMENT:
            continue
        keys = decode_segment(seed.content, seed.shard, seed.number, seed.step)
        if {*_shards_of(keys, seed.step, shards)} - {seed.shard}:
            raise CheckpointError(f"{root}: step {seed.step!r} has keys in a wrong shard")
        found[seed.name] += [kept[:3] for kept in keys]
    for state in states:
        if sorted(found[state.name]) != sorted(kept[:3] for kept in state.keys):
            raise CheckpointError(f"{root}: step {state.step_id!r} has not kept all its keys")


@dataclass(frozen=True)
class Rescaled:
    """The result of a rescaling.

    Attributes:
        epoch: the epoch whose state was moved; the next run continues after this epoch.
        shards: the new number of shards of the key space.
        partitions: the new number of partitions after each shuffle.
        keys: the number of keys.
        left: the directory of the old state, which is not needed after the next run has started.
    """

    epoch: int
    shards: int
    partitions: int
    keys: int
    left: str

    def __str__(self) -> str:
        """Return the result as text for people."""
        return (
            f"{self.keys:,} keys are in {self.shards} shards now, and each shuffle has "
            f"{self.partitions} partitions; the next run continues after epoch {self.epoch}.\n"
            f"Once it has, {self.left} is not needed any more."
        )


def rescale(
    path: PathLike,
    *,
    shards: int | None = None,
    partitions: int | None = None,
    spark: SparkSession | None = None,
) -> Rescaled:
    """Move a checkpoint's state to another layout, with which the next run continues.

    The next run may have another number of shuffles as well, because moved state is bound to
    steps, not to shuffles. The old state remains in its directory.

    Args:
        path: the checkpoint's directory, a path or a URI.
        shards: the new number of shards of the key space; by default unchanged.
        partitions: the new number of partitions after each shuffle; by default unchanged.
        spark: the session to use; by default the active one, else a new local one.

    Raises:
        CheckpointError: when a run uses the checkpoint, when its state cannot be read, or when its
            inputs are read by Spark itself, whose offsets cannot be moved.
        FlowBuildError: when a number is not a positive whole number.
    """
    check_layout(shards, partitions)
    kept = open_checkpoint(path, spark)
    with kept.files.locked():
        kept.files.check_settled()
        return _rescale(kept, shards, partitions)


def _rescale(kept: CheckpointReader, shards: int | None, partitions: int | None) -> Rescaled:
    epoch, before = kept.newest, kept.identity
    log = kept.log(epoch)
    if log.sparks:
        raise CheckpointError(
            f"{kept.root} has inputs that Spark itself reads (data frames): their offsets are in "
            "Spark's checkpoint only, and cannot be moved to another"
        )
    states = read_states(kept, epoch)
    after = replace(
        before.for_spark(kept.spark.version),
        shards=shards or before.shards,
        partitions=partitions or before.partitions,
        generation=before.generation + 1,
        first_epoch=epoch + 1,
        start=log.offset.to_json(),
        begun=None if kept.begun is None else kept.log(kept.begun).offset.to_json(),
        dropping=(),
        earlier=(),
        recovery={**before.recovery, "fingerprint": without_levels(kept.fingerprint)},
    )
    kept.files.storage.remove(after.spark)  # An interrupted attempt may have left it.
    store_seeds(kept.files, after, states)
    keys = sum(len(state.keys) for state in states)
    left = f"{kept.root}/{before.spark}"
    return Rescaled(epoch, after.shards, after.partitions, keys, left)


def read_states(kept: CheckpointReader, epoch: int) -> list[UnplacedState]:
    """Return the state of all steps at the end of an epoch.

    Raises:
        CheckpointError: if the state cannot be read, or lacks a block.
    """
    state = EpochState(kept, epoch)
    states: list[UnplacedState] = []
    headers = state.headers()
    names = dict.fromkeys([*headers, *map(kept.state_name, kept.fingerprint["keyed"])])
    for name in names:
        if name in kept.identity.dropping:
            continue
        progress = state.progress(name)
        encoded = None if progress is None else progress.encode()
        settings = {one.settings for one in headers.get(name, {}).values()}
        agreed = settings.pop() if len(settings) == 1 else ""
        step_id, keys = kept.step_of(name), list(state.keys(name))
        if any(one.block_bytes for one in headers.get(name, {}).values()):
            for key in (one for one in keys if kind_of(one.snapshot) != WINDOWS):
                load_snapshot(key, step_id)  # An error names a key whose blocks are missing.
        states.append(UnplacedState(step_id, name, keys, encoded, agreed))
    return states
