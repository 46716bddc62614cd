"""Rows of a data frame, in the workers, from the packets of an output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import pyarrow as pa

from flow.connectors.formats.columns import FIX, as_columns, merge_small
from flow.connectors.sink import Written
from flow.engine.packets.packets import SLICE_BITS, Packet
from flow.engine.steps.outputs import unpacked
from flow.errors import SinkError

FRAME_FIX = "give a schema with types that fit, or map the items before"


def rows_of(items: Iterable[Written], schema: pa.Schema, step_id: str) -> Iterator[pa.RecordBatch]:
    """Yield items as rows, in their order.

    Args:
        items: the items, in batches.
        schema: the columns.
        step_id: the output's step, for errors.

    Raises:
        SinkError: a value does not fit its column.
    """
    try:
        for written in merge_small(items):
            yield as_columns(written, schema, step_id)
    except SinkError as error:
        raise SinkError(str(error).replace(FIX, FRAME_FIX)) from error.__cause__


def unpacked_by_slice(packets: Iterable[Packet]) -> Iterator[Written]:
    """Yield the items of one output in order within each shard and slice, one slice in memory.

    Args:
        packets: the packets, those of a shard and slice together.
    """
    for _, of_slice in groupby(packets, key=_shard_and_slice):
        yield from unpacked(list(of_slice), lays_out=True)


def _shard_and_slice(packet: Packet) -> tuple[int, int]:
    return packet.shard, packet.seq >> SLICE_BITS
