"""The temporary directory of a process, and its removal by later starts."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flow.engine import temporary
from flow.engine.spark.session.jvm import SparkLog
from flow.engine.temporary import (
    KEPT_DAYS,
    ProcessDirectory,
    new_directory,
    process_directory,
    remove_leftovers,
    temporary_directory,
)

PROJECT = Path(__file__).parents[2]
HOLD = """
import sys, time
from flow.engine.temporary import process_directory
directory = process_directory()
(directory.spark / "block").write_text("a block")
print(directory.path, flush=True)
{then}
"""
WAIT = "time.sleep(100)"
DOUBLED = """
import os, subprocess
log = directory.log_descriptor
subprocess.Popen(["sleep", "100"], stdout=log, stderr=log, start_new_session=True)
time.sleep(100)
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of its own, for a process that has made none yet."""
    base = tmp_path / "tmp"
    base.mkdir()
    monkeypatch.setattr(temporary, "_current", None)
    monkeypatch.setattr("tempfile.tempdir", str(base))
    monkeypatch.setenv("TMPDIR", str(base))
    return base


Start = Callable[..., tuple["subprocess.Popen[str]", Path]]


@pytest.fixture
def start(base: Path) -> Iterator[Start]:
    """Starts a process with a directory, and says where that is; all are killed in the end."""
    started: list[subprocess.Popen[str]] = []

    def begin(then: str = WAIT) -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", HOLD.format(then=then)]
        process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def make_leftover(base: Path, name: str = "flow-123-abcd_123") -> Path:
    """Make the directory of a process that is gone: a log without a lock, and files."""
    path = base / name
    (path / "spark" / "blockmgr").mkdir(parents=True)
    (path / "spark" / "blockmgr" / "block").write_text("a block")
    (path / "spark.log").write_text("a line")
    return path


def test_the_directory_is_private_and_named_after_the_process(base: Path) -> None:
    directory = process_directory()
    assert directory.path.parent == base
    assert directory.path.name.startswith(f"flow-{os.getpid()}-")
    modes = [mode(path) for path in (directory.path, directory.spark, directory.log)]
    assert modes == [0o700, 0o700, 0o600]
    assert process_directory() is directory


def test_files_of_a_process_are_in_the_directory_and_removed_with_it(base: Path) -> None:
    directory = process_directory()
    with temporary_directory("checkpoint-") as scratch:
        made = {Path(scratch), new_directory("code-"), directory.spark}
        assert {path.parent for path in made} == {directory.path}
    assert not Path(scratch).exists()
    directory.leave()
    assert list(base.iterdir()) == []


def test_only_a_log_that_an_error_names_is_kept(base: Path) -> None:
    log = SparkLog()
    os.write(log.opened(), b"a line\n")
    directory = process_directory()
    new_directory("code-")
    assert str(log) == str(directory.log)
    directory.leave()
    assert sorted(path.name for path in directory.path.iterdir()) == ["keep", "spark.log"]
    assert directory.log.read_text() == "a line\n"
    remove_leftovers(base)
    assert directory.log.exists(), "it is locked"


def test_the_log_of_a_given_session_is_not_named(base: Path) -> None:
    assert str(SparkLog()) == "that of the session that the run was given"
    assert list(base.iterdir()) == []


@pytest.mark.parametrize(("days", "stays"), [(KEPT_DAYS - 1, True), (KEPT_DAYS + 1, False)])
def test_a_named_log_goes_days_after_its_last_line(days: int, stays: bool, base: Path) -> None:
    path = make_leftover(base)
    (path / "keep").touch()
    then = time.time() - days * 86_400
    os.utime(path / "spark.log", (then, then))
    remove_leftovers(base)
    left = sorted(str(one.relative_to(base)) for one in base.rglob("*"))
    names = ["", "/keep", "/spark.log"] if stays else []
    assert left == [path.name + name for name in names]


def test_a_start_removes_files_of_killed_processes_only(base: Path, start: Start) -> None:
    """
    dead    ─ makes a directory ─ killed
    living  ─ makes a directory ────────────────
    this                             starts
    """
    (dead, left), (_, kept) = start(), start()
    remove_leftovers(base)
    assert (left / "spark" / "block").exists()
    kill(dead)
    remove_leftovers(base)
    assert list(base.iterdir()) == [kept]
    assert (kept / "spark" / "block").read_text() == "a block"


def test_files_of_a_child_of_a_killed_process_stay_until_it_ends(base: Path, start: Start) -> None:
    """The child has the log as its output, as a JVM does; it is no child of Python's fork."""
    driver, path = start(DOUBLED)
    while not (children := users_of(path / "spark.log") - {driver.pid}):
        time.sleep(0.02)
    kill(driver)
    remove_leftovers(base)
    assert (path / "spark" / "block").exists()
    for child in children:
        os.kill(child, signal.SIGKILL)
    while path.exists():
        remove_leftovers(base)


def users_of(file: Path) -> set[int]:
    """Return the processes that have a file open."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry) == str(file):
                found.add(int(entry.parts[2]))
    return found


def test_an_open_log_shows_that_the_jvm_is_alive(base: Path) -> None:
    path = make_leftover(base)
    (path / "spark.log").rename(path / "ended.log")
    log = os.open(path / "ended.log", os.O_RDWR)
    assert temporary.lock_file(log)
    remove_leftovers(base)
    assert (path / "spark" / "blockmgr" / "block").exists()
    os.close(log)
    remove_leftovers(base)
    assert list(base.iterdir()) == []


def test_other_files_are_not_removed(base: Path, tmp_path: Path) -> None:
    theirs = make_leftover(tmp_path, "flow-123-elsewher")
    (base / "flow-123-aaaaaaaa").symlink_to(theirs)
    linked = base / "flow-123-bbbbbbbb"
    linked.mkdir()
    (linked / "spark.log").symlink_to(theirs / "spark.log")
    for name in ("flow-log-abcdefgh", "flow-1-toolong99", "flow-abcdefgh", "spark-1", "flow-1-a b"):
        make_leftover(base, name)
    (base / "flow-123-cccccccc").touch()
    without_log = make_leftover(base, "flow-123-dddddddd")
    (without_log / "spark.log").unlink()
    before = sorted(base.rglob("*"))
    remove_leftovers(base)
    assert sorted(base.rglob("*")) == before
    assert (theirs / "spark" / "blockmgr" / "block").exists()


def test_a_link_at_the_path_of_the_log_is_not_followed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the start that makes a directory, nor by one that looks for leftovers."""
    (tmp_path / "theirs").write_text("theirs")
    made = base / "flow-1-abcdefgh"
    made.mkdir()
    (made / "spark.log").symlink_to(tmp_path / "theirs")
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(made))
    with pytest.raises(OSError, match="File exists"):
        ProcessDirectory.make(base)
    remove_leftovers(base)
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (made / "spark.log").is_symlink()


def test_links_are_not_followed_on_removal(base: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "flow.json").touch()
    path = make_leftover(base)
    (path / "link").mkdir()
    for link in (path / "link" / "checkpoint", path / "spark" / "checkpoint", path / "checkpoint"):
        link.symlink_to(tmp_path / "checkpoint", target_is_directory=True)
    remove_leftovers(base)
    assert list(base.iterdir()) == []
    assert (tmp_path / "checkpoint" / "flow.json").exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give files away")
def test_directories_of_other_users_are_kept(base: Path) -> None:
    path = make_leftover(base)
    os.chown(path, 12_345, -1)
    remove_leftovers(base)
    assert (path / "spark" / "blockmgr" / "block").exists()


def test_an_empty_directory_is_removed(base: Path) -> None:
    (base / "flow-123-abcdefgh").mkdir()
    remove_leftovers(base)
    assert list(base.iterdir()) == []


def test_concurrent_starts_do_not_disturb_each_other(base: Path, tmp_path: Path) -> None:
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            remove_leftovers(base)

    sweeping = [threading.Thread(target=sweep) for _ in range(3)]
    for thread in sweeping:
        thread.start()
    try:
        for number in range(50):
            make_leftover(tmp_path, "left").rename(base / f"flow-{number}-abcdefgh")
            made = ProcessDirectory.make(base)
            (made.spark / "block").touch()
            time.sleep(0.001)
            assert made.log.exists()
            assert (made.spark / "block").exists()
            made.leave()
            os.close(made.log_descriptor)
    finally:
        stop.set()
        for thread in sweeping:
            thread.join()
    remove_leftovers(base)
    assert list(base.iterdir()) == []


def test_a_directory_removed_before_its_lock_is_made_again(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    lock = temporary.lock_file

    def taken_first(log: int) -> bool:
        if len(made) < 3:
            [path] = base.iterdir()
            made.append(path.name)
            other = os.open(path / "spark.log", os.O_RDWR)
            assert lock(other)
            if len(made) == 2:  # the other has removed it and gone by then
                temporary._remove_log(path / "spark.log")
                os.close(other)
            else:
                held.append((other, path))
        try:
            return lock(log)
        finally:
            for other, path in held:
                temporary._remove_log(path / "spark.log")
                os.close(other)
            held.clear()

    held: list[tuple[int, Path]] = []
    monkeypatch.setattr(temporary, "lock_file", taken_first)
    directory = ProcessDirectory.make(base)
    assert list(base.iterdir()) == [directory.path]
    assert directory.path.name not in made
    assert len(made) == 3


def test_without_locks_only_its_own_files_go(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    path = make_leftover(base)
    directory = process_directory()
    remove_leftovers(base)
    assert (path / "spark" / "blockmgr" / "block").exists()
    directory.leave()
    assert list(base.iterdir()) == [path]


def test_a_removed_directory_is_made_again(base: Path) -> None:
    first = process_directory()
    first.leave()
    second = process_directory()
    assert second.path != first.path
    assert list(base.iterdir()) == [second.path]
    second.log.unlink()
    second.keep_log()
    assert list(second.path.iterdir()) == []


def test_a_fork_has_its_own_directory_and_keeps_its_parents(base: Path) -> None:
    directory = process_directory()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            directory.leave()
            own = process_directory()
            code = 0 if own.path != directory.path and directory.log.exists() else 2
            own.leave()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert list(base.iterdir()) == [directory.path]
