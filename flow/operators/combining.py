"""Stateless operators that other packages' operators over all keys are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from typing_extensions import override

from flow.dataflow import Operator

Combiner: TypeAlias = Callable[[Sequence[str], list[Any]], tuple[list[str], list[Any]]]
"""A function of keys and values of a chunk that returns fewer keys and values."""

RowFilter: TypeAlias = Callable[[pa.Array, pa.RecordBatch], "pa.Array | None"]
"""A function of keys and rows that returns the indices of the rows to keep, ``None`` for all."""


@dataclass(frozen=True)
class Bucket(Operator):
    """Replace the key of each item by its bucket, a part of the key space by a hash of the key.

    The bucket of a key is the same in every version and on every machine.

    Attributes:
        count: the number of buckets.
    """

    count: int


@dataclass(frozen=True)
class Combine(Operator):
    """Combine the items of each chunk into fewer items, before a shuffle.

    The engine chooses the chunks. So a later step must make the same of the combined items, however
    the items were divided into chunks.

    Attributes:
        combiner: combines keys and values.
        row_filter: chooses rows while they are columns, before `combiner`; ``None`` to keep all.
    """

    combiner: Combiner
    row_filter: RowFilter | None = None


@dataclass(frozen=True)
class Rekey(Operator):
    """Replace the key of each item by one key.

    The step is left out if no output needs its items.

    Attributes:
        key: the key.
    """

    key: str

    @property
    @override
    def is_optional(self) -> bool:
        return True
