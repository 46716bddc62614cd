"""Tables of the time that the parts of an epoch take."""

from __future__ import annotations

from benchmarks.windows.job import Figure
from benchmarks.windows.profiling import report

EPOCH = {
    "durationMs": {"addBatch": 600, "queryPlanning": 100, "triggerExecution": 1_000},
    "stateOperators": [
        {"allUpdatesTimeMs": 200, "allRemovalsTimeMs": 0, "commitTimeMs": 30},
        {"allUpdatesTimeMs": 50, "allRemovalsTimeMs": 0, "commitTimeMs": 20},
    ],
}
SEEN = [
    ["windows", "flow_windowing/by_key/window_driver.py:on_batch", 3.0, 1.5],
    ["sink", "connectors/sink.py:to_record", 1.0, 0.25],
    ["sink", "files/file_sinks.py:write_parts", 1.0, 0.25],
    ["waiting for a task", "get_init_message", 60.0, 0.5],
]


def cells(text: str) -> dict[str, list[str]]:
    """Return the figures of each line by its subject."""
    lines = [line.split("  ") for line in text.splitlines() if line.startswith("  ")]
    return {line[1]: [cell.strip() for cell in line[2:] if cell.strip()] for line in lines}


def test_epochs_and_purposes_are_summed_and_shown_as_shares() -> None:
    text = report(Figure(2.0, {"epochs": [EPOCH, EPOCH], "seen": SEEN}))
    assert text.startswith("2 epochs took 2.00 s, by Spark's account:\n")
    found = cells(text)
    assert found["planning the query"] == ["0.20 s", "10.0%"]
    assert found["running the epoch"] == ["1.20 s", "60.0%"]
    assert found["state tasks, until their rows are through"] == ["0.50 s"], "of all levels"
    assert found["state tasks, committing the stores"] == ["0.10 s"]
    # Shares of the working time, without waiting.
    assert found["windows"] == ["1.50 s", "75.0%", "3.00 s"]
    assert found["sink"] == ["0.50 s", "25.0%", "2.00 s"]
    assert "waiting for a task" not in found


def test_functions_are_in_order_of_their_time_at_work() -> None:
    places = report(Figure(2.0, {"seen": SEEN})).rpartition("called from there:\n")[2]
    assert [line.split()[0] for line in places.splitlines()] == [
        "flow_windowing/by_key/window_driver.py:on_batch",
        "connectors/sink.py:to_record",
        "files/file_sinks.py:write_parts",
    ]


def test_the_table_of_epochs_is_left_out_without_epochs() -> None:
    assert "epochs" not in report(Figure(2.0, {"seen": SEEN}))
