"""Planning of a history and the live data after it: offsets, partitions, logs, positions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.files import JsonLinesSource, TextSource
from flow.connectors.items import from_items
from flow.connectors.source import Invalid, Json, Planner, Slice
from flow.connectors.then import AfterOffsets, FromTime, Then
from flow.connectors.then.logs import PartLog
from flow.errors import SourceError
from flow.testing import run_source
from tests.support.growing_source import GrowingSource, numbered
from tests.support.reading_files import JsonLog, sampled_reads


def plan(planner: Planner, start: Json = None) -> Iterator[Slice]:
    """Yield slices until there is none; offsets become JSON."""
    while (planned := planner.next(start)) is not None:
        yield planned
        start = json.loads(json.dumps(planned.end))


def read_all(source: Then[Any], resumed: Collection[int] = ()) -> list[Any]:
    """Read a source until it has no more, with new planners after some slices."""
    log, found, start = JsonLog(), list[Any](), None
    planner = source.planner(log, 1)
    for number in range(100):
        planned = planner.next(start)
        if planned is None:
            return found
        found += items_of(source, planned)
        start = json.loads(json.dumps(planned.end))
        if number in resumed:
            planner = source.planner(log, 1)
    raise AssertionError("more than 100 slices")


def items_of(source: Then[Any], planned: Slice) -> list[Any]:
    batches = [batch for split in planned.splits for batch in source.read(split)]
    return [item for batch in batches if not isinstance(batch, Invalid) for item in batch]


def test_the_live_source_follows_the_end_of_the_history() -> None:
    source = Then(from_items([1, 2, 3], batch_size=2), GrowingSource({"0": [4, 5, 6]}))
    slices = list(plan(source.planner(JsonLog(), 1)))
    assert [items_of(source, one) for one in slices] == [[1, 2], [3], [4, 5], [6]]


def test_live_partitions_are_numbered_after_those_of_the_history() -> None:
    history = GrowingSource({"0": [1], "1": [2]}, bounded=True)
    source = Then(history, GrowingSource({"0": [3], "1": [], "2": [4, 5, 6]}))
    first, second, third = plan(source.planner(JsonLog(), 1))
    assert [split.partition for split in first.splits] == [0, 1]
    assert [split.partition for split in second.splits] == [2, 4]
    assert (second.first, second.behind) == (2, [4])
    assert [split.partition for split in third.splits] == [4]


def test_the_last_partitions_of_the_history_are_behind_until_the_switch() -> None:
    source = Then(from_items([1, 2, 3], batch_size=2), GrowingSource({"0": [4]}))
    behind = [list(one.behind) for one in plan(source.planner(JsonLog(), 1))]
    assert behind == [[0], [0], []]


def test_the_switch_to_a_live_source_without_data_is_logged() -> None:
    source = Then(from_items([1]), GrowingSource({}))
    planner = source.planner(JsonLog(), 1)
    *_, last = plan(planner)
    assert (last.splits, list(last.behind), last.end["part"]) == ([], [], "live")
    assert planner.next(last.end) is None
    assert not planner.finished(last.end)


@pytest.mark.parametrize(
    ("history", "live", "expected"),
    [
        (from_items([]), from_items([1, 2]), [1, 2]),
        (from_items([1]), from_items([]), [1]),
        (Then(from_items([1]), from_items([2])), from_items([3, 4], batch_size=1), [1, 2, 3, 4]),
    ],
)
def test_bounded_sources_follow_each_other(history: Any, live: Any, expected: list[int]) -> None:
    assert run_source(Then(history, live)) == expected


@sampled_reads
@given(
    st.lists(st.integers(0, 3), max_size=4),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sets(st.integers(0, 20)),
)
def test_a_run_that_resumes_after_any_slice_reads_each_item_once(
    history: list[int], live: list[int], piece: int, resumed: set[int]
) -> None:
    numbers = iter(range(1_000))
    old, new = (
        numbered(*([next(numbers) for _ in range(count)] for count in counts))
        for counts in (history, live)
    )
    source = Then(GrowingSource(old, piece, bounded=True), GrowingSource(new, piece))
    found = read_all(source, resumed)
    assert sorted(found) == list(range(next(numbers)))
    old_items = sum(map(len, old.values()))
    assert sorted(found[:old_items]) == list(range(old_items))


def messages(partition: int, offsets: range) -> list[dict[str, Any]]:
    return [{"topic": "topic", "partition": partition, "offset": at} for at in offsets]


@pytest.mark.parametrize("resumed", [(), (0,), (1,), (2,), (3,)])
def test_each_partition_goes_on_after_its_last_archived_offset(resumed: tuple[int, ...]) -> None:
    archived = [*messages(1, range(3)), *messages(0, range(5))]
    topic = {"0": messages(0, range(8)), "1": messages(1, range(4)), "2": messages(2, range(2))}
    source = Then(
        from_items(archived, batch_size=3), GrowingSource(topic, 10), start=AfterOffsets()
    )
    found = [(item["partition"], item["offset"]) for item in read_all(source, resumed)]
    whole = [(0, n) for n in range(8)] + [(1, n) for n in range(4)] + [(2, n) for n in range(2)]
    assert sorted(found) == whole


def test_a_history_without_a_field_of_the_rule_is_an_error() -> None:
    source = Then(from_items([{"topic": "t"}]), GrowingSource({}), start=AfterOffsets())
    with pytest.raises(SourceError, match=r"has no field .partition. in {'topic': 't'}"):
        source.planner(JsonLog(), 1).next(None)


def test_a_history_may_be_deleted_after_the_switch(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, "1\n2\n"), (new, "3\n")):
        folder.mkdir()
        (folder / "a.txt").write_text(text)
    source = Then(TextSource(old), TextSource(new, follow=True))
    log = JsonLog()
    *_, last = plan(source.planner(log, 1))
    (old / "a.txt").unlink()
    old.rmdir()
    (new / "b.txt").write_text("4\n")
    planner = source.planner(log, 1)
    (found,) = plan(planner, last.end)
    assert items_of(source, found) == ["4"]
    assert planner.lag(found.end) == "2 of 2 files"


def test_files_added_to_the_history_before_the_switch_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    source = Then(TextSource(tmp_path / "*.txt", bytes_per_epoch=2), GrowingSource({"0": ["4"]}))
    log = JsonLog()
    first = source.planner(log, 1).next(None)
    assert first is not None
    (tmp_path / "b.txt").write_text("3\n")
    rest = list(plan(source.planner(log, 1), first.end))
    assert [items_of(source, one) for one in rest] == [["2"], ["3"], ["4"]]


def test_the_lag_says_which_part_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    source = Then(TextSource(tmp_path / "a.txt", bytes_per_epoch=2), GrowingSource({"0": []}))
    planner = source.planner(JsonLog(), 1)
    first = planner.next(None)
    assert first is not None
    assert planner.lag(first.end) == "history: 0 of 1 files"


def test_columns_of_one_name_and_two_kinds_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    history = JsonLinesSource(tmp_path / "a.jsonl", schema={"n": pa.int32()})
    live = JsonLinesSource(tmp_path / "b*", schema={"n": pa.string()}, follow=True)
    with pytest.raises(SourceError, match="'n' is int32 in the history and string in the live"):
        Then(history, live).planner(JsonLog(), 1).next(None)


def test_logs_of_parts_are_apart_also_after_they_are_compacted() -> None:
    whole = JsonLog()
    history, live = PartLog(whole, "history"), PartLog(whole, "live")
    history.append(1)
    live.append(2)
    history.compact(b"\x00one")
    live.append(3)
    assert (history.summary(), history.entries()) == (b"\x00one", [])
    assert (live.summary(), live.entries()) == (None, [2, 3])
    live.compact(b"both")
    history.append(4)
    assert (history.summary(), history.entries()) == (b"\x00one", [4])
    assert (live.summary(), live.entries()) == (b"both", [])


def test_a_rule_that_changes_in_the_history_is_no_continuation() -> None:
    history, live = from_items([1]), GrowingSource({})
    before = json.loads(json.dumps(Then(history, live, start=AfterOffsets()).identity()))
    assert Then(history, live, start=AfterOffsets()).identity() == before
    assert Then(history, live, start=FromTime("at")).continues(before) is None


def test_another_place_of_the_history_goes_on_as_its_source_does(tmp_path: Path) -> None:
    live = TextSource("live/", follow=True)
    before = json.loads(json.dumps(Then(TextSource(tmp_path / "a"), live).identity()))
    moved = Then(TextSource(tmp_path / "b"), live)
    clause = "history: files that are listed already are read to their end, then those that are new"
    assert moved.identity() != before
    assert moved.continues(before) == clause
    assert Then(from_items([""]), live).continues(before) is None
