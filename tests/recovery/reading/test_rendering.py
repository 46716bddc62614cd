"""Values as JSON for people, and JSON as text."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from flow.instants import MAX_US, MIN_US, NEVER
from flow_windowing import LateReason
from recovery.reading.rendering import indented, plain, time_text


class Point(NamedTuple):
    x: int
    at: datetime


AN_HOUR_EAST = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (datetime(2024, 1, 1, 12, tzinfo=AN_HOUR_EAST), "2024-01-01T11:00:00Z"),
        (datetime(2024, 1, 1, 12, 0, 0, 7, tzinfo=UTC), "2024-01-01T12:00:00.000007Z"),
        (datetime(2024, 1, 1, 12), "2024-01-01T12:00:00"),  # noqa: DTZ001  (a user's may be naive)
        (date(2024, 1, 1), "2024-01-01"),
        (time(12, 30), "12:30:00"),
        (timedelta(hours=1, minutes=30), "1h30m"),
        (timedelta(microseconds=-1), "-1us"),
        (Decimal("1.50"), "1.50"),
        (float("nan"), "nan"),
        (LateReason.TOO_FAR_AHEAD, "too_far_ahead"),
        (b"ab", "0x6162"),
        (b"a" * 40, f"0x{'61' * 32}… (40 bytes)"),
        ({(1, "a"): 2, None: 3, 4: 5}, {'[1, "a"]': 2, "null": 3, "4": 5}),
        ({3, 1, 2}, [1, 2, 3]),
        (Point(1, datetime(2024, 1, 1, tzinfo=UTC)), {"x": 1, "at": "2024-01-01T00:00:00Z"}),
        ((1, [2, ()]), [1, [2, []]]),
    ],
)
def test_a_value_is_shown_as_json(value: Any, shown: Any) -> None:
    assert plain(value) == shown


def test_an_instant_that_no_datetime_holds_has_no_text() -> None:
    assert time_text(MIN_US) == "0001-01-01T00:00:00Z"
    assert time_text(MAX_US) == "9999-12-31T23:59:59.999999Z"
    assert (time_text(NEVER), time_text(-NEVER)) == (None, None)


def test_json_is_indented_with_a_line_for_each_entry() -> None:
    value = {
        "due": None,
        "state": {"windows": [{"id": 1, "value": {"n": 2}}, {"id": 2, "value": []}], "text": ""},
        "long": ["x" * 40, "y" * 40],
    }
    assert "\n".join(indented(value)) == (
        "due: -\n"
        "state:\n"
        "  windows:\n"
        "    - id: 1\n"
        '      value: {"n": 2}\n'
        "    - id: 2\n"
        "      value: []\n"
        '  text: ""\n'
        "long:\n"
        f"  - {'x' * 40}\n"
        f"  - {'y' * 40}"
    )
