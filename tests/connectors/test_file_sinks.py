"""File sinks, driven as an engine drives them: open, write in another place, commit, run again."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import (
    CsvSink,
    JsonLinesSink,
    JsonLinesSource,
    ParquetSink,
    ParquetSource,
    TextSink,
    TextSource,
    columns,
    epoch_directory,
    places,
)
from flow.connectors.sink import Guarantee, Sink, WriteContext
from flow.connectors.source import MemoryLog
from flow.errors import FlowBuildError, FlowTypeError, SinkError
from flow.testing import TestingSource

RUN, OTHER = "run-one", "run-two"


def write(
    sink: Sink[Any], epoch: int, partition: int, *batches: Any, run: str = RUN, step: str = "out"
) -> Any:
    """Write as a worker does: with a copy of the sink, and a message that travels back."""
    sink = pickle.loads(pickle.dumps(sink))
    message = sink.write(WriteContext(step, epoch, partition, run), iter(batches))
    return pickle.loads(pickle.dumps(message))


def publish(sink: Sink[Any], epoch: int, *partitions: Any, run: str = RUN) -> None:
    """Write and commit an epoch; each partition is a batch of items."""
    messages = [write(sink, epoch, n, items, run=run) for n, items in enumerate(partitions)]
    sink.commit(epoch, messages)


def opened(sink: Sink[Any], run: str = RUN, resuming: bool = False) -> Sink[Any]:
    sink.open(run, resuming)
    return sink


def tree(path: Path) -> list[str]:
    """All files, with the short name of the run replaced."""
    short = {epoch_directory.short_name(run): f"<{run}>" for run in (RUN, OTHER)}
    names = [str(file.relative_to(path)) for file in sorted(path.rglob("*")) if file.is_file()]
    for name, shown in short.items():
        names = [one.replace(name, shown) for one in names]
    return names


def lines(path: Path) -> list[str]:
    """The lines of all published text files, in order of epoch and partition."""
    return [
        line
        for file in sorted(path.glob("epoch=*/*"))
        for line in file.read_text().split("\n")[:-1]
    ]


def json_items(path: Path) -> list[Any]:
    return [json.loads(line) for line in lines(path)]


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).drop(["epoch"]).to_pylist()


# --- epochs --------------------------------------------------------------------------------------


def test_an_epoch_is_a_directory_with_a_file_for_each_partition(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path / "out"))
    publish(sink, 0, ["a", "b"], ["c"])
    publish(sink, 12, ["d"])
    assert tree(tmp_path / "out") == [
        "_flow.json",
        "epoch=00000000-<run-one>/part-00000.txt",
        "epoch=00000000-<run-one>/part-00001.txt",
        "epoch=00000012-<run-one>/part-00000.txt",
    ]
    assert lines(tmp_path / "out") == ["a", "b", "c", "d"]
    assert sink.guarantee is Guarantee.EXACTLY_ONCE


def test_nothing_of_an_epoch_is_seen_before_it_is_committed(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    messages = [write(sink, 0, 0, ["a"]), write(sink, 0, 1, ["b"])]
    visible = [path.name for path in tmp_path.iterdir() if path.name[0] not in "._"]
    assert visible == []
    sink.commit(0, messages)
    assert lines(tmp_path) == ["a", "b"]


class WatchedFiles:
    """The local file system, with something done around each move."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._files = pa.fs.LocalFileSystem()
        self._before, self._after = before, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def move(self, source: str, target: str) -> None:
        self._before()
        self._files.move(source, target)
        self._after()


def watch(
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> None:
    files = WatchedFiles(before, after)
    monkeypatch.setattr(pa.fs, "LocalFileSystem", lambda: files)


def test_a_reader_sees_all_of_an_epoch_or_nothing_also_when_it_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(TextSink(tmp_path))
    seen: set[tuple[str, ...]] = set()
    watch(monkeypatch, after=lambda: seen.add(tuple(lines(tmp_path))))
    publish(sink, 0, ["a"], ["b"], ["c"])
    assert seen == {(), ("a", "b", "c")}
    seen.clear()
    publish(sink, 0, ["x"], ["y"])
    assert seen == {("a", "b", "c"), (), ("x", "y")}


def test_an_epoch_that_is_run_again_replaces_itself(tmp_path: Path) -> None:
    publish(opened(TextSink(tmp_path)), 0, ["a"], ["b"])
    again = opened(TextSink(tmp_path), resuming=True)
    publish(again, 0, ["a"], ["b"])
    publish(again, 1, ["c"])
    assert lines(tmp_path) == ["a", "b", "c"]
    assert len(tree(tmp_path)) == 4


def test_an_epoch_that_is_run_again_without_items_is_removed(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    publish(sink, 0, ["a"])
    publish(sink, 0)
    assert lines(tmp_path) == []


def test_a_run_that_was_set_back_does_not_keep_the_epochs_after_that(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    for epoch in range(4):
        publish(sink, epoch, [str(epoch)])
    sink.close()
    again = opened(TextSink(tmp_path), resuming=True)
    assert lines(tmp_path) == ["0", "1", "2", "3"]
    publish(again, 1, ["one"])
    assert lines(tmp_path) == ["0", "one"]
    publish(again, 2, ["two"])
    assert lines(tmp_path) == ["0", "one", "two"]


def test_a_crash_before_the_commit_leaves_nothing_to_see_and_is_cleaned_up(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    publish(sink, 0, ["a"])
    write(sink, 1, 0, ["b"])
    assert [name for name in tree(tmp_path) if name.startswith(".tmp-<run-one>-00000001/")]
    again = opened(TextSink(tmp_path), resuming=True)
    assert tree(tmp_path) == ["_flow.json", "epoch=00000000-<run-one>/part-00000.txt"]
    publish(again, 1, ["b"])
    assert lines(tmp_path) == ["a", "b"]


class Crash(Exception):
    pass


@pytest.mark.parametrize("moves", range(6))
def test_a_crash_anywhere_in_a_commit_is_made_good_when_the_epoch_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    publish(opened(TextSink(tmp_path)), 0, ["a"], ["b"])
    left = [moves]

    def crash() -> None:
        if not left[0]:
            raise Crash
        left[0] -= 1

    with monkeypatch.context() as patch:
        again = opened(TextSink(tmp_path), resuming=True)
        messages = [write(again, 0, 0, ["a"]), write(again, 0, 1, ["b"])]
        watch(patch, before=crash)
        with contextlib.suppress(Crash):
            again.commit(0, messages)
        assert lines(tmp_path) in ([], ["a", "b"])
    once_more = opened(TextSink(tmp_path), resuming=True)
    publish(once_more, 0, ["a"], ["b"])
    assert tree(tmp_path) == [
        "_flow.json",
        "epoch=00000000-<run-one>/part-00000.txt",
        "epoch=00000000-<run-one>/part-00001.txt",
    ]
    assert lines(tmp_path) == ["a", "b"]


def test_what_a_lost_attempt_of_a_task_has_written_is_not_published(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    write(sink, 0, 0, ["lost"])
    publish(sink, 0, ["kept"])
    assert lines(tmp_path) == ["kept"]
    assert tree(tmp_path) == ["_flow.json", "epoch=00000000-<run-one>/part-00000.txt"]


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    with pytest.raises(SinkError):
        write(sink, 0, 0, ["a"], pa.record_batch({"n": [1]}))
    assert tree(tmp_path) == ["_flow.json"]


def test_an_epoch_without_items_writes_nothing(tmp_path: Path) -> None:
    for sink in (TextSink(tmp_path), ParquetSink(tmp_path), CsvSink(tmp_path)):
        opened(sink)
        sink.commit(0, [])
        publish(sink, 1, [])
        sink.commit(2, [write(sink, 2, 0)])
        assert tree(tmp_path) == ["_flow.json"]


# --- whose directory it is -----------------------------------------------------------------------


def test_the_output_of_another_run_is_an_error_that_shows_the_ways_out(tmp_path: Path) -> None:
    publish(opened(TextSink(tmp_path), OTHER), 0, ["a"], run=OTHER)
    message = (
        f"{tmp_path} holds the output of another run, 1 epochs of it: write to another path, or "
        "pass if_exists='replace' to delete that output, or if_exists='append' to write beside it"
    )
    with pytest.raises(SinkError) as caught:
        opened(TextSink(tmp_path))
    assert str(caught.value) == message
    assert lines(tmp_path) == ["a"]


def test_another_run_that_has_published_nothing_is_in_nobodys_way(tmp_path: Path) -> None:
    crashed = opened(TextSink(tmp_path), OTHER)
    write(crashed, 0, 0, ["x"], run=OTHER)
    publish(opened(TextSink(tmp_path)), 0, ["a"])
    assert tree(tmp_path) == ["_flow.json", "epoch=00000000-<run-one>/part-00000.txt"]


@pytest.mark.parametrize("if_exists", ["error", "replace"])
def test_files_that_no_flow_wrote_are_an_error_and_stay(tmp_path: Path, if_exists: Any) -> None:
    for name in ("a.csv", "b.csv", "c.csv", "d.csv", "epoch=00000000-12345678"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(SinkError) as caught:
        opened(TextSink(tmp_path, if_exists=if_exists))
    message = str(caught.value)
    assert message.startswith(
        f"{tmp_path} holds 'a.csv', 'b.csv', 'c.csv' and 2 more, which no flow wrote: "
    )
    assert ("deletes only what a flow wrote" in message) == (if_exists == "replace")
    assert "write to another path or an empty directory, or pass if_exists='append'" in message
    assert len(list(tmp_path.iterdir())) == 5


def test_replace_deletes_what_other_runs_wrote(tmp_path: Path) -> None:
    other = opened(TextSink(tmp_path), OTHER)
    publish(other, 0, ["a"], run=OTHER)
    write(other, 1, 0, ["b"], run=OTHER)
    sink = opened(TextSink(tmp_path, if_exists="replace"))
    assert tree(tmp_path) == ["_flow.json"]
    publish(sink, 0, ["c"])
    assert lines(tmp_path) == ["c"]


def test_replace_keeps_everything_when_one_file_is_not_a_flows(tmp_path: Path) -> None:
    publish(opened(TextSink(tmp_path), OTHER), 0, ["a"], run=OTHER)
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(SinkError, match=r"holds 'notes\.md', which no flow wrote"):
        opened(TextSink(tmp_path, if_exists="replace"))
    assert lines(tmp_path) == ["a"]


def test_append_writes_beside_whatever_is_there(tmp_path: Path) -> None:
    publish(opened(TextSink(tmp_path), OTHER), 5, ["a"], run=OTHER)
    (tmp_path / "notes.md").write_text("mine")
    publish(opened(TextSink(tmp_path, if_exists="append")), 0, ["b"])
    assert tree(tmp_path) == [
        "_flow.json",
        "epoch=00000000-<run-one>/part-00000.txt",
        "epoch=00000005-<run-two>/part-00000.txt",
        "notes.md",
    ]
    publish(opened(TextSink(tmp_path), OTHER, resuming=True), 6, ["c"], run=OTHER)
    assert lines(tmp_path) == ["b", "a", "c"]


def test_a_run_that_goes_on_needs_no_leave(tmp_path: Path) -> None:
    publish(opened(TextSink(tmp_path)), 0, ["a"])
    publish(opened(TextSink(tmp_path, if_exists="error"), resuming=True), 1, ["b"])
    publish(opened(TextSink(tmp_path, if_exists="replace"), resuming=True), 2, ["c"])
    assert lines(tmp_path) == ["a", "b", "c"]


def test_a_run_whose_output_was_replaced_stops(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    opened(TextSink(tmp_path, if_exists="replace"), OTHER)
    with pytest.raises(SinkError, match="was taken over by another run"):
        publish(sink, 0, ["a"])
    assert lines(tmp_path) == []


ZONED = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "later", "problem"),
    [
        ({"JFK": 1}, {"JFK": 2, "LGA": 7}, "its part 'LGA' is not among the parts"),
        ({"n": 1, "note": None}, {"n": 2, "note": "x"}, "its part 'note' is not among the parts"),
        ([{"a": {"b": 1}}], [{"a": {"b": 1, "c": 2}}], "its part 'a.c' is not among the parts"),
        ([{"a": 1}], [{"a": "1"}], "its part 'a' is text, and not a number"),
        (ZONED, ZONED.replace(tzinfo=None), "that is a time without a zone, and not a time with"),
        ([ZONED], [ZONED.replace(tzinfo=None)], "that is a time without a zone, and not a time"),
        (ZONED, 1_704_067_200, "that is a number, and not a time with a zone"),
        (True, 7, "that is a number, and not bool"),
        (1, True, "that is bool, and not a number"),
        (date(2024, 1, 1), ZONED.replace(tzinfo=None), "that is a time without a zone, and not a"),
        (1, "2", "that is text, and not a number"),
        ("a", 2, "that is a number, and not text"),
        (1, 1.5, "truncated"),
        (b"a", "a", "that is text, and not bytes"),
    ],
)
def test_no_value_becomes_another_to_fit_the_column_of_those_before(
    tmp_path: Path, first: Any, later: Any, problem: str
) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(sink, 0, [{"x": first}])
    with pytest.raises(SinkError, match=rf"step 'out': field 'x' .*{problem}"):
        publish(sink, 1, [{"x": later}])


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ([Decimal("1.5"), Decimal("12.5")], [Decimal("1.5"), Decimal("12.5")]),
        ([1.5, 1], [1.5, 1.0]),
        ([ZONED, datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))], [ZONED, ZONED]),
        ([{"a": 1, "b": 2}, {"a": 3}], [{"a": 1, "b": 2}, {"a": 3, "b": None}]),
        ([[], [1]], [[], [1]]),
        ([None, "x"], [None, "x"]),
    ],
)
def test_values_of_later_epochs_fit_where_they_stay_the_same(
    tmp_path: Path, values: list[Any], read: list[Any]
) -> None:
    sink = opened(ParquetSink(tmp_path))
    for epoch, value in enumerate(values):
        publish(sink, epoch, [{"n": epoch, "x": value}])
    table = ds.dataset(tmp_path, schema=pq_schema(tmp_path), exclude_invalid_files=True).to_table()
    found = [row["x"] for row in table.sort_by("n").to_pylist()]
    assert [one or None for one in found] == [one or None for one in read]


def pq_schema(path: Path) -> pa.Schema:
    """The columns of the last file."""
    return pq.read_schema(max(path.glob("epoch=*/*.parquet")))


def test_a_schema_that_was_asked_for_reads_text_and_leaves_parts_out(tmp_path: Path) -> None:
    schema = {"at": pa.timestamp("us", "UTC"), "by": pa.struct([("a", pa.int64())])}
    sink = opened(ParquetSink(tmp_path, schema=schema))
    publish(sink, 0, [{"at": "2024-01-01T00:00:00Z", "by": {"a": "7", "b": 1}, "c": 1}])
    (file,) = tmp_path.glob("epoch=*/*.parquet")
    assert pq.read_table(file).to_pylist() == [{"at": ZONED, "by": {"a": 7}}]
    with pytest.raises(SinkError, match="field 'at': 2024-01-01T00:00:00 has no time zone"):
        publish(sink, 1, [{"at": ZONED.replace(tzinfo=None)}])


@pytest.mark.parametrize("kind", [ParquetSink, JsonLinesSink])
def test_times_of_numpy_are_refused(tmp_path: Path, kind: Any) -> None:
    sink = opened(kind(tmp_path))
    for value in (np.datetime64(0, "ns"), np.timedelta64(1, "ns"), np.array([0], "M8[ns]")):
        with pytest.raises(SinkError, match="field 'at'"):
            publish(sink, 0, [{"at": value}])


def test_two_outputs_of_a_flow_cannot_share_a_path(tmp_path: Path) -> None:
    one, two = opened(TextSink(tmp_path)), opened(TextSink(tmp_path))
    messages = write(one, 0, 0, ["a"], step="left"), write(two, 0, 0, ["b"], step="right")
    one.commit(0, [messages[0]])
    with pytest.raises(SinkError, match=r"steps 'left' and 'right' both write to .*: give each"):
        two.commit(0, [messages[1]])
    assert lines(tmp_path) == ["a"]


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", "streaming"])
@pytest.mark.parametrize("same", [True, False])
def test_two_outputs_that_share_a_path_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, engine: Any, same: bool
) -> None:
    """Each would take the epochs of the other for its own, and an empty one would delete them."""
    flow = Dataflow("shared")
    items = op.input("in", flow, TestingSource([1, 2, 3]))
    one = JsonLinesSink(tmp_path / "out")
    two = one if same else JsonLinesSink(f"file://{tmp_path}/in/../out/")
    (tmp_path / "in").mkdir()
    op.output("all", items, one)
    op.output("none", op.filter("no", items, lambda _: False), two)
    with pytest.raises(FlowBuildError, match=r"steps 'all' and 'none' both write to .*/out: give"):
        run(flow, spark=spark, engine=engine)
    assert not (tmp_path / "out").exists()


def test_a_store_may_be_named_as_hadoop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Static data frames are read back from below the checkpoint, whose path Spark understands."""
    asked: list[str] = []

    class FileSystem:
        type_name = "s3"

        @staticmethod
        def from_uri(uri: str) -> tuple[Any, str]:
            asked.append(uri)
            return FileSystem(), uri.partition("://")[2]

    monkeypatch.setattr(places.fs, "FileSystem", FileSystem)
    places._connect.cache_clear()
    found = [places.locate(f"{name}://bucket/out/").path for name in ("s3", "s3a", "s3n")]
    places._connect.cache_clear()
    assert found == ["bucket/out"] * 3
    assert asked == ["s3://bucket/out/"] * 3


def test_nothing_shows_the_password_of_a_uri() -> None:
    uri = "s3://me:s3cr3t@bucket/out"
    shown = [
        repr(JsonLinesSink(uri)),
        repr(ParquetSink(uri)),
        repr(TextSource(uri)),
        repr(ParquetSource([uri])),
        str(JsonLinesSink(uri).only_output),
    ]
    assert shown == [
        "JsonLinesSink(path='s3://bucket/out', if_exists='error')",
        "ParquetSink(path='s3://bucket/out', if_exists='error', schema=None)",
        "TextSource(path='s3://bucket/out', on_invalid='fail', bytes_per_epoch=67108864, "
        "follow=False)",
        "ParquetSource(path=('s3://bucket/out',), columns=None, rows_per_epoch=1000000, "
        "follow=False)",
        "s3://bucket/out",
    ]
    with pytest.raises(SinkError) as raised, places.explained(SinkError, f"{uri} is closed"):
        raise OSError(f"no {uri}")
    assert str(raised.value) == "s3://bucket/out is closed: no s3://bucket/out"


def test_an_output_step_can_be_renamed_between_runs(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    sink.commit(0, [write(sink, 0, 0, ["a"], step="old")])
    again = opened(TextSink(tmp_path), resuming=True)
    again.commit(1, [write(again, 1, 0, ["b"], step="new")])
    assert lines(tmp_path) == ["a", "b"]


def test_a_path_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(SinkError, match="out is a file: path must name a directory"):
        opened(TextSink(tmp_path / "out"))


def test_a_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(SinkError, match="out/below cannot be opened for writing: "):
        opened(TextSink(tmp_path / "out" / "below"))


def test_a_relative_path_is_where_the_flow_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = opened(TextSink("out"))
    monkeypatch.chdir("/")
    publish(sink, 0, ["a"])
    assert lines(tmp_path / "out") == ["a"]


def test_a_file_uri_is_written_like_a_path(tmp_path: Path) -> None:
    publish(opened(TextSink(f"file://{tmp_path}/out")), 0, ["a"])
    assert lines(tmp_path / "out") == ["a"]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pretended object store, which has no rename of directories."""
    root = tmp_path / "bucket"
    root.mkdir()

    class Store(WatchedFiles):
        type_name = "s3"

        def move(self, source: str, target: str) -> None:
            assert Path(source).is_file()
            Path(target).parent.mkdir(exist_ok=True)
            super().move(source, target)

    def connect(uri: str) -> tuple[Any, str]:
        assert uri.startswith("s3://me:secret@bucket/")
        return Store(lambda: None, lambda: None), f"{root}/{uri.rpartition('bucket/')[2]}"

    monkeypatch.setattr(places, "_connect", connect)
    return root


def test_an_object_store_gets_the_files_of_an_epoch_one_by_one(bucket: Path) -> None:
    sink = opened(TextSink("s3://me:secret@bucket/out"))
    publish(sink, 0, ["a"], ["b"])
    assert lines(bucket / "out") == ["a", "b"]
    publish(sink, 0, ["a"])
    assert lines(bucket / "out") == ["a"]
    assert len(tree(bucket / "out")) == 2
    found = TextSource("s3://me:secret@bucket/out/**/*.txt")
    planned = found.planner(MemoryLog(), 1).next(None)
    assert planned is not None
    assert [list(found.read(split)) for split in planned.splits] == [[["a"]]]
    assert "secret" not in str(planned)


# --- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (5, "step 'out': TextSink writes text, got int 5: map the items to text"),
        ("\ud800", "step 'out': text cannot be written as UTF-8"),
    ],
)
def test_text_sink_writes_text_only(tmp_path: Path, item: Any, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        write(opened(TextSink(tmp_path)), 0, 0, ["a", item])


def test_text_sink_says_what_to_do_with_records(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"these items are records with the columns \['n'\]: map"):
        write(opened(TextSink(tmp_path)), 0, 0, pa.record_batch({"n": [1]}))


# --- JSON lines ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    window_id: int
    open_time: datetime
    merged_ids: frozenset[int]


class Color(Enum):
    RED = "red"


PARIS = timezone(timedelta(hours=1))
AT = datetime(2013, 1, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({"a": 1, "b": None}, '{"a": 1, "b": null}'),
        (5, '{"value": 5}'),
        (("LHR", {"n": 3}), '{"key": "LHR", "n": 3}'),
        (
            ("LHR", (Window(1, AT, frozenset({3, 2})), 7)),
            '{"key": "LHR", "window_id": 1, "open_time": "2013-01-01T05:00:00Z", '
            '"merged_ids": [2, 3], "value": 7}',
        ),
        (
            {"t": datetime(2013, 1, 1, 5, 0, 0, 5, PARIS)},
            '{"t": "2013-01-01T05:00:00.000005+01:00"}',
        ),
        ({"by": timedelta(minutes=1, milliseconds=5)}, '{"by": 60.005}'),
        ({"d": date(2013, 1, 1), "x": Decimal("1.50")}, '{"d": "2013-01-01", "x": "1.50"}'),
        ({"s": {"b", "a"}, "m": {1, "a"}}, '{"s": ["a", "b"], "m": [1, "a"]}'),
        ({"w": [Window(1, AT, frozenset())]}, None),
        ({"c": Color.RED, "u": UUID(int=1)}, None),
        ({"n": np.int64(3), "a": np.array([1.5])}, '{"n": 3, "a": [1.5]}'),
        ({"text": "é\n"}, '{"text": "é\\n"}'),
    ],
)
def test_json_lines_are_records(tmp_path: Path, item: Any, line: str | None) -> None:
    publish(opened(JsonLinesSink(tmp_path)), 0, [item])
    expected = (
        line
        or {
            "w": '{"w": [{"window_id": 1, "open_time": "2013-01-01T05:00:00Z", "merged_ids": []}]}',
            "c": '{"c": "red", "u": "00000000-0000-0000-0000-000000000001"}',
        }[next(iter(item))]
    )
    assert lines(tmp_path) == [expected]


def test_record_batches_become_json_objects(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": [1, None], "t": pa.array([AT, None], pa.timestamp("us", "UTC"))})
    publish(opened(JsonLinesSink(tmp_path)), 0, batch)
    assert lines(tmp_path) == [
        '{"n": 1, "t": "2013-01-01T05:00:00Z"}',
        '{"n": null, "t": null}',
    ]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            {"ok": 1, "z": 1j},
            r"step 'out': field 'z' \(complex 1j\) cannot be written as JSON: a value of type "
            r"complex cannot be written as JSON\. Map it to text, numbers, lists or dicts before",
        ),
        (
            {"t": datetime(2013, 1, 1)},  # noqa: DTZ001
            r"field 't' \(datetime .*\) cannot be .* 2013-01-01T00:00:00 has no time zone",
        ),
        ({"x": float("nan")}, r"field 'x' \(float nan\) has no form in JSON: map it to None"),
        ({"x": {(1, 2): 3}}, r"field 'x' \(dict .*\) cannot be written as JSON: keys must be"),
        ({"x": b"1"}, r"field 'x' \(bytes b'1'\) cannot be written as JSON"),
        ({"x": "\ud800"}, r"field 'x' \(str .*\) cannot be written as JSON: .*surrogates"),
        ({"Epoch": 1}, r"step 'out': field 'Epoch' cannot be written: the directories"),
    ],
)
def test_what_has_no_form_in_json_is_an_error_that_names_the_field(
    tmp_path: Path, item: Any, message: str
) -> None:
    with pytest.raises(SinkError, match=message):
        write(opened(JsonLinesSink(tmp_path)), 0, 0, [item])


def test_json_lines_can_be_read_back(tmp_path: Path) -> None:
    items = [{"n": n, "text": "x" * n} for n in range(5)]
    publish(opened(JsonLinesSink(tmp_path)), 0, items[:2], items[2:])
    source = JsonLinesSource(tmp_path)
    planned = source.planner(MemoryLog(), 1).next(None)
    assert planned is not None
    assert [
        row for split in planned.splits for batch in source.read(split) for row in batch
    ] == items


# --- Parquet -------------------------------------------------------------------------------------


def test_every_reader_reads_the_directory_as_a_whole(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(sink, 0, [("a", {"n": 1})], [("b", {"n": 2})])
    publish(sink, 1, pa.record_batch({"key": ["c"], "n": [3]}))
    write(sink, 2, 0, [("hidden", {"n": 4})])
    expected = [{"key": "a", "n": 1}, {"key": "b", "n": 2}, {"key": "c", "n": 3}]
    assert parquet_rows(tmp_path) == expected
    frame = pd.read_parquet(tmp_path)
    assert frame.drop(columns="epoch").to_dict("records") == expected
    short = epoch_directory.short_name(RUN)
    assert list(frame["epoch"]) == [f"0000000{n}-{short}" for n in (0, 0, 1)]
    assert ds.dataset(tmp_path).to_table().to_pylist() == expected


def test_record_batches_are_written_as_they_are(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "small": pa.array([1], pa.int16()),
            "at": pa.array([AT], pa.timestamp("us", "UTC")),
            "list": pa.array([[1.5]]),
            "inner": pa.array([{"x": 1}]),
        }
    )
    publish(opened(ParquetSink(tmp_path)), 0, batch)
    assert pq.read_table(tmp_path).drop(["epoch"]).schema == batch.schema
    assert parquet_rows(tmp_path) == batch.to_pylist()


def test_a_schema_decides_the_columns(tmp_path: Path) -> None:
    schema = {"n": pa.int32(), "x": pa.float64()}
    sink = opened(ParquetSink(tmp_path, schema=schema))
    publish(sink, 0, [{"n": 1, "other": "left out"}], pa.record_batch({"x": [2], "n": [3]}))
    assert pq.read_table(tmp_path).drop(["epoch"]).schema == pa.schema(schema)
    assert parquet_rows(tmp_path) == [{"n": 1, "x": None}, {"n": 3, "x": 2.0}]


def test_objects_are_laid_out_with_times_in_utc_and_sets_sorted(tmp_path: Path) -> None:
    item = Window(1, datetime(2013, 1, 1, 6, tzinfo=PARIS), frozenset({3, 1}))
    publish(opened(ParquetSink(tmp_path)), 0, [("LHR", (item, Color.RED))])
    assert parquet_rows(tmp_path) == [
        {"key": "LHR", "window_id": 1, "open_time": AT, "merged_ids": [1, 3], "value": "red"}
    ]
    types = pq.read_table(tmp_path).schema
    assert types.field("open_time").type == pa.timestamp("us", "UTC")


def test_files_of_an_epoch_get_the_same_columns_whatever_each_task_saw(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(
        sink,
        0,
        [{"k": "a", "ids": [], "x": None, "inner": {"p": None, "q": 1}}],
        [{"k": "b", "ids": [1], "x": 1, "inner": {"p": "t", "q": 2}}],
        [{"k": "c", "x": 1.5}],
    )
    publish(sink, 1, [{"k": "d", "ids": [], "x": 2}])
    assert parquet_rows(tmp_path) == [
        {"k": "a", "ids": None, "x": None, "inner": {"p": None, "q": 1}},
        {"k": "b", "ids": [1], "x": 1.0, "inner": {"p": "t", "q": 2}},
        {"k": "c", "ids": None, "x": 1.5, "inner": None},
        {"k": "d", "ids": [], "x": 2.0, "inner": None},
    ]
    files = sorted(tmp_path.glob("epoch=*/*.parquet"))
    assert len({str(pq.read_schema(file)) for file in files}) == 1


def test_columns_keep_their_types_in_a_run_that_goes_on(tmp_path: Path) -> None:
    publish(opened(ParquetSink(tmp_path)), 0, [{"x": 1.5}])
    again = opened(ParquetSink(tmp_path), resuming=True)
    publish(again, 1, [{"x": None}], [{"x": 2}])
    assert parquet_rows(tmp_path) == [{"x": 1.5}, {"x": None}, {"x": 2.0}]


def test_a_column_that_changes_within_a_task_makes_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "GATHERED", 1)
    sink = opened(ParquetSink(tmp_path))
    sink.commit(0, [write(sink, 0, 4, [{"x": 1}], [{"x": 2}], [{"x": 2.5, "y": "new"}])])
    assert tree(tmp_path) == [
        "_flow.json",
        "epoch=00000000-<run-one>/part-00004-1.parquet",
        "epoch=00000000-<run-one>/part-00004.parquet",
    ]
    assert sorted(row["x"] for row in parquet_rows(tmp_path)) == [1.0, 2.0, 2.5]


def test_small_batches_make_large_row_groups(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    batches = [pa.record_batch({"n": [n]}) for n in range(100)]
    sink.commit(0, [write(sink, 0, 0, *batches, [{"n": 100}], [], [{"n": 101}])])
    (file,) = tmp_path.glob("epoch=*/*.parquet")
    assert pq.ParquetFile(file).metadata.num_row_groups == 1
    assert [row["n"] for row in parquet_rows(tmp_path)] == list(range(102))


@pytest.mark.parametrize(
    ("schema", "items", "message"),
    [
        (None, [{"a": 1}, {"a": "x"}], "field 'a' holds int and str, which do not fit one column"),
        (None, [{"a": 1j}], "field 'a' holds complex 1j, which cannot be written as a column"),
        (None, [{"a": 2**70}], "field 'a' holds int 1180591620717411303424, which cannot be"),
        ({"a": pa.int64()}, [{"a": 1.5}], "'a' holds float 1.5, which cannot be written as int64"),
        (
            {"a": pa.int64()},
            pa.record_batch({"a": ["x"]}),
            "'a' is string here, which does not fit",
        ),
        (
            None,
            [{"a": AT}, {"a": AT.replace(tzinfo=None)}],
            "field 'a': 2013-01-01T05:00:00 has no time zone",
        ),
        (
            {"a": pa.timestamp("us", "UTC")},
            [{"a": AT.replace(tzinfo=None)}],
            "field 'a': 2013-01-01T05:00:00 has no time zone",
        ),
        (None, [{1: 2}], "the names of fields must be text, got int 1"),
        (None, [{}], "{} has no field to write: give the sink a schema"),
        (None, [{"a": None, "b": []}], r"no item has a value in any field, .* \['a', 'b'\]"),
        (None, [{"epoch": 1}], "field 'epoch' cannot be written: the directories of the output"),
        (None, pa.record_batch({"epoch": [1]}), "field 'epoch' cannot be written"),
    ],
)
def test_what_does_not_fit_a_column_is_an_error_that_names_the_field(
    tmp_path: Path, schema: Any, items: Any, message: str
) -> None:
    with pytest.raises(SinkError, match=f"step 'out': .*{message}"):
        write(opened(ParquetSink(tmp_path, schema=schema)), 0, 0, items)


def test_a_column_that_changes_its_type_later_is_an_error_that_shows_the_way_out(
    tmp_path: Path,
) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(sink, 0, [{"x": 1}])
    with pytest.raises(
        SinkError, match=r"field 'x' is double here, which does not fit int64, .*: "
    ):
        publish(sink, 1, [{"x": 1.5}])
    fixed = opened(ParquetSink(tmp_path, schema={"x": pa.float64()}), resuming=True)
    publish(fixed, 1, [{"x": 1.5}])
    assert [
        pq.read_schema(file).field("x").type for file in sorted(tmp_path.rglob("*.parquet"))
    ] == [
        pa.int64(),
        pa.float64(),
    ]


def test_tasks_that_see_different_types_in_the_first_epoch_are_an_error(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    with pytest.raises(SinkError, match="field 'x' is int64 in some items and string in others"):
        publish(sink, 0, [{"x": 1}], [{"x": "1"}])
    assert not list(tmp_path.glob("epoch=*"))


# --- CSV -----------------------------------------------------------------------------------------


def test_csv_files_have_a_header_and_typed_text(tmp_path: Path) -> None:
    item = {
        "n": 1,
        "x": 0.5,
        "ok": True,
        "text": 'a"b,c',
        "none": None,
        "at": datetime(2013, 1, 1, 6, tzinfo=PARIS),
        "precise": AT.replace(microsecond=5),
        "day": date(2013, 1, 1),
        "ids": {2, 1},
        "money": Decimal("1.50"),
    }
    publish(opened(CsvSink(tmp_path)), 0, [item])
    assert lines(tmp_path) == [
        '"n","x","ok","text","none","at","precise","day","ids","money"',
        '1,0.5,true,"a""b,c",,"2013-01-01T05:00:00Z","2013-01-01T05:00:00.000005Z",2013-01-01,'
        '"[1, 2]",1.50',
    ]


def test_csv_record_batches_are_written_as_they_are(tmp_path: Path) -> None:
    colors = pa.array(["red", None, "red"]).dictionary_encode()
    batch = pa.record_batch({"n": [1, 2, None], "color": colors})
    publish(opened(CsvSink(tmp_path, delimiter=";")), 0, batch)
    assert lines(tmp_path) == ['"n";"color"', '1;"red"', "2;", ';"red"']


def test_csv_files_have_the_same_columns_in_the_same_order(tmp_path: Path) -> None:
    publish(opened(CsvSink(tmp_path)), 0, [{"a": 1, "b": "x"}])
    again = opened(CsvSink(tmp_path), resuming=True)
    publish(again, 1, [{"b": "y", "a": 1.5}], [{"a": 3}])
    table = pa.csv.read_csv
    rows = [table(file).to_pylist() for file in sorted(tmp_path.glob("epoch=*/*.csv"))]
    assert rows == [[{"a": 1, "b": "x"}], [{"a": 1.5, "b": "y"}], [{"a": 3, "b": None}]]


def test_csv_files_of_an_epoch_get_the_order_of_the_first_whatever_each_task_saw(
    tmp_path: Path,
) -> None:
    sink = opened(CsvSink(tmp_path))
    first = {"a": 1, "b": "x", "c,": None}
    other = {"c,": '"q",\n\n,', "b": "", "a": 1.5}
    publish(sink, 0, [first], [other, {"b": None, "a": 2}], [{"b": "z", "c,": AT, "a": 3}])
    assert lines(tmp_path) == [
        '"a","b","c,"',
        '1,"x",',
        '"a","b","c,"',
        '1.5,"","""q"",',
        "",
        ',"',
        "2,,",
        '"a","b","c,"',
        '3,"z","2013-01-01T05:00:00Z"',
    ]
    publish(sink, 1, [other])
    assert lines(tmp_path)[9:11] == ['"a","b","c,"', '1.5,"","""q"",']


def test_a_csv_file_that_cannot_be_told_into_cells_is_not_put_in_another_order(
    tmp_path: Path,
) -> None:
    sink = opened(CsvSink(tmp_path, delimiter="-"))
    with pytest.raises(SinkError, match="has 3 cells for 2 columns: choose a delimiter that no"):
        publish(sink, 0, [{"a": 1, "b": 2}], [{"b": -2, "a": 1}])
    assert not list(tmp_path.glob("epoch=*"))


@pytest.mark.parametrize("kind", [JsonLinesSink, CsvSink, ParquetSink])
def test_fields_in_another_order_are_the_same_fields(tmp_path: Path, kind: Any) -> None:
    sink = opened(kind(tmp_path))
    publish(sink, 0, [{"n": 1, "k": "a"}], [{"k": "b", "n": 2}])
    publish(sink, 1, [{"k": "c", "n": 3}], [{"n": 4, "k": "d"}])
    read = {
        JsonLinesSink: lambda file: json.loads(file.read_text()),
        CsvSink: lambda file: pa.csv.read_csv(file).to_pylist()[0],
        ParquetSink: lambda file: pq.read_table(file).to_pylist()[0],
    }
    found = [read[kind](file) for file in sorted(tmp_path.glob("epoch=*/part*"))]
    assert found == [{"n": n, "k": k} for n, k in enumerate("abcd", 1)]


def test_a_csv_file_of_several_batches_has_one_header(tmp_path: Path) -> None:
    sink = opened(CsvSink(tmp_path))
    batches = [pa.record_batch({"n": [n]}) for n in range(3)]
    sink.commit(0, [write(sink, 0, 0, *batches)])
    assert lines(tmp_path) == ['"n"', "0", "1", "2"]


def test_csv_with_a_schema_has_its_columns(tmp_path: Path) -> None:
    sink = opened(CsvSink(tmp_path, schema={"b": pa.string(), "a": pa.int64()}))
    publish(sink, 0, [{"a": 1, "other": 2}], pa.record_batch({"a": [2]}))
    assert lines(tmp_path) == ['"b","a"', ",1", '"b","a"', ",2"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"x", "field 'v' is binary, which has no form in CSV: map it to text"),
        (AT.replace(tzinfo=None), r"field 'v': timestamp\[us\] has no time zone"),
        ([b"x"], "field 'v': a value of type bytes cannot be written as JSON"),
        (timedelta(1), r"field 'v' is duration\[us\], which has no form in CSV"),
    ],
)
def test_what_has_no_form_in_csv_is_an_error_that_names_the_field(
    tmp_path: Path, value: Any, message: str
) -> None:
    with pytest.raises(SinkError, match=f"step 'out': {message}"):
        write(opened(CsvSink(tmp_path)), 0, 0, [{"v": value}])


def test_a_csv_field_that_was_not_there_before_is_an_error_that_shows_the_way_out(
    tmp_path: Path,
) -> None:
    sink = opened(CsvSink(tmp_path))
    publish(sink, 0, [{"a": 1}])
    with pytest.raises(SinkError, match=r"field 'b' is not among the columns .* \['a'\]: give the"):
        write(sink, 1, 0, [{"a": 1, "b": 2}])
    with pytest.raises(SinkError, match=r"some items have the fields \['a'\], others \['b'\]"):
        publish(opened(CsvSink(tmp_path / "new")), 0, [{"a": 1}], [{"b": 1}])


# --- arguments -----------------------------------------------------------------------------------


def test_sinks_compare_by_value_and_can_be_hashed(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, schema={"n": pa.int64()})
    other = ParquetSink(str(tmp_path), schema=pa.schema({"n": pa.int64()}))
    assert sink == opened(other)
    assert hash(sink) == hash(other)
    assert sink != ParquetSink(tmp_path)
    assert repr(TextSink("out", if_exists="append")) == "TextSink(path='out', if_exists='append')"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: TextSink(None),
            FlowTypeError,
            "path must be text or a pathlib.Path, got NoneType",
        ),
        (lambda: TextSink(" "), FlowBuildError, "path must name a file or a directory, got ' '"),
        (
            lambda: JsonLinesSink("a", if_exists="overwrite"),
            FlowBuildError,
            "if_exists must be one of 'error', 'replace', 'append', got 'overwrite'",
        ),
        (lambda: ParquetSink("a", schema=["n"]), FlowTypeError, "schema must be a pyarrow.Schema"),
        (
            lambda: ParquetSink("a", schema={"epoch": pa.int64()}),
            FlowBuildError,
            "schema: a column cannot be called 'epoch'",
        ),
        (lambda: CsvSink("a", delimiter="\n"), FlowBuildError, "delimiter must be one ASCII"),
    ],
)
def test_arguments_are_checked_when_the_sink_is_made(
    make: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()
