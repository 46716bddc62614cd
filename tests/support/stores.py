"""Stores of checkpoint files: one in memory, and a server of objects on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from flow.engine.checkpoint.storage import Storage

WEED = shutil.which("weed", path=os.path.dirname(sys.executable))
"""The program of SeaweedFS, which has the protocol of S3; ``None`` where it is not installed."""
KEY, SECRET = "some-key", "some-secret"


class RemoteStore(Storage):
    """Files in memory, which have no locks.

    Args:
        is_exclusive: False if of several calls of `create` at a time more than one succeeds.
    """

    def __init__(self, is_exclusive: bool = True) -> None:
        super().__init__("store://checkpoint")
        self.files: dict[str, bytes] = {}
        self._is_exclusive, self._creating = is_exclusive, threading.Lock()

    def exists(self, name: str) -> bool:
        return name in self.files

    def names(self, name: str) -> list[str]:
        return sorted(self.files)

    def _read(self, name: str) -> bytes:
        return self.files[name]

    def _write(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def _create(self, name: str, data: bytes) -> ExitStack:
        with self._creating:
            if self._is_exclusive and self.exists(name):
                raise FileExistsError(name)
            self.files[name] = data
            return ExitStack()

    def _remove(self, name: str) -> None:
        self.files.pop(name, None)

    def _move(self, name: str, target: str) -> None:
        self.files[target] = self.files.pop(name)


@contextlib.contextmanager
def s3_server(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """Run SeaweedFS with a bucket ``bucket``; yield the variables by which clients find it."""
    identity = {
        "name": "test",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    parts = [f"{part}.port{kind}" for part in PARTS for kind in ("", ".grpc")]
    ports = dict(zip(parts, free_ports(len(parts)), strict=True))
    command = [str(WEED), "server", "-s3", f"-s3.config={folder}/s3.json", f"-dir={folder}"]
    command += [*OPTIONS, *(f"-{part}={port}" for part, port in ports.items()), *options]
    (folder / "ports.json").write_text(json.dumps(ports))
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3.port']}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        make_bucket(variables)
        yield variables
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def iceberg_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run SeaweedFS as a REST catalog of Iceberg too; yield the properties of the catalog."""
    [port] = free_ports(1)
    with s3_server(folder, f"-s3.port.iceberg={port}") as variables:
        ports = json.loads((folder / "ports.json").read_text())
        command = [str(WEED), "shell"]
        for part in ("master", "filer"):
            command.append(
                f"-{part}=127.0.0.1:{ports[f'{part}.port']}.{ports[f'{part}.port.grpc']}"
            )
        # The bucket of the tables, which the server's shell makes.
        made = "s3tables.bucket -create -name lake -account 000000000000\nexit\n"
        subprocess.run(command, input=made, text=True, timeout=60, check=True, capture_output=True)
        yield {
            "type": "rest",
            "uri": f"http://127.0.0.1:{port}",
            "warehouse": "s3://lake",
            "credential": f"{KEY}:{SECRET}",
            "oauth2-server-uri": f"http://127.0.0.1:{port}/v1/oauth/tokens",
            **s3_properties(variables),
        }


def s3_properties(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables of a server as properties of pyiceberg."""
    return {
        "s3.endpoint": variables["AWS_ENDPOINT_URL"],
        "s3.region": variables["AWS_REGION"],
        "s3.access-key-id": variables["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": variables["AWS_SECRET_ACCESS_KEY"],
    }


PARTS = ("s3", "master", "volume", "filer")
OPTIONS = (
    "-ip=127.0.0.1",
    "-ip.bind=127.0.0.1",
    "-filer.saveToFilerLimit=65536",
    "-master.telemetry=false",
    "-master.volumeSizeLimitMB=16",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-volume.max=100",
)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody uses."""
    with ExitStack() as sockets:
        found = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


def make_bucket(variables: dict[str, str], seconds: float = 60) -> None:
    """Make the bucket once the server answers; an upload by the administrator makes one."""
    import obstore
    from obstore.store import S3Store

    config = {name.lower(): value for name, value in variables.items() if name != "AWS_ALLOW_HTTP"}
    options = {"allow_http": True}
    store = S3Store("bucket", config=config, client_options=options)  # type: ignore[arg-type]
    end = time.monotonic() + seconds
    while True:
        try:
            obstore.put(store, "made", b"")
            return
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
