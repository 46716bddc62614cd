"""Start and end of Spark's JVM: its environment, files, log and home.

The temporary files are in the process's own directory. The directory ``java.io.tmpdir`` has
unpacked native libraries, the sockets of Python workers, and Spark's files unless
``spark.local.dir`` or ``SPARK_LOCAL_DIRS`` is set. So this setting alone moves all temporary files,
and the user's own settings of Spark's directories keep their effect.

The Spark home is for a quick start: a folder of links to the installed PySpark without its zip.
Spark's Python processes import PySpark from ``python/lib/pyspark.zip`` in Spark's home. Python does
not store the compiled form of modules in a zip, so each process compiles PySpark again, for most of
a second, and a flow starts with five processes. The same PySpark is installed beside the zip as a
package.

At its start the JVM also reads, checks and links thousands of Spark's classes. Java can store
classes in an archive that it maps into memory (`Application Class-Data Sharing`, JEP 310 and JEP
350). `prepare_home` makes an archive in the Python environment for all later runs. A JVM of another
version, or with other jars, starts without the archive.
"""

from __future__ import annotations

import contextlib
import os
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext, java_gateway

from flow.engine.temporary import ProcessDirectory, new_directory, process_directory
from flow.errors import EnvironmentProblem
from flow.process import interrupts_deferred

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The environment variable with options of a JVM that PySpark starts."""
_JAVA_OPTIONS = (SUBMIT_OPTIONS, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""The environment variable that ``spark-submit`` sets for the Python of a program."""
_TEMPORARY = "java.io.tmpdir"
_LONGEST_FOR_SOCKETS = 104 - len("/.00000000-0000-0000-0000-000000000000.sock\0")
"""The greatest length, in bytes, of a directory's path with room for a socket's name. The path of a
socket has at most 104 bytes with the final zero on macOS, and 108 on Linux."""

_SEARCH_BYTES = 4 << 20
"""The most bytes at the end of Spark's log to search for the cause of a failure."""


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in the block, and restore the old values at its end."""
    before = {name: os.environ.pop(name, None) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def submit_options(*options: str | None) -> dict[str, str]:
    """Return the variable that passes options to a JVM, without empty options.

    >>> submit_options("-Xmx1g", None, "-Da=b")
    {'SPARK_SUBMIT_OPTS': '-Xmx1g -Da=b'}
    """
    return {SUBMIT_OPTIONS: " ".join(filter(None, options))}


def java_options_of_user() -> str:
    """Return the options of a JVM that the user's environment variables have."""
    return " ".join(os.environ.get(name, "") for name in _JAVA_OPTIONS)


def submitted_conf() -> dict[str, str]:
    """Return the settings of ``spark-submit``: its options, and its file of defaults.

    The JVM has them before a session exists. Without ``spark-submit`` there are none.
    """
    return _jvm_conf() if _GATEWAY in os.environ else {}


def heap_of_jvm() -> str:
    """Return the size of the heap that the JVM of this process was started with, such as ``1g``."""
    return _jvm_conf().get("spark.driver.memory") or os.environ.get("SPARK_DRIVER_MEMORY", "1g")


def _jvm_conf() -> dict[str, str]:
    """Return the settings in the system properties of the JVM, which must run."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def starts_jvm() -> bool:
    """Return True if the next session of this process starts a JVM."""
    return SparkContext._gateway is None and _GATEWAY not in os.environ


def directory_for_jvm() -> ProcessDirectory | None:
    """Return the directory for the next JVM; ``None`` if an option of the user sets another."""
    return None if _TEMPORARY in java_options_of_user() else process_directory()


def has_room_for_sockets(directory: ProcessDirectory | None) -> bool:
    """Return True if paths of sockets in the JVM's temporary directory are short enough.

    Args:
        directory: the directory for the next JVM.
    """
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        path = str(gateway.jvm.java.lang.System.getProperty(_TEMPORARY))
    else:
        path = "" if directory is None else str(directory.spark)
    return len(os.fsencode(path)) <= _LONGEST_FOR_SOCKETS


@contextlib.contextmanager
def started_in(directory: ProcessDirectory | None) -> Iterator[None]:
    """Set the temporary directory of JVMs that start in the block, and of PySpark's own files."""
    if directory is None:
        yield
        return
    path = str(directory.spark).replace("\\", "\\\\").replace('"', '\\"')
    options = submit_options(f'"-D{_TEMPORARY}={path}"', os.environ.get(SUBMIT_OPTIONS))
    # While PySpark starts a JVM, it makes a temporary directory for the JVM's answer.
    gateway: Any = java_gateway
    own = {"mkdtemp": partial(tempfile.mkdtemp, dir=directory.spark)}
    gateway.tempfile = SimpleNamespace(**{**vars(tempfile), **own})
    try:
        with environment(options):
            yield
    finally:
        gateway.tempfile = tempfile


def leave_to_jvm(directory: ProcessDirectory | None) -> None:
    """Register removals at the JVM's end: of its files, and of files that this process leaves."""
    gateway: Any = SparkContext._gateway
    if directory is None or gateway is None or gateway.proc is None:
        return
    file, hooks = gateway.jvm.java.io.File, gateway.jvm.org.apache.spark.util.ShutdownHookManager
    hooks.registerShutdownDeleteDir(file(str(directory.spark)))
    # Java removes these after its hooks, in reverse order, and a directory only if it is empty.
    file(str(directory.path)).deleteOnExit()
    file(str(directory.ended_log)).deleteOnExit()
    directory.jvm = gateway.proc


class SparkLog:
    """File for the output of Spark's JVM, if this process starts the JVM.

    The log may have data of the flow, so the file is in the process's private directory. It is
    removed with that directory. A log that an error names, or that has a verbose level, is retained
    for some days (`flow.engine.temporary.KEPT_DAYS`).
    """

    def __init__(self) -> None:
        self._directory: ProcessDirectory | None = None

    def __str__(self) -> str:
        """Return the path for an error, and retain the log."""
        if self._directory is None:
            return "that of the session that the run was given"
        self._directory.keep_log()
        return str(self._directory.log)

    def opened(self) -> int:
        """Return the log's descriptor, which a JVM inherits together with the log's lock."""
        self._directory = process_directory()
        return self._directory.log_descriptor

    def size(self) -> int:
        """Return the log's length in bytes; 0 if this process has not started Spark."""
        if self._directory is None:
            return 0
        with contextlib.suppress(OSError):
            return self._directory.log.stat().st_size
        return 0

    def written_since(self, position: int) -> str:
        """Return the log from a position in bytes on, at most the last `_SEARCH_BYTES` of it."""
        size = self.size()
        if self._directory is None or size <= position:
            return ""
        with contextlib.suppress(OSError), self._directory.log.open("rb") as file:
            file.seek(max(position, size - _SEARCH_BYTES))
            return file.read().decode("utf-8", "replace")
        return ""

    def keep(self) -> None:
        """Retain the log for some days, as if an error named it."""
        if self._directory is not None:
            self._directory.keep_log()


SPARK_LOG = SparkLog()


@contextlib.contextmanager
def own_jvm(spark_log: SparkLog) -> Iterator[None]:
    """Give JVMs that start in the block their output file, and end them if the block fails.

    The JVM inherits the file as standard output and error, and so do its Python workers. PySpark
    loses a JVM that has not reported its port when an interrupt comes. Such a JVM would not end,
    because it waits for the end of this process only after it has reported its port.
    """
    log, started = spark_log.opened(), list[subprocess.Popen[bytes]]()

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        with interrupts_deferred():
            options |= {"stdout": log, "stderr": log}
            if os.environ.get("LC_ALL") in ("C", "POSIX"):  # Java then has no names beyond ASCII.
                options["env"] |= {"LC_ALL": "C.UTF-8"}
            started.append(subprocess.Popen(*args, **options))
        return started[-1]

    gateway: Any = java_gateway
    gateway.Popen = start
    try:
        yield
    except BaseException:
        for jvm in started:
            end_jvm(jvm)
        raise
    finally:
        gateway.Popen = subprocess.Popen


def end_jvm(jvm: subprocess.Popen[bytes], seconds: float = 5) -> None:
    """End the JVM of this process, so that its next session starts another one.

    Args:
        jvm: the JVM.
        seconds: the time that it may take to remove its files and end, before it is killed.
    """
    spark: Any = SparkContext
    if spark._active_spark_context is not None:
        with contextlib.suppress(Exception):  # The JVM may have ended.
            spark._active_spark_context.stop()
    spark._gateway = spark._jvm = None
    jvm.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        jvm.wait(seconds)
    jvm.kill()
    jvm.communicate()  # This also closes the pipe to the JVM.


_HOME = "SPARK_HOME"
_WITH_THE_ZIP = "python"
_NEEDED = ("bin", "jars")
_ARCHIVE, _SIZE = "classes.jsa", "classes.size"
_END_SECONDS = 120


@contextlib.contextmanager
def quick_spark_home() -> Iterator[None]:
    """Start JVMs of the block from a home without the zip, with the archive if it is prepared.

    The block has no effect if the user sets a home, or if Python processes could not import PySpark
    without the zip.
    """
    if _HOME in os.environ or not _is_importable(_installed()):
        yield
        return
    if _is_prepared(prepared_home()):
        options = f'"-XX:SharedArchiveFile={prepared_home() / _ARCHIVE}" -Xlog:cds=off'
        with _started_from(prepared_home(), options):
            yield
        return
    home = new_directory("spark-home-")
    started: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    with contextlib.suppress(OSError):  # The file system has no links, or the user may make none.
        _link(home)
        started = _started_from(home)
    with started:
        yield


def prepared_home() -> Path:
    """Return the folder of links and archive that `prepare_home` makes in this environment."""
    return Path(sys.prefix) / "share" / "flow" / f"spark-{pyspark.__version__}"


def prepare_home(use_spark: Callable[[], Any]) -> Path:
    """Make the home and the archive for quick starts of later runs of this Python environment.

    Args:
        use_spark: starts Spark, and makes it load the classes that a run needs.

    Returns:
        The path of the archive of classes, a file of some 200 MB.

    Raises:
        EnvironmentProblem: when this environment cannot be prepared, or Java makes no archive.
    """
    _check_environment()
    home = prepared_home()
    archive = home / _ARCHIVE
    new = archive.with_suffix(".new")
    try:
        home.mkdir(parents=True, exist_ok=True)
        _link(home)
        new.unlink(missing_ok=True)
    except OSError as error:
        problem = f"{home} cannot be written: {error.strerror}; prepare it as its owner"
        raise EnvironmentProblem(problem) from error
    with _started_from(home, f'"-XX:ArchiveClassesAtExit={new}"'):
        use_spark()
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        end_jvm(gateway.proc, _END_SECONDS)
    if not new.exists():
        raise EnvironmentProblem("Java has made no archive of its classes: try another Java")
    new.replace(archive)
    (home / _SIZE).write_text(str(archive.stat().st_size))
    return archive


def _check_environment() -> None:
    """Raise an `EnvironmentProblem` if this environment or process cannot prepare a home."""
    if _HOME in os.environ:
        home = os.environ[_HOME]
        raise EnvironmentProblem(
            f"{_HOME} names {home!r}, and flows start Spark from there: unset it to prepare "
            "PySpark's own"
        )
    if not _is_importable(_installed()):
        raise EnvironmentProblem(
            f"PySpark is in {_installed()}, where only this process finds it: install it into a "
            "Python environment"
        )
    if SparkContext._gateway is not None:
        raise EnvironmentProblem("Spark runs in this process: prepare its home in another one")


def _started_from(home: Path, java_options: str = "") -> contextlib.AbstractContextManager[None]:
    """Start JVMs of the block from a home, with options after the user's own."""
    values = {_HOME: str(home)}
    if java_options:
        values |= submit_options(os.environ.get(SUBMIT_OPTIONS), java_options)
    return environment(values)


def _link(home: Path) -> None:
    """Fill a home with links to the installation's folders, and replace existing links."""
    for folder in _installed().iterdir():
        if folder.is_dir() and folder.name != _WITH_THE_ZIP:
            link = home / folder.name
            link.unlink(missing_ok=True)
            link.symlink_to(folder, target_is_directory=True)


def _is_prepared(home: Path) -> bool:
    """Return True if a home has a complete archive and links to the installed PySpark.

    Java ignores a file that is not an archive, but does not start with a truncated archive.
    """
    if not all((home / name).resolve() == (_installed() / name).resolve() for name in _NEEDED):
        return False
    try:
        return (home / _SIZE).read_text() == str((home / _ARCHIVE).stat().st_size)
    except (OSError, ValueError):
        return False


def _installed() -> Path:
    return Path(pyspark.__file__).parent


def _is_importable(installed: Path) -> bool:
    """Return True if other processes of this Python import PySpark from its installation."""
    paths = sysconfig.get_paths()
    folders = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    folders += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    is_whole = all((installed / name).is_dir() for name in _NEEDED)
    return is_whole and installed.parent.resolve() in {Path(path).resolve() for path in folders}
