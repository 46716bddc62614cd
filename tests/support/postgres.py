"""A PostgreSQL server of the tests' own: made, started and stopped here, in a temporary folder.

It is reached over a Unix socket in that folder, so it needs no free port, and no other server on
the machine has to do with it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

USER = "flow"
TELLTALE = "s3cr3t"
"""The part of the password that is the same however it is escaped."""
PASSWORD = f"{TELLTALE} '%"
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "max_connections": "20",
    "shared_buffers": "16MB",
}
# A shell that runs the server until its own standard input ends: when stop() closes it, and also
# when the test run is killed. SIGINT lets the server stop without waiting for clients.
GUARDED = '"$@" </dev/null & server=$!; read line; kill -INT $server; wait $server'
SECONDS = 30.0
"""How long the server may take to start or to stop."""


class Server:
    """A running server, with one superuser who has a password."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="flow-postgres-"))
        # The server refuses to run as root.
        self._owner = _other_user() if os.getuid() == 0 else None
        if self._owner is not None:
            os.chown(self._folder, self._owner.pw_uid, self._owner.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self._make()
        self.start()

    @property
    def dsn(self) -> str:
        """The address, with the password."""
        password = PASSWORD.replace("'", "\\'")
        return f"host={self._folder} user={USER} password='{password}' dbname=postgres"

    def connect(self) -> Any:
        """A connection of a test's own, in which each statement is a transaction."""
        import psycopg

        return psycopg.connect(self.dsn, autocommit=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = ["sh", "-c", GUARDED, "sh", self._programs / "postgres"]
        command += ["-D", self._folder / "data", "-k", self._folder]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, **self._as_owner()
            )
        last = time.monotonic() + SECONDS
        while not self._answers():
            if time.monotonic() > last:
                log_text = (self._folder / "log").read_text("utf-8", "replace")
                raise RuntimeError(f"the PostgreSQL server did not start:\n{log_text}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it; whoever is connected loses the connection."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait(SECONDS)

    def remove(self) -> None:
        """Stop it and delete its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if self._owner is not None:
            os.chown(secret, self._owner.pw_uid, self._owner.pw_gid)
        command = [self._programs / "initdb", "-D", self._folder / "data", "-U", USER]
        command += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        command += ["--auth=scram-sha-256", f"--pwfile={secret}"]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **self._as_owner(),
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False

    def _as_owner(self) -> dict[str, Any]:
        here: dict[str, Any] = {"cwd": self._folder}
        if self._owner is None:
            return here
        return {**here, "user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}


def running_server() -> Server:
    """The server of this test run, started at the first use.

    Without the programs of a server, the test that asks is skipped.
    """
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL server on this machine: apt-get install postgresql")
    return _started(programs)


@functools.cache
def _started(programs: Path) -> Server:
    server = Server(programs)
    atexit.register(server.remove)
    return server


def _programs() -> Path | None:
    """The folder of initdb and postgres; Debian's is not on PATH."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            # Not a link to it: the server looks for its files beside itself.
            return (folder / "initdb").resolve().parent
    return None


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL refuses to run as root, and there is no other user to run it")
