"""Sessions of Spark: a new one with settings for flows, and those that a program has made."""

from __future__ import annotations

import contextlib
import io
import logging
import marshal
import os
import re
import shlex
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flow.checks import wrong_type
from flow.engine.spark.session.fork_server import forked_python, start_fork_server
from flow.engine.spark.session.jvm import (
    SPARK_LOG,
    directory_for_jvm,
    has_room_for_sockets,
    java_options_of_user,
    leave_to_jvm,
    own_jvm,
    quick_spark_home,
    started_in,
    starts_jvm,
    submitted_conf,
)
from flow.engine.spark.session.session_settings import (
    LOCAL_DRIVER_MEMORY,
    ONE_DAEMON,
    QUERY_CONF,
    QUIET_LEVELS,
    ROCKSDB,
    SPEEDUPS_OF_WORKERS,
    SPEEDUPS_VARIABLE,
    STREAMING,
    cores_of,
    has_jvm,
    has_speedups,
    is_local,
    is_local_master,
    is_remote,
    local_tasks,
)
from flow.engine.spark.session.spark_capabilities import (
    RefusedSetting,
    RefusedSettings,
    SessionCapabilities,
    file_managers,
)
from flow.engine.spark.session.spark_failures import JVM_ENDED, JVM_ERRORS, is_stopped
from flow.engine.spark.session.versions import cause_in, check_java, check_same_version
from flow.engine.temporary import new_directory, process_directory
from flow.errors import EngineError, EnvironmentProblem, FlowBuildError, first_line

PACKAGES = ("flow", "flow_windowing", "recovery")
"""The packages of this project, which workers on other machines get."""
PACKAGES_FILE = "flow_packages.zip"
_sent: set[str] = set()
"""The ids of the applications, or sessions of Spark Connect, whose workers have the packages."""
_sending = threading.Lock()
"""Held while the packages are sent, as a server refuses a second file of their name."""
_setting = threading.Lock()
_pythons: dict[int, list[str]] = {}
"""By the id of each Spark context with runs: its own Python, then those that the runs have set."""
_files_of: dict[str, dict[Path, None]] = {}
"""The files that were sent to each session of Spark Connect, in order."""

_REFUSALS = (PySparkException, Py4JJavaError)
"""Errors of settings that are not known or not allowed, by version and session."""
_logged: set[RefusedSetting] = set()
"""Refused settings with a line in the log of this process."""
logger = logging.getLogger("flow")

JOB_GROUP = "flow-workers"
"""The name, in Spark, of the job that starts Python workers."""
_CONNECT = "pyspark.sql.connect.session"

_QUIET_CONF: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}

# Python needs the cores, and on few cores the JVM's second compiler costs more time than it saves.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
if sys.platform == "linux":
    # Hadoop starts a process for each file whose permissions it sets, and this makes it cheaper.
    _JAVA_OPTIONS += " -Djdk.lang.Process.launchMechanism=VFORK"

_FEW_CORES = 2
_ON_FEW_CORES = "-XX:+UseSerialGC"
"""The garbage collector on few cores. G1 lets the heap grow towards its limit: 1.2 GB after 1,100
small epochs, of which 0.1 GB was alive. The heap of the serial collector was 0.4 GB after 400
epochs, with the same processor time per epoch. Spark removes the files of finished shuffles after a
collection, and with G1 their number grew. On many cores the serial collector is slower, because all
cores wait for the one that collects."""

_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")

_LOCAL_CONF: Mapping[str, str] = {
    # On one machine shuffled data stays in the page cache, so compression costs more than it saves.
    "spark.shuffle.compress": "false",
    # Spark's checksums of rows detect differences when a stage runs again after the loss of an
    # executor, which a local session does not survive.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    # Spark retains a thousand jobs, and as many queries with their metrics, for its web page, which
    # is off.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "50",
    # Spark removes the files of a finished shuffle after the JVM has collected its objects. Old
    # objects are collected with the whole heap, by default every half hour. With the 100 MB of a
    # small flow, a collection takes a third of a second.
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.ui.enabled": "false",
    "spark.driver.memory": LOCAL_DRIVER_MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_IN_WORKERS = (
    "flow_windowing.columnar.windows.windowing",
    "flow_windowing.columnar.step.window_shard",
)
"""Modules that only workers import, if their package is in use."""

_STATE_SERVER = (
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
)
"""The logger of reads of missing headers: a line for each shard and step without keys, and epoch,
which made the log grow by gigabytes in a month."""
_NOISY = (
    _STATE_SERVER,
    _STATE_SERVER.replace("PySpark", "Pandas"),  # Its name in Spark 4.0.
    # At the start of a query with state, also if adaptive execution is off.
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    # At the end of a query between two epochs.
    "org.apache.spark.scheduler.DAGScheduler",
)
_DRIVERS_WORKERS = "pyspark.sql.streaming.*"
"""The modules of workers that run no step and report their errors to Spark: one prints five lines
as Spark prepares a step with state, one a traceback as Spark closes its connection."""

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""The setting of Spark's file manager, which for a checkpoint on a local file system is the one by
`FileSystem`. A rename is atomic with each of Spark's file managers there, and the default manager
starts three processes for each file."""

_LARGE_PLANS: Mapping[str, str] = {"spark.broadcast.UDFCompressionThreshold": str(2**31 - 1)}
"""Settings for plans of more than a megabyte, such as flows with a lookup table in a function.

PySpark broadcasts a Python source whose pickle is larger than the threshold, but the process that
runs the source in a stream does not read broadcasts."""


@dataclass(frozen=True)
class SparkSettings:
    """Settings of a new session.

    Attributes:
        master: the master URL, such as ``local[4]`` or ``spark://host:7077``; all cores of this
            machine when left out.
        conf: Spark configuration, over the defaults.
        log_level: the level of Spark's log; by default ``spark.log.level`` of `conf` or of
            ``spark-submit``, else WARN.
        py_files: the user's modules and packages (``.py``, ``.zip``, ``.egg``) to send to the
            workers of a cluster; the packages of this project are always sent.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    log_level: str | None = None
    py_files: tuple[str, ...] = ()


def make_session(name: str, settings: SparkSettings) -> SparkSession:
    """Return the active session, or start a session whose output goes to a file.

    Raises:
        EnvironmentProblem: when Java is missing or too old.
        EngineError: when Spark does not start.
    """
    active: SparkSession | None = active_session()
    if active is not None:
        return active
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = _with_submitted(settings, submitted_conf())
    log_start = SPARK_LOG.size()
    try:
        spark = _start(name, settings)
    except Exception as error:
        cause = cause_in(SPARK_LOG.written_since(log_start)) or first_line(error)
        problem = f"Spark did not start: {cause} (its log: {SPARK_LOG})"
        raise EngineError(problem) from error
    level = _log_level(settings)
    spark.sparkContext.setLogLevel(level)
    if level in QUIET_LEVELS:
        _silence(spark, _STATE_SERVER)
    else:
        SPARK_LOG.keep()
    _quiet_accumulators(spark)
    send_files(spark, settings.py_files)
    if not is_local_master(settings.master):
        send_packages(spark)
    elif has_speedups():
        if os.environ["PYSPARK_PYTHON"] == sys.executable:
            spark.sparkContext.pythonExec = forked_python()
        start_workers_early(spark)
    return spark


def _with_submitted(settings: SparkSettings, submitted: Mapping[str, str]) -> SparkSettings:
    """Return the settings of a session over those of ``spark-submit``, which precede defaults."""
    conf = {**submitted, **settings.conf}
    master = conf.pop("spark.master", None)
    return replace(settings, master=settings.master or master, conf=conf)


def _log_level(settings: SparkSettings) -> str:
    return (settings.log_level or settings.conf.get("spark.log.level", "WARN")).upper()


def _start(name: str, settings: SparkSettings) -> SparkSession:
    """Create the session, and start a JVM unless one runs."""
    starting = starts_jvm()
    directory = directory_for_jvm() if starting else None
    builder = SparkSession.builder.appName(name).master(settings.master or "local[*]")
    for key, value in _conf(settings, has_room_for_sockets(directory)).items():
        builder = builder.config(key, value)
    if not starting:
        return builder.getOrCreate()
    own_python = is_local_master(settings.master) and os.environ["PYSPARK_PYTHON"] == sys.executable
    is_quick = own_python and has_speedups()
    quick_home = quick_spark_home() if is_quick else contextlib.nullcontext()
    if is_quick and os.name == "posix":
        start_fork_server(_own_modules())  # It imports modules while Java starts.
    with own_jvm(SPARK_LOG), quick_home, started_in(directory):
        spark = builder.getOrCreate()
        leave_to_jvm(directory)
    return spark


def _silence(spark: SparkSession, *names: str) -> list[str]:
    """Silence warnings of loggers of Spark that have no level of their own, and return the names.

    The level of a logger without one does not tell the level of the session's lines: a filter of
    Spark's shells hides lines below WARN.
    """
    jvm: Any = spark._jvm
    silenced: list[str] = []
    with contextlib.suppress(TypeError):  # The session may have another logging library.
        log4j = jvm.org.apache.logging.log4j
        config = log4j.LogManager.getContext(False).getConfiguration()
        silenced += [name for name in names if config.getLoggerConfig(name).getName() != name]
        for name in silenced:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)
    return silenced


@contextlib.contextmanager
def quiet_query(spark: SparkSession) -> Iterator[None]:
    """Silence lines about a streaming query in the block that a user cannot act on.

    They are warnings of Spark's loggers, and what Python workers of the driver print in a local
    session. The lines of a session of `make_session` go to a file.
    """
    if SPARK_LOG.size():
        yield
        return
    silenced, quiet = _silence(spark, *_NOISY), contextlib.ExitStack()
    if is_local(spark):
        quiet.enter_context(python_set(spark.sparkContext, _quiet_python()))
    try:
        with quiet:
            yield
    finally:
        if silenced:
            time.sleep(0.2)  # Spark logs the end of a query in a thread of its own.
            # If the JVM has ended, the original failure must stay visible.
            with contextlib.suppress(*JVM_ERRORS):
                jvm: Any = spark._jvm
                log4j = jvm.org.apache.logging.log4j.LogManager.getContext(False)
                for name in silenced:
                    log4j.getConfiguration().removeLogger(name)
                log4j.updateLoggers()


def _quiet_python() -> str:
    """Return a script that starts the Python of this process; that Python if no script can run."""
    script = process_directory().path / "python"
    if not script.exists():
        command = f'exec {shlex.quote(sys.executable)} "$@"'
        quiet = f'case "$2" in {_DRIVERS_WORKERS}) {command} >/dev/null 2>&1 ;; esac'
        script.write_text(f"#!/bin/sh\n{quiet}\n{command}\n")
        script.chmod(0o700)
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _quiet_accumulators(spark: SparkSession) -> None:
    """Silence the traces of PySpark's accumulators when a worker dies; its task fails anyway."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def start_workers_early(spark: SparkSession) -> threading.Thread:
    """Start Spark's Python workers in a daemon thread, and return the thread without waiting.

    Spark forks its workers from a daemon (`flow.engine.spark.daemon`), which it starts for the
    first Python task. The daemon then imports modules for one or two seconds, and an epoch would
    wait for it. A small task starts the daemon while the flow is prepared.
    """
    thread = threading.Thread(target=_run_task, args=(spark,), name="flow-workers", daemon=True)
    thread.start()
    return thread


def _run_task(spark: SparkSession) -> None:
    """Run a Spark job with one Python task that returns its rows."""
    # If the job fails, the flow's own tasks fail as well, and report the error.
    with contextlib.suppress(Exception):
        spark.sparkContext.setJobGroup(JOB_GROUP, "starting Python workers")
        spark.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()


def _conf(settings: SparkSettings, unix_sockets: bool) -> dict[str, str]:
    """Return the configuration of a new session; a local one has this project's daemon."""
    if not is_local_master(settings.master):
        return {**_QUIET_CONF, **settings.conf}
    daemon = {"spark.python.unix.domain.socket.enabled": str(unix_sockets).lower()}
    if has_speedups():
        daemon["spark.python.daemon.module"] = "flow.engine.spark.daemon"
        daemon["spark.executorEnv.FLOW_PRELOAD"] = ",".join(_own_modules())
    tasks = local_tasks(settings.master, os.cpu_count() or 1) or 1
    java = {"spark.driver.extraJavaOptions": _java_options(tasks)}
    return {**_QUIET_CONF, **_LOCAL_CONF, **java, **ONE_DAEMON, **daemon, **settings.conf}


def _java_options(cores: int) -> str:
    """Return the options of the JVM of a local session that runs this many tasks at a time."""
    # The JVM does not start with options for two collectors.
    if cores > _FEW_CORES or _COLLECTOR.search(java_options_of_user()):
        return _JAVA_OPTIONS
    return f"{_JAVA_OPTIONS} {_ON_FEW_CORES}"


def _own_modules() -> list[str]:
    """Return the loaded modules of this project, and those that only workers load."""
    used = {
        name for name in sys.modules if name.split(".")[0] in PACKAGES and "__main__" not in name
    }
    return sorted(used.union(name for name in _IN_WORKERS if name.split(".")[0] in used))


def active_session() -> Any | None:
    """Return the session of the program, classic or of Spark Connect; ``None`` if there is none.

    A session of Spark Connect precedes a classic one, which ``remote("local[2]")`` makes in this
    process for its server. The variable ``SPARK_REMOTE`` stands for a session that PySpark makes
    when it is first asked for one.
    """
    connect: Any = sys.modules.get(_CONNECT)
    if connect is not None:
        try:
            return connect.SparkSession.active()
        except PySparkException:
            pass  # The program has no session of Spark Connect.
    if SparkContext._active_spark_context is not None:
        try:
            return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        except JVM_ERRORS as error:
            raise EngineError(JVM_ENDED) from error
    return SparkSession.builder.getOrCreate() if os.environ.get("SPARK_REMOTE") else None


def setting_in(spark: Any, name: str) -> str | None:
    """Return the value of one of Spark's settings in a session; ``None`` if it has none."""
    if name == "spark.default.parallelism":
        return str(cores_of(spark))
    found = _value_in(spark.conf, name)
    if found is None and name == SPEEDUPS_OF_WORKERS:
        return os.environ.get(SPEEDUPS_VARIABLE, "on")
    return found


def _value_in(conf: Any, name: str) -> str | None:
    """Return the value of a setting, also a default; ``None`` if it has none."""
    try:
        found: str = conf.get(name)
    except _REFUSALS:
        return None
    return found


def check_session(spark: Any) -> None:
    """Check that a flow can run on a session.

    Raises:
        FlowTypeError: if the object is not a session.
        FlowBuildError: if the session was stopped.
        EnvironmentProblem: if the session runs another version of Spark than the installed one.
    """
    if not isinstance(spark, SparkSession) and not is_remote(spark):
        raise wrong_type("spark= must be a SparkSession", spark)
    if is_stopped(spark):
        raise FlowBuildError(
            "spark= names a session that was stopped: make a new one, or leave out spark="
        )
    check_same_version(spark)


def session_capabilities(spark: Any) -> SessionCapabilities:
    """Return the capabilities of a session, whose settings are changed on trial."""
    try:
        with query_conf(spark, 1) as refused:
            pass
    except RefusedSettings as error:
        refused = error.refused
    return SessionCapabilities(has_jvm(spark), refused)


def check_python_of(spark: SparkSession) -> None:
    """Check that the interpreter of a session's workers exists on the driver.

    Spark starts the same path on both: on the driver to plan epochs, on the workers to run steps.
    A path in a packed environment, such as ``./env/bin/python``, may exist on the workers alone.

    Raises:
        EnvironmentProblem: when there is no such file.
    """
    jvm: Any = spark._jvm
    check_driver_python(spark.sparkContext.pythonExec, jvm.java.lang.System.getProperty("user.dir"))


def check_driver_python(python: str, folder: str) -> None:
    """Check that an interpreter exists on this machine.

    Args:
        python: the interpreter: a path, or a name that is looked up in ``PATH``, which this
            function accepts.
        folder: the directory to which the path is relative: that in which the JVM was started.

    Raises:
        EnvironmentProblem: when the path has no file.
    """
    if os.path.dirname(python) and not (Path(folder) / python).exists():
        raise EnvironmentProblem(
            f"PYSPARK_PYTHON names {python!r}, and {Path(folder) / python} does not exist: Spark "
            "starts that interpreter on the workers, and on this machine to plan epochs; unpack "
            "the environment here too (mkdir env && tar -xzf env.tar.gz -C env), or name a path "
            "that exists on both"
        )


@contextlib.contextmanager
def ready_for_a_run(spark: SparkSession) -> Iterator[None]:
    """Prepare the workers of a session for the runs of the block.

    Local workers run in the Python of this process, as the flow's functions are in its packages;
    without a setting, Spark starts the ``python3`` on the path. Workers of a cluster, or of a
    server of Spark Connect, get the packages of this project.
    """
    if not is_local(spark):
        send_packages(spark)
        yield
        return
    with python_set(spark.sparkContext, forked_python()):
        yield


@contextlib.contextmanager
def python_set(context: Any, python: str) -> Iterator[None]:
    """Set the Python of a session in the block; of blocks that overlap, the last one restores it.

    Args:
        context: the Spark context of the session.
        python: the interpreter, or a script that stands for it.
    """
    with _setting:
        pythons = _pythons.setdefault(id(context), [context.pythonExec])
        pythons.append(python)
        context.pythonExec = python
    try:
        yield
    finally:
        with _setting:
            pythons.remove(python)
            context.pythonExec = pythons[-1]
            if len(pythons) == 1:
                del _pythons[id(context)]


def send_packages(spark: Any) -> None:
    """Send the packages of this project to the workers of a session, once."""
    name = spark.session_id if is_remote(spark) else spark.sparkContext.applicationId
    with _sending:
        if name not in _sent:
            send_files(spark, [_zipped()])
            _sent.add(name)


def send_files(spark: Any, files: Iterable[str | os.PathLike[str]]) -> None:
    """Send modules, in files that exist, to the workers of a session.

    Raises:
        EngineError: when a session of Spark Connect has another file of the name.
    """
    for file in files:
        if not is_remote(spark):
            spark.sparkContext.addPyFile(os.fspath(file))
            continue
        try:
            spark.addArtifacts(os.fspath(file), pyfile=True)
        except PySparkException as error:
            raise EngineError(
                f"the server does not take {os.fspath(file)!r}: {first_line(error)} A session "
                "keeps the first file of a name: make a new session for a file that has changed"
            ) from error
        _files_of.setdefault(spark.session_id, {})[Path(file)] = None


def code_sent_to(spark: Any, *, has_packages: bool) -> bytes:
    """Return a zip of the modules that were sent to a session of Spark Connect; empty without any.

    Args:
        spark: the session.
        has_packages: True if its server has the packages of this project without being sent them.
    """
    sent = _files_of.get(spark.session_id, ())
    files = [file for file in sent if not (has_packages and file.name == PACKAGES_FILE)]
    if not files:
        return b""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            if file.suffix == ".py":
                archive.write(file, file.name)
                continue
            with zipfile.ZipFile(file) as modules:
                for name in modules.namelist():
                    archive.writestr(name, modules.read(name))
    return content.getvalue()


def _zipped() -> Path:
    """Write the packages of this project to a zip file, each module also in its compiled form.

    Python stores no compiled form of a module that it imports from a zip, so each worker would
    compile the packages again. A worker with another version of Python compiles the sources.
    """
    home = Path(__file__).resolve().parents[4]
    path = new_directory("code-") / PACKAGES_FILE
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((home / package).rglob("*.py")):
                name = file.relative_to(home)
                archive.write(file, name)
                archive.writestr(str(name.with_suffix(".pyc")), _compiled(file))
    return path


def _compiled(file: Path) -> bytes:
    """Return a compiled module that Python does not compare with its source (PEP 552).

    Its flags, the number 1, are those of a form with a hash that Python does not check.
    """
    code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    return MAGIC_NUMBER + b"\1\0\0\0" + source_hash(file.read_bytes()) + marshal.dumps(code)


@contextlib.contextmanager
def query_conf(
    spark: SparkSession,
    partitions: int,
    kept_epochs: int | None = None,
    local: bool = False,
    extra: Mapping[str, str] | None = None,
    is_batch: bool = False,
) -> Iterator[tuple[RefusedSetting, ...]]:
    """Set the configuration of a flow's query, and restore the old one at the end.

    Settings that have their values already are left as they are. One that the session refuses to
    set is logged if results stay right (`QUERY_SETTINGS`).

    A checkpoint keeps some settings of its first epoch for its whole life: the RocksDB state store,
    changelog checkpointing, the format of state, and bounded memory.

    Args:
        spark: the session.
        partitions: number of partitions of each level.
        kept_epochs: number of retained epochs; ``None`` for the session's setting.
        local: True if the checkpoint is on a file system of this machine.
        extra: settings of this query alone.
        is_batch: True to leave out the settings of streaming and of levels.

    Yields:
        The settings that the session refuses, none of which is needed.

    Raises:
        RefusedSettings: when the session refuses to set a needed one to another value.
    """
    wanted = {**QUERY_CONF, "spark.sql.shuffle.partitions": str(partitions), **(extra or {})}
    if is_batch:  # Its shuffles have a number of partitions of their own.
        del wanted["spark.sql.shuffle.partitions"]
        wanted = {name: value for name, value in wanted.items() if not name.startswith(STREAMING)}
    if local:
        managers = file_managers(spark._jvm if has_jvm(spark) else None, spark.version)
        wanted[_FILE_MANAGER] = f"{managers}.FileSystemBasedCheckpointFileManager"
    if kept_epochs is not None:
        wanted["spark.sql.streaming.minBatchesToRetain"] = str(kept_epochs)
    with contextlib.ExitStack() as changed:
        refused = changed.enter_context(_changed(spark.conf, spark.conf.unset, wanted))
        if not is_remote(spark):  # There is no Spark context to set.
            conf = spark._jsc.sc().conf()
            changed.enter_context(_changed(conf, conf.remove, _LARGE_PLANS))
        yield refused


@contextlib.contextmanager
def _changed(
    conf: Any, remove: Callable[[str], object], wanted: Mapping[str, str]
) -> Iterator[tuple[RefusedSetting, ...]]:
    """Change a configuration in the block, and restore the old one at its end.

    Yields:
        The settings that cannot be set and have another value, none of which is needed.

    Raises:
        RefusedSettings: when a needed setting cannot be set, and has another value.
    """
    before: dict[str, str | None] = {}
    refused: list[RefusedSetting] = []
    try:
        for name, value in wanted.items():
            try:
                old = conf.get(name, None)
                if old != value:
                    conf.set(name, value)
                    before[name] = old
            except _REFUSALS:
                found = _value_in(conf, name)
                is_rocksdb = value.endswith(ROCKSDB) and (found or "").endswith(ROCKSDB)
                if found != value and not is_rocksdb:
                    refused.append(RefusedSetting(name, value, found))
        needed = [one for one in refused if one.use.is_needed]
        if needed:
            raise RefusedSettings(needed)
        for one in refused:
            if one not in _logged:
                logger.warning("this session refuses to set %s", one)
                _logged.add(one)
        yield tuple(refused)
    finally:
        # If the JVM has ended, the original failure must stay visible.
        with contextlib.suppress(*JVM_ERRORS):
            for name, old in before.items():
                if old is None:
                    remove(name)
                else:
                    conf.set(name, old)
