"""Buffered values over columns, which enter in order of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flow_windowing import EventClock, Min, SessionWindower
from flow_windowing.columnar.values.buffered_values import BufferedValues
from flow_windowing.columnar.values.records import fields_as_records
from tests.support.columns import (
    Epoch,
    Step,
    as_dicts,
    as_records,
    equal_rows,
    outcome,
)
from tests.support.window_flow import START


@pytest.mark.parametrize("form", [as_dicts, as_records], ids=["objects", "records"])
def test_the_first_of_equal_values_to_arrive_is_kept_even_if_later_in_time(form: Any) -> None:
    # -0.0 comes first, and waits until 0.0, of an earlier time, has entered.
    step = Step(EventClock("ts", "5s"), SessionWindower("1m"), {"low": Min("real")}, ordered=True)
    first = equal_rows(1, real=-0.0, ts=START + timedelta(seconds=9))
    epochs = [Epoch([*first, *equal_rows(1, real=0.0, ts=START + timedelta(seconds=4))])]
    (value,) = outcome(step, epochs, form)["down"]["a"]
    assert "{'low': -0.0}" in value


def test_a_value_skips_the_buffer_if_no_later_value_is_released_before_it() -> None:
    #        0   5   10 = watermark   15
    # waits      5                    15
    # new      4 6 10                 12, of key 1 only 4
    times_us = np.array([5, 15])
    buffered = BufferedValues(np.array([0, 0]), times_us, np.array([0, 1]), ["x", "y"], times_us)
    watermark_us = np.array([10, 10])

    def at_once(slots: list[int], times: list[int]) -> list[bool]:
        return buffered.skips_buffer(np.array(slots), np.array(times), watermark_us).tolist()

    assert at_once([0, 0, 0], [6, 12, 10]) == [True, False, True]
    assert at_once([0, 0, 0], [5, 12, 10]) == [True, False, True]
    assert at_once([0, 0, 1], [4, 10, 4]) == [False, False, True]


def test_fields_of_one_kind_of_number_become_columns() -> None:
    values = [{"n": 1, "x": 0.5, "other": "a"}, {"x": None}]
    batch = fields_as_records(values, ("n", "x"))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist() == [{"n": 1, "x": 0.5}, {"n": None, "x": None}]


@pytest.mark.parametrize(
    "values",
    [
        [{"n": 1}, {"n": 1.0}],
        [{"n": True}],
        [{"n": 2**64}],
        [{"n": "1"}],
        [{"n": None}],
        [7],
        [],
    ],
    ids=["two kinds", "a bool", "too great", "text", "nothing", "no dict", "no values"],
)
def test_other_values_stay_objects(values: list[Any]) -> None:
    assert fields_as_records(values, ("n",)) is values


def test_values_without_read_fields_stay_objects() -> None:
    values = [{"n": 1}]
    assert fields_as_records(values, ()) is values
