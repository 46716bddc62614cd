"""The columns of a Parquet file that have a dictionary: those whose values repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flow.connectors.files import ParquetSink
from flow.connectors.files.writing.dictionaries import dictionary_columns
from tests.support.writing_files import opened, publish

ROWS = 20_000
NUMBERS = np.arange(ROWS)

COLUMNS: dict[str, tuple[Any, bool]] = {
    "distinct text": ([f"event-{number}" for number in NUMBERS], False),
    "distinct numbers": (NUMBERS * 0.5, False),
    "few values": ([f"user-{number % 100}" for number in NUMBERS], True),
    "runs of a value": (NUMBERS // 4, True),
    "values that come again later": (NUMBERS % 5_000, True),
    "nulls": ([None] * ROWS, True),
    "truth": (NUMBERS % 2 == 0, True),
}


@pytest.mark.parametrize(("values", "has"), COLUMNS.values(), ids=COLUMNS)
def test_a_column_of_values_that_repeat_has_a_dictionary(values: Any, has: bool) -> None:
    rows = pa.table({"a.b": pa.array(values), "one": pa.array(np.ones(ROWS))})
    assert dictionary_columns(rows) == (True if has else ["one"])
    # A few rows say too little.
    assert dictionary_columns(rows.slice(0, 100)) is True


def test_nested_columns_keep_their_dictionaries() -> None:
    rows = pa.table({"n": NUMBERS, "list": pa.array([[number] for number in NUMBERS])})
    assert dictionary_columns(rows) is True


def test_the_sink_writes_dictionaries_of_values_that_repeat(tmp_path: Path) -> None:
    columns = {"a.b": [f"event-{number}" for number in NUMBERS], "few": NUMBERS % 100}
    publish(opened(ParquetSink(tmp_path)), 0, pa.table(columns).to_pylist())
    (file,) = tmp_path.glob("epoch=*/*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    has = {group.column(at).path_in_schema: group.column(at).has_dictionary_page for at in (0, 1)}
    assert has == {"a.b": False, "few": True}
    assert pq.ParquetFile(file).read()["a.b"].to_pylist() == columns["a.b"]
