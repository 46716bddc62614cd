"""A history and the live data after it: planning, logs, arguments and rules of the start."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
from flow import Dataflow
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.files import JsonLinesSource, ParquetSource, TextSource
from flow.connectors.items import from_items
from flow.connectors.kafka import KafkaSource
from flow.connectors.source import Invalid, Json, Planner, Slice
from flow.connectors.then import AfterOffsets, FromTime, PartLog, StartRule, Then
from flow.errors import FlowBuildError, FlowTypeError, SourceError
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


# --- arguments and rules ---


def test_a_history_without_an_end_is_refused() -> None:
    with pytest.raises(FlowBuildError, match=r"history must end by itself.*unbounded TextSource"):
        Then(TextSource("in/", follow=True), from_items([]))


def test_both_must_be_sources_that_python_reads() -> None:
    with pytest.raises(FlowTypeError, match="Then: live must be a Source, got list"):
        Then(from_items([1]), [2])  # type: ignore[arg-type]
    frame: Any = DataFrameSource.__new__(DataFrameSource)
    with pytest.raises(FlowBuildError, match="Then: history must not be a data frame"):
        Then(frame, from_items([1]))


def test_records_and_messages_do_not_fit_together() -> None:
    live = KafkaSource("localhost:9092", "orders", value="json")
    with pytest.raises(FlowBuildError, match="history are records and those of live are KafkaMess"):
        Then(ParquetSource("history/"), live)
    with pytest.raises(FlowBuildError, match="history are str and those of live are records"):
        Then(TextSource("a"), JsonLinesSource("b", schema={"n": pa.int64()}))


def test_a_rule_needs_a_live_source_that_starts_at_a_position() -> None:
    with pytest.raises(FlowBuildError, match="TextSource does not: leave out start="):
        Then(TextSource("a"), TextSource("b", follow=True), start=AfterOffsets())
    live = KafkaSource("localhost:9092", "orders", value="json", schema={"n": pa.int64()})
    with pytest.raises(
        FlowTypeError, match=r"start must be a rule .* got 'earliest'; a start that"
    ):
        Then(ParquetSource("a"), live, start="earliest")  # type: ignore[arg-type]
    with pytest.raises(FlowBuildError, match="ItemsSource does not start at a position, got 3"):
        from_items([]).starting_at(3)


def test_each_source_handles_its_own_bad_input(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    bad.write_text('{"n": 1}\nno\n')
    good.write_text('{"n": 2}\n')
    schema = {"n": pa.int64()}
    dropping = JsonLinesSource(bad, schema=schema, on_invalid="drop")
    strict = JsonLinesSource(good, schema=schema)
    assert Then(dropping, strict).on_invalid == "drop"
    broken = Then(JsonLinesSource(bad, schema=schema), dropping)
    with pytest.raises(SourceError, match=r"bad, line 2: .*on_invalid='drop' leaves it out"):
        run_source(broken)
    with pytest.raises(FlowBuildError, match="must not mix on_invalid='drop' and 'errors'"):
        Then(dropping, JsonLinesSource(good, schema=schema, on_invalid="errors"))


def test_an_input_of_errors_is_read_with_try_input() -> None:
    source = Then(from_items([]), JsonLinesSource("a", on_invalid="errors"))
    with pytest.raises(FlowBuildError, match=r"a source with on_invalid=.errors. makes"):
        op.input("in", Dataflow("f"), source)
    assert op.try_input("in", Dataflow("f"), source).errors is not None


def test_columns_are_known_if_both_have_the_same(tmp_path: Path) -> None:
    same = JsonLinesSource(tmp_path, schema={"n": pa.int64()})
    other = JsonLinesSource(tmp_path, schema={"n": pa.int64(), "m": pa.int64()})
    assert Then(same, same).record_columns().names == ["n"]
    assert Then(same, other).record_columns() is None


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def start_of(rule: StartRule, *batches: Any) -> Any:
    position = None
    for batch in batches:
        position = rule.after(position, batch)
    return None if position is None else rule.start(position)


ROWS = [
    {"topic": "a", "partition": 0, "offset": 5},
    {"topic": "a", "partition": 1, "offset": 9},
    {"topic": "b", "partition": 0, "offset": 0},
    {"topic": "a", "partition": 0, "offset": 4},
]


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("cut", [1, 3, 4])
def test_partitions_start_after_their_greatest_offset(columns: bool, cut: int) -> None:
    batches: list[Any] = [ROWS[:cut], ROWS[cut:]]
    if columns:
        schema = pa.RecordBatch.from_pylist(ROWS).schema
        batches = [pa.RecordBatch.from_pylist(one, schema) for one in batches]
    assert start_of(AfterOffsets(), *batches) == {"a": {0: 6, 1: 10}, "b": {0: 1}}


def test_fields_of_offsets_have_other_names_and_places() -> None:
    rule = AfterOffsets(topic="from.topic", partition="from.part", offset="at")
    assert start_of(rule, [{"from": {"topic": "a", "part": 2}, "at": 7}]) == {"a": {2: 8}}
    assert rule.fields == {"from", "from.topic", "from.part", "at"}


@pytest.mark.parametrize(
    "bad", [{"partition": None}, {"offset": "7"}, {"topic": 3}, {"offset": -1}]
)
def test_an_item_without_a_whole_position_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="a topic, a partition and an offset in each item"):
        start_of(AfterOffsets(), [{**ROWS[0], **bad}])


@pytest.mark.parametrize(
    "values",
    [
        ["2024-05-01T11:00:00Z", "2024-05-01T14:00:00+02:00", None],
        [NOON.timestamp() - 1, NOON.timestamp()],
        [int(NOON.timestamp()), 0],
        [NOON, None, datetime(2024, 5, 1, tzinfo=UTC)],
    ],
)
@pytest.mark.parametrize("columns", [True, False])
def test_the_greatest_time_counts(values: list[Any], columns: bool) -> None:
    rows: Any = [{"at": value} for value in values]
    batch = pa.RecordBatch.from_pylist(rows) if columns else rows
    assert start_of(FromTime("at"), batch) == NOON
    assert start_of(FromTime("at", overlap="1h"), batch) == NOON.replace(hour=11)


def test_times_of_columns_finer_than_a_millisecond_start_at_the_millisecond() -> None:
    us = int(NOON.timestamp()) * 1_000_000 + 1_999
    batch = pa.RecordBatch.from_arrays(
        [pa.array([us * 1_000 + 7], pa.timestamp("ns", "UTC"))], ["at"]
    )
    assert start_of(FromTime("at"), batch) == NOON.replace(microsecond=1_000)


def test_a_history_without_times_has_no_position() -> None:
    assert start_of(FromTime("at"), [{"at": None}], []) is None
    assert start_of(AfterOffsets(), []) is None


def test_a_time_that_is_none_is_an_error_with_the_value() -> None:
    with pytest.raises(SourceError, match=r"FromTime\('at'\): 'noon' is not an ISO 8601 timestamp"):
        start_of(FromTime("at"), [{"at": "noon"}])
    naive = pa.RecordBatch.from_pylist([{"at": NOON.replace(tzinfo=None)}])
    with pytest.raises(SourceError, match="naive datetime"):
        start_of(FromTime("at"), naive)
    times = pa.array([0, 253_402_318_799_000_000], pa.timestamp("us", "UTC"))
    with pytest.raises(
        SourceError, match=r"^FromTime\('at'\): 10000-01-01 04:59:59.* lies outside"
    ):
        start_of(FromTime("at"), pa.record_batch({"at": times}))


def test_a_column_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"no field 'at'; its records have \['n'\]"):
        start_of(FromTime("at"), pa.RecordBatch.from_pylist([{"n": 1}]))


def test_arguments_are_checked() -> None:
    with pytest.raises(FlowBuildError, match="overlap must not be negative, got '-5m'"):
        FromTime("at", overlap="-5m")
    with pytest.raises(FlowTypeError, match="FromTime: field must be the name of a field, got ''"):
        FromTime("")
    with pytest.raises(FlowTypeError, match="AfterOffsets: offset must be the name of a field"):
        AfterOffsets(offset=3)  # type: ignore[arg-type]
