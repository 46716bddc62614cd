"""Columns of a stream, found in the graph without a run.

Sources declare the columns of their records, and stateless steps that call no function to change
items pass them on. Keyed steps declare the columns of their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

import pyarrow as pa

from flow.columns.arrow_types import entering
from flow.columns.known_columns import KnownColumns, StreamColumns, UnknownColumns
from flow.columns.text_keys import key_problem
from flow.connectors.formats.columns import known_columns
from flow.dataflow import Step, StreamId
from flow.engine.epoch.failures import naming
from flow.engine.plan.plan import Plan
from flow.errors import FlowBuildError, SourceError, StepError
from flow.fields import is_known_to_lack, names_in, nearest
from flow.keyed.step import Stateful
from flow.operators.edges import Input, Output
from flow.operators.keyed_tables import FilterWith, Table, TableReader
from flow.operators.stateless import (
    Branch,
    Filter,
    FlatMap,
    Inspect,
    KeyOn,
    KeyRm,
    Map,
    MapBatches,
    Merge,
    Redistribute,
    ToRecords,
)
from flow.operators.typed_records import TryTyped, Typed

_SAME = (Filter, FilterWith, Branch, Inspect, Redistribute)
"""Operators whose streams have the items of the stream that they read."""

_ERRORS = KnownColumns(pa.schema([(name, pa.string()) for name in ("where", "text", "reason")]))


def columns_of(steps: Mapping[str, Step], stream: StreamId) -> StreamColumns:
    """Return the columns of a stream, or the reason why they are not known.

    Args:
        steps: the steps of the flow, each after the steps that it reads.
        stream: the stream.

    Raises:
        SourceError: when a source that takes its columns from its data cannot be read.
        StepError: when steps cannot process the columns of a source.
    """
    return _all_columns(steps, [stream])[stream]


def check_fields(plan: Plan) -> None:
    """Check that the records that steps read have the fields that the steps name.

    Only where columns are known: a source that cannot be read fails as the flow runs.

    Raises:
        FlowBuildError: when a step names a field that its records do not have, or that has no key.
    """
    known: dict[StreamId, StreamColumns] = {}
    with suppress(SourceError, StepError):
        known = _all_columns(plan.steps, [plan.steps[name].ups[side] for name, side in plan.named])
    for (name, side), paths in plan.named.items() if known else ():
        step = plan.steps[name]
        columns, is_end = known[step.ups[side]], isinstance(step.operator, Output)
        if isinstance(columns, UnknownColumns) or not (is_end or columns.are_records):
            continue
        schema = columns.schema if is_end else columns.values
        for path in sorted(paths):
            if is_known_to_lack(schema, path):
                raise FlowBuildError(
                    f"step {name!r} names the field {path!r}, which the records that it reads "
                    f"do not have{nearest(path, names_in(schema))}"
                )
            problem = key_problem(path, columns.type_of(path))
            if problem is not None and isinstance(step.operator, KeyOn):
                raise FlowBuildError(f"step {name!r}: {problem}")
        if isinstance(step.operator, (Typed, TryTyped)):
            step.operator.records.check_columns(schema, name)


def _all_columns(
    steps: Mapping[str, Step], streams: Iterable[StreamId]
) -> dict[StreamId, StreamColumns]:
    found: dict[StreamId, StreamColumns] = {}
    needed = _upstreams(steps, streams)
    for step in steps.values():
        if step.step_id in needed:
            for port, down in enumerate(step.downs):
                ups = [up for up in step.ups if not isinstance(steps[up.step_id].operator, Table)]
                found[down] = _of_port(step, port, [found[up] for up in ups])
    return found


def _upstreams(steps: Mapping[str, Step], streams: Iterable[StreamId]) -> set[str]:
    needed = {stream.step_id for stream in streams}
    for step in reversed(tuple(steps.values())):
        if step.step_id in needed:
            needed.update(up.step_id for up in step.ups)
    return needed


def _of_port(step: Step, port: int, ups: list[StreamColumns]) -> StreamColumns:
    """Return the columns of a step's stream; the reason for unknown ones names a step."""
    operator = step.operator
    if isinstance(operator, Input):
        return _of_source(step, operator, port)
    if isinstance(operator, Stateful):
        made = operator.columns(port, ups)
        if isinstance(made, KnownColumns):
            return made
        own = UnknownColumns(f"of step {step.step_id!r}: {made.reason}")
        return _first_unknown(ups) or own
    unknown = _first_unknown(ups)
    if unknown is not None:
        return unknown
    known = [each for each in ups if isinstance(each, KnownColumns)]
    if isinstance(operator, _SAME):
        return known[0]
    if isinstance(operator, Merge):
        return _merged(step, known)
    if isinstance(operator, (KeyOn, KeyRm)):
        return _with_key(step, known[0], has_key=isinstance(operator, KeyOn))
    if isinstance(operator, ToRecords):
        return KnownColumns(known[0].schema)
    if isinstance(operator, (Map, FlatMap, MapBatches, TableReader)):
        return UnknownColumns(f"step {step.step_id!r} makes its items with a function")
    return UnknownColumns(f"the items of step {step.step_id!r} are Python objects")


def _of_source(step: Step, operator: Input, port: int) -> StreamColumns:
    if port:
        return _ERRORS
    try:
        schema: Any = operator.source.record_columns()
    except SourceError as error:
        raise naming(step.step_id, error) from error.__cause__
    if schema is None:
        return UnknownColumns(
            f"the source of step {step.step_id!r} does not know the columns of its records"
        )
    return KnownColumns(known_columns(entering(schema.empty_table(), step.step_id).schema))


def _first_unknown(ups: list[StreamColumns]) -> UnknownColumns | None:
    return next((each for each in ups if isinstance(each, UnknownColumns)), None)


def _merged(step: Step, ups: list[KnownColumns]) -> StreamColumns:
    if all(each == ups[0] for each in ups):
        return ups[0]
    return UnknownColumns(f"the streams that step {step.step_id!r} merges have different columns")


def _with_key(step: Step, up: KnownColumns, *, has_key: bool) -> StreamColumns:
    if up.has_key == has_key:
        return UnknownColumns(f"the items of step {step.step_id!r} are pairs in pairs")
    return KnownColumns(up.values, has_key, up.are_records)


def needless_functions(steps: Mapping[str, Step]) -> Iterator[tuple[str, str]]:
    """Yield each step that reads a field of known columns with a function, and the field's path.

    The function makes objects of records that would stay columns with the path in its place.
    """
    for step in steps.values():
        reads = isinstance(step.operator, (KeyOn, Stateful))
        for path in dict.fromkeys(_fields_of_functions(step.operator) if reads else ()):
            with suppress(SourceError, StepError):  # The run itself reads the source, and fails.
                up = columns_of(steps, step.ups[0])
                if isinstance(up, KnownColumns) and up.type_of(path) is not None:
                    yield step.step_id, path


_GETTERS = {"key", "ts_getter", "field"}
"""The parameters, of steps, clocks and aggregates, that are a function or a path."""
_READS_A_FIELD = {
    (function.__code__.co_code, function.__code__.co_names)
    for function in (lambda row: row["field"], lambda row: str(row["field"]))
}
"""The code of functions that do nothing but read a field, without the field's name."""


def _fields_of_functions(config: Any) -> Iterator[str]:
    """Yield the fields that functions in a configuration do nothing but read."""
    if isinstance(config, tuple):
        for part in config:
            yield from _fields_of_functions(part)
    for field in fields(config) if is_dataclass(config) else ():
        value = getattr(config, field.name, None)
        code = getattr(value, "__code__", None) if field.name in _GETTERS else None
        if code is not None and (code.co_code, code.co_names) in _READS_A_FIELD:
            yield from (const for const in code.co_consts if isinstance(const, str))
        yield from _fields_of_functions(value)
