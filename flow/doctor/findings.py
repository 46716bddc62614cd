"""Findings of the doctor about this machine: installation, directories and network.

A check of a directory looks at its file system, and writes a file in it on trial.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flow.config.machine import size_text, text_of
from flow.connectors.kafka.client import LastProblem, Properties, errors, make_admin
from flow.engine.spark.session.session_settings import is_local_master
from flow.engine.spark.session.spark_capabilities import check_streaming, spark_capabilities
from flow.engine.spark.session.versions import (
    WAY_OUT,
    check_java,
    installed_version,
    is_supported,
    parse_version,
)
from flow.errors import EnvironmentProblem, FlowError, printable
from flow.network import address, refusal


class Level(Enum):
    """The weight of a finding."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """Result of a check.

    Attributes:
        level: the weight; a problem keeps flows from running.
        subject: the subject of the check.
        text: the state that was found and, unless all is well, what to do.
    """

    level: Level
    subject: str
    text: str

    def line(self) -> str:
        r"""Return the finding as one line without control characters.

        >>> Finding(Level.OK, "Java", "version 17\x1b[31m\nin /usr").line()
        'ok       Java               version 17\\x1b[31m in /usr'
        """
        text = printable(" ".join(self.text.split()))
        return f"{self.level.value:8} {self.subject:18} {text}"


ok = partial(Finding, Level.OK)
"""Return a finding, of a subject and with a text, of which all is well."""
warning = partial(Finding, Level.WARNING)
"""Return a finding that may become a problem."""
problem = partial(Finding, Level.PROBLEM)
"""Return a finding that keeps flows from running."""

WORKER_SECONDS = 60
"""The seconds after which the start of a worker's Python counts as failed."""

_NEEDED = ("pyspark", "pandas", "pyarrow", "numpy", "google.protobuf", "pendulum")
_PROBE = """
import sys
from importlib.util import find_spec
def is_missing(name):
    try:
        return find_spec(name) is None
    except ImportError:
        return True
print("%d.%d" % sys.version_info[:2], *(name for name in sys.argv[1:] if is_missing(name)))
"""
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "kafka": ("confluent-kafka", "fastavro", "msgspec"),
    "registry": ("authlib", "cachetools"),
    "postgres": ("psycopg",),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg",),
    "stores": ("obstore",),
    "typed": ("msgspec",),
    "web": ("prometheus-client",),
    "otel": ("opentelemetry-api", "opentelemetry-sdk"),
    "openlineage": ("openlineage-python",),
    "sketches": ("datasketches",),
}
"""The packages of each extra of this project that a flow may need; those of ``registry`` without
the packages of ``kafka``."""
_JAR = re.compile(r"spark-core_[\d.]+-(\d+\.\d+[^/]*)\.jar")


def java_findings() -> Iterator[Finding]:
    """Check the Java that Spark would start with."""
    try:
        path, version = check_java()
    except EnvironmentProblem as error:
        yield problem("Java", str(error))
    else:
        yield ok("Java", f"{path}, version {version}")


def python_findings(conf: Mapping[str, str], is_local: bool) -> Iterator[Finding]:
    """Check this Python, and the Python of Spark's workers.

    Args:
        conf: the settings of Spark.
        is_local: True if the workers run on this machine.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield ok("Python", f"{sys.executable}, version {sys.version.split()[0]}")
    name, origin = _python_of_workers(conf)
    path, subject = shutil.which(name), "Python of workers"
    found, place = _probed(path), f"{path} ({origin})"
    if path is None:
        what = "is not executable" if os.path.exists(name) else "does not exist"
        text = f"{origin} names {name!r}, which {what}: set it to a Python {own}, or unset it"
        yield problem(subject, text)
    elif not found:
        yield problem(subject, f"{place} does not run: set {origin} to a Python {own}")
    elif found[0] != own:
        text = f"{place} is version {found[0]}, and this Python is {own}: run both with the same"
        yield problem(subject, f"{text} minor version")
    elif found[1:]:
        yield problem(subject, f"{place} lacks {', '.join(found[1:])}: install it there")
    else:
        where = "" if is_local else "; those on the cluster's machines were not checked"
        yield ok(subject, f"{place}, version {own}{where}")


def _python_of_workers(conf: Mapping[str, str]) -> tuple[str, str]:
    """Return the command of the workers' Python, and its origin."""
    if "spark.pyspark.python" in conf:
        return conf["spark.pyspark.python"], "spark.pyspark.python"
    if os.environ.get("PYSPARK_PYTHON"):
        return os.environ["PYSPARK_PYTHON"], "PYSPARK_PYTHON"
    return sys.executable, "default"


def _probed(path: str | None) -> list[str]:
    """Return the version of a Python, and needed packages that it lacks; empty if it fails."""
    command = [path or "", "-c", _PROBE, *_NEEDED]
    try:
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=WORKER_SECONDS
        ).split()
    except (OSError, subprocess.SubprocessError):
        return []


def pyspark_findings() -> Iterator[Finding]:
    """Check the version and capabilities of PySpark, and the version of another Spark home."""
    try:
        version = installed_version()
        text = f"version {version}: {spark_capabilities()}"
    except EnvironmentProblem as error:
        yield problem("PySpark", str(error))
        return
    try:
        check_streaming()
    except EnvironmentProblem as error:
        yield warning("PySpark", str(error))
    else:
        if is_supported(version):
            yield ok("PySpark", text)
        else:
            advice = f"newer than those that flows were tested with; if a run fails, {WAY_OUT}"
            yield warning("PySpark", f"{text}; {advice}")
    yield from _spark_home_findings(version)


def _spark_home_findings(version: str) -> Iterator[Finding]:
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    jars = [_JAR.fullmatch(path.name) for path in Path(home, "jars").glob("spark-core_*.jar")]
    versions = [match[1] for match in jars if match is not None]
    if not versions:
        yield problem(
            "SPARK_HOME", f"{home} has no jars of Spark: unset SPARK_HOME, or set it to a Spark"
        )
    elif parse_version(versions[0]) != parse_version(version):
        yield problem(
            "SPARK_HOME",
            f"{home} is Spark {versions[0]}, and Python imports PySpark {version}: unset "
            f"SPARK_HOME, or install pyspark=={versions[0]}",
        )
    else:
        yield ok("SPARK_HOME", f"{home}, Spark {versions[0]}")


def package_findings() -> Iterator[Finding]:
    """Check the optional packages: those of one extra are installed together."""
    for extra, names in _OPTIONAL.items():
        versions = {name: _version(name) for name in names}
        present = [f"{name} {version}" for name, version in versions.items() if version]
        missing = [name for name, version in versions.items() if not version]
        subject, install = f"Extra {extra}", f"pip install 'flow-windows[{extra}]'"
        if not present:
            yield ok(subject, f"not installed; a flow that needs it: {install}")
        elif missing:
            yield warning(
                subject, f"{', '.join(present)}, and {', '.join(missing)} is missing: {install}"
            )
        else:
            yield ok(subject, ", ".join(present))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


LITTLE = 1 << 30
"""The free bytes below which a disk soon fills up."""
TOO_LITTLE = 100 << 20
"""The free bytes below which a run fails at once."""
SMALL_MEMORY_DISK = 4 << 30
"""The bytes below which a file system in memory is small for shuffled data."""

_LOCAL_SCHEMES = ("", "file")
IN_MEMORY = ("tmpfs", "ramfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs")
_REMOTE_PREFIX = "fuse."
_ESCAPE = re.compile(r"\\(\d{3})")


def temporary_findings(conf: Mapping[str, str]) -> Iterator[Finding]:
    """Check the temporary directory, and Spark's directories for temporary files.

    Args:
        conf: the settings of Spark.
    """
    try:
        directory = tempfile.gettempdir()
    except FileNotFoundError as error:
        text = f"no directory is writable ({error}): set TMPDIR to one that is"
        yield problem("Temporary files", text)
    else:
        yield _directory_finding("Temporary files", directory, "TMPDIR", holds_libraries=True)
    places, origin = _local_directories(conf)
    for place in places:
        yield _directory_finding("Spark local dir", place, origin)


def _local_directories(conf: Mapping[str, str]) -> tuple[list[str], str]:
    """Return Spark's directories for temporary files, if they are set, and what sets them."""
    for origin, text in (
        ("SPARK_LOCAL_DIRS", os.environ.get("SPARK_LOCAL_DIRS", "")),
        ("spark.local.dir", conf.get("spark.local.dir", "")),
    ):
        if text:
            return [part.strip() for part in text.split(",") if part.strip()], origin
    return [], ""


def _directory_finding(
    subject: str, directory: str, origin: str, holds_libraries: bool = False
) -> Finding:
    """Check a directory for temporary files.

    Args:
        subject: the subject of the finding.
        directory: the directory.
        origin: the variable or setting that names the directory.
        holds_libraries: True if the JVM loads native libraries from the directory.
    """
    try:
        system = _tried(existing_part(Path(directory).absolute()))
    except OSError as error:
        text = f"{directory}: {_reason(error)}: set {origin} to a directory that is writable"
        return problem(subject, text)
    about = f"{directory}, {system}"
    if system.free < TOO_LITTLE:
        return problem(subject, f"{about}: make room there, or set {origin} to another disk")
    if holds_libraries and "noexec" in system.options:
        text = f"{about}, mounted noexec, so that native libraries of RocksDB cannot be loaded"
        return problem(subject, f"{text}: set {origin} to another file system")
    if system.is_in_memory and system.size < SMALL_MEMORY_DISK:
        text = f"{about}, in memory and small: large shuffles fill it, and it counts as memory"
        return warning(subject, f"{text}; set {origin} to a disk")
    if system.free < LITTLE:
        return warning(subject, f"{about}: make room there, or set {origin} to another disk")
    return ok(subject, about)


def is_local_path(path: str) -> bool:
    """Return True if a path or URI is on a file system of this machine.

    >>> is_local_path("state/mine"), is_local_path("file:/state"), is_local_path("s3a://b/state")
    (True, True, False)
    """
    return urlsplit(path).scheme in _LOCAL_SCHEMES


def checkpoint_findings(checkpoint: str | None, is_local_master: bool) -> Iterator[Finding]:
    """Check the directory of a checkpoint; one on a remote file system needs Spark.

    Args:
        checkpoint: path or URI of the checkpoint; ``None`` without one.
        is_local_master: True if Spark's workers run on this machine.
    """
    subject = "Checkpoint"
    if checkpoint is None or not is_local_path(checkpoint):
        return
    split = urlsplit(checkpoint)
    wanted = Path(unquote(split.path) if split.scheme else checkpoint).absolute()
    path = existing_part(wanted)
    if not path.is_dir():
        yield problem(subject, f"{path} is no directory: name another one")
        return
    try:
        system = _tried(path)
    except OSError as error:
        text = f"{wanted}: {_reason(error)} in {path}: make it writable, or name another directory"
        yield problem(subject, text)
        return
    yield _judged_checkpoint(wanted, system)
    if not is_local_master:
        text = f"{wanted} is on this machine: all workers of the cluster must see the same files"
        yield warning(subject, f"{text}; name a directory on a shared file system")


def _judged_checkpoint(path: Path, system: FileSystem) -> Finding:
    subject = "Checkpoint"
    state = "has a checkpoint" if (path / "flow.json").exists() else "new"
    about = f"{path} ({state}), {system}"
    if system.free < TOO_LITTLE:
        return problem(subject, f"{about}: make room there, or name another directory")
    if system.is_in_memory:
        text = f"{about}, in memory: the state is lost with this machine; name a directory on disk"
        return warning(subject, text)
    if system.free < LITTLE:
        return warning(subject, f"{about}: make room there, because the state grows")
    if system.is_remote:
        text = f"{about}, on another machine: a rename worked; locks may not, so let one run at a"
        return warning(subject, f"{text} time use the checkpoint")
    return ok(subject, f"{about}; files can be replaced by renames")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


@dataclass(frozen=True)
class FileSystem:
    """The file system of a directory.

    Attributes:
        kind: the type, such as ``ext4``; empty if unknown.
        options: the mount's options.
        free: the free bytes for this user.
        size: the bytes of the file system.
    """

    kind: str
    options: tuple[str, ...]
    free: int
    size: int

    def __str__(self) -> str:
        kind = f"{self.kind}, " if self.kind else ""
        return f"{kind}{size_text(self.free)} free of {size_text(self.size)}"

    @property
    def is_in_memory(self) -> bool:
        """True if files are in memory."""
        return self.kind in IN_MEMORY

    @property
    def is_remote(self) -> bool:
        """True if files are on another machine."""
        return self.kind in REMOTE or self.kind.startswith(_REMOTE_PREFIX)


def file_system_of(directory: Path, mounts: Path = Path("/proc/self/mounts")) -> FileSystem:
    """Return the file system of an existing directory.

    Args:
        directory: the directory.
        mounts: the table of mounts; where it is missing, type and options are unknown.

    Raises:
        OSError: if the directory does not exist.
    """
    usage = shutil.disk_usage(directory)
    path, best = directory.resolve(), Path()
    kind, options = "", ""
    for line in text_of(mounts).splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        place = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        # A later mount hides an earlier one of the same place.
        if path.is_relative_to(place) and len(place.parts) >= len(best.parts):
            best, kind, options = place, fields[2], fields[3]
    return FileSystem(kind, tuple(options.split(",")), usage.free, usage.total)


def _tried(directory: Path) -> FileSystem:
    """Return the file system of a directory in which files can be written and renamed."""
    try_renames(directory)
    return file_system_of(directory)


def existing_part(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next((each for each in (path, *path.parents) if each.exists()), path)


def try_renames(directory: Path) -> None:
    """Replace a file in a directory by renaming another, and remove it.

    Raises:
        OSError: if a file cannot be written, renamed or read again.
    """
    name = f".flow-doctor-{uuid.uuid4().hex}"
    target, new = directory / name, directory / f"{name}.new"
    try:
        target.write_bytes(b"old")
        with new.open("wb") as file:
            file.write(b"new")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
        if target.read_bytes() != b"new":
            raise OSError(f"{target} has the old content after a rename")
    finally:
        for path in (target, new):
            path.unlink(missing_ok=True)


METADATA_SECONDS = 10.0


def master_findings(master: str | None) -> Iterator[Finding]:
    """Check that Spark's master can be reached."""
    subject = "Master"
    if master is None or is_local_master(master):
        yield ok(subject, f"{master or 'local[*]'}, on this machine")
    elif master.startswith("spark://"):
        for part in master.removeprefix("spark://").split(","):
            yield _reached(subject, part, "is the master running there, and the port open?")
    elif master.startswith("k8s://"):
        yield _kubernetes(master)
    elif master == "yarn":
        folders = [name for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
        if any(os.path.isdir(os.environ[name]) for name in folders):
            yield ok(subject, f"yarn, configured by {' and '.join(folders)}")
        else:
            text = "yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR: set it to the folder of the"
            yield problem(subject, f"{text} cluster's configuration")
    else:
        text = f"{master!r} is no master: write local[4], spark://host:7077, k8s://https://host:443"
        yield problem(subject, f"{text} or yarn")


def _kubernetes(master: str) -> Finding:
    url = master.removeprefix("k8s://")
    split = urlsplit(url if "://" in url else f"https://{url}")
    port = split.port or (80 if split.scheme == "http" else 443)
    return _reached("Master", f"{split.hostname}:{port}", "is it the address of the API server?")


def _reached(subject: str, text: str, advice: str) -> Finding:
    """Connect to an address, and say how it went."""
    place = address(text)
    if place is None:
        return problem(subject, f"{text!r} is no address: write HOST:PORT")
    reason = refusal(*place)
    if reason is None:
        return ok(subject, f"{text} accepts connections")
    return problem(subject, f"{text} cannot be reached ({reason}): {advice}")


def kafka_findings(servers: str | None, properties: Mapping[str, str]) -> Iterator[Finding]:
    """Check that brokers accept connections and answer, also at the addresses they name.

    Args:
        servers: addresses separated by commas; ``None`` without brokers to check.
        properties: properties of the client, such as those of a login.
    """
    if servers is None:
        return
    reached = [
        _reached("Kafka", part, "is the broker running there, and the port open?")
        for part in servers.split(",")
    ]
    yield from reached
    if all(each.level is Level.PROBLEM for each in reached):
        return
    if find_spec("confluent_kafka") is None:
        text = "confluent-kafka is not installed, so no broker was asked for its topics"
        yield warning("Kafka", f"{text}: pip install 'flow-windows[kafka]'")
        return
    yield from _metadata_findings(servers, Properties(properties))


def _metadata_findings(servers: str, properties: Properties) -> Iterator[Finding]:
    last = LastProblem(properties)
    try:
        admin = make_admin(servers, properties, last)
        metadata = admin.list_topics(timeout=METADATA_SECONDS)
    except FlowError as error:
        yield problem("Kafka", f"{error}: check --kafka-property")
        return
    except errors() as error:
        yield problem(
            "Kafka",
            f"{servers} accepts connections and does not answer: {properties.mask(str(error))}"
            f"{last}: if the brokers ask for TLS or a login, give the client's properties, such as "
            "--kafka-property security.protocol=SASL_SSL",
        )
        return
    count = len(metadata.topics)
    yield ok("Kafka", f"{servers} answers: {len(metadata.brokers)} brokers, {count} topics")
    yield from _advertised_findings(metadata.brokers.values())


def _advertised_findings(brokers: Any) -> Iterator[Finding]:
    """Check the addresses that brokers tell their clients to use."""
    for broker in brokers:
        reason = refusal(broker.host, broker.port)
        if reason is not None:
            text = f"broker {broker.id} tells clients to use {broker.host}:{broker.port}, which"
            advice = (
                "set advertised.listeners of the broker to an address that is reached from here"
            )
            yield problem("Kafka", f"{text} cannot be reached ({reason}): {advice}")
