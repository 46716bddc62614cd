"""Compaction of the list of files: forgotten names, late files and refused settings."""

from __future__ import annotations

import logging
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.files import TextSource, file_list
from flow.connectors.files import file_list as seen_files
from flow.connectors.files.file_list import FileList, FileSummary, SeenFiles, digest_of
from flow.connectors.files.filesystems import find_files
from flow.connectors.source import Json, Planner
from flow.errors import DurationError, FlowBuildError, SourceError
from tests.support.reading_files import JsonLog, run, sampled_reads, write

DAY = 86_400
NOW_US = 100 * DAY * 1_000_000


@pytest.fixture(autouse=True)
def compact_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_list, "LEAST_FILES", 1)
    monkeypatch.setattr(file_list, "LEAST_WAIT", 0.0)
    monkeypatch.setattr(file_list, "BUSY_SHARE", 1)


@dataclass
class Follower:
    """Reader of a directory that works as an engine does, and resumes after a stop."""

    home: Path
    options: dict[str, Any] = field(default_factory=dict)
    follow: bool = True
    log: JsonLog = field(default_factory=JsonLog)
    offset: Json = None
    planner: Planner | None = None
    lines: list[str] = field(default_factory=list)

    def put(self, name: str, day: float) -> None:
        path = write(self.home / name, f"{name}\n")
        os.utime(path, (day * DAY, day * DAY))

    def read_each(self, remove: str = "", **days: float) -> None:
        """Put and read files one after the other, and remove one of them after each."""
        for name, day in days.items():
            self.put(name, day)
            assert self.read() == [name]
            (self.home / (remove or name)).unlink(missing_ok=True)

    def start(self) -> Planner:
        source = TextSource(self.home, follow=self.follow, **self.options)
        self.planner = source.planner(self.log, 1)
        return self.planner

    def read(self) -> list[str]:
        """Read what is there, and release what was read before."""
        source = TextSource(self.home, follow=self.follow, **self.options)
        planner = self.planner or self.start()
        before = len(self.lines)
        while (planned := planner.next(self.offset)) is not None:
            splits = sorted(planned.splits, key=lambda split: split.partition)
            self.lines += [line for one in splits for part in source.read(one) for line in part]
            self.offset = planned.end
        if self.offset is not None:
            planner.release(self.offset, NOW_US)
        return self.lines[before:]


@pytest.fixture(params=["sequence", "parallel"])
def follower(request: pytest.FixtureRequest, tmp_path: Path) -> Follower:
    (tmp_path / "in").mkdir()
    return Follower(tmp_path / "in", {"order": request.param})


def test_a_compacted_list_keeps_the_numbers_of_files(follower: Follower) -> None:
    for number in range(5):
        follower.put(f"{number}", day=number)
        assert follower.read() == [f"{number}"]
    assert follower.log.summary() is not None
    assert follower.log.entries() == []
    planner = follower.start()
    assert planner.next(follower.offset) is None
    assert planner.lag(follower.offset) == "5 of 5 files"
    follower.put("5", day=5)
    assert follower.read() == ["5"]
    assert follower.offset in ({"file": 6, "at": 0}, {"started": 6, "open": []})


def test_files_that_an_offset_needs_stay_in_the_list(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / f"{number}", f"{number}\n")
    log = JsonLog()
    source = TextSource(tmp_path, bytes_per_epoch=2)
    first = run(source, log=log)
    source.planner(log, 1).release(first.ends[1], NOW_US)
    assert log.summary() is not None
    for kept in (1, 2, 3):
        assert run(source, log=log, start=first.ends[kept]).items == first.items[kept + 1 :]
    message = r"file number 2, but its list of files begins at number 3: no epoch that was kept"
    with pytest.raises(SourceError, match=message):
        source.planner(log, 1).next({"file": 1, "at": 0})
    with pytest.raises(
        SourceError, match=r"at file number 1, but .*a table that is new .* name this"
    ):
        source.planner(log, 1).next(None)


def test_open_files_stay_in_the_list_and_keep_their_names(tmp_path: Path) -> None:
    for name, lines in {"0": 1, "1": 9, "2": 1}.items():
        write(tmp_path / name, f"{name}\n" * lines)
    log = JsonLog()
    planner = TextSource(tmp_path, order="parallel", follow=True).planner(log, 1)
    planner.release({"started": 3, "open": [[1, 4]]}, NOW_US)
    assert log.summary() is not None
    again = TextSource(tmp_path, order="parallel", follow=True).planner(log, 1)
    planned = again.next({"started": 3, "open": [[1, 4]]})
    assert planned is not None
    assert [split.what[0]["file"] for split in planned.splits] == [["", f"{tmp_path}/1", 18]]
    assert [again.name_of(n) for n in (0, 1)] == ["partition 0", f"{tmp_path}/1"]
    with pytest.raises(SourceError, match="begins at number 2"):
        again.next({"started": 3, "open": [[0, 1]]})


def test_existing_files_are_remembered_at_any_age(follower: Follower) -> None:
    follower.put("old", day=1)
    assert follower.read() == ["old"]
    follower.read_each("none", later=50, latest=60)
    follower.put("as old", day=1)
    assert follower.read() == ["as old"]
    follower.start()
    assert follower.read() == []


def test_a_forgotten_file_is_reported(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    #  day   1        20              30           40
    #        old      new, old gone   -            old put back
    follower.read_each("old", old=1, new=20, newer=30, newest=40)
    assert caplog.messages == []
    follower.put("old", day=1)
    follower.put("never seen", day=0.5)
    follower.put("in time", day=1.5)
    assert follower.read() == ["in time"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert re.fullmatch(
        rf"2 files are not read, such as {follower.home}/(never seen|old): not newer than files of "
        r"that directory that were read, removed and forgotten \(late_files=7d\), so it may be one "
        r"of them, put back; late files in this run: 2\. To have a file read, give it a new "
        r"modification time \(touch\)",
        record.getMessage(),
    )
    planner = follower.planner
    assert planner is not None
    assert planner.lag(follower.offset) == "5 of 5 files, 2 too late"
    assert follower.read() == []
    assert len(caplog.records) == 1, "each is reported once a run"
    os.utime(follower.home / "never seen", (41 * DAY, 41 * DAY))
    assert follower.read() == ["never seen"]
    follower.start()
    assert follower.read() == []
    assert "1 file is not read, such as" in caplog.messages[-1]


@pytest.mark.parametrize("late_files", ["30d", timedelta.max])
def test_a_name_is_remembered_up_to_the_lateness_limit(follower: Follower, late_files: Any) -> None:
    follower.options["late_files"] = late_files
    follower.read_each("old", old=1, new=20, newer=31)
    for name in ("old", "late"):
        follower.put(name, day=1)
    assert follower.read() == ["late"]
    assert follower.planner is not None
    assert follower.planner.lag(follower.offset) == "4 of 4 files"


def test_a_file_with_a_future_time_expires_no_others(follower: Follower) -> None:
    follower.read_each("a", a=99, future=5_000, b=99.1, c=99.2)
    follower.put("a", day=99)
    assert follower.read() == []
    follower.put("d", day=98)
    assert follower.read() == ["d"]


def test_a_directory_that_was_empty_is_not_read_again(
    follower: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    """As that of a disk that is not mounted."""
    follower.read_each("none", a=1, b=2, c=30)
    shutil.move(follower.home, follower.home.with_name("away"))
    follower.home.mkdir()
    for name in ("while away", "and another"):
        follower.put(name, day=40)
        assert follower.read() == [name]
    shutil.copytree(follower.home.with_name("away"), follower.home, dirs_exist_ok=True)
    assert follower.read() == []
    assert "3 files are not read" in caplog.text


def test_a_bounded_list_is_compacted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(tmp_path / "in", follow=False)
    for name, day in (("old", 1), ("b", 20), ("a", 30), ("c", 40)):
        follower.put(name, day)
        follower.start()
        assert follower.read() == [name]
        (follower.home / "old").unlink(missing_ok=True)
    caplog.clear()
    follower.put("old", day=1)
    follower.start()
    assert follower.read() == []
    assert "1 file is not read, such as" in caplog.text


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("follow", [False, True])
def test_a_file_reached_by_another_path_is_not_new(
    tmp_path: Path, compacted: bool, follow: bool
) -> None:
    write(tmp_path / "data/a.txt", "a\n")
    write(tmp_path / "elsewhere.txt", "b\n")
    (tmp_path / "data/b.txt").symlink_to(tmp_path / "elsewhere.txt")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    log = JsonLog()
    source = TextSource(tmp_path / "data", follow=follow)
    first = run(source, log=log)
    if compacted:
        source.planner(log, 1).release(first.ends[-1], NOW_US)
        assert (log.summary() is not None, log.entries()) == (True, [])
    for other in ("link", "data", "elsewhere.txt"):
        planner = TextSource(tmp_path / other, follow=follow).planner(log, 1)
        assert planner.next(first.ends[-1]) is None
    write(tmp_path / "data/c.txt", "c\n")
    changed = TextSource(tmp_path / "link", follow=follow)
    assert run(changed, log=log, start=first.ends[-1]).items == ["c"]


# --- what was read is gone ---


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("path", ["in", "in/a.txt", "in/*.txt", "in/**/*.txt", "link/*.txt"])
@pytest.mark.parametrize("missing", ["directory", "files"])
def test_a_bounded_source_resumes_if_all_read_files_are_gone(
    tmp_path: Path, compacted: bool, path: str, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "in"
    (tmp_path / "link").symlink_to(home)
    write(home / "a.txt", "a\n")
    write(tmp_path / "other.txt", "other\n")
    log = JsonLog()
    source = TextSource([tmp_path / path, tmp_path / "other.txt"])
    first = run(source, log=log)
    if compacted:
        source.planner(log, 1).release(first.ends[-1], NOW_US)
        assert log.summary() is not None
    shutil.rmtree(home) if missing == "directory" else (home / "a.txt").unlink()
    assert run(source, log=log, start=first.ends[-1]).items == []
    assert caplog.messages == [
        f"no file matches '{tmp_path / path}' any more: files that an earlier run listed there "
        "are not read again"
    ]
    write(home / "a.txt", "a\n")
    write(home / "b.txt", "b\n")
    expected = [] if path.endswith("a.txt") else ["b"]
    assert run(source, log=log, start=first.ends[-1]).items == expected


def test_a_directory_removed_before_all_was_read_is_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "in" / name, f"{name}\n")
    log = JsonLog()
    source = TextSource(tmp_path / "in", bytes_per_epoch=2)
    first = run(source, log=log)
    shutil.rmtree(tmp_path / "in")
    with pytest.raises(SourceError, match="in/b has vanished since it was listed"):
        run(source, log=log, start=first.ends[0])


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "in/a", "a\n")
    log = JsonLog()
    first = run(TextSource(tmp_path / "in"), log=log)
    for path in ("i", "in/b", "in/sub", "in2/*"):
        with pytest.raises(SourceError, match="no file matches"):
            run(TextSource(tmp_path / path), log=log, start=first.ends[-1])


# --- each file is read once, whatever happens ---

STEPS = st.lists(
    st.sampled_from(["add", "remove", "restart", "read", "rest", "crash", "put back"]), max_size=40
)


class Killed(Exception):
    """Exception that stands for the death of the process."""


class DyingLog(JsonLog):
    """A log whose compaction kills the process, before or after the write."""

    dies: str = ""

    def compact(self, summary: bytes) -> None:
        if self.dies == "before":
            raise Killed
        super().compact(summary)
        if self.dies:
            raise Killed


@sampled_reads
@given(STEPS, st.booleans(), st.sampled_from(["sequence", "parallel"]), st.integers(1, 4))
def test_each_file_is_read_once_while_files_come_and_go(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], follow: bool, order: str, least: int
) -> None:
    file_list.LEAST_FILES = least
    home = tmp_path_factory.mktemp("files")
    log = DyingLog()
    follower = Follower(home, {"order": order}, follow, log)
    follower.put("first", day=1)
    added, removed, day = ["first"], [], 1
    follower.read()
    for number, step in enumerate([*steps, "read", "restart", "read"]):
        day += 3
        present = set(follower.lines) - set(removed)
        match step:
            case "add":
                follower.put(f"{number}", day)
                added.append(f"{number}")
            case "remove" if present:
                removed.append(min(present))
                (home / removed[-1]).unlink()
            case "put back" if removed:
                name = removed.pop()
                follower.put(name, 1 if name == "first" else 3 * int(name) + 4)
            case "restart":
                follower.start()
            case "crash":
                log.dies = "before" if number % 2 else "after"
                with suppress(Killed):
                    follower.read()
                log.dies = ""
                follower.start()
            case "read":
                if not follow:
                    follower.start()
                follower.read()
    assert sorted(follower.lines) == sorted(added)


# --- arguments ---


@pytest.mark.parametrize("value", ["-1d", "a week", 7])
def test_the_lateness_limit_of_files_is_validated(value: Any) -> None:
    with pytest.raises((FlowBuildError, DurationError), match="late_files"):
        TextSource("in", late_files=value)


def test_the_copy_of_a_data_frame_is_listed_in_full(tmp_path: Path) -> None:
    """The list of files in a checkpoint survives a move of the checkpoint."""
    path = write(tmp_path / "a", "a\n")
    log = JsonLog()
    find = partial(find_files, [str(path)], required=True)
    FileList(log, find, follow=False, fixed=True).release(1, NOW_US)
    assert (log.summary(), len(log.entries())) == (None, 1)


# --- the names of read files ---


def seen_of(*names: tuple[str, int], store: str = "") -> SeenFiles:
    seen = SeenFiles()
    seen.add((store, path, mtime) for path, mtime in names)
    return seen


def expire(seen: SeenFiles, before_ns: int, *present: str) -> None:
    mask = np.zeros(len(seen), np.bool_)
    rows = seen.find([digest_of("", path) for path in present])
    mask[rows[rows >= 0]] = True
    seen.expire(before_ns, mask)


def contains(seen: SeenFiles, *paths: str) -> list[bool]:
    return [bool(row >= 0) for row in seen.find([digest_of("", path) for path in paths])]


def test_a_name_is_found_by_store_and_path_alone() -> None:
    seen = seen_of(("bucket/in/a", 5), ("bucket/in/b", 6), store="s3://bucket")
    seen.add([("s3a://bucket", "bucket/in/a", 9), ("", "/in/a", 7)])
    assert len(seen) == 3
    assert contains(seen, "/in/a", "bucket/in/a", "/in/b") == [True, False, False]
    assert list(seen.find([digest_of("s3a://bucket", "bucket/in/b")]) >= 0) == [True]


def test_names_that_share_half_of_a_hash_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {"/in/a": b"\7" * 15 + b"a", "/in/b": b"\7" * 15 + b"b", "/in/c": b"\7" * 15 + b"c"}
    monkeypatch.setattr(seen_files, "digest_of", lambda _, path: digests[path])
    seen = seen_of(("/in/a", 1), ("/in/b", 1))
    assert list(seen.find(list(digests.values())) >= 0) == [True, True, False]


def test_a_mark_never_goes_back() -> None:
    seen = seen_of(("/in/a", 20))
    expire(seen, 30)
    seen.add([("", "/in/b", 10)])
    expire(seen, 30)
    assert seen.is_late("", "/in/c", 20)


def test_directories_over_the_limit_of_marks_share_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_files, "MOST_MARKS", 3)
    seen = seen_of(*((f"/in/day={day}/a", 10 + day) for day in range(3)), ("/other/a", 5))
    expire(seen, 100)
    late = {path: seen.is_late("", path, 12) for path in ("/in/day=1/b", "/in/day=9/b", "/in/b")}
    assert late == {"/in/day=1/b": True, "/in/day=9/b": True, "/in/b": True}
    assert not seen.is_late("", "/in/day=1/b", 13)
    assert [seen.is_late("", "/other/b", mtime) for mtime in (5, 6)] == [True, False]
    assert not seen.is_late("", "/inn/b", 1)


def test_marks_merge_up_to_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_files, "MOST_MARKS", 0)
    assert seen_files._bounded({f" /{number}": number for number in range(10)}) == {" \0": 9}


def test_a_summary_survives_a_round_trip() -> None:
    seen = seen_of(("/in/a", 10), ("/in/b", 20), ("/other/c", 40))
    expire(seen, 15)
    files = [("", "/in/d", 3, 50), ("s3://b", "b/e", 4, 60)]
    read = FileSummary.decode(FileSummary(7, seen, files).encode())
    assert (read.first, list(read.files)) == (7, files)
    assert contains(read.seen, "/in/a", "/in/b", "/other/c") == [False, True, True]
    assert read.seen.is_late("", "/in/x", 10)
    assert not read.seen.is_late("", "/other/x", 10)
    assert read.seen.newest_ns == 40
    assert FileSummary.decode(FileSummary().encode()).files == []


def test_content_that_is_no_summary_is_refused() -> None:
    for content in (b"", b"nothing", FileSummary().encode()[:90]):
        with pytest.raises(SourceError, match=r"cannot be read: .*; put the checkpoint back"):
            FileSummary.decode(content)


def test_a_copy_changes_independently() -> None:
    seen = seen_of(("/in/a", 10))
    copy = seen.copy()
    copy.add([("", "/in/b", 20)])
    expire(copy, 15)
    assert contains(seen, "/in/a", "/in/b") == [True, False]
    assert not seen.is_late("", "/in/c", 1)
    assert copy.is_late("", "/in/c", 1)
