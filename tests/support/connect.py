"""A server of Spark Connect on this machine, in processes of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as RemoteSession

ROOT = Path(__file__).parents[2]
START_SECONDS = 120.0
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server of Spark Connect, whose Python has this checkout.

    Args:
        folder: an empty directory for the server's files.
        pythonpath: the value of PYTHONPATH of the server.
        python: the server's interpreter.
        conf: settings of the server.
    """

    def __init__(
        self,
        folder: Path,
        pythonpath: str = str(ROOT),
        *,
        python: str = sys.executable,
        conf: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.url = f"sc://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "server.log"
        home = os.path.dirname(pyspark.__file__)
        settings = {
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            **conf,
        }
        options = [option for pair in settings.items() for option in ("--conf", "=".join(pair))]
        command = [f"{home}/bin/spark-submit", "--master", "local[2]", *options]
        variables = {**os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": python}
        variables = {**variables, "PYTHONPATH": pythonpath, "SPARK_NO_DAEMONIZE": "1"}
        variables.pop("SPARK_REMOTE", None)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--class", SERVER, "spark-internal"],
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._wait()

    def session(self) -> SparkSession:
        """Return a new session on the server, beside a classic one; it starts no query.

        The builder of `pyspark.sql.SparkSession` would make all later sessions of the process be
        of Spark Connect, which its functions for columns and state need.
        """
        builder: Any = RemoteSession.Builder()
        made: SparkSession = builder.remote(self.url).create()
        return made

    def processes(self, module: str) -> list[int]:
        """Return the ids of the server's Python processes that run a module, oldest first."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if module.encode() in words and parent == self._process.pid:
                    found.append(int(folder.name))
        return sorted(found)

    def kill(self) -> None:
        """Kill the server and all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.1)
        self.kill()
        raise RuntimeError(f"the server did not start:\n{self.log.read_text()[-2000:]}")


@contextlib.contextmanager
def connect_server(
    folder: Path, pythonpath: str = str(ROOT), *, python: str = sys.executable
) -> Iterator[ConnectServer]:
    """Start a server of Spark Connect, and kill it at the end of the block."""
    server = ConnectServer(folder, pythonpath, python=python)
    try:
        yield server
    finally:
        server.kill()
