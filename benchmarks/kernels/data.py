"""Events for the kernels: keyed records from constant seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flow.columns.chunks import KeyedRecords, Pairs, positions
from flow.columns.record_batches import as_objects

ROWS = 20_000
FEW_KEYS = 1_000

START_US = 1_700_000_000_000_000
_JITTER_US = 5_000_000


@dataclass(frozen=True)
class Events:
    """Epochs of events, `ROWS` each.

    Attributes:
        keys: the number of keys; with `ROWS` keys, each key has one event in an epoch.
        epoch_us: the event time of an epoch, in microseconds.
    """

    keys: int
    epoch_us: int

    def epoch(self, number: int) -> KeyedRecords:
        """Return the events of an epoch, nearly in order of time."""
        rng = np.random.default_rng([self.keys, number])
        passed_us = np.arange(ROWS) * self.epoch_us // ROWS
        times_us = START_US + number * self.epoch_us + passed_us
        times_us -= rng.integers(0, _JITTER_US, ROWS)
        ids = rng.permutation(ROWS) if self.keys == ROWS else rng.integers(0, self.keys, ROWS)
        keys = pa.array([f"user-{one}" for one in ids.tolist()])
        columns = {
            "user": keys,
            "ts": pa.array(times_us, pa.timestamp("us", tz="UTC")),
            "amount": pa.array(rng.random(ROWS) * 100),
        }
        return KeyedRecords(keys, pa.RecordBatch.from_pydict(columns), positions(0, 0, 0, ROWS))

    def objects(self, number: int) -> Pairs:
        """Return the events of an epoch as Python objects: pairs of a time and an amount."""
        records = self.epoch(number)
        times, amounts = (as_objects(records.batch.column(name)) for name in ("ts", "amount"))
        return Pairs(records.keys.to_pylist(), list(zip(times, amounts, strict=True)), records.pos)
