"""A packed Python environment, as ``spark-submit --archives`` sends it to a cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import venv_pack
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2]
PACKAGES = ("flow", "flow_windowing", "recovery")


def pack_environment(folder: Path) -> Path:
    """Make an environment with this project and its dependencies, and pack it.

    Args:
        folder: an empty folder.

    Returns:
        The path of the archive, ``env.tar.gz`` in the folder. PySpark is not in it: workers have
        that of their Spark.
    """
    home = folder / "packed"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    libraries = next((home / "lib").glob("python*/site-packages"))
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, libraries / package)
    for name in _dependencies("flow-windows") - {"pyspark", "py4j"}:
        _copy_distribution(name, libraries)
    archive = folder / "env.tar.gz"
    venv_pack.pack(str(home), str(archive), compress_level=0)
    shutil.rmtree(home)
    return archive


def _dependencies(name: str) -> set[str]:
    """Return the names of the distributions that a distribution needs, without optional ones."""
    direct = {
        canonicalize_name(requirement.name)
        for requirement in map(Requirement, distribution(name).requires or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    return direct.union(*map(_dependencies, direct))


def _copy_distribution(name: str, libraries: Path) -> None:
    """Copy the modules and metadata of an installed distribution."""
    source = distribution(name)
    unused = shutil.ignore_patterns("tests", "include")
    names = {file.parts[0] for file in source.files or () if file.parts[0] not in ("..", "bin")}
    for top in names - {"__pycache__"}:
        path = Path(str(source.locate_file(top)))
        if path.is_dir():
            shutil.copytree(path, libraries / top, ignore=unused, dirs_exist_ok=True)
        elif path.exists():
            shutil.copy2(path, libraries / top)
