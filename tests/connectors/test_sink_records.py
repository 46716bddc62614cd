"""Layout of items as named columns."""

from __future__ import annotations

from datetime import UTC, datetime

from flow.connectors.sink import to_record
from flow_windowing import WindowMetadata

NOON, ONE = (datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (12, 13))


def test_a_window_is_laid_out_beside_its_value() -> None:
    window = WindowMetadata(7, NOON, ONE, frozenset({9, 8}))
    assert to_record(("k", (window, {"n": 3}))) == {
        "key": "k",
        "window_id": 7,
        "open_time": NOON,
        "close_time": ONE,
        "merged_ids": [8, 9],
        "n": 3,
    }


def test_a_window_has_a_timestamp_column_only_if_requested() -> None:
    window = WindowMetadata(7, NOON, ONE, timestamp=ONE)
    assert to_record((window, 3))["timestamp"] == ONE
    assert "timestamp" not in to_record((WindowMetadata(7, NOON, ONE), 3))
