"""The choice of the columns of a Parquet file that are encoded with a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_SAMPLE = 4_096
"""Rows of each of the two samples of a column."""
_LEAST_ROWS = 4 * _SAMPLE
"""The rows from which a choice pays."""


def dictionary_columns(rows: pa.Table) -> bool | list[str]:
    """Return the names of columns whose values repeat; True to encode all columns.

    A dictionary of values that hardly repeat takes three times as long to write as the values, and
    more space. Files with nested columns, or with few rows, have a dictionary for each column.

    Args:
        rows: the first rows of the file.
    """
    if rows.num_rows < _LEAST_ROWS or any(pa.types.is_nested(kind) for kind in rows.schema.types):
        return True
    names = rows.schema.names
    repeating = [name for at, name in enumerate(names) if not _mostly_differ(rows.column(at))]
    return True if len(repeating) == len(names) else repeating


def _mostly_differ(column: pa.ChunkedArray) -> bool:
    """Return True if more than 19 in 20 sampled values are distinct.

    The first rows show values that repeat in a row, and rows drawn from the whole column show those
    that come again later. The seed is fixed, so that an epoch run again writes the same file.
    """
    if pa.types.is_dictionary(column.type) or pa.types.is_boolean(column.type):
        return False
    drawn = np.random.default_rng(0).choice(len(column), _SAMPLE, replace=False, shuffle=False)
    samples = (column.slice(0, _SAMPLE), column.take(pa.array(np.sort(drawn))))
    return all(20 * len(sample.unique()) > 19 * _SAMPLE for sample in samples)
