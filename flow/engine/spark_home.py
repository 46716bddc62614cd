"""Where Spark is started from: the installed PySpark, less its zipped copy of itself.

Spark has its Python processes import PySpark from ``python/lib/pyspark.zip`` in its home. Python
keeps no compiled form of what it imports from a zip, so that each process compiles PySpark anew,
which takes it most of a second, and a flow starts with five of them. The same PySpark is installed
beside that zip as a package. So the JVM is started from a folder of links that leaves the zip out.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import site
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark

_HOME = "SPARK_HOME"
_WITH_THE_ZIP = "python"
_NEEDED = ("bin", "jars")


@contextlib.contextmanager
def quick_spark_home() -> Iterator[None]:
    """Let a JVM that is started now have a home that Python processes start quickly from.

    Nothing changes where the user names a home, and where Python processes would not find PySpark
    without the zip.
    """
    home = None if _HOME in os.environ else _linked(Path(pyspark.__file__).parent)
    if home is None:
        yield
        return
    os.environ[_HOME] = str(home)
    try:
        yield
    finally:
        del os.environ[_HOME]


def _linked(installed: Path) -> Path | None:
    """A folder of links to an installation; none where it cannot do instead of it."""
    folders = [path for path in installed.iterdir() if path.is_dir()]
    if not {*_NEEDED} <= {path.name for path in folders} or not _found_by_others(installed):
        return None
    home = Path(tempfile.mkdtemp(prefix="flow-spark-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    try:
        for folder in folders:
            if folder.name != _WITH_THE_ZIP:
                (home / folder.name).symlink_to(folder, target_is_directory=True)
    except OSError:  # a file system, or a user, without links
        return None
    return home


def _found_by_others(installed: Path) -> bool:
    """Whether other processes of this Python import a package from where it is installed."""
    paths = sysconfig.get_paths()
    known = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        known.append(site.getusersitepackages())
    known += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return installed.parent.resolve() in {Path(path).resolve() for path in known}
