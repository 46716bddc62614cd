"""Tests of the lateness rule that both paths share."""

from __future__ import annotations

import numpy as np
import pytest

from flow_windowing import Count, Sum
from flow_windowing.aggregates.folding import Fold
from flow_windowing.rules.watermark import has_closed, is_behind


@pytest.mark.parametrize(("timestamp_us", "behind"), [(9, True), (10, False), (11, False)])
def test_a_value_at_the_watermark_is_on_time(timestamp_us: int, behind: bool) -> None:
    assert is_behind(timestamp_us, 10) is behind
    assert is_behind(np.array([timestamp_us]), np.array([10])).tolist() == [behind]


@pytest.mark.parametrize(("closed_at_us", "closed"), [(9, True), (10, True), (11, False)])
def test_a_window_closes_when_the_watermark_reaches_its_close(
    closed_at_us: int, closed: bool
) -> None:
    assert has_closed(closed_at_us, 10) is closed
    assert has_closed(np.array([closed_at_us]), np.array([10])).tolist() == [closed]


def test_aggregators_declare_the_field_that_they_read() -> None:
    assert Sum("amount").field_read == "amount"
    assert Count().field_read is None
    assert Fold(int, int.__add__, None, copies=False).field_read is None
