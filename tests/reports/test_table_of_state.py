"""The columns of the table at the end of a run for open windows and buffered values."""

from __future__ import annotations

from collections import Counter

import pytest

from flow import Summary
from flow.reports.summary_table import summary_table
from tests.support.monitored import hourly_flow


def table_with(**sizes: int) -> list[str]:
    """Return the lines of the table of a run whose windowing step has these gauges."""
    summary = Summary("hourly", "streaming")
    summary.gauges = Counter({("hours", name): size for name, size in sizes.items()})
    return summary_table(hourly_flow(), summary).splitlines()[:-1]


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ({"open_windows": 1_500, "buffered_values": 7}, "1,500         7"),
        ({"uncounted_keys": 3}, "unknown   unknown"),
    ],
)
def test_the_table_has_open_windows_and_buffered_values_if_any_and_known(
    sizes: dict[str, int], shown: str
) -> None:
    assert table_with(keys=12, **sizes) == [
        "step    in  out  keys  windows  buffered",
        "visits",
        f"hours              12  {shown:>17}",
        "out",
        "late",
    ]
    assert table_with(keys=12, open_windows=0, buffered_values=0)[0] == "step    in  out  keys"
