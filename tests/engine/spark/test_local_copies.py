"""Local copies of segments on a worker's disk, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.engine.spark.spark_store import STAMP_BYTES, LocalCopies, pays, worker_folder

SEGMENTS: dict[int, bytes | None] = {number: bytes([number]) * 50 for number in range(10)}
CONTENTS = st.dictionaries(st.integers(0, 2**40), st.none() | st.binary(max_size=20), max_size=8)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@given(CONTENTS)
def test_a_written_copy_is_found(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[int, bytes | None]
) -> None:
    copies = LocalCopies(tmp_path_factory.mktemp("copies"), "step", 3)
    stamp = copies.keep(contents)
    present = {number: one for number, one in contents.items() if one is not None}
    assert len(stamp) == (STAMP_BYTES if present else 0)
    assert copies.find(stamp) == present


def test_a_copy_replaces_the_earlier_one(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path, "step", 3)
    before = copies.keep(SEGMENTS)
    after = copies.keep({1: b"new"})
    assert (copies.find(before), copies.find(after)) == ({}, {1: b"new"})
    assert len(files(tmp_path)) == 1


def test_copies_of_other_steps_and_shards_are_kept(tmp_path: Path) -> None:
    kept = [LocalCopies(tmp_path, name, shard) for name in ("a", "b/../a") for shard in (0, 1)]
    stamps = [copies.keep({0: str(at).encode()}) for at, copies in enumerate(kept)]
    kept[0].drop()
    found = [copies.find(stamp) for copies, stamp in zip(kept, stamps, strict=True)]
    assert found == [{}, {0: b"1"}, {0: b"2"}, {0: b"3"}]


def flipped(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("place", [0, 5, 7, 8, 20, 100, -1])
def test_a_damaged_or_incomplete_copy_is_ignored(tmp_path: Path, place: int) -> None:
    copies = LocalCopies(tmp_path, "step", 3)
    stamp = copies.keep(SEGMENTS)
    (file,) = files(tmp_path)
    content = file.read_bytes()
    for broken in (flipped(content, place), content[:place]):
        file.write_bytes(broken)
        assert copies.find(stamp) == {}


def test_a_disk_that_cannot_be_written_has_no_copy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of the folder")
    assert LocalCopies(tmp_path / "file", "step", 3).keep(SEGMENTS) == b""


def test_the_folder_is_on_the_first_of_the_worker_s_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/disk1/blocks,/disk2/blocks")
    assert worker_folder("run") == Path("/disk1/blocks/flow-segments/run")
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert worker_folder("run") is None


@pytest.mark.parametrize(
    ("count", "segments", "most"), [(7, 7, False), (8, 8, True), (8, 33, False), (9, 36, True)]
)
def test_a_copy_pays_for_a_quarter_of_many_segments(count: int, segments: int, most: bool) -> None:
    assert pays(count, segments) is most
