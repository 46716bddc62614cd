"""The Spark session of a run: the active session, or a new one with settings for flows."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from flow.engine.spark.session.code import PACKAGES, send_packages
from flow.engine.spark.session.defaults import LOCAL_DRIVER_MEMORY, LOG_LEVELS, QUIET_LEVELS
from flow.engine.spark.session.java import check_java
from flow.engine.spark.session.jvm_files import (
    directory_for_jvm,
    has_room_for_sockets,
    leave_to_jvm,
    started_in,
    starts_jvm,
)
from flow.engine.spark.session.masters import is_local_master, local_tasks
from flow.engine.spark.session.query_conf import ONE_DAEMON
from flow.engine.spark.session.spark_log import SPARK_LOG, output_to
from flow.engine.spark.startup.early_workers import start_workers_early
from flow.engine.spark.startup.spark_home import quick_spark_home
from flow.engine.spark.startup.switch import has_speedups
from flow.errors import EngineError, FlowBuildError, first_line, shorten

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
_OPTIONS_OF_ANY_JVM = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
)

# On one machine shuffled data stays in the page cache, so compression costs more than it saves.
# Spark's checksums of rows detect differences when a stage runs again after the loss of an
# executor, which a local session does not survive.
_SHUFFLE_CONF: Mapping[str, str] = {
    "spark.shuffle.compress": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}

# Spark retains a thousand jobs, and as many queries with their metrics, for its web page, which is
# off.
_SHORT_HISTORY: Mapping[str, str] = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "50",
}

_LOCAL_CONF: Mapping[str, str] = {
    **_SHUFFLE_CONF,
    **_SHORT_HISTORY,
    # Spark removes the files of a finished shuffle after the JVM has collected its objects. Old
    # objects are collected with the whole heap, by default every half hour. With the 100 MB of a
    # small flow, a collection takes a third of a second.
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.ui.enabled": "false",
    "spark.driver.memory": LOCAL_DRIVER_MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_IN_WORKERS = ("flow_windowing.columnar.windows.plan", "flow_windowing.columnar.step.shard")
"""Modules that only workers import, if their package is in use."""

_STATE_SERVER = (
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
)


@dataclass(frozen=True)
class SparkSettings:
    """Settings of a new session.

    Attributes:
        master: the master URL, such as ``local[4]`` or ``spark://host:7077``; all cores of this
            machine when left out.
        conf: Spark configuration, over the defaults.
        log_level: the level of Spark's log.
        py_files: the user's modules and packages (``.py``, ``.zip``, ``.egg``) to send to the
            workers of a cluster; the packages of this project are always sent.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "WARN"
    py_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.log_level.upper() not in LOG_LEVELS:
            allowed = ", ".join(LOG_LEVELS)
            raise FlowBuildError(f"log_level must be one of {allowed}, got {self.log_level!r}")
        for pair in self.conf.items():
            if not all(isinstance(part, str) for part in pair):
                raise FlowBuildError(f"Spark configuration is text to text, got {shorten(pair)}")


def make_session(name: str, settings: SparkSettings) -> SparkSession:
    """Return the active session, or start a session whose output goes to a file.

    Raises:
        EnvironmentProblem: when Java is missing or too old.
        EngineError: when Spark does not start.
    """
    if SparkContext._active_spark_context is not None:
        return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = _start(name, settings)
    except Exception as error:
        problem = f"Spark did not start: {first_line(error)} (its log: {SPARK_LOG})"
        raise EngineError(problem) from error
    spark.sparkContext.setLogLevel(settings.log_level.upper())
    if settings.log_level.upper() in QUIET_LEVELS:
        _quiet_state_server(spark)
    else:
        SPARK_LOG.keep()
    _quiet_accumulators(spark)
    _send_code(spark, settings)
    if is_local_master(settings.master) and has_speedups():
        start_workers_early(spark)
    return spark


def active_session() -> SparkSession | None:
    """Return the active session of this thread; ``None`` if there is none."""
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession()


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
    with output_to(SPARK_LOG), quick_home, started_in(directory):
        spark = builder.getOrCreate()
    leave_to_jvm(directory)
    return spark


def _quiet_state_server(spark: SparkSession) -> None:
    """Silence Spark's log of reads of missing keys.

    Each epoch reads the header of each shard and step, also of shards without keys. A line for each
    missing header made the log grow by gigabytes in a month.
    """
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_STATE_SERVER, log4j.Level.ERROR)


def _quiet_accumulators(spark: SparkSession) -> None:
    """Silence the traces of PySpark's accumulators, unused by flows, when a worker dies."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _send_code(spark: SparkSession, settings: SparkSettings) -> None:
    """Send the user's files to the workers, and to those of a cluster the packages too."""
    for file in settings.py_files:
        if not Path(file).is_file():
            raise FlowBuildError(f"py_files: there is no file {file!r}")
        spark.sparkContext.addPyFile(str(file))
    if not is_local_master(settings.master):
        send_packages(spark)


def _conf(settings: SparkSettings, unix_sockets: bool) -> dict[str, str]:
    """Return the configuration of a new session; a local one has this project's daemon."""
    if not is_local_master(settings.master):
        return {**_QUIET_CONF, **settings.conf}
    daemon = {"spark.python.unix.domain.socket.enabled": str(unix_sockets).lower()}
    if has_speedups():
        daemon["spark.python.daemon.module"] = "flow.engine.spark.daemon"
        daemon["spark.executorEnv.FLOW_PRELOAD"] = ",".join(_own_modules())
    java = {
        "spark.driver.extraJavaOptions": _java_options(
            local_tasks(settings.master, os.cpu_count() or 1) or 1
        )
    }
    return {**_QUIET_CONF, **_LOCAL_CONF, **java, **ONE_DAEMON, **daemon, **settings.conf}


def _java_options(cores: int) -> str:
    """Return the options of the JVM of a local session that runs this many tasks at a time."""
    # The JVM does not start with options for two collectors.
    user_options = " ".join(os.environ.get(name, "") for name in _OPTIONS_OF_ANY_JVM)
    if cores > _FEW_CORES or _COLLECTOR.search(user_options):
        return _JAVA_OPTIONS
    return f"{_JAVA_OPTIONS} {_ON_FEW_CORES}"


def _own_modules() -> list[str]:
    """Return the loaded modules of this project, and those that only workers load."""
    used = {
        name for name in sys.modules if name.split(".")[0] in PACKAGES and "__main__" not in name
    }
    return sorted(used.union(name for name in _IN_WORKERS if name.split(".")[0] in used))
