"""Compression of segments for Spark's state."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.engine.state.packed import pack, unpack
from flow.errors import CheckpointError
from flow.keyed.segments import PACKED, WHOLE_KEYS, WINDOWS

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
