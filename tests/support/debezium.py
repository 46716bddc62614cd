"""Debezium beside a PostgreSQL server of the tests' own: the changes of a table, a line each."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.maven import jars_of
from tests.support.postgres import PASSWORD, USER, Server, programs_of_server

VERSION = "3.6.1.Final"
ARTIFACTS = " ".join(
    f"io.debezium:{name}:{VERSION}" for name in ("debezium-embedded", "debezium-connector-postgres")
)
SNAPSHOT = b'"snapshot"'
"""Mark of an offset that is stored while a snapshot is taken."""
PROGRAM = """
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.Properties;

public class Changes {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.load(System.in);
        try (var engine = DebeziumEngine.create(Json.class).using(settings).notifying(change ->
            System.out.println("[" + change.key() + "," + change.value() + "]")).build()) {
            engine.run();
        }
    }
}
"""


@contextlib.contextmanager
def logging_server() -> Iterator[Server]:
    """A server whose log Debezium can read, over TCP on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    settings = {"wal_level": "logical", "listen_addresses": "127.0.0.1", "port": port}
    server = Server(programs_of_server(), **settings)
    try:
        yield server
    finally:
        server.remove()


class Debezium:
    """Debezium's engine in a process of its own, which continues where it was killed.

    Args:
        server: the server.
        table: the table to follow.
        folder: the folder for its offsets and the file of events.
    """

    def __init__(self, server: Server, table: str, folder: Path) -> None:
        problem, self._jars = jars_of(ARTIFACTS)
        if problem or shutil.which("javac") is None:
            pytest.skip(f"no Debezium here: {problem or 'its program needs a JDK'}")
        self._folder = folder
        self.events = folder / "events.jsonl"
        (folder / "Changes.java").write_text(PROGRAM)
        address = dict(part.split("=", 1) for part in server.dsn.split()[:2])
        self._settings = {
            "name": "tests",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "200",
            "database.hostname": "127.0.0.1",
            "database.port": address["port"],
            "database.user": USER,
            "database.password": PASSWORD,
            "database.dbname": "postgres",
            "topic.prefix": "tests",
            "plugin.name": "pgoutput",
            "table.include.list": table,
            "decimal.handling.mode": "string",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the engine until the end of the block, and kill it."""
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{self._jars}/*", "Changes.java"]
        with (
            self.events.open("a") as events,
            (self._folder / "log").open("a") as log,
            subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=events,
                stderr=log,
                text=True,
            ) as engine,
        ):
            assert engine.stdin is not None
            engine.stdin.write("".join(f"{name}={text}\n" for name, text in self._settings.items()))
            engine.stdin.close()
            try:
                yield
            finally:
                engine.kill()

    def pairs(self) -> list[tuple[Any, Any]]:
        """Return the keys and values of all events so far, in order."""
        lines = self.events.read_text("utf-8").splitlines() if self.events.exists() else []
        with contextlib.suppress(json.JSONDecodeError):  # The engine may be writing the last line.
            return [tuple(json.loads(line)) for line in lines]
        return [tuple(json.loads(line)) for line in lines[:-1]]

    def wait_for(self, key: dict[str, Any]) -> None:
        """Wait for an event of a key."""
        self._wait(lambda: any(found == key for found, _ in self.pairs()))

    def wait_for_offsets(self) -> None:
        """Wait until a next run would continue, and not take a snapshot again."""
        file = self._folder / "offsets"

        def has_end_of_snapshot() -> bool:
            data = file.read_bytes() if file.exists() else SNAPSHOT
            return b"lsn" in data and SNAPSHOT not in data

        self._wait(has_end_of_snapshot)

    def _wait(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < until, (self._folder / "log").read_text()[-2_000:]
            time.sleep(0.05)
