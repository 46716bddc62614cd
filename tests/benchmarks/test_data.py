"""The events that benchmarks read."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.windows.data import (
    FILES,
    HANDS,
    Events,
    Form,
    Spread,
    as_objects,
    dealt,
    last_us,
    make,
)


def test_every_row_is_written_once_in_files_of_about_equal_size(tmp_path: Path) -> None:
    def sizes(rows: int) -> list[int]:
        folder = make(Events(rows, keys=10), tmp_path)
        return [pq.read_metadata(path).num_rows for path in sorted(folder.glob("*.parquet"))]

    assert sizes(1_000) == [50] * FILES
    assert sum(sizes(1_003)) == 1_003


def test_a_seed_determines_the_events() -> None:
    assert Events(1_000, 10).table(3).equals(Events(1_000, 10).table(3))
    assert not Events(1_000, 10, seed=1).table(3).equals(Events(1_000, 10, seed=2).table(3))


def test_time_goes_up_by_7200_us_less_a_jitter_of_up_to_five_seconds() -> None:
    times = Events(10_000, 10).table(1)["ts"].to_pylist()
    start = datetime(2024, 1, 1, tzinfo=UTC)
    behind = [start + timedelta(microseconds=7_200 * (500 + i)) - t for i, t in enumerate(times)]
    assert min(behind) >= timedelta(0)
    assert timedelta(seconds=4.9) < max(behind) < timedelta(seconds=5)


def test_uniform_keys_come_equally_often_and_zipf_keys_do_not() -> None:
    def largest_share(spread: Spread) -> float:
        counts = pc.value_counts(Events(200_000, 100, spread).table(0)["key"]).field("counts")
        return pc.max(counts).as_py() / 10_000

    assert 0.01 < largest_share(Spread.UNIFORM) < 0.02
    assert largest_share(Spread.ZIPF) > 0.1


def test_amounts_are_quarters_so_that_sums_are_exact_in_any_order() -> None:
    amounts = Events(1_000, 10).table(0)["amount"].to_pylist()
    assert {amount % 0.25 for amount in amounts} == {0.0}


def test_objects_hold_the_same_events_as_columns(tmp_path: Path) -> None:
    times = pa.array([60_000_000, 61_000_001], pa.timestamp("us", "UTC"))
    table = pa.table({"key": ["a", "b"], "ts": times, "amount": [0.25, 3.5]})
    first = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    second = datetime(1970, 1, 1, 0, 1, 1, 1, tzinfo=UTC)
    assert as_objects(table) == [("a", (first, 0.25)), ("b", (second, 3.5))]

    events = Events(200, 10, form=Form.OBJECTS)
    path = make(events, tmp_path) / "part-07.objects"
    written = pickle.loads(path.read_bytes())
    assert written == as_objects(events.table(7))
    hands = [pickle.loads(dealt(path, hand).read_bytes()) for hand in range(HANDS)]
    assert hands == [written[0::2], written[1::2]]


def test_files_have_times_in_their_order_and_are_not_made_again(tmp_path: Path) -> None:
    folder = make(Events(200, 10), tmp_path)
    shown = sorted(path for path in folder.iterdir() if not path.name.startswith("_"))
    assert [path.stat().st_mtime for path in shown] == [float(n) for n in range(1, FILES + 1)]
    (folder / "part-00.parquet").unlink()
    make(Events(200, 10), tmp_path)
    assert not (folder / "part-00.parquet").exists()


def test_the_last_time_is_the_greatest_not_that_of_the_last_row(tmp_path: Path) -> None:
    folder = make(Events(1_000, 10), tmp_path)
    times = pq.read_table(folder, columns=["ts"])["ts"].cast(pa.int64()).to_pylist()
    assert last_us(folder) == max(times) != times[-1]
