"""The source distribution and the wheel: their files, their metadata, and a run of the wheel."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import flow
from tests.support.readme import check_departures, code_block, write_departures

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("flow", "flow_windowing", "recovery")
OF_THE_REPOSITORY = {".ci/run", ".gitignore"}
"""Tracked files that only a checkout needs."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout, to list its files"),
]


@dataclass(frozen=True)
class Built:
    """The result of a build.

    Attributes:
        tracked: the paths of the files in the repository.
        sdist: the source distribution.
        wheel: the wheel, built from the source distribution.
    """

    tracked: frozenset[str]
    sdist: Path
    wheel: Path


def done(*command: str | Path, cwd: Path) -> str:
    """Run a command outside the checkout, and return its output."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build both distributions from a copy of the tracked files."""
    folder = tmp_path_factory.mktemp("packaging")
    listed = done("git", "ls-files", "-z", cwd=ROOT).split("\0")
    tracked = frozenset(name for name in listed if (ROOT / name).is_file())
    for name in tracked:
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "source" / name)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist"]
    done(*build, folder / "source", cwd=folder)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return Built(tracked, sdist, wheel)


def files_in_sdist(sdist: Path) -> set[str]:
    """Return the paths of files, without those that the build adds."""
    with tarfile.open(sdist) as archive:
        paths = [Path(*Path(member.name).parts[1:]) for member in archive if member.isfile()]
    added = {"PKG-INFO", "setup.cfg"}
    return {
        path.as_posix()
        for path in paths
        if path.name not in added and path.parts[0] != "flow_windows.egg-info"
    }


def test_the_source_distribution_holds_the_tracked_files(built: Built) -> None:
    found = files_in_sdist(built.sdist)
    assert built.tracked - OF_THE_REPOSITORY - found == set(), "name them in MANIFEST.in"
    assert found - built.tracked == set()


def test_the_wheel_holds_the_packages_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    packaged = {name for name in built.tracked if name.split("/")[0] in PACKAGES}
    assert names == packaged
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_twine_finds_no_fault(built: Built, tmp_path: Path) -> None:
    twine = [sys.executable, "-m", "twine", "--no-color", "check", "--strict"]
    output = done(*twine, built.sdist, built.wheel, cwd=tmp_path)
    assert output.count("PASSED") == 2


@pytest.mark.parametrize("name", ["dev", "docs"])
def test_both_lists_of_development_dependencies_are_equal(name: str) -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extra = pyproject["project"]["optional-dependencies"][name]
    assert extra == pyproject["dependency-groups"][name]


def test_the_metadata_has_the_version_and_the_readme_without_relative_links(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_string(archive.read(name).decode())
    assert metadata["Version"] == flow.__version__
    description = metadata.get_payload()
    assert isinstance(description, str)
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```$", "", description))
    assert [target for target in targets if not re.match(r"https?:|#", target)] == []
    assert "Recovery (`docs/reference/recovery.md`) lists the" in " ".join(description.split())
    assert "(Catching up: `docs/explanation/catching_up.md`)" in description
    assert "Paths in this text are those of files in the source distribution" in description
    assert description.endswith("Contributing (`CONTRIBUTING.md`) is for developers.\n")


@pytest.fixture(scope="module")
def python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment that has the wheel, and finds its dependencies."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    wheel = ["install", "--quiet", "--no-deps", "--no-index", built.wheel]
    done(*pip, *wheel, cwd=environment)
    use_dependencies(environment)
    return python


def use_dependencies(environment: Path) -> None:
    """Make an environment find the packages of this process's environment after its own.

    The files ``*.pth`` of this process's environment are not read, so the checkout is not found.
    """
    variables = {"base": str(environment), "platbase": str(environment)}
    folder = Path(sysconfig.get_path("purelib", "venv", variables))
    paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (folder / "dependencies.pth").write_text("\n".join(paths) + "\n")


@pytest.mark.extended
def test_the_installed_commands_print_the_version(python: Path, tmp_path: Path) -> None:
    where = done(python, "-c", "import flow; print(flow.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(python.parents[1])
    for command in ("flow.run", "recovery"):
        output = done(python, "-m", command, "--version", cwd=tmp_path)
        assert output == f"flow-windows {flow.__version__}\n"


@pytest.mark.spark
@pytest.mark.extended
def test_the_installed_wheel_runs_the_flow_of_the_readme(python: Path, tmp_path: Path) -> None:
    write_departures(tmp_path)
    (tmp_path / "departures.py").write_text(code_block("A flow in twenty lines"))
    done(python, "departures.py", cwd=tmp_path)
    check_departures(tmp_path)
