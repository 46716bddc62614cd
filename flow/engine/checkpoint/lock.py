"""The lock of a checkpoint, by which one run at a time uses it, and the watch over its files.

    <path>/lock.<number>.json    the claim of a run; the claim with the greatest number has the lock
    <path>/lock-<token>.json     the renewals of the claim with this token

A run takes the lock over with the next number, which an exclusive create gives to one run
(`Storage.create`). A holder has ended if

- the operating system has released the lock of its claim's file (`Storage.is_locked`), and no
  other machine could hold it: the directory is on a disk, or the holder ran on this machine since
  its last boot. Containers share both, and neither pids nor host names are compared;
- or else, the starting run has watched the claim for `STALE_SECONDS`, by its own monotonic clock,
  and has seen no renewal.

The number is a fencing number: a holder that was suspended or cut off, and continues, finds at its
next check that another run has the lock, and stops before it commits.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from flow.connectors.source import Json
from flow.engine.checkpoint.identity import NAME as CHECKPOINT_NAME
from flow.engine.checkpoint.storage import Storage
from flow.engine.spark.session.spark_failures import JVM_ERRORS
from flow.errors import CheckpointError, FlowError, first_line

RENEW_SECONDS = 30.0
STALE_SECONDS = 300.0
LOOK_SECONDS = 1.0
"""Seconds between two looks at a claim while a start waits for its renewal."""
SETTLE_SECONDS = 0.2
"""Time in which a file that another process replaces becomes visible."""
CHECK_SECONDS = 2.0
"""Seconds between two checks of a local checkpoint while the run waits for an epoch."""
_SPARKS_NAME = "metadata"
"""A file that Spark writes only when a query first starts on a checkpoint."""
_CLAIM = re.compile(r"lock\.(\d+)\.json", re.ASCII)
_OF_LOCKS = re.compile(r"lock[.-]\w+\.json", re.ASCII)

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class Claim:
    """Claim of a run to the lock.

    Attributes:
        number: the fencing number, from 1.
        content: host, pid and start of the run, its token, and the id of the machine's boot; empty
            if the file cannot be read.
    """

    number: int
    content: Json

    @property
    def name(self) -> str:
        """Name of the claim's file."""
        return f"lock.{self.number}.json"

    @property
    def renewal(self) -> str:
        """Name of the file with the renewals."""
        return f"lock-{self.content.get('token')}.json"

    @property
    def process(self) -> str:
        """The process of the run, for messages."""
        return f"process {self.content.get('pid')} on {self.content.get('host')}"

    def __str__(self) -> str:
        if not self.content:
            return f"{self.name}, which cannot be read"
        return f"{self.process}, since {self.content.get('since')}"


class Lease:
    """Lease of the lock's holder, as another process sees it.

    Args:
        storage: the checkpoint's directory.

    Attributes:
        holder: the holder's claim at the last look; ``None`` without a holder.
        numbers: the numbers of all claims at the last look, sorted.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seen: tuple[Claim | None, Json] | None = None
        self._since = 0.0
        self.holder: Claim | None = None
        self.numbers: list[int] = []

    def is_over(self) -> bool | None:
        """Look at the claims: True if no run holds the lock, ``None`` if that is not known yet."""
        self.numbers = _numbers_of(self._storage)
        holder = self.holder = _read(self._storage, self.numbers[-1]) if self.numbers else None
        is_locked = None if holder is None else self._storage.is_locked(holder.name)
        if is_locked:
            return False
        seen = (holder, None if holder is None else _content(self._storage, holder.renewal))
        if seen != self._seen:
            is_renewed, self._seen, self._since = self._seen is not None, seen, time.monotonic()
            if holder is not None and is_renewed:
                return False
        if holder is None or (is_locked is False and self._sees_locks_of(holder)):
            return True
        return True if time.monotonic() - self._since > STALE_SECONDS else None

    def _sees_locks_of(self, holder: Claim) -> bool:
        """Return True if this machine sees the lock of a holder's file while the holder runs."""
        boot = _boot_id()
        return self._storage.is_on_disk or (boot is not None and holder.content.get("boot") == boot)


class CheckpointLock:
    """Lock of a run on its checkpoint; use it in a ``with`` block.

    Args:
        storage: the checkpoint's directory.
        token: id of the run; by default a new one.
    """

    def __init__(self, storage: Storage, token: str | None = None) -> None:
        self._storage = storage
        content = {
            "version": 1,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "boot": _boot_id(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "token": token or uuid.uuid4().hex,
        }
        self._claim = Claim(0, content)
        self._held = contextlib.ExitStack()
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="flow-lock", daemon=True)

    @property
    def file(self) -> str:
        """Name of the file of this run's claim."""
        return self._claim.name

    def __enter__(self) -> CheckpointLock:
        """Take the lock; wait for a holder's next renewal, or the end of its lease, if need be.

        Raises:
            CheckpointError: when another run holds the lock; the error names the run.
        """
        lease = Lease(self._storage)
        while not self._claim_after(lease):
            pass  # Another start was faster: the next look finds its claim.
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._renewing.join()  # The thread could write the renewal again after its removal.
        self._release()

    def _release(self) -> None:
        """Remove the claim and its renewals, and release the lock of its file."""
        with self._held:
            is_mine = self._is_mine()
            if is_mine:
                self._storage.remove(self._claim.name)
            with contextlib.nullcontext() if is_mine else contextlib.suppress(CheckpointError):
                self._storage.remove(self._claim.renewal)

    def check(self) -> None:
        """Check that no other run has taken the lock over.

        Raises:
            CheckpointError: when another run has, or the claim was removed.
        """
        following = Claim(self._claim.number + 1, {})
        if self._is_mine() and not self._storage.exists(following.name):
            return
        holder = holder_of(self._storage)
        if holder is None or not holder.content:
            raise CheckpointError(
                f"{self._storage.root}/{self._claim.name} was removed or damaged while this run "
                "held it: another run could have started on the checkpoint, so this one has "
                "stopped; make sure that none has, and run the flow again"
            )
        if holder != self._claim:
            raise CheckpointError(
                f"{self._storage.root} was taken over by {holder}, because this process did not "
                f"renew its lock for {STALE_SECONDS:.0f} s, or its lock was removed: it may have "
                "been suspended, or cut off"
            )

    def _claim_after(self, lease: Lease) -> bool:
        """Claim the lock once a lease is over; return False if another run was faster."""
        self._wait_for(lease)
        self._claim = Claim(max(lease.numbers, default=0) + 1, self._claim.content)
        held = self._storage.create(self._claim.name, self._claim.content)
        if held is None:
            return False
        self._held = held
        if not self._storage.is_local:
            time.sleep(SETTLE_SECONDS)
        others = {*_numbers_of(self._storage)} - {self._claim.number, *lease.numbers}
        if others or not self._is_mine():
            self._release()
            return False
        for name in self._storage.names(""):
            if _OF_LOCKS.fullmatch(name) and name != self._claim.name:
                self._storage.remove(name)
        return True

    def _wait_for(self, lease: Lease) -> None:
        """Wait until a lease is over.

        Raises:
            CheckpointError: when the holder renews the lock.
        """
        root, is_over = self._storage.root, lease.is_over()
        if is_over is None:
            message = "%s may be in use by %s: waiting for its next renewal, up to %.0f s"
            logger.warning(message, root, lease.holder, STALE_SECONDS)
        while is_over is None:
            time.sleep(LOOK_SECONDS)
            is_over = lease.is_over()
        holder = lease.holder
        if not is_over and holder is not None:
            raise CheckpointError(
                f"{root} is in use by another run: {holder}. Stop that one first; if you know that "
                f"it is gone, remove {root}/{holder.name}"
            )
        if holder is not None:
            logger.info("taking checkpoint %s over from %s, which has ended", root, holder)

    def _is_mine(self) -> bool:
        """Return True if the claim of this run exists."""
        return _read(self._storage, self._claim.number) == self._claim

    def _renew(self) -> None:
        """Renew the lock every `RENEW_SECONDS`, until released or taken over."""
        for count in itertools.count(1):
            if self._released.wait(RENEW_SECONDS):
                return
            try:
                # A write would recreate a removed directory.
                if self._storage.exists(self._claim.name):
                    self._storage.write(self._claim.renewal, {"renewals": count})
            except JVM_ERRORS as error:  # The run itself reports the end of the JVM.
                logger.debug("the lock could not be renewed: %s", first_line(error))
            except FlowError as error:
                logger.warning("the lock could not be renewed: %s", first_line(error))


@dataclass(frozen=True)
class LockOfRun:
    """The lock of a run, as another process of the run sees it.

    Attributes:
        storage: the checkpoint's directory.
        token: id of the run.
    """

    storage: Storage
    token: str

    def check(self) -> None:
        """Check that the run holds the lock.

        Raises:
            CheckpointError: when it does not.
        """
        holder = holder_of(self.storage)
        if holder is None or holder.content.get("token") != self.token:
            raise CheckpointError(
                f"{self.storage.root} is no longer this run's: {holder or 'no run'} has its lock"
            )

    def release(self) -> None:
        """Remove the claim of the run, after its processes have ended."""
        holder = holder_of(self.storage)
        if holder is not None and holder.content.get("token") == self.token:
            self.storage.remove(holder.name)
            self.storage.remove(holder.renewal)


class CheckpointWatch:
    """Check for removed files of a checkpoint during a run.

    Spark recreates directories when it writes to them, and keeps state in memory: without the
    watch, a run whose checkpoint was removed would continue to its end and leave an unusable
    checkpoint.

    Args:
        storage: the checkpoint's directory.
        spark: the directory of Spark's own checkpoint in it.
        lock: the lock of the run; ``None`` for a checkpoint without one.
    """

    def __init__(
        self, storage: Storage, spark: str, lock: CheckpointLock | LockOfRun | None
    ) -> None:
        self._storage = storage
        self._spark = spark
        self._lock = lock
        self._seconds = CHECK_SECONDS if storage.is_local else RENEW_SECONDS
        self._checked_at = time.monotonic(), time.time()

    def check_regularly(self) -> None:
        """Check if `CHECK_SECONDS` have passed since the last time, `RENEW_SECONDS` if remote.

        Raises:
            CheckpointError: see `check`.
        """
        # The monotonic clock stands still while the machine is suspended.
        monotonic, wall = self._checked_at
        if max(time.monotonic() - monotonic, abs(time.time() - wall)) > self._seconds:
            self.check()

    def check(self, last_epoch: int | None = None) -> None:
        """Check that the checkpoint exists.

        Args:
            last_epoch: the last committed epoch of the query; ``None`` before the first.

        Raises:
            CheckpointError: when the checkpoint was removed in whole or in part.
        """
        self._checked_at = time.monotonic(), time.time()
        names = [CHECKPOINT_NAME, f"{self._spark}/{_SPARKS_NAME}"]
        if last_epoch is not None:
            names.append(f"{self._spark}/commits/{last_epoch}")
        for name in names:
            if not self._exists(name):
                raise CheckpointError(self._problem(name))
        if self._lock is not None:
            self._lock.check()

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


def holder_of(storage: Storage) -> Claim | None:
    """Return the claim that has the lock; ``None`` without one."""
    numbers = _numbers_of(storage)
    return _read(storage, numbers[-1]) if numbers else None


def _numbers_of(storage: Storage) -> list[int]:
    """Return the numbers of all claims, sorted."""
    found = (_CLAIM.fullmatch(name) for name in storage.names(""))
    return sorted(int(one[1]) for one in found if one)


def _read(storage: Storage, number: int) -> Claim:
    """Return the claim with a number, without content if its file is missing or unreadable."""
    content = _content(storage, Claim(number, {}).name)
    return Claim(number, content if isinstance(content, dict) else {})


def _content(storage: Storage, name: str) -> Json:
    """Return the content of a file; ``None`` if it is missing or unreadable."""
    try:
        return storage.read(name)
    except CheckpointError:
        return None


@cache
def _boot_id() -> str | None:
    """Return the id of the machine's last boot, equal in its containers; ``None`` if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return None
