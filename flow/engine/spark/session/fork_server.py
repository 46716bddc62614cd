"""A process from which Spark's Python processes are forked, with their modules imported.

Spark starts a Python process to plan the source of a query, one for each of its levels, and the
daemons of workers. Each would import PySpark, pyarrow and this project, for up to a second. In a
session of `make_session` on this machine, a small script stands for Python: it sends its arguments,
variables and standard files to this process, which forks, and the fork runs the module. The fork
ends if the script is killed, and the script when the fork ends. If this process has ended, the
script becomes Python; so does a fork whose variables Python would have read as it started.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import warnings
from typing import NamedTuple

from flow.engine.temporary import new_directory

MODULES = (
    "flow.engine.spark.daemon",  # Its imports are those of workers.
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""Modules that Spark starts."""
_READ_AT_START = {"TZ", "LANG", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONOPTIMIZE"}
"""Variables that Python and its libraries read as they start, and that change what functions do."""
_SIZE_BYTES = 8
_FILES = 3
_LONGEST_ADDRESS = 103
"""The greatest length in bytes of a local socket's path on macOS; on Linux it is 107."""
_LONGEST_SHEBANG = 127
"""The greatest length in bytes of a script's first line on all supported systems."""
_SCRIPT = """#!{python} -ISs
import _socket, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    server.connect({address!r})
    content = marshal.dumps((sys.argv[1:], dict(os.environ), os.getcwd()))
    files = b"".join(file.to_bytes(4, sys.byteorder) for file in range({files}))
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)]
    server.sendmsg([len(content).to_bytes({size}, "big")], rights)
    server.sendall(content)
    forked = server.recv(1)
except OSError:
    forked = b""
if not forked:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
code = server.recv(1)
os._exit(code[0] if code else 1)
"""
_started: dict[int, tuple[subprocess.Popen[bytes], str]] = {}
"""The server of this process with its script, by the id of this process."""


def forked_python() -> str:
    """Return the script that stands for Python in a running server; else the Python itself."""
    server, script = _started.get(os.getpid(), (None, ""))
    is_there = server is not None and server.poll() is None and os.access(script, os.X_OK)
    return script if is_there else sys.executable


def start_fork_server(modules: list[str]) -> None:
    """Start the server of this process, which ends with it, unless it runs or no script can run.

    Args:
        modules: the modules of this project to import.
    """
    if forked_python() != sys.executable:
        return
    folder = new_directory("forks-")
    address, script = str(folder / "socket"), folder / "python"
    names = {"python": sys.executable, "address": address, "files": _FILES, "size": _SIZE_BYTES}
    script.write_text(_SCRIPT.format(**names))
    script.chmod(0o700)
    first_line = _SCRIPT.partition("\n")[0].format(**names)
    fits = len(os.fsencode(first_line)) <= _LONGEST_SHEBANG and len(first_line.split()) == 2
    if not fits or len(os.fsencode(address)) > _LONGEST_ADDRESS or not os.access(script, os.X_OK):
        return
    # Spark sets both variables for its workers, and Python and numpy read them as they start.
    own = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)  # A script waits from now on.
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", __name__, str(listener.fileno()), *modules],
            env={**own, **os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    _started[os.getpid()] = server, str(script)
    atexit.register(_outlive, server)


def _outlive(server: subprocess.Popen[bytes]) -> None:
    """Leave a server to end with this process; Python would warn of it and of its pipe."""
    if server.stdin is not None and server.poll() is None:
        os.dup(server.stdin.fileno())  # The pipe ends with this process.
        server.stdin.close()
        server.returncode = 0


class Request(NamedTuple):
    """Arguments, variables, directory and descriptors of the standard files of a script."""

    arguments: list[str]
    variables: dict[str, str]
    folder: str
    files: list[int]


class ForkServer:
    """Server of the scripts that stand for Python.

    Args:
        listener: the local socket to which the scripts connect.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._scripts: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()

    def serve(self) -> Request | None:
        """Fork for each script until standard input, a pipe of the starting process, ends.

        Returns:
            The request of a script in a fork; ``None`` in the server.
        """
        ended, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup)
        for readable in (0, ended, self._listener):
            self._selector.register(readable, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj == ended:
                    os.read(ended, 4096)
                    self._answer_scripts()
                elif key.fileobj is self._listener:
                    request = self._accept()
                    if request is not None:
                        os.close(ended)
                        os.close(wakeup)
                        return request
                elif key.data in self._scripts:  # The script was killed.
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGTERM)

    def _accept(self) -> Request | None:
        """Fork for a script, unless it is killed meanwhile; return its request in the fork."""
        script, _ = self._listener.accept()
        files: list[int] = []
        try:
            size, files, *_ = socket.recv_fds(script, _SIZE_BYTES, _FILES)
            with script.makefile("rb") as content:
                arguments, variables, folder = marshal.loads(
                    content.read(int.from_bytes(size, "big"))
                )
            pid = os.fork()
            if pid == 0:
                self._close(script)
                return Request(arguments, variables, folder, files)
            self._scripts[pid] = script
            self._selector.register(script, selectors.EVENT_READ, pid)
            script.send(b"1")
        except (EOFError, OSError):  # The fork of a script that was killed ends by its socket.
            if script not in self._scripts.values():
                script.close()
        for file in files:
            os.close(file)
        return None

    def _close(self, script: socket.socket) -> None:
        """Close the server's descriptors in the fork for a script."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for connection in (self._listener, script, *self._scripts.values()):
            connection.close()

    def _answer_scripts(self) -> None:
        """Send the exit codes of forks that have ended to their scripts."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                script = self._scripts.pop(ended[0])
                with contextlib.suppress(KeyError):  # The script was killed.
                    self._selector.unregister(script)
                with script, contextlib.suppress(OSError):
                    script.send(bytes([os.waitstatus_to_exitcode(ended[1]) & 255]))


def _become(request: Request) -> None:
    """Run the module of a request in this fork as Python does for its arguments."""
    for number, file in enumerate(request.files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request.folder)
    differing = dict(os.environ.items() ^ request.variables.items())
    os.environ.clear()
    os.environ.update(request.variables)
    option, module, *rest = request.arguments
    if option != "-m" or differing.keys() & _READ_AT_START:
        os.execv(sys.executable, [sys.executable, *request.arguments])
    path = [request.folder, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.path[:1] = [each for each in path if each and each not in sys.path[1:]]
    sys.argv = [module, *rest]
    warnings.simplefilter("ignore", RuntimeWarning)  # The module is imported.
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main(listener: str, *modules: str) -> None:
    """Import modules, and serve the scripts that connect to a descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # As in Spark's processes: the run ends them.
    for name in (*MODULES, *modules):
        with contextlib.suppress(Exception):  # The process that needs the module reports it.
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    request = ForkServer(socket.socket(fileno=int(listener))).serve()
    if request is not None:
        _become(request)


if __name__ == "__main__":
    main(*sys.argv[1:])
