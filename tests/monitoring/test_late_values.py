"""The late values of a run in its status: the wait that they needed, and the newest of them."""

from __future__ import annotations

from collections import Counter

from flow.engine.epoch.context import LateSource
from flow.engine.epoch.late_items import MAX_ITEMS, LateItem
from flow.monitoring.as_json import late_json, status_json
from tests.support.monitored import epoch_report, recorded

SOURCE = LateSource("hours", "b.csv", "a.csv")


def test_the_advice_covers_all_epochs_and_names_the_main_source() -> None:
    first = epoch_report(0, lateness=Counter({("hours", 4_000_000): 98}))
    second = epoch_report(
        1, lateness=Counter({("hours", 9_000_000): 2}), late_sources=Counter({SOURCE: 2})
    )
    status = recorded(first, second, epoch_report(2)).status
    assert status.steps["hours"].late_advice == (
        "a wait_for_system_duration longer by 9s would have been enough for all of them; "
        "2 of them came from b.csv, while a.csv was furthest ahead"
    )
    assert status.steps["visits"].late_advice == ""
    assert status_json(status)["steps"]["hours"]["late_advice"].startswith("a wait_for_system")


def test_a_status_has_the_newest_late_values_of_a_step() -> None:
    def items(first: int, count: int) -> tuple[LateItem, ...]:
        return tuple(
            LateItem("hours", "k", f"{n}", "late", n, None) for n in range(first, first + count)
        )

    status = recorded(
        epoch_report(0, late_items=items(0, 15)), epoch_report(1, late_items=items(15, 15))
    ).status
    assert status.steps["hours"].late_items == items(10, MAX_ITEMS)
    assert status.steps["out"].late_items == ()
    assert "late_items" not in status_json(status)["steps"]["hours"], "contents are asked for apart"


def test_late_values_have_times_in_seconds() -> None:
    item = LateItem("hours", "k", "'v'", "late", 1_500_000, 4_000_000, ((0, 0, 2_000_000),), 3)
    (found,) = late_json([item])
    assert found.pop("windows") == [{"id": 0, "open": 0.0, "close": 2.0}]
    assert found == {
        **{"key": "k", "value": "'v'", "reason": "late", "missed": 3},
        **{"timestamp": 1.5, "watermark": 4.0},
    }
