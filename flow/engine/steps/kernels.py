"""Kernels of stateless steps over chunks: one function for each operator."""

from __future__ import annotations

import builtins
import contextlib
import io
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.columns.chunks import (
    Chunk,
    Items,
    KeyedRecords,
    Pairs,
    Records,
    as_items,
    as_pairs,
    checked_keys,
    laid_out,
    pick,
    take,
)
from flow.columns.predicate import ColumnPredicate
from flow.columns.record_batches import rows_of
from flow.columns.text_keys import NoTextKey, key_column, key_reader
from flow.connectors.sink import to_record
from flow.dataflow import Operator
from flow.engine.calls.chunk_calls import run_calls
from flow.engine.epoch.context import TaskContext
from flow.engine.epoch.failures import portable
from flow.engine.packets.shards import hash_keys, shard_of
from flow.engine.steps.batches import mask_of, run_batches
from flow.engine.tables.contents import Change
from flow.engine.tables.table_files import pickled
from flow.errors import RAISED, EngineError, StepError, brief, shorten, step_error
from flow.fields import field_path
from flow.instants import instant_us
from flow.keyed.logic import RejectedValue
from flow.operators.async_calls import EnrichCached, MapAsync, TTLCache
from flow.operators.keyed_tables import FilterWith, FlatMapWith, Getter, MapWith, Table, TableReader
from flow.operators.stateless import (
    Branch,
    Bucket,
    Combine,
    Filter,
    FlatMap,
    Inspect,
    ItemError,
    KeyOn,
    KeyRm,
    Map,
    MapBatches,
    Merge,
    Raises,
    Rekey,
    ToRecords,
    TryMap,
)

StepOutput = list[Chunk | None]
"""Output of a step for a chunk: a chunk for each of its ports."""


@singledispatch
def run_step(kind: Operator, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    """Run a stateless step on a chunk, and return a chunk for each of the step's ports.

    Raises:
        StepError: when a user's function raised, or returned a value of a wrong type.
    """
    raise EngineError(f"step {step_id!r}: {type(kind).__name__} is not a stateless step")


@run_step.register
def _map(kind: Map, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    if kind.on_value:
        pairs = as_pairs(chunk, step_id)
        values = _call(step_id, "the mapper", kind.mapper, pairs.values, pairs.keys)
        return [Pairs(pairs.keys, values, pairs.pos)]
    return _each(step_id, "the mapper", kind.mapper, chunk)


@run_step.register
def _flat_map(kind: FlatMap, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    if kind.on_value:
        pairs = as_pairs(chunk, step_id)
        values, counts = _call_flat(step_id, kind.mapper, pairs.values, pairs.keys)
        repeated = builtins.map(itertools.repeat, pairs.keys, counts)
        keys = list(itertools.chain.from_iterable(repeated))
        return [Pairs(keys, values, np.repeat(pairs.pos, counts))]
    plain = as_items(chunk)
    items, counts = _call_flat(step_id, kind.mapper, plain.items)
    return [Items(items, np.repeat(plain.pos, counts))]


@run_step.register
def _filter(kind: Filter, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:
    mask = _decide(kind.predicate, kind.on_value, step_id, chunk)
    context.count(step_id, "filtered", int(len(mask) - mask.sum()))
    return [take(chunk, mask)]


@run_step.register
def _branch(kind: Branch, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    mask = _decide(kind.predicate, False, step_id, chunk)
    return [take(chunk, mask), take(chunk, ~mask)]


@run_step.register
def _merge(kind: Merge, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    return [chunk]


@run_step.register
def _key_on(kind: KeyOn, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    if kind.paths and isinstance(chunk, Records):
        column = key_column(kind.paths, chunk.batch)
        if column is not None:
            return [KeyedRecords(column, chunk.batch, chunk.pos)]
    plain = as_items(chunk)
    if callable(kind.key):
        keys = _call(step_id, "the key function", kind.key, plain.items)
    else:
        keys = _call(step_id, "reading the key", key_reader(kind.paths), plain.items)
    return [Pairs(checked_keys(keys, plain.items, step_id), plain.items, plain.pos)]


@run_step.register
def _key_rm(kind: KeyRm, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    if isinstance(chunk, KeyedRecords):
        return [Records(chunk.batch, chunk.pos)]
    pairs = as_pairs(chunk, step_id)
    return [Items(pairs.values, pairs.pos)]


@run_step.register
def _bucket(kind: Bucket, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    names = pa.array([f"{number}" for number in range(kind.count)])
    if isinstance(chunk, KeyedRecords):
        keys = chunk.keys
        if pa.types.is_dictionary(keys.type):
            numbers = shard_of(hash_keys(keys.dictionary), kind.count)[keys.indices.to_numpy()]
        else:
            numbers = shard_of(hash_keys(keys), kind.count)
        buckets = pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), names)
        return [KeyedRecords(buckets, chunk.batch, chunk.pos)]
    pairs = as_pairs(chunk, step_id)
    numbers = shard_of(hash_keys(pa.array(pairs.keys, pa.string())), kind.count)
    return [Pairs(pick(names.to_pylist(), numbers), pairs.values, pairs.pos)]


@run_step.register
def _rekey(kind: Rekey, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    pairs = as_pairs(chunk, step_id)
    return [Pairs([kind.key] * len(pairs), pairs.values, pairs.pos)]


@run_step.register
def _combine(kind: Combine, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    if not len(chunk):
        return [chunk]
    if kind.row_filter is not None and isinstance(chunk, KeyedRecords):
        rows = kind.row_filter(chunk.keys, chunk.batch)
        if rows is not None:
            batch = chunk.batch.take(rows)
            chunk = KeyedRecords(chunk.keys.take(rows), batch, chunk.pos[rows.to_numpy()])
    pairs = as_pairs(chunk, step_id)
    try:
        keys, values = kind.combiner(pairs.keys, pairs.values)
    except RejectedValue as error:
        raise step_error(step_id, error.problem, item=error.value) from error
    return [Pairs(keys, values, np.full(len(keys), pairs.pos.max()))]


@run_step.register
def _inspect(kind: Inspect, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        _each(step_id, "the inspector", lambda item: kind.inspector(step_id, item), chunk)
    context.printed.extend(shown.getvalue().splitlines())
    return [chunk]


@run_step.register
def _raises(kind: Raises, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    if len(chunk):
        problem = "an item reached a stream that op.raises watches"
        raise step_error(step_id, problem, item=as_items(chunk).items[0])
    return []


@run_step.register
def _try_map(kind: TryMap, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:
    plain = as_items(chunk)
    outputs: list[Any] = []
    failed = np.zeros(len(plain), np.bool_)
    for index, item in enumerate(plain.items):
        try:
            outputs.append(kind.mapper(item))
        except Exception as error:  # `try_map` exists to catch any exception.
            failed[index] = True
            outputs.append(ItemError(item, step_id, portable(error)))
        except RAISED as error:
            raise _raised(step_id, "the mapper", error, plain.items, None, index) from error
    context.count(step_id, "errors", int(failed.sum()))
    whole = Items(outputs, plain.pos)
    return [take(whole, ~failed), take(whole, failed)]


run_step.register(MapAsync)(run_calls)
run_step.register(MapBatches)(run_batches)


@run_step.register
def _to_records(kind: ToRecords, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:  # noqa: ARG001
    if isinstance(chunk, (Records, KeyedRecords)):
        return [Records(laid_out(chunk), chunk.pos)]
    return _each(step_id, "making a record", to_record, chunk)


_caches: dict[tuple[str, str], TTLCache[Any, Any]] = {}
"""The caches of this worker, by (run, step); they outlive epochs."""


@run_step.register
def _enrich(kind: EnrichCached, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:
    run_id = context.run_id
    for identity in [known for known in _caches if known[0] != run_id]:
        del _caches[identity]
    cache = _caches.setdefault((run_id, step_id), TTLCache(kind.getter, kind.ttl_us))
    cache.now_us = context.moment.steady_us
    return _each(step_id, "the mapper", lambda item: kind.mapper(cache, item), chunk)


@run_step.register
def _table(kind: Table, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:
    changes = context.changes.setdefault(step_id, [])
    changes.extend(zip(chunk.pos.tolist(), changes_in(kind, step_id, chunk), strict=True))
    return [None]


def changes_in(kind: Table, step_id: str, chunk: Chunk) -> list[Change]:
    """Return the changes of a table that are the items of a chunk, with pickled values.

    Raises:
        StepError: when a key, value or time cannot be read, or a value cannot be pickled.
    """
    if kind.key is None:
        pairs = as_pairs(chunk, step_id)
        keys, items = pairs.keys, pairs.values
    else:
        items = as_items(chunk).items
        read = key_reader((kind.key,)) if isinstance(kind.key, str) else kind.key
        found = _call(step_id, "reading the key", read, items)
        keys = checked_keys(found, items, step_id)
    values = items
    if kind.value is not None:
        values = _call(step_id, "reading the value", _read(kind.value), items)
    times = [0] * len(items) if kind.as_of is None else _times(kind.as_of, step_id, items)
    packed = [pickled(step_id, key, value) for key, value in zip(keys, values, strict=True)]
    return [Change(*change) for change in zip(keys, packed, times, strict=True)]


@run_step.register
def _map_with(kind: MapWith, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:
    plain = as_items(chunk)
    return _each(step_id, "the mapper", _with_table(kind, step_id, plain.items, context), plain)


@run_step.register
def _flat_map_with(
    kind: FlatMapWith, step_id: str, chunk: Chunk, context: TaskContext
) -> StepOutput:
    plain = as_items(chunk)
    mapper = _with_table(kind, step_id, plain.items, context)
    items, counts = _call_flat(step_id, mapper, plain.items)
    return [Items(items, np.repeat(plain.pos, counts))]


@run_step.register
def _filter_with(kind: FilterWith, step_id: str, chunk: Chunk, context: TaskContext) -> StepOutput:
    predicate = _with_table(kind, step_id, as_items(chunk).items, context)
    return run_step(Filter(predicate), step_id, chunk, context)


def _with_table(
    kind: TableReader, step_id: str, items: list[Any], context: TaskContext
) -> Callable[[Any], Any]:
    """Return a step's function of an item and a table as a function of the next item."""
    contents, function = context.table(kind.table), kind.function
    if kind.as_of is None:
        view = contents.view()
        return lambda item: function(item, view)
    times = iter(_times(kind.as_of, step_id, items))
    return lambda item: function(item, contents.view(next(times)))


def _times(getter: Getter, step_id: str, items: list[Any]) -> list[int]:
    """Return the time of each item, in µs."""
    read = _read(getter)
    return _call(step_id, "reading the time (as_of)", lambda item: instant_us(read(item)), items)


def _read(getter: Getter) -> Callable[[Any], Any]:
    """Return a getter as a function."""
    if getter is None:
        return lambda item: item
    return field_path(getter).value_in if isinstance(getter, str) else getter


def _each(step_id: str, what: str, function: Callable[[Any], Any], chunk: Chunk) -> StepOutput:
    """Call a function on each item of a chunk, see `_call`; return its results as the output."""
    plain = as_items(chunk)
    return [Items(_call(step_id, what, function, plain.items), plain.pos)]


def _call(
    step_id: str,
    what: str,
    function: Callable[[Any], Any],
    inputs: list[Any],
    keys: list[str] | None = None,
) -> list[Any]:
    """Call a user's function on each input; an error names the input on which it raised.

    Args:
        step_id: the step.
        what: the name of the function in errors, such as "the mapper".
        function: the function.
        inputs: the inputs.
        keys: the key of each input, for errors; ``None`` for inputs without keys.
    """
    remaining = iter(inputs)
    try:
        outputs = list(builtins.map(function, remaining))
    except RAISED as error:
        at = len(inputs) - operator.length_hint(remaining) - 1
        raise _raised(step_id, what, error, inputs, keys, at) from error
    if len(outputs) != len(inputs):
        stopped = StopIteration()
        raise _raised(step_id, what, stopped, inputs, keys, len(outputs)) from stopped
    return outputs


def _call_flat(
    step_id: str,
    function: Callable[[Any], Iterable[Any]],
    inputs: list[Any],
    keys: list[str] | None = None,
) -> tuple[list[Any], list[int]]:
    """Call a mapper on each input; return all outputs, and the number of outputs of each input."""
    outputs: list[Any] = []
    ends: list[int] = []
    try:
        for value in inputs:
            outputs.extend(function(value))
            ends.append(len(outputs))
    except RAISED as error:
        raise _raised(step_id, "the mapper", error, inputs, keys, len(ends)) from error
    return outputs, np.diff(ends, prepend=0).tolist()


def _raised(
    step_id: str,
    what: str,
    error: BaseException,
    inputs: Sequence[Any],
    keys: list[str] | None,
    at: int,
) -> StepError:
    key = None if keys is None else keys[at]
    problem = str(error) if isinstance(error, NoTextKey) else f"{what} raised {brief(error)}"
    return step_error(step_id, problem, item=inputs[at], key=key)


def _decide(
    predicate: Callable[[Any], bool] | ColumnPredicate, on_value: bool, step_id: str, chunk: Chunk
) -> npt.NDArray[np.bool_]:
    """Return the mask of a chunk's items for which the predicate is true."""
    if isinstance(predicate, ColumnPredicate):
        return mask_of(predicate, on_value, step_id, chunk)
    keys: list[str] | None = None
    if on_value and isinstance(chunk, KeyedRecords):
        inputs = rows_of(chunk.batch)
    elif on_value:
        pairs = as_pairs(chunk, step_id)
        inputs, keys = pairs.values, pairs.keys
    else:
        inputs = as_items(chunk).items
    answers = _call(step_id, "the predicate", predicate, inputs, keys)
    if not set(map(type, answers)) <= {bool, np.bool_}:
        at = [isinstance(answer, (bool, np.bool_)) for answer in answers].index(False)
        kind, key = type(answers[at]).__name__, None if keys is None else keys[at]
        problem = f"the predicate must return True or False, got {kind} {shorten(answers[at])}"
        raise step_error(step_id, problem, item=inputs[at], key=key)
    return np.array(answers, np.bool_)
