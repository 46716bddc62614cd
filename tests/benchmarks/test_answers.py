"""Comparison of the answers of a benchmark's contestants."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.windows.answers import Answer, answer_in

MINUTE = 60_000_000
LATEST = 10 * MINUTE
ROWS = [("a", 0, MINUTE, 1.5), ("b", 0, MINUTE, 2.0), ("a", MINUTE, 2 * MINUTE, 4.0)]


def write_pickles(folder: Path, rows: list[tuple[str, int, int, float]]) -> Answer:
    folder.mkdir()
    (folder / "0.pickle").write_bytes(pickle.dumps(rows[:1]))
    (folder / "1.pickle").write_bytes(pickle.dumps(rows[1:]))
    return answer_in(folder, ("total",), "tumbling", LATEST)


def write_parquet(folder: Path, rows: list[tuple[str, int, int, float]], unit: str) -> Answer:
    (folder / "epoch=0").mkdir(parents=True)
    keys, opened, closed, totals = zip(*rows, strict=True)
    table = {"window_id": range(len(rows)), "key": keys, "total": totals}
    for name, times in (("open_time", opened), ("close_time", closed)):
        table[name] = pa.array(times, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"))
    pq.write_table(pa.table(table), folder / "epoch=0/0.parquet")
    return answer_in(folder, ("total",), "tumbling", LATEST)


def test_windows_and_sums_do_not_depend_on_order_or_format(tmp_path: Path) -> None:
    first = write_pickles(tmp_path / "one", ROWS)
    assert (first.windows, first.sums) == (3, {"total": 7.5})
    assert write_pickles(tmp_path / "two", ROWS[::-1]) == first
    assert write_parquet(tmp_path / "three", ROWS, "us") == first
    assert write_parquet(tmp_path / "four", ROWS[::-1], "ms") == first


def test_a_total_under_another_key_or_in_another_window_differs(tmp_path: Path) -> None:
    first = write_pickles(tmp_path / "one", ROWS)
    swapped = [("b", *ROWS[0][1:]), ("a", *ROWS[1][1:]), ROWS[2]]
    moved = [*ROWS[:2], ("a", 2 * MINUTE, 3 * MINUTE, 4.0)]
    for name, rows in (("swapped", swapped), ("moved", moved)):
        other = write_pickles(tmp_path / name, rows)
        assert (other.windows, other.sums) == (first.windows, first.sums)
        assert other != first


def test_open_windows_and_sessions_are_left_out(tmp_path: Path) -> None:
    # The watermark is ten seconds behind the last event, at 9:50.
    still_open = ("a", 9 * MINUTE, LATEST, 1.0)
    assert write_pickles(tmp_path / "one", [*ROWS, still_open]).windows == 3
    # A session is open until its gap of half a minute has passed.
    ends = 9 * MINUTE + 20_000_000
    sessions = [("a", 0, ends, 1), ("a", 0, ends + 1, 1)]
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "0.pickle").write_bytes(pickle.dumps(sessions))
    assert answer_in(folder, ("n",), "session", LATEST).windows == 1


def test_an_answer_may_hold_no_windows(tmp_path: Path) -> None:
    assert write_pickles(tmp_path / "one", []).windows == 0
