"""Compression of segments for Spark's state."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.engine.state.header import FORMAT
from flow.engine.state.packed import FORMAT_PACKED, pack, unpack
from flow.engine.state.segment import FORMAT_OF_SHARDS
from flow.errors import CheckpointError

VERSIONS = st.sampled_from([bytes([FORMAT]), bytes([FORMAT_OF_SHARDS])])


@given(VERSIONS, st.binary(max_size=400), st.integers(1, 50))
def test_packed_segments_survive_a_round_trip(version: bytes, content: bytes, times: int) -> None:
    segment = version + content * times
    assert unpack(pack(segment)) == segment
    assert len(pack(segment)) <= len(segment)


def test_repetitive_segments_become_small() -> None:
    segment = bytes([FORMAT]) + b"user-1 12.5 " * 1000
    assert pack(segment)[0] == FORMAT_PACKED
    assert len(pack(segment)) < len(segment) // 10


def test_incompressible_segments_are_stored_unchanged() -> None:
    noise = bytes([FORMAT]) + os.urandom(10_000)
    small = bytes([FORMAT]) + b"a" * 100
    assert pack(noise) == noise
    assert pack(small) == small


def test_unpacked_segments_of_earlier_versions_are_read() -> None:
    segment = bytes([FORMAT]) + b"user-1 12.5 " * 1000
    assert unpack(segment) == segment


@pytest.mark.parametrize("cut", [3, 20, 60])
def test_a_segment_that_cannot_be_unpacked_is_an_error_that_names_it(cut: int) -> None:
    packed = pack(bytes([FORMAT]) + b"user-1 12.5 " * 1000)
    with pytest.raises(CheckpointError, match=r"^segment 7 of step 'hourly' cannot be unpacked"):
        unpack(packed[:cut], "segment 7 of step 'hourly'")
