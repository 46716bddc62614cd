"""Temporary files: a private directory of this process, removed at its end or by a later start.

::

    flow-<pid>-<random>/   for its owner alone (0700), in the temporary directory
        spark.log          Spark's output; its lock marks the directory as in use
        keep               present if an error named the log
        spark/             temporary files of the JVM (``java.io.tmpdir``)
        ...                temporary files of this process

The log is made first, and locked (``flock``). A lock belongs to an open file, and the JVM inherits
the log as its standard output. So the lock is free once this process and its JVM have ended, in
whatever way. This is also true for processes of other containers, whose process ids have no meaning
here. A start removes the directories of its user whose lock is free.

A process may end before its JVM. It then leaves to the JVM the removal of ``spark/``, of the log
under another name, and of the directory, in this order. The JVM removes nothing else, so that it
cannot follow the links that this process makes, for example to a checkpoint.

Two processes may start at the same time. The process that removes a directory holds the directory's
lock, and removes the log last. If a new directory is removed as a leftover before its log is
locked, the start makes another. A directory without a log is removed only if it is empty.

On systems without locks of files, such as Windows, only its own process removes a directory.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

LOG, ENDED, KEEP, SPARK = "spark.log", "ended.log", "keep", "spark"
KEPT_DAYS = 7
"""Days after its last line for which a log named by an error is retained."""
_NAME = re.compile(r"flow-\d+-\w{8}", re.ASCII)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class ProcessDirectory:
    """Temporary directory of a process.

    Args:
        path: the directory.
        log: descriptor of the log, open for appending, which holds the lock.

    Attributes:
        path: the directory.
        pid: the process.
        jvm: the JVM with its temporary files in `spark`. At its end the JVM removes `spark`,
            `ended_log` and the directory. ``None`` without a JVM.
    """

    def __init__(self, path: Path, log: int) -> None:
        self.path = path
        self.pid = os.getpid()
        self.jvm: subprocess.Popen[bytes] | None = None
        self.log_descriptor = log

    @classmethod
    def make(cls, base: Path) -> ProcessDirectory:
        """Make a directory in another one, and lock it.

        Raises:
            OSError: when the directory cannot be made.
        """
        while True:
            path = Path(tempfile.mkdtemp(prefix=f"flow-{os.getpid()}-", dir=base))
            log = _new_log(path)
            if log is not None:
                return cls(path, log)

    @property
    def log(self) -> Path:
        """Path of the file for Spark's output."""
        return self.path / LOG

    @property
    def ended_log(self) -> Path:
        """Path of the log after this process has left it to its JVM."""
        return self.path / ENDED

    @property
    def spark(self) -> Path:
        """Directory for a JVM's files; made again after an earlier JVM has removed it."""
        path = self.path / SPARK
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def keep_log(self) -> None:
        """Retain the log after this process ends, for `KEPT_DAYS` after its last line."""
        with contextlib.suppress(OSError):
            if self.log.exists():  # Another program may have removed the directory.
                (self.path / KEEP).touch()

    def leave(self) -> None:
        """Remove the directory at the end of the process, or leave the removal to a running JVM."""
        if os.getpid() != self.pid:  # A fork inherits the calls at exit.
            return
        keeps_log = (self.path / KEEP).exists()
        is_jvm_alive = self.jvm is not None and self.jvm.poll() is None
        names = {LOG, KEEP} if keeps_log else {LOG}
        with contextlib.suppress(OSError):
            _remove_files(self.path, {*names, SPARK} if is_jvm_alive else names)
            if keeps_log:
                return
            if is_jvm_alive:
                self.log.rename(self.ended_log)
                return
            self._close()
            _remove_log(self.log)

    def _close(self) -> None:
        if sys.platform == "win32":  # Windows does not remove an open file.
            os.close(self.log_descriptor)


_current: ProcessDirectory | None = None
_making = threading.Lock()


def process_directory() -> ProcessDirectory:
    """Return the directory of this process; the first call makes it and removes leftovers.

    A call makes another directory in a fork of the process, and if the directory was removed, for
    example by a program that cleans up ``/tmp``.
    """
    global _current
    with _making:
        current = _current
        if current is None or current.pid != os.getpid() or not current.log.exists():
            base = Path(tempfile.gettempdir())
            _current = current = ProcessDirectory.make(base)
            atexit.register(current.leave)
            # Leftovers may be large, so a thread removes them while Spark starts.
            args = (base,)
            sweep = threading.Thread(target=remove_leftovers, args=args, name="flow-sweep")
            sweep.daemon = True
            sweep.start()
    return current


@contextlib.contextmanager
def temporary_directory(prefix: str) -> Iterator[str]:
    """Make a directory in the directory of this process, and remove it after the block."""
    own = process_directory().path
    with tempfile.TemporaryDirectory(prefix=prefix, dir=own, ignore_cleanup_errors=True) as path:
        yield path


def new_directory(prefix: str) -> Path:
    """Make a directory in the directory of this process, with which it is removed."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=process_directory().path))


def remove_leftovers(base: Path) -> None:
    """Remove the directories of this user's ended processes below a directory.

    Files that cannot be removed stay. Another start may remove files at the same time.
    """
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        paths = [Path(entry.path) for entry in entries if _is_candidate(entry)]
    for path in paths:
        with contextlib.suppress(OSError):
            _remove_unless_used(path)


def _is_candidate(entry: os.DirEntry[str]) -> bool:
    """Return True for a directory of this user with the name of a process directory."""
    if sys.platform == "win32" or not _NAME.fullmatch(entry.name):
        return False
    with contextlib.suppress(OSError):
        is_own = entry.stat(follow_symlinks=False).st_uid == os.getuid()
        return is_own and entry.is_dir(follow_symlinks=False)
    return False


def _remove_unless_used(path: Path) -> None:
    """Remove the directory of a process, unless its log is locked or retained."""
    for log in (path / LOG, path / ENDED):
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(log, os.O_RDWR | os.O_NONBLOCK | _NO_LINK)
            break
    else:
        path.rmdir()  # This raises an error if the directory is not empty.
        return
    try:
        if not lock_file(descriptor):
            return
        if _is_kept(path, os.fstat(descriptor).st_mtime):
            _remove_files(path, {log.name, KEEP})
            return
        _remove_files(path, {log.name})
        _remove_log(log)
    finally:
        os.close(descriptor)


def _is_kept(path: Path, last_write: float) -> bool:
    """Return True if a log is retained, given the time of its last write in s since 1970."""
    return (path / KEEP).exists() and time.time() - last_write < KEPT_DAYS * 86_400


def _new_log(path: Path) -> int | None:
    """Make and lock the log of a new directory; return the log's descriptor.

    Returns:
        ``None`` if another start removes the new directory.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _NO_LINK
    try:
        log = os.open(path / LOG, flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        lock_file(log)
        is_removed = os.fstat(log).st_nlink == 0
    except BlockingIOError:
        is_removed = True
    if is_removed:
        os.close(log)
        return None
    return log


def lock_file(descriptor: int, shared: bool = False) -> bool:
    """Lock an open file until its last descriptor is closed; False if files have no locks.

    Args:
        descriptor: the open file.
        shared: True for a lock that other shared locks do not exclude.

    Raises:
        BlockingIOError: when the file is locked.
    """
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _remove_files(path: Path, exceptions: Collection[str]) -> None:
    """Remove the content of a directory, except some names; links are not followed."""
    with os.scandir(path) as entries:
        removable = [entry for entry in entries if entry.name not in exceptions]
    for entry in removable:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _remove_log(log: Path) -> None:
    """Remove a log and its directory, if the directory has no other entry."""
    if os.listdir(log.parent) == [log.name]:
        log.unlink()
        log.parent.rmdir()
