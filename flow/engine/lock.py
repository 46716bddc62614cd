"""The lock of a checkpoint: one run at a time.

The lock is a small file that says who holds it. It is taken over when its holder is known to be
gone: a process of this machine that does not exist any more, or one of another machine that has not
renewed it for `STALE_SECONDS`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from flow.engine.storage import Storage
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
        self._taken_by: Json = None

    def __enter__(self) -> CheckpointLock:
        """Take the lock.

        Raises:
            CheckpointError: when another run holds it; it says which.
        """
        if not self._storage.create(NAME, self._renewed()):
            self._take_over()
        threading.Thread(target=self._renew, name="flow-lock", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        holder = self._holder()
        if holder is not None and holder.get("token") == self._me["token"]:
            self._storage.remove(NAME)

    def check(self) -> None:
        """See, from what was last read, that nobody has taken the lock over.

        Raises:
            CheckpointError: when somebody has: this process was not heard of for too long.
        """
        holder = self._taken_by
        if holder is not None:
            raise CheckpointError(
                f"{self._storage.root} was taken over by process {holder.get('pid')} on "
                f"{holder.get('host')}, since this one had not been heard of for "
                f"{STALE_SECONDS:.0f} s: it may have been suspended, or cut off"
            )

    def _take_over(self) -> None:
        """Take the lock from whoever is gone; of several who try, the last to write has it."""
        holder = self._holder()
        if holder is not None:
            self._refuse_living(holder)
            said = "taking checkpoint %s over from process %s on %s, which is gone"
            logger.info(said, self._storage.root, holder.get("pid"), holder.get("host"))
        self._storage.write(NAME, self._renewed())
        time.sleep(SETTLE_SECONDS)
        holder = self._holder()
        if holder is not None and holder.get("token") != self._me["token"]:
            self._refuse_living(holder)

    def _refuse_living(self, holder: Json) -> None:
        if not _is_gone(holder):
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

    def _renewed(self) -> Json:
        return {**self._me, "renewed": time.time()}

    def _renew(self) -> None:
        """Say now and then that this process is still there, unless another has the lock now."""
        while not self._released.wait(RENEW_SECONDS):
            try:
                holder = self._holder()
                if holder is not None and holder.get("token") != self._me["token"]:
                    self._taken_by = holder
                    return
                self._storage.write(NAME, self._renewed())
            except FlowError as error:
                logger.warning("the lock could not be renewed: %s", first_line(error))


def _is_gone(holder: Json) -> bool:
    if holder.get("host") != socket.gethostname():
        return bool(time.time() - holder.get("renewed", 0) > STALE_SECONDS)
    pid = holder.get("pid")
    if not isinstance(pid, int) or not _exists(pid):
        return True
    started = _start_of(pid)
    return started is not None and started != holder.get("started")


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
