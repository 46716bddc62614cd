"""A server program of the tests' own, in a temporary folder, that does not outlive the test run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# A shell that runs the server until its own standard input ends: when stop() closes it, and also
# when the test run is killed.
_GUARDED = '"$@" </dev/null & server=$!; echo $server >pid; read line; kill -{} $server; wait'


class GuardedServer(ABC):
    """A server that can be stopped, killed and started again with its data.

    Attributes:
        SECONDS: the time that the server may take to start or to stop.
        SIGNAL: the name of the signal that stops it.
    """

    SECONDS = 60.0
    SIGNAL = "TERM"

    def __init__(self, name: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"flow-{name}-"))
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return True if clients can connect."""

    def _options(self) -> dict[str, Any]:
        """Options of the server's process."""
        return {"cwd": self._folder}

    def start(self) -> None:
        """Start the server, on the data that it had before, and wait until it answers."""
        command = ["sh", "-c", _GUARDED.format(self.SIGNAL), "sh", *self._command()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, **self._options()
            )
        last = time.monotonic() + self.SECONDS
        while not self._answers():
            if time.monotonic() > last or self._process.poll() is not None:
                log_text = (self._folder / "log").read_text("utf-8", "replace")
                raise RuntimeError(f"the server did not start:\n{log_text[-4000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server as an administrator does; clients lose their connections."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait(self.SECONDS)

    def kill(self) -> None:
        """Kill the server, as a power cut does."""
        os.kill(int((self._folder / "pid").read_text()), signal.SIGKILL)
        self.stop()

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run_once(self, command: Sequence[str | Path]) -> None:
        """Run a program that prepares the folder."""
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **self._options()
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
