"""Contestants of the window benchmarks on a few events: their answers agree."""

from __future__ import annotations

import importlib
from collections import Counter
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.windows.answers import Answer, answer_in
from benchmarks.windows.data import FILES, LEAST_TRADE, Events, Form, last_us, make
from benchmarks.windows.job import Figure, Job
from benchmarks.windows.works import FIGURES

ROWS = 20_000
COLUMNS = Events(ROWS, keys=5)
OBJECTS = Events(ROWS, keys=5, form=Form.OBJECTS)


class Place:
    """A folder in which contestants run one after another, in this process."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._runs = 0

    def run(
        self, events: Events, module: str, function: str, **settings: Any
    ) -> tuple[Figure, Answer]:
        """Return the figure that a contestant measured, and its answer."""
        self._runs += 1
        home = self._home / str(self._runs)
        (home / "scratch").mkdir(parents=True)
        data = make(events, self._home / "data")
        warm = make(Events(100, events.keys, form=events.form), self._home / "data")
        folders = str(data), str(warm), str(home / "out"), str(home / "scratch")
        job = Job(*folders, events.rows, events.rows // 2, FILES // 2, 2, settings)
        measure = getattr(importlib.import_module(f"benchmarks.windows.{module}"), function)
        figure = measure(job)
        windows = job.windows
        return figure, answer_in(home / "out", FIGURES[windows], windows, last_us(data))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def minutes() -> tuple[int, float]:
    """Return the number and the total amount of closed windows of a minute, by plain Python."""
    rows = [row for part in range(FILES) for row in COLUMNS.table(part).to_pylist()]
    totals = Counter[tuple[str, datetime]]()
    for row in rows:
        totals[row["key"], row["ts"].replace(second=0, microsecond=0)] += row["amount"]
    open_since = max(row["ts"] for row in rows) - timedelta(seconds=70)
    closed = [total for (_, opened), total in totals.items() if opened <= open_since]
    return len(closed), sum(closed)


@pytest.mark.parametrize(
    "function",
    [
        "in_process_objects",
        pytest.param("batch_objects", marks=[pytest.mark.spark, pytest.mark.extended]),
    ],
)
def test_ours_agrees_with_plain_python(
    place: Place, minutes: tuple[int, float], function: str
) -> None:
    # 20,000 events last 144 s: two minutes have closed, and what the jitter put before the first.
    figure, answer = place.run(OBJECTS, "ours", function)
    assert figure.value > 0
    assert minutes[0] in (10, 15)
    assert (answer.windows, answer.sums["total"]) == minutes


@pytest.mark.parametrize(
    ("package", "module", "function", "settings"),
    [
        ("bytewax", "bytewax_peer", "fold", {"wakes": True}),
        ("bytewax", "bytewax_peer", "fold", {"wakes": False}),
        ("duckdb", "duckdb_peer", "batch", {}),
        ("polars", "polars_peer", "batch", {}),
    ],
)
def test_a_peer_agrees(
    place: Place,
    minutes: tuple[int, float],
    package: str,
    module: str,
    function: str,
    settings: dict[str, bool],
) -> None:
    pytest.importorskip(package)
    events = OBJECTS if function == "fold" else COLUMNS
    _, answer = place.run(events, module, function, **settings)
    assert (answer.windows, answer.sums["total"]) == minutes


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.extended
def test_our_streaming_engine_agrees(
    spark: SparkSession, place: Place, minutes: tuple[int, float]
) -> None:
    figure, answer = place.run(COLUMNS, "ours", "streaming")
    assert (answer.windows, answer.sums["total"]) == minutes
    # Two epochs of data, and the one that ends the input, which is not counted.
    epochs = figure.details["epochs"]
    took = [one["durationMs"]["triggerExecution"] / 1000 for one in epochs]
    assert len(took) == 3
    assert sum(took[:2]) <= figure.value + 0.01
    assert figure.value < sum(took) + 1


def quoted_by_plain_python(events: Events) -> tuple[int, float, float]:
    """Return the number of trades with a quote, and the totals of both, by plain Python."""
    newest: dict[str, dict[str, Any]] = {}
    pairs = list[tuple[dict[str, Any], dict[str, Any]]]()
    rows = [row for part in range(FILES) for row in events.table(part).to_pylist()]
    closed = max(row["ts"] for row in rows) - timedelta(seconds=10)
    for row in sorted(rows, key=lambda row: (row["ts"], row["amount"] >= LEAST_TRADE)):
        quote = newest.get(row["key"])
        if row["amount"] < LEAST_TRADE:
            newest[row["key"]] = row
        elif quote and row["ts"] - quote["ts"] <= timedelta(minutes=1) and row["ts"] <= closed:
            pairs.append((row, quote))
    left, right = (sum(pair[side]["amount"] for pair in pairs) for side in (0, 1))
    return len(pairs), left, right


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.parametrize(("module", "function"), [("polars_peer", "asof"), ("ours", "batch")])
def test_an_as_of_join_agrees_with_plain_python(
    spark: SparkSession, place: Place, module: str, function: str
) -> None:
    if module == "polars_peer":
        pytest.importorskip("polars")
    events = Events(20_000, keys=50)
    _, answer = place.run(events, module, function, windows="asof")
    assert answer.windows > 8_000
    assert (answer.windows, *answer.sums.values()) == quoted_by_plain_python(events)


@pytest.mark.spark
def test_our_windows_over_all_keys_have_the_totals_of_all_keys(
    spark: SparkSession, place: Place, minutes: tuple[int, float]
) -> None:
    _, answer = place.run(COLUMNS, "ours", "batch", windows="global")
    assert answer.windows <= 3
    assert answer.sums["total"] == minutes[1]


@pytest.mark.extended
@pytest.mark.spark
def test_our_interval_join_agrees_with_plain_python(spark: SparkSession, place: Place) -> None:
    events = Events(2_000, keys=50)
    rows = [row for part in range(FILES) for row in events.table(part).to_pylist()]
    open_since = max(row["ts"] for row in rows) - timedelta(seconds=10)
    pairs = [
        (left, right)
        for left, right in product(rows, rows)
        if left["key"] == right["key"]
        and left["ts"] <= right["ts"] <= min(left["ts"] + timedelta(minutes=1), open_since)
    ]
    _, answer = place.run(events, "ours", "batch", windows="join")
    assert len(pairs) > 1_000
    assert answer.windows == len(pairs)
    assert answer.sums["left_amount"] == sum(left["amount"] for left, _ in pairs)
