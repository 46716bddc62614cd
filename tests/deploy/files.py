"""Readers of the files in ``deploy/``."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
STOP_SECONDS = 150
"""The time that a stop may take: an epoch of two minutes, and half a minute to stop Spark."""


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line.strip())
    return [(name, " ".join(rest.split())) for name, rest in pairs]


def final_stage() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile's last stage."""
    found = instructions()
    last = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def manifests(name: str) -> dict[str, Any]:
    """Return the documents of a manifest by kind."""
    documents = yaml.safe_load_all((DEPLOY / name).read_text("utf-8"))
    return {document["kind"]: document for document in documents}


def unit() -> configparser.ConfigParser:
    """Return the sections of the systemd unit."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(DEPLOY / "flow.service", "utf-8")
    return parser


def command(text: str) -> list[str]:
    """Return the words of a command that may have continued lines."""
    return shlex.split(text.replace("\\\n", " "))
