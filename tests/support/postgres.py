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
from pathlib import Path
from typing import Any

import pytest

from tests.support.guarded import GuardedServer

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


class Server(GuardedServer):
    """A running server, with one superuser who has a password.

    Args:
        programs: the folder of its programs.
        settings: settings beside those of all servers.
    """

    SECONDS = 30.0
    SIGNAL = "INT"  # which does not wait for clients

    def __init__(self, programs: Path, **settings: str) -> None:
        super().__init__("postgres")
        self._programs = programs
        self._settings = {**SETTINGS, **settings}
        # The server refuses to run as root.
        self._owner = _other_user() if os.getuid() == 0 else None
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if self._owner is not None:
            for path in (self._folder, secret):
                os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        command = [programs / "initdb", "-D", self._folder / "data", "-U", USER]
        command += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run_once([*command, "--auth=scram-sha-256", f"--pwfile={secret}"])
        self.start()

    @property
    def dsn(self) -> str:
        """The address, with the password."""
        password = PASSWORD.replace("'", "\\'")
        port = self._settings.get("port", "5432")
        return f"host={self._folder} port={port} user={USER} password='{password}' dbname=postgres"

    def connect(self) -> Any:
        """A connection of a test's own, in which each statement is a transaction."""
        import psycopg

        return psycopg.connect(self.dsn, autocommit=True)

    def _command(self) -> list[str | Path]:
        command = [self._programs / "postgres", "-D", self._folder / "data", "-k", self._folder]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False

    def _options(self) -> dict[str, Any]:
        here: dict[str, Any] = {"cwd": self._folder}
        if self._owner is None:
            return here
        return {**here, "user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}


@functools.cache
def running_server() -> Server:
    """The server of this test run, started at the first use."""
    server = Server(programs_of_server())
    atexit.register(server.remove)
    return server


def programs_of_server() -> Path:
    """The folder of a server's programs; without one, the test that asks is skipped."""
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL server on this machine: apt-get install postgresql")
    return programs


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
