"""Metadata of windows and of late values."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flow.connectors.sink import to_record
from flow_windowing import LateReason, LateValue, Pane, PaneTiming, Retracted, WindowMetadata

NOON, ONE = (datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (12, 13))
WINDOW = WindowMetadata(7, NOON, ONE, frozenset({9}), timestamp=ONE)


def test_a_window_travels_whole() -> None:
    travelled = pickle.loads(pickle.dumps(WINDOW))
    assert travelled == WINDOW
    assert (travelled.merged_ids, travelled.timestamp) == ({9}, ONE)


def test_a_late_value_travels_whole() -> None:
    windows = (WINDOW, WindowMetadata(8, ONE, ONE))
    late = LateValue({"n": 1}, NOON, ONE, timedelta(hours=1), windows, LateReason.GAP, side=2)
    travelled = pickle.loads(pickle.dumps(late))
    assert travelled == late
    assert travelled.windows[0].timestamp == ONE


def test_the_window_of_a_late_value_is_the_first_that_it_missed() -> None:
    later = WindowMetadata(8, ONE, ONE)
    late = LateValue("v", NOON, ONE, timedelta(hours=1), (WINDOW, later))
    assert late.window == WINDOW
    assert LateValue("v", NOON, ONE, timedelta(0)).window is None


def test_a_late_value_is_laid_out_in_columns_with_the_ids_of_all_windows() -> None:
    hour = timedelta(hours=1)
    late = LateValue("v", NOON, ONE, hour, (WINDOW, WindowMetadata(8, ONE, ONE)))
    assert to_record(("k", late)) == {
        "key": "k",
        "value": "v",
        "timestamp": NOON,
        "watermark": ONE,
        "late_by": hour,
        "window": WINDOW,
        "reason": LateReason.LATE,
        "side": None,
        "window_ids": [7, 8],
    }


@pytest.mark.parametrize(
    ("field", "value", "column"),
    [
        ("key", "other", "'k'"),
        ("window_id", 8, "7"),
        ("open_time", ONE, repr(NOON)),
        ("merged_ids", [], "[9]"),
        ("is_retraction", True, "False"),
        ("timestamp", NOON, repr(ONE)),
    ],
)
def test_a_field_of_a_result_replaces_no_column_of_the_layout(
    field: str, value: Any, column: str
) -> None:
    problem = f"the field '{field}', .*, which is a column of every result, {re.escape(column)}"
    with pytest.raises(ValueError, match=problem):
        to_record(("k", (WINDOW, {field: value, "n": 1})))


@pytest.mark.parametrize(("key", "field"), [("7", 7), ("k", "k")])
def test_a_result_may_have_its_key_as_a_field(key: str, field: Any) -> None:
    record = to_record((key, (WINDOW, {"key": field, "n": 1})))
    assert (record["key"], record["n"], record["is_retraction"]) == (field, 1, False)
    assert to_record((key, (WINDOW, Retracted({"key": field}))))["is_retraction"]


def test_windows_are_hashable_frozen_and_ordered_by_open_time() -> None:
    later = WindowMetadata(6, ONE, ONE)
    assert sorted({later, WINDOW}) == [WINDOW, later]
    with pytest.raises(AttributeError):
        later.window_id = 7  # type: ignore[misc]


def test_windows_are_equal_whatever_their_timestamps_say() -> None:
    plain = WindowMetadata(7, NOON, ONE, frozenset({9}))
    assert plain == WINDOW
    assert hash(plain) == hash(WINDOW)


def test_a_pane_travels_and_is_laid_out_with_its_window_and_is_no_part_of_its_identity() -> None:
    plain = WindowMetadata(7, NOON, ONE)
    paned = replace(plain, pane=Pane(2, PaneTiming.ON_TIME, is_last=True))
    assert pickle.loads(pickle.dumps(paned)).pane == paned.pane
    assert (paned, hash(paned)) == (plain, hash(plain))
    assert not paned < plain
    assert repr(paned) == f"{repr(plain)[:-1]}, pane=Pane(2, PaneTiming.ON_TIME, is_last=True))"
    assert to_record(("k", (paned, 5))) == {
        **to_record(("k", (plain, 5))),
        "pane_index": 2,
        "pane_timing": "on_time",
        "pane_is_last": True,
    }


def test_a_window_without_a_pane_is_pickled_as_one_that_knows_none() -> None:
    made, parts = WindowMetadata(7, NOON, ONE).__reduce__()
    assert (made, parts) == (WindowMetadata, (7, NOON, ONE, frozenset(), None))


def test_a_window_shows_itself_without_what_it_says_by_default() -> None:
    shown = repr(WindowMetadata(7, NOON, ONE))
    assert shown == f"WindowMetadata(7, {NOON!r}, {ONE!r})"
    assert repr(WINDOW).endswith(f"merged_ids=frozenset({{9}}), timestamp={ONE!r})")


def test_a_value_without_a_watermark_is_not_behind_one() -> None:
    late = LateValue.of_us("v", 5, -(2**62), (), LateReason.TOO_FAR_AHEAD)
    assert (late.watermark, late.late_by) == (None, timedelta(0))
