"""File sinks, driven as an engine drives them: open, write in another place, commit, run again."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import (
    CsvSink,
    JsonLinesSink,
    ParquetSink,
    ParquetSource,
    TextSink,
    TextSource,
)
from flow.connectors.files import filesystems as place
from flow.connectors.files.filesystems import raise_as
from flow.connectors.sink import Guarantee
from flow.errors import FlowBuildError, FlowTypeError, SinkError
from flow.testing import TestingSource
from tests.support.reading_files import first_slice
from tests.support.writing import OTHER, RUN, lines, opened, parquet_rows, publish, tree, write

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


class WatchedFiles:
    """The local file system, with a call before and after each move."""

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


def test_readers_see_whole_epochs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = opened(TextSink(tmp_path))
    snapshots: set[tuple[str, ...]] = set()
    watch(monkeypatch, after=lambda: snapshots.add(tuple(lines(tmp_path))))
    publish(sink, 0, ["a"], ["b"], ["c"])
    assert snapshots == {(), ("a", "b", "c")}
    snapshots.clear()
    publish(sink, 0, ["x"], ["y"])
    assert snapshots == {("a", "b", "c"), (), ("x", "y")}


def test_a_replayed_epoch_without_items_is_removed(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    publish(sink, 0, ["a"])
    publish(sink, 0)
    assert lines(tmp_path) == []


def test_a_rewound_run_removes_later_epochs(tmp_path: Path) -> None:
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


def test_a_crash_before_the_commit_leaves_nothing_visible_and_is_cleaned_up(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    publish(sink, 0, ["a"])
    write(sink, 1, 0, ["b"])
    visible = [path.name for path in tmp_path.iterdir() if path.name[0] not in "._"]
    assert [name[:14] for name in visible] == ["epoch=00000000"]
    assert [name for name in tree(tmp_path) if name.startswith(".tmp-<run-one>-00000001/")]
    again = opened(TextSink(tmp_path), resuming=True)
    assert tree(tmp_path) == ["_flow.json", "epoch=00000000-<run-one>/part-00000.txt"]
    publish(again, 1, ["b"])
    assert lines(tmp_path) == ["a", "b"]


class Crash(Exception):
    pass


@pytest.mark.parametrize("moves", range(6))
def test_a_replay_completes_a_commit_that_crashed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    publish(opened(TextSink(tmp_path)), 0, ["a"], ["b"])
    remaining = [moves]

    def crash() -> None:
        if not remaining[0]:
            raise Crash
        remaining[0] -= 1

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


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    with pytest.raises(SinkError):
        write(sink, 0, 0, ["a"], pa.record_batch({"n": [1]}))
    assert tree(tmp_path) == ["_flow.json"]


# --- whose directory it is -----------------------------------------------------------------------


def test_the_output_of_another_run_is_an_error_with_advice(tmp_path: Path) -> None:
    publish(opened(TextSink(tmp_path), OTHER), 0, ["a"], run=OTHER)
    message = (
        f"{tmp_path} holds the output of another run, 1 epochs of it: write to another path, or "
        "pass if_exists='replace' to delete that output, or if_exists='append' to write beside it"
    )
    with pytest.raises(SinkError) as caught:
        opened(TextSink(tmp_path))
    assert str(caught.value) == message
    assert lines(tmp_path) == ["a"]


def test_another_run_without_published_files_is_accepted(tmp_path: Path) -> None:
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


def test_runs_that_write_beside_each_other_share_the_columns(tmp_path: Path) -> None:
    first, second = (opened(ParquetSink(tmp_path, if_exists="append"), run) for run in (RUN, OTHER))
    marker = tmp_path / "_flow.json"
    publish(first, 0, [{"n": 1}])
    alone = marker.read_text().replace(OTHER, "run-three")  # Written at the moment of its start.
    publish(second, 0, [{"n": 2}], run=OTHER, step="other")
    marker.write_text(alone)
    publish(first, 1, [{"n": 3, "m": 4}])
    publish(second, 1, [{"n": 5, "m": 6}], run=OTHER, step="other")
    assert sorted(row["n"] for row in parquet_rows(tmp_path)) == [1, 2, 3, 5]
    with pytest.raises(SinkError, match="step 'other': field 'm' is double here"):
        publish(second, 2, [{"n": 7, "m": 0.5}], run=OTHER, step="other")


def test_append_writes_beside_existing_files(tmp_path: Path) -> None:
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


def test_a_resumed_run_needs_no_permission_to_overwrite(tmp_path: Path) -> None:
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


REMOVED = r"out was removed while the flow ran, or its _flow\.json was, .* put it back from a copy"


@pytest.mark.parametrize("items", [["b"], []], ids=["items", "no items"])
@pytest.mark.parametrize("what", ["out", "out/_flow.json"])
def test_a_removed_directory_is_an_error(what: str, items: list[str], tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path / "out"))
    publish(sink, 0, ["a"])
    written = [write(sink, 2, 0, ["c"])]
    path = tmp_path / what
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(SinkError, match=REMOVED):
        publish(sink, 1, items)
    with pytest.raises(SinkError, match=REMOVED):
        sink.commit(2, written)
    assert not list(tmp_path.glob("out/epoch=0000000[12]-*"))


def test_epochs_removed_by_a_reader_are_no_error(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path / "out"))
    publish(sink, 0, ["a"])
    shutil.rmtree(next(tmp_path.glob("out/epoch=*")))
    publish(sink, 1, ["b"])
    assert lines(tmp_path / "out") == ["b"]


def test_two_outputs_of_a_flow_cannot_share_a_path(tmp_path: Path) -> None:
    one, two = opened(TextSink(tmp_path)), opened(TextSink(tmp_path))
    messages = write(one, 0, 0, ["a"], step="left"), write(two, 0, 0, ["b"], step="right")
    one.commit(0, [messages[0]])
    with pytest.raises(SinkError, match=r"steps 'left' and 'right' both write to .*: give each"):
        two.commit(0, [messages[1]])
    assert lines(tmp_path) == ["a"]


@pytest.mark.spark
@pytest.mark.parametrize(("engine", "same"), [("batch", True), ("streaming", False)])
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


def test_uris_of_hadoop_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Static data frames are read back from below the checkpoint, whose path Spark understands."""
    uris: list[str] = []

    class FileSystem:
        type_name = "s3"

        @staticmethod
        def from_uri(uri: str) -> tuple[Any, str]:
            uris.append(uri)
            return FileSystem(), uri.partition("://")[2]

    monkeypatch.setattr(place.fs, "FileSystem", FileSystem)
    place._connect.cache_clear()
    found = [place.locate(f"{name}://bucket/out/").path for name in ("s3", "s3a", "s3n")]
    place._connect.cache_clear()
    assert found == ["bucket/out"] * 3
    assert uris == ["s3://bucket/out/"] * 3


def test_the_password_of_a_uri_is_hidden() -> None:
    uri = "s3://me:s3cr3t@bucket/out"
    shown = [
        repr(JsonLinesSink(uri)),
        repr(ParquetSource([uri])),
        str(JsonLinesSink(uri).only_output),
    ]
    assert shown == [
        "JsonLinesSink(path='s3://bucket/out', if_exists='error')",
        "ParquetSource(path=('s3://bucket/out',), columns=None, partition_columns=(), "
        "rows_per_epoch=1000000, follow=False, order='sequence', late_files='7d')",
        "s3://bucket/out",
    ]
    with pytest.raises(SinkError) as raised, raise_as(SinkError, f"{uri} is closed"):
        raise OSError(f"no {uri}")
    assert str(raised.value) == "s3://bucket/out is closed: no s3://bucket/out"


def test_an_output_step_can_be_renamed_between_runs(tmp_path: Path) -> None:
    sink = opened(TextSink(tmp_path))
    sink.commit(0, [write(sink, 0, 0, ["a"], step="old")])
    again = opened(TextSink(tmp_path), resuming=True)
    again.commit(1, [write(again, 1, 0, ["b"], step="new")])
    assert lines(tmp_path) == ["a", "b"]


def test_a_path_that_cannot_be_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(SinkError, match="out is a file: path must name a directory"):
        opened(TextSink(tmp_path / "out"))
    with pytest.raises(SinkError, match="out/below cannot be opened for writing: "):
        opened(TextSink(tmp_path / "out" / "below"))


@pytest.mark.parametrize("path", ["out", "file://{}/out"])
def test_a_path_may_be_relative_as_the_flow_is_built_or_a_file_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = opened(TextSink(path.format(tmp_path)))
    monkeypatch.chdir("/")
    publish(sink, 0, ["a"])
    assert lines(tmp_path / "out") == ["a"]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-in for an object store, which cannot rename directories."""
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

    monkeypatch.setattr(place, "_connect", connect)
    return root


def test_an_object_store_gets_the_files_of_an_epoch_one_by_one(bucket: Path) -> None:
    sink = opened(TextSink("s3://me:secret@bucket/out"))
    publish(sink, 0, ["a"], ["b"])
    assert lines(bucket / "out") == ["a", "b"]
    publish(sink, 0, ["a"])
    assert lines(bucket / "out") == ["a"]
    assert len(tree(bucket / "out")) == 2
    found = TextSource("s3://me:secret@bucket/out/**/*.txt")
    planned = first_slice(found)
    assert [list(found.read(split)) for split in planned.splits] == [[["a"]]]
    assert "secret" not in str(planned)


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
        (lambda: TextSink(None), FlowTypeError, "path must be text or a pathlib.Path, got None"),
        (lambda: TextSink(" "), FlowBuildError, "path must name a file or a directory, got ' '"),
        (
            lambda: JsonLinesSink("a", if_exists="overwrite"),
            FlowBuildError,
            "if_exists must be 'error', 'replace' or 'append', got 'overwrite'",
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
def test_arguments_of_sinks_are_checked(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
