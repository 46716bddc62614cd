"""The set of names of read files: its expiry, and late files."""

from __future__ import annotations

import numpy as np
import pytest

from flow.connectors.files.reading import seen_files
from flow.connectors.files.reading.file_summary import FileSummary
from flow.connectors.files.reading.seen_files import SeenFiles, digest_of
from flow.errors import SourceError


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


def test_marks_merge_up_to_the_root() -> None:
    marks = {f" /{number}": number for number in range(10)}
    before = seen_files.MOST_MARKS
    seen_files.MOST_MARKS = 0
    try:
        assert seen_files._bounded(marks) == {" \0": 9}
    finally:
        seen_files.MOST_MARKS = before


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
