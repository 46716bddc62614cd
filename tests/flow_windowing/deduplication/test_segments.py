"""Segments of remembered ids: in columns, and of whole keys."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flow.columns.arrays import Ints
from flow.errors import CheckpointError
from flow.instants import NEVER
from flow.keyed.shard_logic import SegmentDump
from flow.keyed.state import IDS, WholeKeys
from flow_windowing import EventClock
from flow_windowing.columnar.admission.shard_clocks import KeyColumns, shard_clock_of
from flow_windowing.columnar.state.encoded_clocks import EncodedClocks
from flow_windowing.deduplication.ids import SeenIds
from flow_windowing.deduplication.segments import IdSegment, snapshots_of_segment
from flow_windowing.deduplication.shard import IdTable
from flow_windowing.rules.watermark import NO_WATERMARK
from recovery.reading.epoch_state import decode_segment, load_snapshot

SHARD_CLOCK = shard_clock_of(EventClock("at", "0s"))


def dump(
    table: IdTable, numbers: Ints, wanted: list[int], due_us: Ints, clocks: Any = None
) -> list[SegmentDump]:
    """Return segments of a table; by default no key has a clock."""
    clocks = KeyColumns.initial(len(numbers)) if clocks is None else clocks
    return table.dump(numbers, wanted, due_us, clocks, expires=False)


def a_table(ids_of_keys: dict[str, list[Any]], kind: pa.DataType | None) -> IdTable:
    """Return a table whose ids are a column of a type, or Python objects."""
    table = IdTable()
    slots = table.slots_of(pa.array(list(ids_of_keys), pa.large_string()))
    ids = [one for of_key in ids_of_keys.values() for one in of_key]
    rows = np.repeat(slots, [len(of_key) for of_key in ids_of_keys.values()])
    table.seen = SeenIds(rows, ids if kind is None else pa.array(ids, kind), np.arange(len(ids)))
    return table


def snapshots(contents: list[bytes | None]) -> dict[str, tuple[Any, int]]:
    """Return the snapshot and the due time of each key."""
    kept = [decode_segment(content, 0, 0, "once") for content in contents if content is not None]
    return {one.key: (load_snapshot(one, "once"), one.due_us) for of in kept for one in of}


def test_a_segment_has_the_least_due_time_of_its_keys() -> None:
    table = a_table({"a": ["x"], "b": ["y"], "c": ["z"]}, pa.large_string())
    dumps = dump(table, np.array([1, 0, 1]), [0, 1, 2], np.array([5, 4, 3]))
    assert [(one.keys, one.due_us) for one in dumps] == [(1, 4), (2, 3), (0, NEVER)]


def test_a_segment_of_whole_keys_becomes_columns() -> None:
    states = [((90, 7), ["x", "y"], [100, 101]), ((80, 6, 5, 40), ["x"], [9])]  # b is held.
    whole = WholeKeys(["a", "b"], list(map(pickle.dumps, states)), np.array([700, 800]))
    table = IdTable()
    assert table.load(whole.encode()) == 2
    (clocks,) = table.add_loaded(SHARD_CLOCK)
    assert EncodedClocks.of(clocks, expires=True).states(2) == [(90, 7, 7), (80, 6, 5, 40)]
    slots = table.slots_of(pa.array(["b", "a", "c"]))
    times_us = np.array([10, 111, 10])
    passes = table.add_passing(slots, pa.array(["x", "x", "x"], pa.large_string()), times_us, 10)
    assert passes.tolist() == [False, True, True]
    (written,) = dump(table, np.zeros(3, np.int64), [0], np.zeros(3, np.int64))
    assert written.content is not None
    assert written.content[:2] == IDS
    kept = {key: state[1:] for key, (state, _) in snapshots([written.content]).items()}
    assert kept == {
        "a": (["x", "y", "x"], [100, 101, 111]),
        "b": (["x"], [9]),
        "c": (["x"], [10]),
    }


def test_ids_that_are_their_keys_are_not_stored_again() -> None:
    keys = [f"event-{number}" for number in range(100)]
    table = IdTable()
    slots = table.slots_of(pa.array(keys))
    assert table.add_passing(np.tile(slots, 2), None, np.repeat([0, 50], 100), 10).all()
    assert not table.add_passing(slots, pa.array(keys, pa.large_string()), slots * 0 + 55, 10).any()
    table.seen = table.seen._replace(ids=None)
    (written,) = dump(table, np.zeros(100, np.int64), [0], np.zeros(100, np.int64))
    assert written.content is not None
    assert written.content.count(b"event-7") == 11, "event-7, and event-70 to event-79"
    assert snapshots([written.content])["event-7"] == ((None, ["event-7"] * 2, [0, 50]), 0)
    restored = IdTable()
    restored.load(written.content)
    restored.add_loaded(SHARD_CLOCK)
    assert restored.seen.ids is None
    # An id that is not its key: the ids that are get a column.
    (seven,) = restored.slots_of(pa.array(["event-7"])).tolist()
    rows, ids = np.array([seven, seven]), pa.array(["event-7", "other"], pa.large_string())
    assert restored.add_passing(rows, ids, np.array([59, 59]), 10).tolist() == [False, True]
    assert restored.seen.ids is not None
    assert restored.seen.ids.to_pylist().count("event-7") == 2


def test_the_tools_of_recovery_read_ids_in_columns() -> None:
    table = a_table({"a": [1, None], "b": [1 << 40]}, pa.int64())
    clocks = KeyColumns(np.array([60, NO_WATERMARK]), np.array([8, 0]), np.array([8, 0]))
    (written,) = dump(table, np.zeros(2, np.int64), [0], np.array([5, 6]), clocks)
    assert written.content is not None
    kept = decode_segment(written.content, 3, 0, "once")
    assert [(one.key, load_snapshot(one, "once"), one.due_us, one.shard) for one in kept] == [
        ("a", ((60, 8), [1, None], [0, 1]), 5, 3),
        ("b", (None, [1 << 40], [2]), 6, 3),
    ]


def test_a_damaged_segment_is_an_error() -> None:
    table = a_table({"a": ["x"]}, pa.large_string())
    (written,) = dump(table, np.array([0]), [0], np.array([0]))
    assert written.content is not None
    whole = IdSegment.decode(written.content)
    long = np.array([1 << 20], "<i4").tobytes()
    for damaged in (whole._replace(key_lengths=long), whole._replace(id_lengths=long)):
        with pytest.raises(ValueError, match="lengths do not add up"):
            list(snapshots_of_segment(damaged))
        with pytest.raises(CheckpointError, match="segment 4 of shard 0 cannot be read"):
            decode_segment(damaged.encode(), 0, 4, "once")
    with pytest.raises(CheckpointError, match="no segment of ids"):
        IdSegment.decode(IDS + pickle.dumps((b"", b"")))
