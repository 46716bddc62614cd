"""The lock of a checkpoint: one run at a time.

The lock is a small file that says who holds it. It is taken over when its holder is known to be
gone: a process of this machine that does not exist any more, or one of another machine that has not
renewed it for `STALE_SECONDS`.

A holder renews it in a file of its own, so that one that wakes up when others have taken the lock
over writes nothing into it. No file system promises to replace or remove a file only if it is still
what was read: who takes a lock over, or gives its own back, and is held up for minutes right after
its last look, does it to whoever has come meanwhile.
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
from typing import Any, TypeAlias

from flow.engine.checkpoint.storage import Storage
from flow.engine.spark.session.failures import JVM_ERRORS
from flow.errors import CheckpointError, FlowError, first_line

Json: TypeAlias = Any

NAME = "lock.json"
RENEW_SECONDS = 30.0
STALE_SECONDS = 300.0
SETTLE_SECONDS = 0.2
"""How long to wait, after taking a lock over, for others who do the same."""

logger = logging.getLogger("flow")


class CheckpointLock:
    """Held while a run writes to a checkpoint; use it in a ``with`` block.

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
        self._seen = time.time()
        self._taken_by: Json = None

    def __enter__(self) -> CheckpointLock:
        """Take the lock.

        Raises:
            CheckpointError: when another run holds it; it says which.
        """
        if not self._storage.create(NAME, self._claim()):
            self._take_over()
        self._seen = time.time()
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._renewing.join()  # or it might write its file again
        holder = self._holder()
        with contextlib.suppress(CheckpointError) if holder is None else contextlib.nullcontext():
            self._storage.remove(_renewal_of(self._me))
        if holder is not None and holder.get("token") == self._me["token"]:
            self._storage.remove(NAME)

    def check(self) -> None:
        """See that nobody has taken the lock over, from what was read not long ago.

        Raises:
            CheckpointError: when somebody has: this process was not heard of for too long.
        """
        if abs(time.time() - self._seen) > 2 * RENEW_SECONDS:  # it may have been suspended
            self._look()
        holder = self._taken_by
        if holder is not None:
            raise CheckpointError(
                f"{self._storage.root} was taken over by process {holder.get('pid')} on "
                f"{holder.get('host')}, since this one had not been heard of for "
                f"{STALE_SECONDS:.0f} s: it may have been suspended, or cut off"
            )

    def check_there(self) -> None:
        """See that the lock's file is there, as it may not be while another run takes it over.

        Raises:
            CheckpointError: when it was removed, or somebody has taken the lock over.
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
        self._look()
        self.check()

    def _take_over(self) -> None:
        """Take the lock from whoever is gone; of several who try, the last to write has it."""
        holder = self._holder()
        if holder is not None:
            self._refuse_living(holder)
            said = "taking checkpoint %s over from process %s on %s, which is gone"
            logger.info(said, self._storage.root, holder.get("pid"), holder.get("host"))
        self._storage.write(NAME, self._claim())
        time.sleep(SETTLE_SECONDS)
        before, holder = holder, self._holder()
        if holder is not None and holder.get("token") != self._me["token"]:
            self._refuse_living(holder)
        elif before is not None:
            self._storage.remove(_renewal_of(before))

    def _refuse_living(self, holder: Json) -> None:
        if not self._is_gone(holder):
            raise CheckpointError(
                f"{self._storage.root} is in use by another run: process {holder.get('pid')} on "
                f"{holder.get('host')}, since {holder.get('since')}. Stop that one first; if you "
                f"know that it is gone, remove {self._storage.root}/{NAME}"
            )

    def _holder(self) -> Json:
        """Who holds the lock; ``None`` when nobody does, or nobody can tell."""
        try:
            holder = self._storage.read(NAME)
        except CheckpointError:
            return None
        return holder if isinstance(holder, dict) else None

    def _claim(self) -> Json:
        return {**self._me, "renewed": time.time()}

    def _renew(self) -> None:
        """Say now and then that this process is still there, until another has the lock."""
        while self._taken_by is None and not self._released.wait(RENEW_SECONDS):
            try:
                # To write would make the directory anew where it has been removed.
                if self._storage.exists(NAME):
                    self._storage.write(_renewal_of(self._me), {"renewed": time.time()})
                self._look()
            except JVM_ERRORS as error:  # where the JVM has ended, the run says so itself
                logger.debug("the lock could not be renewed: %s", first_line(error))
            except FlowError as error:
                logger.warning("the lock could not be renewed: %s", first_line(error))

    def _look(self) -> None:
        """See who has the lock now."""
        holder = self._holder()
        self._seen = time.time()
        if holder is not None and holder.get("token") != self._me["token"]:
            self._taken_by = holder

    def _is_gone(self, holder: Json) -> bool:
        if holder.get("host") != socket.gethostname():
            return time.time() - self._last_heard_of(holder) > STALE_SECONDS
        pid = holder.get("pid")
        if not isinstance(pid, int) or not _exists(pid):
            return True
        started = _start_of(pid)
        return started is not None and started != holder.get("started")

    def _last_heard_of(self, holder: Json) -> float:
        """When a holder has last said that it is there: where it renews the lock, or in it."""
        with contextlib.suppress(CheckpointError, KeyError, TypeError):
            return float(self._storage.read(_renewal_of(holder))["renewed"])
        return float(holder.get("renewed", 0))


def _renewal_of(holder: Json) -> str:
    """The name of the file in which a holder renews its lock."""
    return f"lock-{holder.get('token')}.json"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # One that was killed keeps its number until its parent asks how it ended, which may be never.
    stat = _stat_of(pid)
    return stat is None or stat[0] not in ("Z", "X")


def _start_of(pid: int) -> str | None:
    """When a process started, where the system tells: a number may be given to another process."""
    stat = _stat_of(pid)
    return None if stat is None else stat[19]


def _stat_of(pid: int) -> list[str] | None:
    """What the system tells of a process, from its state on; ``None`` where it does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return None
    # The second field is a name in parentheses, which may hold anything; the state is the third.
    return stat.rpartition(")")[2].split()
