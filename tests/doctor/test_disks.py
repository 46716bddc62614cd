"""Checks of directories and of their file systems."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from flow.doctor import findings
from flow.doctor.findings import (
    FileSystem,
    Level,
    checkpoint_findings,
    file_system_of,
    temporary_findings,
    try_renames,
)
from tests.doctor.findings import OK, PROBLEM, WARNING, is_last

GIB = 1 << 30


@pytest.mark.parametrize(
    ("system", "level", "text"),
    [
        (FileSystem("ext4", (), 9 * GIB, 10 * GIB), OK, "ext4, 9.0 GiB free of 10.0 GiB"),
        (FileSystem("ext4", (), 0, 10 * GIB), PROBLEM, "make room there, or set TMPDIR to"),
        (FileSystem("ext4", (), GIB // 2, 10 * GIB), WARNING, "make room there, or set TMP"),
        (FileSystem("tmpfs", (), GIB, 2 * GIB), WARNING, "in memory and small: large shuf"),
        (FileSystem("tmpfs", (), 60 * GIB, 64 * GIB), OK, "tmpfs, 60.0 GiB free"),
        (FileSystem("ext4", ("noexec",), 9 * GIB, 9 * GIB), PROBLEM, "mounted noexec, so"),
    ],
)
def test_the_temporary_directory_is_judged(
    system: FileSystem, level: Level, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(findings, "file_system_of", lambda _: system)
    assert is_last(temporary_findings({}), level, "", text)
    assert list(tmp_path.iterdir()) == []


def test_sparks_directories_are_checked_and_the_variable_has_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"spark.local.dir": f"{tmp_path},/dev/null/dir"}
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    first, second = list(temporary_findings(conf))[1:]
    assert first.text.startswith(f"{tmp_path}, ")
    assert is_last([second], PROBLEM, "/dev/null/dir: Not a directory: set spark.local.dir to a")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    assert len(list(temporary_findings(conf))) == 2


def test_without_a_temporary_directory_the_variable_to_set_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", missing)
    assert is_last(temporary_findings({}), PROBLEM, end="set TMPDIR to one that is")


@pytest.mark.parametrize(
    ("system", "level", "text"),
    [
        (FileSystem("ext4", (), 9 * GIB, 9 * GIB), OK, "files can be replaced by renames"),
        (FileSystem("nfs4", (), 9 * GIB, 9 * GIB), WARNING, "on another machine: a rename"),
        (FileSystem("fuse.s3fs", (), 9 * GIB, 9 * GIB), WARNING, "on another machine: a "),
        (FileSystem("tmpfs", (), 9 * GIB, 9 * GIB), WARNING, "in memory: the state is lost"),
        (FileSystem("ext4", (), 0, 9 * GIB), PROBLEM, "make room there, or name another"),
        (FileSystem("ext4", (), GIB // 2, 9 * GIB), WARNING, "because the state grows"),
    ],
)
def test_the_checkpoints_file_system_is_judged(
    system: FileSystem, level: Level, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "file_system_of", lambda _: system)
    assert is_last(checkpoint_findings(str(tmp_path / "deep" / "state"), True), level, "", text)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_checkpoint_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "flow.json").write_text("{}")
    (found,) = checkpoint_findings(f"file:{tmp_path}", True)
    assert f"{tmp_path} (has a checkpoint), " in found.text
    assert [path.name for path in tmp_path.iterdir()] == ["flow.json"]


def test_a_checkpoint_that_is_a_file_or_local_to_a_machine_of_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (found,) = checkpoint_findings(str(tmp_path / "file" / "state"), True)
    assert found.text == f"{tmp_path / 'file'} is no directory: name another one"
    assert found.level is PROBLEM
    text = "all workers of the cluster must see the same files"
    assert is_last(checkpoint_findings(str(tmp_path), False), WARNING, "", text)


@pytest.mark.parametrize("path", [None, "s3a://bucket/state"])
def test_no_checkpoint_and_a_remote_one_are_not_checked_without_spark(path: str | None) -> None:
    assert list(checkpoint_findings(path, True)) == []


def test_a_directory_whose_renames_do_nothing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.replace", lambda *_: None)
    with pytest.raises(OSError, match="has the old content after a rename"):
        try_renames(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_innermost_and_last_mount_of_a_directory_counts(tmp_path: Path) -> None:
    inner = tmp_path / "with space" / "inner"
    inner.mkdir(parents=True)
    escaped = str(tmp_path / "with space").replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\n"
        f"/dev/b {escaped} xfs rw 0 0\n"
        f"tmpfs {escaped} tmpfs rw,noexec 0 0\n"
        f"/dev/c {escaped}/inne btrfs rw 0 0\n"
    )
    system = file_system_of(inner, mounts)
    assert (system.kind, system.options) == ("tmpfs", ("rw", "noexec"))
    assert file_system_of(tmp_path, mounts).kind == "ext4"
    assert file_system_of(inner, tmp_path / "no mounts").kind == ""
