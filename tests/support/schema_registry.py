"""A schema registry on this machine, which speaks the part of Confluent's protocol that is used."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.support.guarded import GuardedServer
from tests.support.java import QUICK
from tests.support.maven import archive_of

USER, PASSWORD = "orders", "s3cr3t"


class SchemaRegistry:
    """A registry in memory, which can be stopped and started on the same port.

    Attributes:
        asked: requests so far, such as ``GET /subjects/orders-value/versions``.
        status: status of every answer, in the place of the right one, as of a registry at fault.
        needs_login: True to refuse requests without the login.
        refuses: True to refuse new versions of a subject, as incompatible ones.
    """

    def __init__(self) -> None:
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.status: int | None = None
        self.needs_login = self.refuses = False
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # A stopped registry keeps no connection.

            def do_GET(self) -> None:
                self._reply(None)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                self._reply(json.loads(self.rfile.read(length)))

            def _reply(self, body: Any) -> None:
                login = self.headers.get("Authorization")
                status, answer = registry.answer(self.command, self.path, body, login)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def register(
        self,
        subject: str,
        schema: Any,
        schema_type: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Return the id of a schema, after adding it to a subject if it is new there."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        new = {"schema": text, "schemaType": schema_type, "references": references or []}
        found = next((one for one, known in self._schemas.items() if known == new), None)
        schema_id = found or len(self._schemas) + 1
        self._schemas[schema_id] = new
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def schemas(self, subject: str) -> list[str]:
        """Return the schemas of a subject's versions."""
        return [self._schemas[one]["schema"] for one in self._subjects.get(subject, ())]

    def answer(self, method: str, path: str, body: Any, login: str | None) -> tuple[int, Any]:
        """Return the status of an answer, and its content."""
        parts, query = urlsplit(path), parse_qs(urlsplit(path).query)
        self.asked.append(f"{method} {parts.path}")
        if self.status is not None:
            return self.status, {"error_code": self.status * 100 + 1, "message": "at fault"}
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.needs_login and login != f"Basic {expected}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        form = query.get("format", [""])[0]
        match [method, *map(unquote, parts.path.strip("/").split("/"))]:
            case ["GET", "schemas", "ids", text]:
                known = self._schemas.get(int(text))
                return _found(known and self._given(known, form), 40403)
            case ["GET", "subjects", subject, "versions"]:
                ids = self._subjects.get(subject)
                return _found(ids and list(range(1, len(ids) + 1)), 40401)
            case ["GET", "subjects", subject, "versions", number]:
                return _found(self._version(subject, number, form), 40402)
            case ["POST", "subjects", subject, "versions"]:
                if self.refuses:
                    return 409, {"error_code": 409, "message": "incompatible"}
                kind, references = body.get("schemaType", "AVRO"), body.get("references")
                return 200, {"id": self.register(subject, body["schema"], kind, references)}
            case ["POST", "subjects", subject]:
                ids = self._subjects.get(subject, [])
                texts = {self._schemas[one]["schema"]: one for one in ids}
                known_id = texts.get(body["schema"])
                if known_id is None:
                    return _found(None, 40403)
                return 200, self._version(subject, str(ids.index(known_id) + 1), form)
        return 404, {"message": "no such path"}

    def _version(self, subject: str, number: str, form: str) -> Any:
        ids = self._subjects.get(subject, [])
        at = len(ids) if number == "latest" else int(number)
        if not 1 <= at <= len(ids):
            return None
        known = self._given(self._schemas[ids[at - 1]], form)
        return {**known, "subject": subject, "version": at, "id": ids[at - 1]}

    def _given(self, known: dict[str, Any], form: str) -> dict[str, Any]:
        is_source = known["schemaType"] == "PROTOBUF" and form != "serialized"
        return {**known, "schema": 'syntax = "proto3";'} if is_source else known


def _found(answer: Any, code: int) -> tuple[int, Any]:
    if not answer:
        return 404, {"error_code": code, "message": "not found"}
    return 200, answer


@contextmanager
def running_registry() -> Iterator[SchemaRegistry]:
    """A registry that is stopped after the block."""
    registry = SchemaRegistry()
    try:
        yield registry
    finally:
        registry.stop()


APICURIO = "io.apicurio:apicurio-registry-app:2.6.13.Final:tar.gz:all"


class Apicurio(GuardedServer):
    """A registry in a process of its own, which speaks Confluent's protocol."""

    SECONDS = 120.0

    def __init__(self, program: Path) -> None:
        super().__init__("apicurio")
        (self._jar,) = program.glob("*-runner.jar")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def _command(self) -> list[str | Path]:
        address = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}"]
        return ["java", "-Xmx384m", *QUICK, *address, "-jar", self._jar]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"{self.url}/subjects", timeout=2).status == 200)
        return False


@contextmanager
def running_apicurio() -> Iterator[Apicurio]:
    """Apicurio's registry; the test is skipped where its program cannot be had."""
    problem, program = archive_of(APICURIO)
    if problem or shutil.which("java") is None:
        pytest.skip(f"no Apicurio registry: {problem or 'no java'}")
    registry = Apicurio(program)
    try:
        yield registry
    finally:
        registry.remove()
