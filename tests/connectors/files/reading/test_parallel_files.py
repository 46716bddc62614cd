"""Files in parallel: all formats, and a checkpoint of several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.files import CsvSource, JsonLinesSource, ParquetSource, TextSource
from flow.connectors.source import Source
from flow.errors import FlowBuildError
from flow.testing import run_source
from tests.support.reading_files import JsonLog, parquet, write

# --- all kinds of files ---


@pytest.mark.parametrize("kind", [TextSource, JsonLinesSource, CsvSource, ParquetSource])
def test_an_unknown_order_is_an_error(kind: Any) -> None:
    with pytest.raises(FlowBuildError, match="order must be 'sequence' or 'parallel', got 'x'"):
        kind("a", order="x")


def devices(home: Path, kind: str) -> tuple[Source[Any], list[list[Any]]]:
    """Three files of different lengths side by side, and the items of each."""
    numbers = [list(range(0, 40)), list(range(100, 105)), list(range(200, 290))]
    if kind == "parquet":
        for name, some in zip("abc", numbers, strict=True):
            parquet(home / f"{name}.parquet", some[0], some[-1] + 1, 7)
        source: Source[Any] = ParquetSource(
            home, columns=["n"], rows_per_epoch=20, order="parallel"
        )
        return source, [[{"n": n} for n in some] for some in numbers]
    rows = {"text": "{}\n", "json": '{{"n": {}}}\n', "csv": "{}\n"}[kind]
    for name, some in zip("abc", numbers, strict=True):
        head = "n\n" if kind == "csv" else ""
        write(home / f"{name}.{kind}", head + "".join(rows.format(n) for n in some))
    options: dict[str, Any] = {"bytes_per_epoch": 50, "order": "parallel"}
    if kind == "text":
        return TextSource(home, **options), [[str(n) for n in some] for some in numbers]
    schema = {"n": pa.int64()}
    maker = JsonLinesSource if kind == "json" else CsvSource
    return maker(home, schema=schema, **options), [[{"n": n} for n in some] for some in numbers]


@pytest.mark.parametrize("parallelism", [1, 8])
@pytest.mark.parametrize("kind", ["text", "json", "csv", "parquet"])
def test_parallel_files_are_partitions(tmp_path: Path, kind: str, parallelism: int) -> None:
    source, expected = devices(tmp_path, kind)
    planner = source.planner(JsonLog(), parallelism)
    found: list[list[Any]] = [[], [], []]
    start, together = None, 0
    while (planned := planner.next(start)) is not None:
        for split in planned.splits:
            for batch in source.read(split):
                assert isinstance(batch, (list, pa.RecordBatch))
                found[split.partition] += batch if isinstance(batch, list) else batch.to_pylist()
        together = max(together, len({split.partition for split in planned.splits}))
        start = json.loads(json.dumps(planned.end))
    assert found == expected
    assert together == min(3, parallelism)
    items = run_source(source)
    assert [[one for one in items if one in some] for some in expected] == expected
    assert len(items) == sum(map(len, expected))
