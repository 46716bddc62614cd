"""Round trip of packets between processes: content, order and keys."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.columns.chunks import (
    AT_END,
    Chunk,
    Items,
    KeyedRecords,
    Pairs,
    Records,
    as_items,
    as_pairs,
)
from flow.dataflow import StreamId
from flow.engine.packets import packets
from flow.engine.packets.packets import (
    Packet,
    decode,
    decode_runs,
    encode_keyed,
    encode_spread,
    encode_whole,
    to_batches,
)
from flow.engine.packets.shards import hash_keys, shard_of
from flow.engine.plan.plan import Edge, EdgeKind
from flow.engine.steps.gathering import gather_rows
from flow.errors import EngineError
from flow.testing import TestDriver, TestingSink, TestingSource

FLIGHTS = pa.RecordBatch.from_pylist(
    [
        {"origin": "JFK", "delay": 5, "legs": ["a"]},
        {"origin": "LGA", "delay": None, "legs": []},
        {"origin": "JFK", "delay": 0, "legs": None},
    ]
)


EDGE = Edge(0, StreamId("maker", "down"), "reader", 0, 1, EdgeKind.KEYED)


def at(*places: int) -> Any:
    return np.array(places, np.int64)


SHAPES: dict[str, Callable[[], Chunk]] = {
    "items": lambda: Items([1, None, {"x": (2,)}], at(7, 8, 9)),
    "pairs": lambda: Pairs(["a", "b", "a"], [1, None, {"x": 2}], at(7, 8, 9)),
    "records": lambda: Records(FLIGHTS, at(7, 8, 9)),
    "keyed records": lambda: KeyedRecords(FLIGHTS.column(0), FLIGHTS, at(7, 8, 9)),
}


def plain(chunk: Chunk) -> list[tuple[int, Any]]:
    one = as_items(chunk)
    return list(zip(one.pos.tolist(), one.items, strict=True))


# --- one payload ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "form"),
    [("items", b"I"), ("pairs", b"Q"), ("records", b"R"), ("keyed records", b"K")],
)
def test_a_chunk_survives_a_round_trip(shape: str, form: bytes) -> None:
    payload, chunk = encode_whole(SHAPES[shape](), "step"), SHAPES[shape]()
    assert payload[:1] == form
    again = decode(payload)
    assert plain(again) == plain(chunk)
    if "records" in shape:
        assert type(again) is type(chunk)
        assert again.batch.equals(FLIGHTS)  # type: ignore[union-attr]


@given(st.lists(st.integers(-1, 3) | st.integers(-1, AT_END), min_size=1, max_size=20))
def test_distant_positions_survive_a_round_trip(places: list[int]) -> None:
    rows = pa.RecordBatch.from_pydict({"n": range(len(places))})
    found = decode(encode_whole(Records(rows, at(*places)), "maker"))
    assert found.pos.dtype == np.int64
    assert found.pos.tolist() == places


@pytest.mark.parametrize("count", [2**15 - 1, 2**15 + 1])
def test_few_and_many_keys_survive_a_round_trip(count: int) -> None:
    keys = pa.array(map(str, range(count)))
    rows = pa.RecordBatch.from_pydict({"n": range(count)})
    chunk = KeyedRecords(keys.dictionary_encode(), rows, np.arange(count))
    ((_, payload),) = encode_keyed(chunk, 1, EDGE)
    found = decode(payload)
    assert isinstance(found, KeyedRecords)
    assert found.keys.type == pa.dictionary(pa.int32(), pa.string())
    assert found.keys.to_pylist() == keys.to_pylist()


def test_a_payload_of_another_version_is_refused() -> None:
    with pytest.raises(EngineError, match="a packet of unknown form b'Z': do all workers run"):
        decode(b"Zrest")


# --- dealt out --------------------------------------------------------------------------------


def test_spread_makes_no_empty_payloads() -> None:
    payloads = list(encode_spread(Records(FLIGHTS, at(0, 1, 2)), 32, "step"))
    assert [shard for shard, _ in payloads] == [0, 1, 2]


def home(key: str, shards: int) -> int:
    return int(shard_of(hash_keys(pa.array([key])), shards)[0])


KEYED = st.lists(st.tuples(st.text("abcdé🙂", max_size=3), st.integers()), min_size=1, max_size=40)


@given(KEYED, st.integers(1, 40))
def test_pairs_keep_their_order_in_their_shards(pairs: list[tuple[str, int]], shards: int) -> None:
    keys, values = map(list, zip(*pairs, strict=True))
    chunk = Pairs(keys, values, np.arange(len(pairs), dtype=np.int64))
    placed = dict(encode_keyed(chunk, shards, EDGE))
    found: dict[str, list[int]] = {}
    for shard, payload in placed.items():
        for run in decode_runs(payload, "reader"):
            assert home(run.key, shards) == shard
            assert run.key not in found
            assert [values[place] for place in run.pos] == run.values
            found[run.key] = run.values
        whole = as_pairs(decode(payload), "reader")
        assert whole.values == [values[place] for place in whole.pos.tolist()]
    assert found == {key: [v for k, v in pairs if k == key] for key in dict.fromkeys(keys)}


@pytest.mark.parametrize("sample", [1, 1_000], ids=["each key", "numbered keys"])
@given(KEYED, st.integers(1, 40))
def test_records_and_pairs_share_shards(
    sample: int, pairs: list[tuple[str, int]], shards: int
) -> None:
    keys = [key for key, _ in pairs]
    values = [{"n": value % 2**31} for _, value in pairs]
    pos = np.arange(len(pairs), dtype=np.int64)
    records = KeyedRecords(pa.array(keys), pa.RecordBatch.from_pylist(values), pos)
    of_pairs = dict(encode_keyed(Pairs(keys, values, pos), shards, EDGE))
    with patch.object(packets, "_SAMPLE", sample):
        of_records = dict(encode_keyed(records, shards, EDGE))
    assert of_pairs.keys() == of_records.keys()
    for shard, payload in of_records.items():
        runs = {run.key: run for run in decode_runs(payload, "reader")}
        assert runs == {run.key: run for run in decode_runs(of_pairs[shard], "reader")}


@pytest.mark.parametrize("samples", [(1, 1), (1_000, 1_000), (1, 1_000)])
def test_rows_are_gathered_from_plain_and_dictionary_keys(samples: tuple[int, int]) -> None:
    arrived = []
    for origin, sample in enumerate(samples):
        keys = pa.array(["b", "a", "c", "b"] if origin else ["a", "b", "b", "c"])
        rows = pa.RecordBatch.from_pydict({"n": [10 * origin + at for at in range(4)]})
        chunk = KeyedRecords(keys, rows, np.arange(4))
        with patch.object(packets, "_SAMPLE", sample):
            ((_, payload),) = encode_keyed(chunk, 1, EDGE)
        arrived.append(Packet(0, 0, origin, 0, payload))
    found = gather_rows((EDGE,), arrived)
    assert found is not None
    assert isinstance(found.values, pa.RecordBatch)
    numbers = found.values.column("n").take(pa.array(found.order)).to_pylist()
    ends = np.cumsum(found.counts).tolist()
    parts = zip([0, *ends], ends, strict=False)
    by_key = dict(zip(found.keys.to_pylist(), (numbers[a:b] for a, b in parts), strict=True))
    assert by_key == {"a": [0, 11], "b": [10, 1, 2, 13], "c": [12, 3]}


# --- rows -------------------------------------------------------------------------------------

PACKETS = [
    Packet(dest, shard, dest * 7, 2**40 + shard, b"x" * shard)
    for dest in (-1, 3)
    for shard in range(600)
]


def test_batches_of_rows_stay_small() -> None:
    assert [batch.num_rows for batch in to_batches(PACKETS)] == [512, 512, 176]
    heavy = [Packet(0, 0, 0, number, b"x" * (9 << 20)) for number in range(3)]
    assert [batch.num_rows for batch in to_batches(heavy)] == [2, 1]


def test_a_payload_is_one_pickle_of_lists() -> None:
    """A packet costs one pickle for all items, not one for each item."""
    payload = encode_whole(SHAPES["items"](), "step")
    pos, items = pickle.loads(payload[1:])
    assert (np.frombuffer(pos, np.int64).tolist(), items) == ([7, 8, 9], [1, None, {"x": (2,)}])


# --- fields that nobody needs -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needed", "sent"),
    [
        (None, ["origin", "delay", "legs"]),
        (frozenset({"delay", "origin"}), ["origin", "delay"]),
        (frozenset({"delay", "missing"}), ["delay"]),
        (frozenset(), ["origin"]),
    ],
    ids=["all of them", "some", "one, and one that is not there", "none: then the first"],
)
def test_only_needed_fields_are_sent(needed: frozenset[str] | None, sent: list[str]) -> None:
    edge = replace(EDGE, fields=needed)
    for _, payload in encode_keyed(SHAPES["keyed records"](), 4, edge):
        chunk = decode(payload)
        assert isinstance(chunk, KeyedRecords)
        assert chunk.batch.schema.names == sent


@pytest.mark.parametrize(
    ("name", "scope"),
    [("__flow_pos__", "key"), ("__flow_key__", "key"), ("__flow_reached__", "stream")],
)
def test_a_column_with_a_reserved_name_is_an_error_that_names_it(name: str, scope: Any) -> None:
    flow = Dataflow("names")
    stream = op.key_on("key", op.input("in", flow, TestingSource([])), "user")
    clock = win.EventClock("ts", "1s", scope=scope)
    out = win.aggregate_window("w", stream, clock, win.TumblingWindower("1m"), n=win.Count())
    op.output("down", out.down, TestingSink([]))
    op.output("late", out.late, TestingSink([]))  # then whole records are on the way
    at = pa.array([0], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"user": ["a"], "ts": at, name: [1]})
    with (
        TestDriver(flow, now="2024-01-01T00:00Z") as t,
        pytest.raises(EngineError, match=rf"a column '{name}', a reserved name: rename it"),
    ):
        t.send("in", batch)
