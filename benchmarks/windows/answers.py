"""Summaries of the outputs of contestants, for comparison: a fast wrong answer does not count.

Some contestants leave the last windows open when the events end, some close them. So the comparison
contains only windows that the watermark has closed in all contestants when the events end.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.windows.data import WAIT_SECONDS

GAP_US = 30_000_000
HOUR_US = 3_600_000_000
BOUNDS = ("key", "open_time", "close_time")
Words: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


@dataclass(frozen=True)
class Answer:
    """A summary of all windows and their results.

    Attributes:
        windows: the number of windows.
        sums: the sum of each result over all windows, by its name.
        checksum: the checksum of keys, open times and results, whatever the order of windows.
    """

    windows: int
    sums: dict[str, float]
    checksum: str


def answer_in(folder: Path, figures: Sequence[str], windows: str, last_us: int) -> Answer:
    """Return the summary of a contestant's output.

    Args:
        folder: the folder of the output.
        figures: the names of the results.
        windows: the kind of windows: ``tumbling``, ``sliding`` or ``session``; ``join`` or ``asof``
            for a join, whose pairs have the times of their values as bounds; ``dedup`` for events;
            ``levels`` for windows of windows.
        last_us: the time of the last event, in microseconds since the Unix epoch.
    """
    table = _table(folder, figures)
    later_us = {"session": GAP_US, "levels": HOUR_US}.get(windows, 0)
    closed_us = last_us - WAIT_SECONDS * 1_000_000 - later_us
    table = table.filter(pc.less_equal(table["close_time"], closed_us))
    sums = {name: math.fsum(table[name].to_numpy()) for name in figures}
    return Answer(table.num_rows, sums, _checksum(table, figures))


def _table(folder: Path, figures: Sequence[str]) -> pa.Table:
    """Return the windows, with times in microseconds since the Unix epoch."""
    pickles = sorted(folder.rglob("*.pickle"))
    if pickles:
        return _from_pickles(pickles, figures)
    files = [str(path) for path in sorted(folder.rglob("*.parquet")) if path.is_file()]
    table = ds.dataset(files, format="parquet").to_table(columns=[*BOUNDS, *figures])
    for place, name in enumerate(BOUNDS[1:], 1):
        micros = table[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        table = table.set_column(place, name, micros)
    return table


def _from_pickles(files: Sequence[Path], figures: Sequence[str]) -> pa.Table:
    rows: list[tuple[Any, ...]] = []
    for path in files:
        rows += pickle.loads(path.read_bytes())
    names = (*BOUNDS, *figures)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table(dict(zip(names, columns, strict=True)))


def _checksum(table: pa.Table, figures: Sequence[str]) -> str:
    """Return the sum of the hashes of rows, which does not depend on their order."""
    mixed = _mixed(_keys(table["key"]) ^ _words(table["open_time"].cast(pa.int64())))
    for name in figures:
        mixed = _mixed(mixed ^ _words(table[name].cast(pa.float64())))
    return f"{int(mixed.sum(dtype=np.uint64)):016x}"


def _keys(column: pa.ChunkedArray) -> Words:
    coded = column.combine_chunks().dictionary_encode()
    hashes = pd.util.hash_array(coded.dictionary.to_numpy(zero_copy_only=False).astype(object))
    hashed: Words = hashes[coded.indices.to_numpy()]
    return hashed


def _words(column: pa.ChunkedArray) -> Words:
    words: Words = np.ascontiguousarray(column.to_numpy()).view(np.uint64)
    return words


def _mixed(words: Words) -> Words:
    mixed: Words = (words ^ (words >> _SHIFT)) * _MULTIPLIER
    return mixed ^ (mixed >> _SHIFT)
