"""The events that every contestant reads: seeded, in Parquet files or as pickled objects.

An event has a key, a time and an amount. Times advance by 7.2 ms from event to event, less a jitter
of up to five seconds; clocks wait for ten seconds, so that no event is late. Amounts are quarters,
so that sums do not depend on the order of addition.
"""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

START = datetime(2024, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STEP_US = 7_200
"""The time between two events: with 10 000 keys, five of six windows of a minute have a value."""
JITTER_US = 5_000_000
WAIT_SECONDS = 10
LEAST_TRADE = 500
"""The least amount of an event that is a trade in an as-of join; half of the events are."""
FILES = 20
HANDS = 2
"""The number of parts of a file of pickled events, for as many parallel readers."""
_MANIFEST = "_events.json"
"""The name begins with an underscore, so that readers of the folder skip the file."""


class Spread(Enum):
    """The distribution of events over keys."""

    UNIFORM = "uniform"
    ZIPF = "zipf"


class Form(Enum):
    """The format of the events on disk."""

    PARQUET = "parquet"
    OBJECTS = "objects"


@dataclass(frozen=True)
class Events:
    """A data set, as configuration.

    Attributes:
        rows: the number of events.
        keys: the number of keys.
        spread: the distribution of events over keys.
        form: columns in Parquet files, or pickled lists of ``(key, (datetime, amount))``.
        seed: the seed of the random numbers.
    """

    rows: int
    keys: int
    spread: Spread = Spread.UNIFORM
    form: Form = Form.PARQUET
    seed: int = 2024

    @property
    def name(self) -> str:
        """The name of the data set's folder."""
        return f"{self.form.value}-{self.spread.value}-{self.keys}-{self.rows}-{self.seed}"

    def table(self, part: int) -> pa.Table:
        """Return the events of one file."""
        first, last = (number * self.rows // FILES for number in (part, part + 1))
        random = np.random.default_rng([self.seed, self.rows, self.keys, part])
        count = last - first
        times = _us(START) + np.arange(first, last) * STEP_US
        times -= random.integers(0, JITTER_US, count)
        return pa.table(
            {
                "key": _names(self._ids(random, count)),
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "amount": random.integers(0, 4_000, count) / 4,
            }
        )

    def _ids(self, random: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
        if self.spread is Spread.UNIFORM:
            return random.integers(0, self.keys, count)
        return (random.zipf(1.2, count) - 1) % self.keys


def _names(ids: np.ndarray[Any, Any]) -> pa.Array:
    return pc.binary_join_element_wise("key-", pc.cast(pa.array(ids), pa.string()), "")


def _us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def make(events: Events, home: Path) -> Path:
    """Write a data set, unless it exists, and return its folder."""
    folder = home / events.name
    if (folder / _MANIFEST).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    last_us = 0
    for part in range(FILES):
        table = events.table(part)
        last_us = max(last_us, pc.max(table["ts"]).cast(pa.int64()).as_py() or 0)
        path = folder / f"part-{part:02d}.{events.form.value}"
        _write(table, events.form, path)
        # Spark reads files in the order of their modification times, in milliseconds.
        os.utime(path, (part + 1, part + 1))
    settings = {**asdict(events), "spread": events.spread.value, "form": events.form.value}
    (folder / _MANIFEST).write_text(json.dumps({**settings, "last_us": last_us}))
    return folder


def _write(table: pa.Table, form: Form, path: Path) -> None:
    if form is Form.PARQUET:
        pq.write_table(table, path, row_group_size=max(1, (table.num_rows + 1) // 2))
    else:
        events = as_objects(table)
        _pickle(events, path)
        for hand in range(HANDS):
            _pickle(events[hand::HANDS], dealt(path, hand))


def _pickle(events: list[Any], path: Path) -> None:
    path.write_bytes(pickle.dumps(events, pickle.HIGHEST_PROTOCOL))


def dealt(path: Path, hand: int) -> Path:
    """Return the path of one reader's part of a file of pickled events."""
    return path.with_name(f"{path.name}-{hand}")


def as_objects(table: pa.Table) -> list[tuple[str, tuple[datetime, float]]]:
    """Return events as a list of ``(key, (datetime, amount))``."""
    microseconds = table["ts"].cast(pa.int64()).to_pylist()
    times = [EPOCH + timedelta(microseconds=one) for one in microseconds]
    amounts = zip(times, table["amount"].to_pylist(), strict=True)
    return list(zip(table["key"].to_pylist(), amounts, strict=True))


def last_us(folder: Path) -> int:
    """Return the greatest time of a data set, in microseconds since the Unix epoch."""
    found: int = json.loads((folder / _MANIFEST).read_text())["last_us"]
    return found
