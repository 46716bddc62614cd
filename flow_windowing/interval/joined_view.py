"""Records of the pairs of a join by time: the window of each pair, and the record of each side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.columns.chunks import rows_as_dicts
from flow.columns.row_views import RowView, register, with_view
from flow.columns.sided_records import SidedRecords
from flow_windowing.columnar.windows.window_view import WindowView, metadata_of
from flow_windowing.contract.joined_pair import JoinedPair

KIND = "joined pair"
_SIDES = _LEFT, _RIGHT = "left", "right"
_WINDOWS = WindowView(None)


@dataclass(frozen=True)
class JoinedView(RowView):
    """Pairs with their windows, ``(WindowMetadata, JoinedPair)``."""

    @override
    def values(self, batch: pa.RecordBatch) -> list[Any]:
        left, right = (_dicts(batch.column(side)) for side in _SIDES)
        return list(zip(metadata_of(batch), map(JoinedPair, left, right), strict=True))

    @override
    def columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        sides = {side: batch.column(side) for side in _SIDES}
        return {**_WINDOWS.columns(batch), **sides}


register(KIND, lambda _: JoinedView())


def joined_records(
    windows: pa.RecordBatch, values: SidedRecords, left: Ints, right: Ints
) -> pa.RecordBatch:
    """Return records of pairs, with a `JoinedView`.

    Args:
        windows: the windows, as `WindowView.records` returns them.
        values: the values that the pairs refer to; the columns of both sides are known.
        left: the index of each left value; -1 for none.
        right: the index of each right value; -1 for none.
    """
    sides = (_side(values, side, indices) for side, indices in enumerate((left, right)))
    columns = [*windows.columns, *sides]
    batch = pa.RecordBatch.from_arrays(columns, names=[*windows.schema.names, *_SIDES])
    return with_view(batch, KIND, None)


def _side(values: SidedRecords, side: int, indices: Ints) -> pa.Array:
    """Return the records of a side's values as structs; null for the index -1."""
    is_none = indices < 0
    rows = pa.array(np.append(values.rows, 0)[indices], mask=is_none if is_none.any() else None)
    return values.batches[side].to_struct_array().take(rows)


def _dicts(structs: pa.StructArray) -> list[Any]:
    """Return structs as dicts, nulls as ``None``."""
    names = [field.name for field in structs.type]
    fields = [structs.field(number) for number in range(len(names))]
    dicts: list[Any] = rows_as_dicts(pa.RecordBatch.from_arrays(fields, names=names))
    if structs.null_count:
        is_none = structs.is_null().to_pylist()
        return [None if none else one for none, one in zip(is_none, dicts, strict=True)]
    return dicts
