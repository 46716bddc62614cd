"""What has arrived for a step that runs many keys at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flow.engine.gathering import _rising


@given(st.lists(st.lists(st.integers(-4, 4), min_size=1, max_size=5), max_size=5))
def test_no_row_finds_its_stream_further_back_than_one_of_its_key_before_it(
    of_keys: list[list[int]],
) -> None:
    reached = np.array([one for rows in of_keys for one in rows], np.int64)
    counts = np.array([len(rows) for rows in of_keys], np.int64)
    expected = [max(rows[: at + 1]) for rows in of_keys for at in range(len(rows))]
    assert _rising(reached, counts).tolist() == expected
