"""State in segments: compared with a plain dict, its calls of the store, and compression."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.engine.state import key_states
from flow.engine.state.key_states import LiveStates, SegmentedStates
from flow.engine.state.segment import Segment, weight
from flow.engine.state.step_state import Header
from flow.engine.state.store import MemoryStore, pack, unpack
from flow.errors import CheckpointError
from flow.instants import NEVER
from flow.keyed.state import PACKED, WHOLE_KEYS, WINDOWS, DueLimit, held_due_us
from tests.support.sampling import sampled
from tests.support.segments import CountingStore, segments_of


@dataclass
class Text:
    """A logic that is nothing but its snapshot."""

    text: str

    def snapshot(self) -> str:
        return self.text


def states(store: MemoryStore, step_id: str = "step") -> SegmentedStates:
    """The state as one epoch opens it."""
    return SegmentedStates(store, step_id, Text)


def header(store: MemoryStore, step_id: str = "step") -> Header:
    return Header.decode(store.read_header(step_id) or b"", step_id)


def fill(store: MemoryStore, keys: Iterable[str], text: str = "", due_us: int = NEVER) -> None:
    one = states(store)
    names = list(keys)
    one.prepare(names)
    for key in names:
        one.put(key, Text(text), due_us)
    one.flush()


# --- against a dict ---------------------------------------------------------------------------

KEYS = [f"key-{number}" for number in range(24)]


@dataclass(frozen=True)
class Epoch:
    now_us: int
    puts: dict[str, tuple[str, int]] = field(default_factory=dict)
    drops: frozenset[str] = frozenset()


EPOCHS = st.lists(
    st.builds(
        Epoch,
        now_us=st.integers(0, 100),
        puts=st.dictionaries(
            st.sampled_from(KEYS),
            st.tuples(st.text("xyz", max_size=60), st.integers(0, 100) | st.just(NEVER)),
        ),
        drops=st.frozensets(st.sampled_from(KEYS)),
    ),
    max_size=12,
)


def play(
    one: SegmentedStates | LiveStates, model: dict[str, tuple[str, int]], epoch: Epoch
) -> None:
    """Run an epoch over the state and the model, and hold them against each other."""
    assert one.due(DueLimit(epoch.now_us)) == sorted(
        k for k, (_, due) in model.items() if due <= epoch.now_us
    )
    one.prepare([*epoch.puts, *epoch.drops])
    for key, (text, due_us) in epoch.puts.items():
        found = one.take(key)
        assert (found and found.text) == (model[key][0] if key in model else None)
        one.put(key, Text(text), due_us)
        model[key] = (text, due_us)
    for key in epoch.drops:
        one.drop(key)
        model.pop(key, None)
    assert one.flush() == min((due for _, due in model.values()), default=NEVER)


def check_sizes(store: MemoryStore, target_bytes: int) -> None:
    """Check that the number of segments follows the size of the state."""
    if store.read_header("step") is None:
        return
    found = header(store)
    contents = store.read_segments("step", range(found.segments))
    kept = [Segment.decode(content, "step").kept for content in contents]
    sizes = [weight(key, snapshot) for keys in kept for key, (snapshot, _) in keys.items()]
    assert found.size == sum(sizes)
    wanted = max(1, -(-found.size // target_bytes))
    assert wanted <= found.segments < 4 * (wanted + 1)


@sampled(100, by_default=30)
@given(EPOCHS, st.sampled_from([1, 60, 200, 10_000]))
def test_segmented_state_agrees_with_a_dict(epochs: list[Epoch], target_bytes: int) -> None:
    store, model = MemoryStore(), dict[str, tuple[str, int]]()
    with segments_of(target_bytes):
        for epoch in epochs:
            one = states(store)
            play(one, model, epoch)
            assert one.header.keys == len(model)
            check_sizes(store, target_bytes)
        last = states(store)
        assert last.all() == sorted(model)
        for key, (text, _) in model.items():
            assert last.take(key) == Text(text)


@sampled(100, by_default=30)
@given(EPOCHS)
def test_live_state_agrees_with_a_dict(epochs: list[Epoch]) -> None:
    one, model = LiveStates(), dict[str, tuple[str, int]]()
    for epoch in epochs:
        play(one, model, epoch)
        assert one.all() == sorted(model)
        assert all(one.take(key) == Text(text) for key, (text, _) in model.items())


def test_states_of_steps_are_separate() -> None:
    store = MemoryStore()
    fill(store, ["a"], "of one")
    other = states(store, "other")
    other.prepare(["a"])
    assert other.take("a") is None
    assert other.all() == []


# --- what an epoch costs ----------------------------------------------------------------------


@pytest.fixture
def large() -> Iterator[CountingStore]:
    """A store with 1 000 keys in 200 segments or so, whose calls are counted from here on."""
    store = CountingStore()
    with segments_of(200):
        fill(store, (f"key-{number}" for number in range(1000)), "0123456789")
        assert header(store).segments > 150
        store.forget()
        yield store


def test_an_idle_epoch_reads_the_header_and_writes_nothing(large: CountingStore) -> None:
    one = states(large)
    assert one.due(DueLimit(1_000)) == []
    one.prepare([])
    one.flush()
    assert (large.calls, large.read, large.written) == (Counter(read_header=1), [], [])


def test_an_epoch_that_looks_at_a_key_reads_its_segment(large: CountingStore) -> None:
    one = states(large)
    one.prepare(["key-7"])
    assert one.take("key-7") == Text("0123456789")
    one.flush()
    assert (large.calls, len(large.read), large.written) == (Counter(read_header=1), 1, [])


def test_a_key_put_again_writes_its_segment_if_its_state_has_changed(large: CountingStore) -> None:
    fill(large, ["key-7"], "0123456789")
    assert (large.calls["write_header"], large.written) == (0, [])
    large.forget()
    fill(large, ["key-7"], "9876543210")
    assert len(large.read) == 1
    assert large.written == large.read


def test_keys_of_one_segment_cost_one_segment(large: CountingStore) -> None:
    one = states(large)
    one.prepare([f"key-{number}" for number in range(1000)])
    number, keys = next(
        (number, list(segment.kept))
        for number, segment in one._loaded.items()
        if len(segment.kept) > 2
    )
    large.read.clear()
    fill(large, keys, "9876543210")
    assert (large.read, large.written) == ([number], [number])


def test_due_keys_are_found_without_reading_other_segments(large: CountingStore) -> None:
    fill(large, ["key-1", "key-2"], "0123456789", due_us=5)
    large.read.clear()
    one = states(large)
    assert one.due(DueLimit(4)) == []
    assert large.read == []
    assert one.due(DueLimit(5)) == ["key-1", "key-2"]
    assert 1 <= len(large.read) <= 2


def test_live_state_finds_due_keys_without_a_scan() -> None:
    one = LiveStates()
    for number in range(1000):
        one.put(f"key-{number}", Text(""), due_us=number)
    with mock.patch.object(key_states, "heappop", wraps=heappop) as popped:
        assert one.due(DueLimit(-1)) == []
        assert one.due(DueLimit(2)) == ["key-0", "key-1", "key-2"]
        assert popped.call_count == 3


def test_live_state_does_not_grow_with_replaced_due_times() -> None:
    one = LiveStates()
    for due_us in range(10_000):
        for key in KEYS:
            one.put(key, Text(""), due_us)
    assert len(one._dues._heap) < 3 * (len(KEYS) + 64)
    assert one.flush() == 9_999


def test_a_new_segment_is_split_off_one_segment(large: CountingStore) -> None:
    before, number = header(large).segments, 0
    while header(large).segments == before:
        large.forget()
        fill(large, [f"more-{number}"], "0123456789")
        number += 1
    assert header(large).segments == before + 1
    assert len(large.read) <= 2
    assert before in large.written
    assert len(large.written) <= 3


def test_segments_are_joined_again_when_most_keys_have_gone(large: CountingStore) -> None:
    keys = [f"key-{number}" for number in range(1000)]
    one = states(large)
    one.prepare(keys)
    for key in keys[10:]:
        one.drop(key)
    one.flush()
    assert header(large).segments <= 3
    last = states(large)
    assert last.all() == sorted(keys[:10])


def test_a_step_whose_keys_have_all_gone_keeps_no_segment() -> None:
    store = CountingStore()
    fill(store, KEYS, "text")
    one = states(store)
    one.prepare(KEYS)
    for key in KEYS:
        one.drop(key)
    assert one.flush() == NEVER
    assert one.header.keys == 0
    assert store.read_segments("step", range(header(store).segments)) == [None]


def test_a_step_that_never_had_a_key_writes_nothing() -> None:
    store = CountingStore()
    one = states(store)
    one.prepare(["a"])
    one.drop("a")
    one.flush()
    assert (store.calls, store.written) == (Counter(read_header=1), [])


# --- a step that is set otherwise ------------------------------------------------------------


def fill_with(store: MemoryStore, settings: str, dues: dict[str, int]) -> None:
    one = SegmentedStates(store, "step", Text, settings)
    one.prepare(list(dues))
    for key, due_us in dues.items():
        one.put(key, Text(""), due_us)
    one.flush()


@pytest.mark.parametrize("settings", ["", "as it was"])
def test_a_step_with_unchanged_settings_reads_no_untouched_segment(settings: str) -> None:
    store = CountingStore()
    with segments_of(100):
        fill_with(store, settings, dict.fromkeys(KEYS, 50))
        store.forget()
        one = SegmentedStates(store, "step", Text, settings)
        assert one.changed_from() is None
        assert one.due(DueLimit(49)) == []
        assert one.flush() == 50
    assert (store.read, store.written) == ([], [])


def test_changed_settings_ask_all_keys_once_for_their_due_times() -> None:
    store = CountingStore()
    with segments_of(100):
        fill_with(store, "slow", dict.fromkeys(KEYS, 50))
        one = SegmentedStates(store, "step", Text, "fast")
        assert one.changed_from() == "slow"
        assert one.all() == sorted(KEYS)
        one.put("key-3", Text(""), 20)
        assert one.due(DueLimit(20)) == ["key-3"]
        assert one.flush() == 20
        again = SegmentedStates(store, "step", Text, "fast")
        assert again.changed_from() is None
        assert header(store).dues.min() == 20
        assert sorted(set(header(store).dues.tolist())) == [20, 50]


def test_state_without_settings_is_read_once() -> None:
    store = MemoryStore()
    fill(store, ["a"], due_us=50)
    for before in ("", None):
        one = SegmentedStates(store, "step", Text, "fast")
        assert one.changed_from() == before
        one.all()
        assert one.flush() == 50


# --- the form on disk -------------------------------------------------------------------------


def test_the_format_of_a_header_is_unchanged() -> None:
    empty = Header.empty()
    assert empty.encode().hex() == (
        "01" + "00" * 17 + "01000000" + "00" * 20 + "0000000000000040" * 2 + "00" * 8
    )
    held, counts = np.array([NEVER, 7]), np.array([[3, 1], [70_000, 0]], np.int32)
    header = Header(np.array([5, NEVER]), 12, 30, "fast", held, counts, is_counted=True)
    header.blocks, header.block_bytes = 3, 1_000
    assert header.set_hold_rule("open")
    header.holds[:] = [9, NEVER]
    content = header.encode()
    assert content.hex() == (
        "01"
        + "01"
        + "0c"
        + "00" * 7
        + "1e"
        + "00" * 7
        + "02000000"
        + "04000000" * 2
        + "03000000"
        + "e803000000000000"
        + "0500000000000000"
        + "0000000000000040"
        + "0000000000000040"
        + "0700000000000000"
        "0900000000000000" + "0000000000000040"
        "03000000" + "01000000" + "70110100" + "00000000" + b"fastopen".hex()
    )
    read = Header.decode(content + b"a stamp", "step")
    assert read.encode() == content
    assert Header.length_in(content + b"a stamp") == len(content)
    assert (read.keys, read.size, read.segments, read.settings) == (12, 30, 2, "fast")
    assert (read.total, read.is_counted) == ((4, 70_000), True)
    assert not read.set_hold_rule("open")
    assert read.holds.tolist() == [9, NEVER]
    read.resize(3)
    assert read.holds.tolist() == [9, NEVER, NEVER]
    assert read.set_hold_rule("close")
    assert Header.decode(read.encode(), "step").holds.tolist() == [NEVER] * 3


def test_the_format_of_a_segment_is_unchanged() -> None:
    content = Segment({"a": (pickle.dumps(5, 5), 7)}).encode()
    assert content is not None
    assert content[:2] == b"\x01K"
    due = (7).to_bytes(8, "little")
    assert pickle.loads(content[2:]) == (["a"], [pickle.dumps(5, 5)], due, (), (), ())


def test_an_empty_segment_is_not_stored() -> None:
    assert Segment().encode() is None
    assert Segment.decode(None, "step").kept == {}


def test_a_held_key_is_due_when_the_bound_reaches_its_time() -> None:
    store, live = MemoryStore(), LiveStates()
    for one in (states(store), live):
        one.prepare(["held", "plain"])
        one.put("held", Text(""), held_due_us(40))
        one.put("plain", Text(""), 20)
        assert one.flush() == 20
    for one in (states(store), live):
        assert one.due(DueLimit(19, 39)) == []
        assert one.due(DueLimit(20, 39)) == ["plain"]
        assert one.due(DueLimit(19, 40)) == ["held"]
        assert one.due(DueLimit(19)) == ["held"]


# --- compression for Spark's state ---------------------------------------------------------

KINDS = st.sampled_from([WHOLE_KEYS, WINDOWS])


@given(KINDS, st.binary(max_size=400), st.integers(1, 50))
def test_packed_segments_survive_a_round_trip(kind: bytes, content: bytes, times: int) -> None:
    segment = kind + content * times
    assert unpack(pack(segment)) == segment
    assert len(pack(segment)) <= len(segment)


def test_repetitive_segments_become_small() -> None:
    segment = WHOLE_KEYS + b"user-1 12.5 " * 1000
    assert pack(segment)[:2] == PACKED
    assert len(pack(segment)) < len(segment) // 10


def test_incompressible_segments_are_stored_unchanged() -> None:
    noise = WHOLE_KEYS + os.urandom(10_000)
    small = WHOLE_KEYS + b"a" * 100
    assert pack(noise) == noise
    assert pack(small) == small


@pytest.mark.parametrize("cut", [3, 20, 60])
def test_a_segment_that_cannot_be_unpacked_is_an_error_that_names_it(cut: int) -> None:
    packed = pack(WHOLE_KEYS + b"user-1 12.5 " * 1000)
    with pytest.raises(CheckpointError, match=r"^segment 7 of step 'hourly' cannot be unpacked"):
        unpack(packed[:cut], "segment 7 of step 'hourly'")
