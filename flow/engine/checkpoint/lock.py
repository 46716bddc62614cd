"""The lock of a checkpoint, by which one run at a time uses it, and the watch over its files.

The lock is a small file that names its holder. Another run takes the lock over if the holder is a
process of this machine that has ended, or a process of another machine that has not renewed the
lock for `STALE_SECONDS`.

A holder renews the lock in a file of its own, so that a suspended holder does not overwrite the
claim of its successor. No file system replaces or removes a file on the condition that its content
is unchanged: a process that is suspended for minutes between its last read and the write of a
claim, or the removal of its own, overwrites or removes the claim of another run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

from flow.connectors.source import Json
from flow.engine.checkpoint.checkpoint import NAME as CHECKPOINT_NAME
from flow.engine.checkpoint.storage import Storage
from flow.engine.spark.session.failures import JVM_ERRORS
from flow.errors import CheckpointError, FlowError, first_line

NAME = "lock.json"
RENEW_SECONDS = 30.0
STALE_SECONDS = 300.0
SETTLE_SECONDS = 0.2
"""Time after a takeover in which competing claims become visible."""
CHECK_SECONDS = 2.0
"""Seconds between two checks while the run waits for an epoch."""
_SPARKS_NAME = "metadata"
"""A file that Spark writes only when a query first starts on a checkpoint."""

logger = logging.getLogger("flow")


class CheckpointLock:
    """Lock of a run on its checkpoint; use it in a ``with`` block.

    Args:
        storage: the checkpoint's directory.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._me = {
            "version": 1,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": _start_of(os.getpid()),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "token": uuid.uuid4().hex,
        }
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="flow-lock", daemon=True)
        self._read_at = time.time()
        self._successor: Json = None

    def __enter__(self) -> CheckpointLock:
        """Take the lock.

        Raises:
            CheckpointError: when another run holds the lock; the error names the run.
        """
        if not self._storage.create(NAME, self._claim()):
            self._take_over()
        self._read_at = time.time()
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._renewing.join()  # The thread could write the renewal again after its removal.
        holder = holder_of(self._storage)
        with contextlib.suppress(CheckpointError) if holder is None else contextlib.nullcontext():
            self._storage.remove(_renewal_of(self._me))
        if holder is not None and holder.get("token") == self._me["token"]:
            self._storage.remove(NAME)

    def check(self) -> None:
        """Check, from a read at most a minute old, that no run has taken the lock over.

        Raises:
            CheckpointError: when another run has, because this process did not renew the lock.
        """
        # The process may have been suspended, and its thread has not read the lock since.
        if abs(time.time() - self._read_at) > 2 * RENEW_SECONDS:
            self._read_claim()
        holder = self._successor
        if holder is not None:
            raise CheckpointError(
                f"{self._storage.root} was taken over by process {holder.get('pid')} on "
                f"{holder.get('host')}, because this process did not renew its lock for "
                f"{STALE_SECONDS:.0f} s: it may have been suspended, or cut off"
            )

    def check_there(self) -> None:
        """Check that the lock's file exists; a takeover in progress may replace the file.

        Raises:
            CheckpointError: when the file was removed, or another run has taken the lock over.
        """
        if self._storage.exists(NAME):
            return
        time.sleep(SETTLE_SECONDS)
        if not self._storage.exists(NAME):
            raise CheckpointError(
                f"{self._storage.root}/{NAME} was removed while this run held it: another run "
                "could have started on the checkpoint, so this one has stopped; make sure that "
                "none has, and run the flow again"
            )
        self._read_claim()
        self.check()

    def _take_over(self) -> None:
        """Take the lock from a holder that has ended; of competing runs the last writer gets it."""
        holder = holder_of(self._storage)
        if holder is not None:
            self._refuse_living(holder)
            message = "taking checkpoint %s over from process %s on %s, which has ended"
            logger.info(message, self._storage.root, holder.get("pid"), holder.get("host"))
        self._storage.write(NAME, self._claim())
        time.sleep(SETTLE_SECONDS)
        before, holder = holder, holder_of(self._storage)
        if holder is not None and holder.get("token") != self._me["token"]:
            self._refuse_living(holder)
        elif before is not None:
            self._storage.remove(_renewal_of(before))

    def _refuse_living(self, holder: Json) -> None:
        """Raise an error for a lock whose holder still runs."""
        if not has_ended(self._storage, holder):
            raise CheckpointError(
                f"{self._storage.root} is in use by another run: process {holder.get('pid')} on "
                f"{holder.get('host')}, since {holder.get('since')}. Stop that one first; if you "
                f"know that it is gone, remove {self._storage.root}/{NAME}"
            )

    def _claim(self) -> Json:
        return {**self._me, "renewed": time.time()}

    def _renew(self) -> None:
        """Renew the lock every `RENEW_SECONDS`, until released or taken over."""
        while self._successor is None and not self._released.wait(RENEW_SECONDS):
            try:
                # A write would recreate a removed directory.
                if self._storage.exists(NAME):
                    self._storage.write(_renewal_of(self._me), {"renewed": time.time()})
                self._read_claim()
            except JVM_ERRORS as error:  # The run itself reports the end of the JVM.
                logger.debug("the lock could not be renewed: %s", first_line(error))
            except FlowError as error:
                logger.warning("the lock could not be renewed: %s", first_line(error))

    def _read_claim(self) -> None:
        """Read the lock, and store the claim of another run as the successor."""
        holder = holder_of(self._storage)
        self._read_at = time.time()
        if holder is not None and holder.get("token") != self._me["token"]:
            self._successor = holder


class CheckpointWatch:
    """Check for removed files of a checkpoint during a run.

    Spark recreates directories when it writes to them, and keeps state in memory: without the
    watch, a run whose checkpoint was removed would continue to its end and leave an unusable
    checkpoint.

    Args:
        storage: the checkpoint's directory.
        spark: the directory of Spark's own checkpoint in it.
        lock: the lock that the run holds; ``None`` for a checkpoint without one.
    """

    def __init__(self, storage: Storage, spark: str, lock: CheckpointLock | None) -> None:
        self._storage = storage
        self._spark = spark
        self._lock = lock
        self._is_local = storage.is_local
        self._checked_at = time.monotonic()

    def check_regularly(self) -> None:
        """Check a checkpoint on this machine if it was not checked for `CHECK_SECONDS`.

        Raises:
            CheckpointError: see `check`.
        """
        if self._is_local and time.monotonic() - self._checked_at > CHECK_SECONDS:
            self.check()

    def check(self, last_epoch: int | None = None) -> None:
        """Check that the checkpoint exists.

        Args:
            last_epoch: the last committed epoch of the query; ``None`` before the first.

        Raises:
            CheckpointError: when the checkpoint was removed in whole or in part.
        """
        self._checked_at = time.monotonic()
        names = [CHECKPOINT_NAME, f"{self._spark}/{_SPARKS_NAME}"]
        if last_epoch is not None:
            names.append(f"{self._spark}/commits/{last_epoch}")
        for name in names:
            if not self._exists(name):
                raise CheckpointError(self._problem(name))
        if self._lock is not None:
            self._lock.check_there()

    def _exists(self, name: str) -> bool:
        """Return True if a file exists, now or after a replacement in progress."""
        if self._storage.exists(name):
            return True
        time.sleep(SETTLE_SECONDS)
        return self._storage.exists(name)

    def _problem(self, name: str) -> str:
        root = self._storage.root
        removed = f"{root}/{name} was removed while the flow ran on the checkpoint"
        if not self._storage.exists(CHECKPOINT_NAME):
            removed = f"checkpoint {root} was removed while the flow ran on it"
        return (
            f"{removed}: put it back from a copy, or start over with an empty directory and "
            "without what the outputs hold"
        )


def holder_of(storage: Storage) -> Json:
    """Return the claim in the lock; ``None`` if the file is missing or unreadable."""
    try:
        holder = storage.read(NAME)
    except CheckpointError:
        return None
    return holder if isinstance(holder, dict) else None


def has_ended(storage: Storage, holder: Json) -> bool:
    """Return True if the holder of a lock has ended without releasing it."""
    if holder.get("host") != socket.gethostname():
        return time.time() - _last_renewal(storage, holder) > STALE_SECONDS
    pid = holder.get("pid")
    if not isinstance(pid, int) or not _exists(pid):
        return True
    started = _start_of(pid)
    return started is not None and started != holder.get("started")


def _last_renewal(storage: Storage, holder: Json) -> float:
    """Return the time of a holder's last renewal, or of its claim."""
    with contextlib.suppress(CheckpointError, KeyError, TypeError):
        return float(storage.read(_renewal_of(holder))["renewed"])
    return float(holder.get("renewed", 0))


def _renewal_of(holder: Json) -> str:
    """Return the name of the file in which a holder renews its lock."""
    return f"lock-{holder.get('token')}.json"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A killed process stays a zombie until its parent reads its exit status.
    stat = _stat_of(pid)
    return stat is None or stat[0] not in ("Z", "X")


def _start_of(pid: int) -> str | None:
    """Return the start time of a process, if known: process ids are reused."""
    stat = _stat_of(pid)
    return None if stat is None else stat[19]


def _stat_of(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/<pid>/stat`` from the state on; ``None`` if unreadable."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return None
    # The second field is a name in parentheses, which may hold anything; the state is the third.
    return stat.rpartition(")")[2].split()
