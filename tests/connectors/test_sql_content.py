"""What the rows of an epoch are known again by, whoever makes them, and when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flow.connectors.sql import Delete, SqliteSink
from flow.connectors.sql.content import Content
from flow.connectors.sql.rows import CHUNK_ROWS
from tests.support.databases import write

PROGRAM = """
import enum
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np

from flow.connectors.sql import PostgresSink, SqliteSink
from tests.support.databases import write

Color = enum.Enum("Color", {"RED": "red"})
at = datetime(2024, 1, 1, 12, 30, tzinfo=UTC)
row = {
    "none": None, "truth": True, "whole": 7, "large": 1 << 62, "float": 0.1, "numpy": np.int32(5),
    "text": "a", "again": "a", "made": "".join(["a"]), "bytes": b"a",
    "at": at, "day": at.date(), "time": time(1, 2), "long": timedelta(1), "money": Decimal("1.50"),
    "set": set("flow"), "dict": {"of": frozenset("sets"), "at": at}, "list": [1, (2, None)],
    "color": Color.RED, "id": UUID(int=1), "letters": "\\u00e9\\U0001f600",
}
for sink in (SqliteSink("out.db", "t"), PostgresSink("", "t")):
    (chunk,) = write(sink, 0, [row, {**row, "whole": 8}])
    print(chunk.digest)
"""


def printed(seed: str) -> list[str]:
    """What the program prints in a process where text has other hashes, so sets another order."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_digest_is_the_same_in_every_process() -> None:
    first, second = printed("1"), printed("2")
    assert len(first) == 2
    assert first == second


def content(*batches: Any, **options: Any) -> Content:
    sink = SqliteSink(Path("out.db"), "t", **options)
    chunks = write(sink, 0, *batches)
    return Content.of([one.count for one in chunks], [one.digest for one in chunks])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([{"n": 1}], [{"n": 2}]),
        ([{"n": 1}], [{"m": 1}]),
        ([{"n": 1}], [{"n": "1"}]),
        ([{"n": 1}], [{"n": 1.0}]),
        ([{"n": None}], [{"n": "None"}]),
        ([{"n": "a"}], [{"n": b"a"}]),
        ([{"n": 1}], [{"n": 1, "m": None}]),
        ([{"n": 1, "m": 2}], [{"n": 2, "m": 1}]),
        ([{"a": "x", "b": "yz"}], [{"a": "xy", "b": "z"}]),
        ([{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 1}]),
        ([{"n": 1, "m": 1}, {"n": 2, "m": 2}], [{"n": 1, "m": 2}, {"n": 2, "m": 1}]),
    ],
)
def test_other_rows_have_another_digest(one: list[Any], other: list[Any]) -> None:
    assert content(one).digest != content(other).digest


def test_a_row_that_is_deleted_is_another_one_than_the_row_that_is_put() -> None:
    options: dict[str, Any] = {"mode": "upsert", "key": "k"}
    put, deleted = content([{"k": "a"}], **options), content([Delete({"k": "a"})], **options)
    assert put.digest != deleted.digest


def test_rows_are_known_again_however_they_come_in_chunks() -> None:
    rows = [{"n": number} for number in range(CHUNK_ROWS + 2)]
    assert content(rows) == content(rows[:3], rows[3:]) == content(rows[::-1])


def test_the_columns_for_the_epoch_do_not_count() -> None:
    assert content([{"n": 1}]) == content([{"n": 1}], epoch_columns=("run", "epoch"))
