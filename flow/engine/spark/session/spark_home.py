"""Spark home for a quick start: links to the installed PySpark without its zip.

Spark's Python processes import PySpark from ``python/lib/pyspark.zip`` in Spark's home. Python does
not store the compiled form of modules in a zip, so each process compiles PySpark again, for most of
a second, and a flow starts with five processes. The same PySpark is installed beside the zip as a
package. So the JVM starts from a folder of links without the zip.

At its start the JVM also reads, checks and links thousands of Spark's classes. Java can store
classes in an archive that it maps into memory (`Application Class-Data Sharing`, JEP 310 and JEP
350). `prepare_home` makes an archive in the Python environment for all later runs. A JVM of another
version, or with other jars, starts without the archive.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext

from flow.engine.spark.session.jvm_start import SUBMIT_OPTIONS, end_jvm, environment, submit_options
from flow.engine.temporary import new_directory
from flow.errors import EnvironmentProblem

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
