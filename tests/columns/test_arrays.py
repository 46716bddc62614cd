"""Arithmetic on columns that are cut into runs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flow.columns.arrays import running_max

wide = st.one_of(st.integers(-4, 4), st.integers(-(2**62), 2**62))


@given(st.lists(st.lists(wide, min_size=1, max_size=5), max_size=5))
def test_running_max_restarts_with_each_run(runs: list[list[int]]) -> None:
    values = np.array([one for run in runs for one in run], np.int64)
    run_of_row = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
    expected = [max(run[: at + 1]) for run in runs for at in range(len(run))]
    assert running_max(values, run_of_row).tolist() == expected
