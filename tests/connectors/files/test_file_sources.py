"""Selection and order of the files that a source reads, in parallel too, and its arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flow.connectors.files import (
    CsvSource,
    JsonLinesSource,
    ParquetSource,
    TextSource,
    filesystems,
)
from flow.connectors.files.file_list import FileList
from flow.connectors.files.filesystems import File, find_files
from flow.connectors.files.parquet_source import WrittenDownFrame
from flow.connectors.source import MemoryLog, Source
from flow.errors import FlowBuildError, FlowTypeError, SourceError
from flow.testing import run_source
from tests.support.clock import Clock
from tests.support.reading_files import JsonLog, first_slice, items, parquet, run, write

# --- which files ---------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "x/c.txt", "x/y/d.txt", "x/e.log", "B.txt"):
        write(tmp_path / name, f"{name}\n")
    for name in ("_h.txt", ".h.txt", "_x/h.txt", "x/.y/h.txt", "x/_SUCCESS"):
        write(tmp_path / name, "hidden\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".", ["B.txt", "a.txt", "b.txt", "x/c.txt", "x/e.log", "x/y/d.txt"]),
        ("a.txt", ["a.txt"]),
        ("_h.txt", ["hidden"]),
        ("*.txt", ["B.txt", "a.txt", "b.txt"]),
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("?.txt", ["B.txt", "a.txt", "b.txt"]),
        ("**/*.txt", ["B.txt", "a.txt", "b.txt", "x/c.txt", "x/y/d.txt"]),
        ("x/**", ["x/c.txt", "x/e.log", "x/y/d.txt"]),
        ("*/y/*", ["x/y/d.txt"]),
        ("**/**/d.txt", ["x/y/d.txt"]),
        ("*", ["B.txt", "a.txt", "b.txt", "x/c.txt", "x/e.log", "x/y/d.txt"]),
        ("_*", ["hidden", "hidden"]),
        ("x/", ["x/c.txt", "x/e.log", "x/y/d.txt"]),
    ],
)
def test_a_path_lists_files_in_order_of_path(tree: Path, path: str, expected: list[str]) -> None:
    assert items(TextSource(f"{tree}/{path}")) == expected
    for scheme in ("file://", "file:"):
        assert items(TextSource(f"{scheme}{tree}/{path.replace('?', '*')}")) == expected


def test_escapes_in_the_glob_of_a_uri_are_characters(tmp_path: Path) -> None:
    for name in ("ä b/c 1.txt", "ä b/c*1.txt", "ä b/c%20.txt"):
        write(tmp_path / name, f"{name[4:]}\n")
    for pattern, expected in (("c%20*", "c 1"), ("c%2A*", "c*1"), ("c%2520*", "c%20")):
        for folder in ("%C3%A4%20b", "%C3%A4%20*"):
            assert items(TextSource(f"file://{tmp_path}/{folder}/{pattern}")) == [f"{expected}.txt"]


def test_a_directory_that_exists_is_no_part_of_a_glob(tmp_path: Path) -> None:
    for name in ("old [1]/what?/a.txt", "old 1/what?/b.txt", "*/c.txt", "x/c.txt"):
        write(tmp_path / name, f"{name}\n")
    assert items(TextSource(f"{tmp_path}/old [1]/what?/*.txt")) == ["old [1]/what?/a.txt"]
    assert items(TextSource(f"{tmp_path}/*/c.*")) == ["*/c.txt", "x/c.txt"]


def test_files_of_a_checkpoint_are_read_with_another_scheme_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filesystems, "_connect", lambda uri: (uri, ""))
    uri = "s3a://bucket/in?endpoint_override=localhost:1"
    assert filesystems.connect("s3://bucket", ["s3://other/in", uri]) == uri


def test_a_list_of_paths_is_read_in_order_of_path_and_each_file_once(tree: Path) -> None:
    source = TextSource([tree / "b.txt", str(tree / "x"), tree / "*.txt"])
    assert items(source) == ["B.txt", "a.txt", "b.txt", "x/c.txt", "x/e.log", "x/y/d.txt"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ["a", "b", "far"]),
        ("**/*.txt", ["a", "b", "far"]),
        ("*/*.txt", ["a", "b", "far"]),
        ("latest", ["a", "b"]),
        ("latest/**", ["a", "b"]),
        ("[lm]*/*", ["a", "b", "far"]),
    ],
)
def test_a_file_is_read_once_by_whatever_links_it_is_reached(
    tmp_path: Path, path: str, expected: list[str]
) -> None:
    home = tmp_path / "in"
    for name, text in (("in/mon/a.txt", "a"), ("in/mon/b.txt", "b"), ("out/far.txt", "far")):
        write(tmp_path / name, f"{text}\n")
    links = {"latest": "mon", "mon/0.txt": "a.txt", "less": tmp_path / "out", "m2": "../out"}
    for name, target in (*links.items(), ("none.txt", "no.txt"), ("self.txt", "self.txt")):
        (home / name).symlink_to(target)
    if "late" not in path:
        for name in ("up", "up2", "mon/up", "mon/up2"):
            (home / name).symlink_to(home, target_is_directory=True)
    found = find_files([f"{home}/{path}", str(home / "mon/a.txt")], required=True)
    assert sorted(Path(file.path).read_text().strip() for file in found) == expected
    assert all("up" not in file.path for file in found)


def test_a_link_that_is_made_later_repeats_no_file(tmp_path: Path, clock: Clock) -> None:
    write(tmp_path / "in/mon/deep/a.txt", "a\n")
    source = TextSource(tmp_path / "in", follow=True)
    planner = source.planner(JsonLog(), 1)
    planned = planner.next(None)
    assert planned is not None
    (tmp_path / "in/a").mkdir()
    for name in ("latest", "a/link"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "in/mon/deep")
    (tmp_path / "in/b.txt").symlink_to("mon/deep/a.txt")
    clock.now += 1
    assert planner.next(planned.end) is None


@pytest.mark.parametrize("path", ["", "caf*", "caf\udce9.txt"])
def test_a_name_that_is_not_utf8_is_an_error_that_names_it(tmp_path: Path, path: str) -> None:
    write(tmp_path / "a.txt", "a\n")
    write(tmp_path / "caf\udce9.txt", "b\n")
    assert items(TextSource(tmp_path / "a*")) == ["a"]
    problem = r"cannot be listed: the path '.*/caf\\udce9.txt' is not UTF-8; rename it"
    with pytest.raises(SourceError, match=problem):
        items(TextSource(f"{tmp_path}/{path}"))


def test_a_relative_path_is_resolved_at_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    planned = first_slice(TextSource("x/*.txt"))
    monkeypatch.chdir("/")
    assert list(TextSource("x/*.txt").read(planned.splits[0])) == [["x/c.txt"]]


def test_a_file_with_wildcards_in_its_name_is_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "a[1].txt", "x\n")
    assert items(TextSource(path)) == ["x"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no.txt", r"no file matches '.*/no\.txt': looked for .*/no\.txt, which does not exist"),
        ("*.csv", r"no file matches '.*/\*\.csv': looked for \*\.csv in .*; names that start"),
        ("no/*.csv", r"no file matches '.*': looked for \*\.csv in .*/no, which does not exist"),
        ("_x", r"no file matches .*: looked for any file in .*/_x; names that start with '_'"),
    ],
)
def test_a_path_without_files_says_what_was_looked_for(tree: Path, path: str, message: str) -> None:
    (tree / "_x/h.txt").rename(tree / "_x/_h.txt")
    with pytest.raises(SourceError, match=message):
        TextSource([tree / "a.txt", tree / path]).planner(JsonLog(), 1)


def test_an_unknown_kind_of_uri_is_an_error_that_names_it_without_its_password() -> None:
    with pytest.raises(SourceError, match=r"^nope://host/x cannot be listed: .*nope://host/x$"):
        TextSource("nope://me:secret@host/x").planner(JsonLog(), 1)


def test_empty_files_are_skipped(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "")
    assert items(TextSource(tmp_path)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (b"x", r"a\.dat has changed .* it had {} bytes and now has {more}"),
        (b"", r"a\.dat has changed .* it had {} bytes and now has {less}"),
        (None, r"a\.dat has vanished since it was listed \({} bytes then\)"),
    ],
    ids=["grows", "shrinks", "vanishes"],
)
@pytest.mark.parametrize("kind", [TextSource, ParquetSource])
def test_a_file_that_changes_after_it_was_listed_is_an_error_that_names_it(
    tmp_path: Path, change: bytes | None, message: str, kind: Any
) -> None:
    path = parquet(tmp_path / "a.dat", 0, 100, 10)
    planned = first_slice(kind(path))
    content = path.read_bytes()
    size = len(content)
    path.unlink()
    if change is not None:
        write(path, content + change if change else content[:-1])
    with pytest.raises(SourceError, match=message.format(size, more=size + 1, less=size - 1)):
        list(kind(path).read(planned.splits[0]))


# --- the list of a bounded source, and one that grows --------------------------------------------


def test_resumed_runs_read_new_files_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "b.txt", "b\n")
    log = JsonLog()
    first = run(TextSource(tmp_path), log=log)
    assert first.items == ["b"]
    assert run(TextSource(tmp_path), log=log, start=first.ends[-1]).items == []
    (entry,) = log.entries()
    assert (entry["files"], caplog.messages) == ([["", f"{tmp_path}/b.txt", 2]], [])
    assert entry["mtimes"] == [(tmp_path / "b.txt").stat().st_mtime_ns]
    write(tmp_path / "a.txt", "a\n")
    assert run(TextSource(tmp_path), log=log).items == ["b", "a"]
    assert run(TextSource(tmp_path), log=log, start=first.ends[-1]).items == ["a"]
    assert caplog.messages == [
        f"1 file is new since the run before, such as {tmp_path}/a.txt: "
        "read after those that were there"
    ]


def test_the_copy_of_a_static_data_frame_does_not_grow(tmp_path: Path) -> None:
    log = JsonLog()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    first = run(WrittenDownFrame(tmp_path), log=log)
    pq.write_table(pa.table({"n": [2]}), tmp_path / "b.parquet")
    assert run(WrittenDownFrame(tmp_path), log=log, start=first.ends[-1]).items == []


def test_an_offset_beyond_the_list_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a\n")
    planner = TextSource(tmp_path).planner(JsonLog(), 1)
    with pytest.raises(SourceError, match=r"continues at file number 8, but its list .* holds 1"):
        planner.next({"file": 7, "at": 0})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    defaults = FileList.__init__.__kwdefaults__
    monkeypatch.setattr(FileList.__init__, "__kwdefaults__", {**defaults, "clock": clock})
    return clock


def test_followed_files_are_read_in_the_order_of_writing(tmp_path: Path, clock: Clock) -> None:
    log = JsonLog()
    source = TextSource(tmp_path, follow=True)
    assert not source.bounded
    planner = source.planner(log, 1)
    assert planner.next(None) is None
    os.utime(write(tmp_path / "a.txt", "a\n"), (2000, 2000))
    os.utime(write(tmp_path / "b.txt", "b\n"), (1000, 1000))
    os.utime(write(tmp_path / "c.txt", "c\n"), (1000, 1000))
    clock.now += 0.9
    assert planner.next(None) is None
    clock.now += 0.1
    planned = planner.next(None)
    assert planned is not None
    assert [list(source.read(split)) for split in planned.splits] == [[["b"], ["c"], ["a"]]]
    assert not planner.finished(planned.end)
    write(tmp_path / "0.txt", "0\n")
    clock.now += 1
    later = planner.next(planned.end)
    assert later is not None
    assert [list(source.read(split)) for split in later.splits] == [[["0"]]]
    assert run(source, log=log).items == ["b", "c", "a", "0"]
    assert run(source, log=log, start=planned.end).items == ["0"]


def test_following_reads_a_file_once_it_has_content(tmp_path: Path, clock: Clock) -> None:
    write(tmp_path / "a.txt", "")
    log = JsonLog()
    planner = TextSource(tmp_path, follow=True).planner(log, 1)
    assert planner.next(None) is None
    assert log.entries() == []
    write(tmp_path / "a.txt", "a\n")
    clock.now += 1
    planned = planner.next(None)
    assert planned is not None
    write(tmp_path / "a.txt", "a\nb\n")
    clock.now += 1
    assert planner.next(planned.end) is None


def test_following_a_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="which does not exist"):
        TextSource(tmp_path / "no", follow=True).planner(JsonLog(), 1)


def test_slow_listings_are_repeated_less_often(tmp_path: Path) -> None:
    clock, listings = Clock(100.0), []

    def find(**_: Any) -> list[File]:
        listings.append(clock.now)
        clock.now += 2.0
        return []

    files = FileList(MemoryLog(), find, follow=True, clock=clock)
    for _ in range(60):
        files.refresh()
        clock.now += 1
    assert listings == [100.0, 120.0, 140.0, 160.0]


def test_lag_counts_files(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / f"{number}.txt", "x\n")
    planner = TextSource(tmp_path).planner(JsonLog(), 1)
    assert planner.lag(None) == "0 of 4 files"
    assert planner.lag({"file": 1, "at": 1}) == "1 of 4 files"


def test_listing_opens_directories_of_the_glob(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "secret").mkdir()
    (tree / "secret").chmod(0)
    try:
        found = find_files([f"{tree}/*.txt"], required=True)
    finally:
        (tree / "secret").chmod(0o700)
    assert [Path(file.path).name for file in sorted(found)] == ["B.txt", "a.txt", "b.txt"]


# --- arguments -----------------------------------------------------------------------------------


def test_sources_compare_by_value_and_can_be_hashed() -> None:
    one = JsonLinesSource(["a", Path("b")], schema={"n": pa.int64()})
    other = JsonLinesSource(("a", "b"), schema=pa.schema({"n": pa.int64()}))
    assert one == other
    assert hash(one) == hash(other)
    assert one != JsonLinesSource(["a", "b"], schema={"n": pa.int32()})
    assert repr(TextSource("a")) == (
        "TextSource(path='a', on_invalid='fail', bytes_per_epoch=67108864, follow=False, "
        "order='sequence', late_files='7d')"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextSource(5), "path must be text or a pathlib.Path, got int 5"),
        (lambda: TextSource("a", bytes_per_epoch="1"), "a whole number of at least 1, got '1'"),
        (lambda: TextSource("a", follow=1), "follow must be True or False, got int"),
        (lambda: ParquetSource("a", columns="n"), "columns must be a list of names"),
        (lambda: JsonLinesSource("a", schema={"n": "int"}), "schema must map .* got 'n': 'int'"),
        (lambda: JsonLinesSource("a", schema=[]), "schema must be a pyarrow.Schema"),
        (lambda: CsvSource("a", delimiter=5), "delimiter must be text, got int 5"),
        (lambda: CsvSource("a", header="a,b"), "header must be a list of texts"),
        (lambda: CsvSource("a", null_values="NA"), "null_values must be a list of"),
        (lambda: CsvSource("a", multiline=None), "multiline must be True or False"),
    ],
)
def test_an_argument_of_a_wrong_type_is_an_error(make: Any, message: str) -> None:
    with pytest.raises(FlowTypeError, match=message):
        make()


LIST_OF_TIMES, DURATIONS = {"n": pa.list_(pa.time64("us"))}, {"n": pa.duration("s")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextSource(""), "path must name a file or a directory, got ''"),
        (lambda: TextSource([]), "path must name at least one file"),
        (lambda: TextSource("a", bytes_per_epoch=0), "a whole number of at least 1, got 0"),
        (lambda: TextSource("a", on_invalid="ignore"), "on_invalid must be .* got 'ignore'"),
        (lambda: ParquetSource("a", rows_per_epoch=0), "a whole number of at least 1, got 0"),
        (lambda: ParquetSource("a", columns=[]), "columns must name at least one"),
        (lambda: JsonLinesSource("a", schema={}), "schema must have columns"),
        (lambda: JsonLinesSource("a", schema=DURATIONS), r"read from JSON as duration\[s\]"),
        (
            lambda: JsonLinesSource("a", schema=LIST_OF_TIMES),
            "'n' cannot be read from JSON as list",
        ),
        (lambda: CsvSource("a", schema=LIST_OF_TIMES), "'n' cannot be read from CSV as list"),
        (lambda: CsvSource("a", delimiter=",,"), "delimiter must be one ASCII"),
        (lambda: CsvSource("a", header=False), "header=False needs a schema"),
        (lambda: CsvSource("a", header=[]), "header must name at least one column"),
        (lambda: CsvSource("a", header=["a", "a"]), "names more than once column"),
        (lambda: CsvSource("a", header=["a"], schema={"b": pa.string()}), "not name column 'b'"),
    ],
)
def test_an_argument_of_a_wrong_value_is_an_error(make: Any, message: str) -> None:
    with pytest.raises(FlowBuildError, match=message):
        make()


# --- files in parallel ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TextSource, JsonLinesSource, CsvSource, ParquetSource])
def test_an_unknown_order_is_an_error(kind: Any) -> None:
    with pytest.raises(FlowBuildError, match="order must be 'sequence' or 'parallel', got 'x'"):
        kind("a", order="x")


def devices(home: Path, kind: str) -> tuple[Source[Any], list[list[Any]]]:
    """Three files of different lengths side by side, and the items of each."""
    numbers = [list(range(0, 40)), list(range(100, 105)), list(range(200, 290))]
    if kind == "parquet":
        for name, some in zip("abc", numbers, strict=True):
            parquet(home / f"{name}.parquet", some[0], some[-1] + 1, 7)
        source: Source[Any] = ParquetSource(
            home, columns=["n"], rows_per_epoch=20, order="parallel"
        )
        return source, [[{"n": n} for n in some] for some in numbers]
    rows = {"text": "{}\n", "json": '{{"n": {}}}\n', "csv": "{}\n"}[kind]
    for name, some in zip("abc", numbers, strict=True):
        head = "n\n" if kind == "csv" else ""
        write(home / f"{name}.{kind}", head + "".join(rows.format(n) for n in some))
    options: dict[str, Any] = {"bytes_per_epoch": 50, "order": "parallel"}
    if kind == "text":
        return TextSource(home, **options), [[str(n) for n in some] for some in numbers]
    schema = {"n": pa.int64()}
    maker = JsonLinesSource if kind == "json" else CsvSource
    return maker(home, schema=schema, **options), [[{"n": n} for n in some] for some in numbers]


@pytest.mark.parametrize("parallelism", [1, 8])
@pytest.mark.parametrize("kind", ["text", "json", "csv", "parquet"])
def test_parallel_files_are_partitions(tmp_path: Path, kind: str, parallelism: int) -> None:
    source, expected = devices(tmp_path, kind)
    planner = source.planner(JsonLog(), parallelism)
    found: list[list[Any]] = [[], [], []]
    start, together = None, 0
    while (planned := planner.next(start)) is not None:
        for split in planned.splits:
            for batch in source.read(split):
                assert isinstance(batch, (list, pa.RecordBatch))
                found[split.partition] += batch if isinstance(batch, list) else batch.to_pylist()
        together = max(together, len({split.partition for split in planned.splits}))
        start = json.loads(json.dumps(planned.end))
    assert found == expected
    assert together == min(3, parallelism)
    items = run_source(source)
    assert [[one for one in items if one in some] for some in expected] == expected
    assert len(items) == sum(map(len, expected))
