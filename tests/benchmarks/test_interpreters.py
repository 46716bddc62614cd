"""Choice of the Python that runs a peer of the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.windows import interpreters
from benchmarks.windows.interpreters import interpreter_with

OLDER = """#!/bin/sh
# A Python that makes environments with a Python that can install anything.
mkdir -p "$3/bin"
printf '#!/bin/sh\\n' > "$3/bin/python"
chmod +x "$3/bin/python"
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands, on a Python for which the peer ``elder`` has no wheel."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(interpreters, "WITH_WHEELS", ())
    known = {"elder": (("python-new", "python-old"), "elder==1")}
    monkeypatch.setattr(interpreters, "OWN_ENVIRONMENTS", known)
    interpreter_with.cache_clear()
    return folder


def add_command(path: Path, name: str, text: str) -> None:
    (path / name).write_text(text)
    (path / name).chmod(0o755)


def test_this_python_runs_installed_peers(path: Path, tmp_path: Path) -> None:
    assert interpreter_with("", tmp_path) == sys.executable
    assert interpreter_with("pyarrow", tmp_path) == sys.executable


def test_a_peer_without_a_wheel_gets_an_older_python_of_its_own(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interpreter_with("elder", tmp_path) is None, "there is no older Python"
    add_command(path, "python-new", "#!/bin/sh\nexit 127\n")
    add_command(path, "python-old", OLDER)
    monkeypatch.setattr(interpreters, "WITH_WHEELS", (sys.version_info[:2],))
    interpreter_with.cache_clear()
    assert interpreter_with("elder", tmp_path) is None, "this Python could install it"
    monkeypatch.setattr(interpreters, "WITH_WHEELS", ())
    interpreter_with.cache_clear()
    found = interpreter_with("elder", tmp_path / "home")
    assert found == str(tmp_path / "home/python-old-elder/bin/python")
