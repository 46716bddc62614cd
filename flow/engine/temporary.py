"""Temporary files: a private directory of this process, removed with it or by a later start.

::

    flow-<pid>-<random>/   for its owner alone (0700), in the temporary directory
        spark.log          Spark's output; its lock marks the directory as in use
        keep               present if an error named the log
        spark/             temporary files of the JVM (``java.io.tmpdir``)
        ...                temporary files of this process

The log is locked (``flock``) before anything else is there. A lock belongs to an open file, and the
JVM inherits this one as its standard output. So the lock is free when this process and its JVM are
gone, however they ended: also where they were another container's, whose process ids mean nothing
here. A start removes the directories of its user whose lock is free.

A process may end before its JVM does. It then leaves ``spark/``, and the log under another name, to
the JVM, which removes them in this order, and the directory last. The JVM removes nothing else: not
the links, to a checkpoint say, that this process makes.

Two starts may meet. Whoever removes a directory holds its lock, and removes the log last. A start
whose new directory was taken for a leftover before it was locked makes another. A directory without
a log is removed only if it is empty.

Where files cannot be locked, as on Windows, a directory is removed by its own process alone.
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
        log: descriptor of the log, open to append, which holds the lock.

    Attributes:
        path: the directory.
        pid: the process.
        jvm: the JVM that has `spark` for its temporary files, and removes that, `ended_log` and the
            directory when it ends; ``None`` if there is none.
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
        """Path of the same file once this process has left it to its JVM."""
        return self.path / ENDED

    @property
    def spark(self) -> Path:
        """Directory for a JVM's files; made again if a JVM that ended has removed it."""
        path = self.path / SPARK
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def keep_log(self) -> None:
        """Retain the log after this process ends, for `KEPT_DAYS` after its last line."""
        with contextlib.suppress(OSError):
            if self.log.exists():  # else somebody has tidied up, and there is nothing to keep
                (self.path / KEEP).touch()

    def leave(self) -> None:
        """Remove the directory as the process ends, or leave that to a JVM that ends after it."""
        if os.getpid() != self.pid:  # a fork, which inherits what is called at exit
            return
        kept = (self.path / KEEP).exists()
        is_jvm_alive = self.jvm is not None and self.jvm.poll() is None
        staying = {LOG, KEEP} if kept else {LOG}
        with contextlib.suppress(OSError):
            _remove_files(self.path, {*staying, SPARK} if is_jvm_alive else staying)
            if kept:
                return
            if is_jvm_alive:
                self.log.rename(self.ended_log)
                return
            self._close()
            _remove_log(self.log)

    def _close(self) -> None:
        if sys.platform == "win32":  # where a file that is open cannot be removed
            os.close(self.log_descriptor)


_current: ProcessDirectory | None = None
_making = threading.Lock()


def process_directory() -> ProcessDirectory:
    """Return the directory of this process; the first call makes it and removes leftovers.

    Another is made if somebody has removed the directory, as what tidies up ``/tmp`` may, and in a
    fork of the process.
    """
    global _current
    with _making:
        current = _current
        if current is None or current.pid != os.getpid() or not current.log.exists():
            base = Path(tempfile.gettempdir())
            _current = current = ProcessDirectory.make(base)
            atexit.register(current.leave)
            # Leftovers may be large: they are removed while Spark starts.
            args = (base,)
            sweep = threading.Thread(target=remove_leftovers, args=args, name="flow-sweep")
            sweep.daemon = True
            sweep.start()
    return current


@contextlib.contextmanager
def temporary_directory(prefix: str) -> Iterator[str]:
    """Make a directory in that of this process, and remove it in the end."""
    own = process_directory().path
    with tempfile.TemporaryDirectory(prefix=prefix, dir=own, ignore_cleanup_errors=True) as path:
        yield path


def new_directory(prefix: str) -> Path:
    """Make a directory that is removed with that of this process."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=process_directory().path))


def remove_leftovers(base: Path) -> None:
    """Remove the directories of this user's ended processes below a directory.

    A file that cannot be removed stays; another start may remove files at the same time.
    """
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        found = [Path(entry.path) for entry in entries if _may_be_left(entry)]
    for path in found:
        with contextlib.suppress(OSError):
            _remove_unless_used(path)


def _may_be_left(entry: os.DirEntry[str]) -> bool:
    """Return True for a directory, not a link, that is named like ours and is this user's."""
    if sys.platform == "win32" or not _NAME.fullmatch(entry.name):
        return False
    with contextlib.suppress(OSError):
        is_own = entry.stat(follow_symlinks=False).st_uid == os.getuid()
        return is_own and entry.is_dir(follow_symlinks=False)
    return False


def _remove_unless_used(path: Path) -> None:
    for log in (path / LOG, path / ENDED):
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(log, os.O_RDWR | os.O_NONBLOCK | _NO_LINK)
            break
    else:
        path.rmdir()  # if it is empty
        return
    try:
        if not _lock(descriptor):
            return
        if _is_kept(path, os.fstat(descriptor).st_mtime):
            _remove_files(path, {log.name, KEEP})
            return
        _remove_files(path, {log.name})
        _remove_log(log)
    finally:
        os.close(descriptor)


def _is_kept(path: Path, written: float) -> bool:
    return (path / KEEP).exists() and time.time() - written < KEPT_DAYS * 86_400


def _new_log(path: Path) -> int | None:
    """Make and lock the log of a new directory; ``None`` if another start has that in hand."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _NO_LINK
    try:
        log = os.open(path / LOG, flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        _lock(log)
        in_hand = os.fstat(log).st_nlink == 0
    except BlockingIOError:
        in_hand = True
    if in_hand:
        os.close(log)
        return None
    return log


def _lock(descriptor: int) -> bool:
    """Lock an open file for as long as a process has it open; False where files have no locks.

    Raises:
        BlockingIOError: when the file is locked.
    """
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _remove_files(path: Path, but: Collection[str]) -> None:
    """Remove the content of a directory, except some names; links are not followed."""
    with os.scandir(path) as entries:
        found = [entry for entry in entries if entry.name not in but]
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _remove_log(log: Path) -> None:
    """Remove a log and its directory, if nothing else is left there."""
    if os.listdir(log.parent) == [log.name]:
        log.unlink()
        log.parent.rmdir()
