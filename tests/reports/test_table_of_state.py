"""The columns of the table at the end of a run for open windows and buffered values."""

from __future__ import annotations

from collections import Counter

from flow import Summary
from flow.reports.summary_table import summary_table
from tests.support.monitored import hourly_flow


def table_with(**sizes: int) -> list[str]:
    """Return the lines of the table of a run whose windowing step has these gauges."""
    summary = Summary("hourly", "streaming")
    summary.gauges = Counter({("hours", name): size for name, size in sizes.items()})
    return summary_table(hourly_flow(), summary).splitlines()[:-1]


def test_the_table_has_open_windows_and_buffered_values_if_any() -> None:
    assert table_with(keys=12, open_windows=1_500, buffered_values=7) == [
        "step    in  out  keys  windows  buffered",
        "visits",
        "hours              12    1,500         7",
        "out",
        "late",
    ]
    assert table_with(keys=12, open_windows=0, buffered_values=0)[0] == "step    in  out  keys"


def test_the_table_says_that_totals_are_unknown() -> None:
    assert table_with(keys=12, uncounted_keys=3) == [
        "step    in  out  keys  windows  buffered",
        "visits",
        "hours              12  unknown   unknown",
        "out",
        "late",
    ]
