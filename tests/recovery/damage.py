"""Damage of a checkpoint's files, as by a disk or a careless copy."""

from __future__ import annotations

import json
from pathlib import Path


def forget_checksums(file: Path) -> None:
    """Remove the checksums that Hadoop and Spark keep beside a file."""
    for name in (f".{file.name}.crc", f"{file.name}.crc", f".{file.name}.crc.crc"):
        (file.parent / name).unlink(missing_ok=True)


def cut_off(file: Path, keep: float = 0.5) -> None:
    """Keep only the beginning of a file."""
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])


def replace(file: Path, text: str) -> None:
    """Write another text without a checksum that would reveal the change."""
    forget_checksums(file)
    file.write_text(text, "utf-8")


def state_file(checkpoint: Path, epoch: int, suffix: str, partition: int = 0) -> Path:
    """Return the state file that an epoch wrote at the first level."""
    text = (checkpoint / "spark" / "commits" / str(epoch)).read_text("utf-8")
    ids = json.loads(text.splitlines()[1]).get("stateUniqueIds")  # None in format 1.
    version = f"{epoch + 1}_{ids['0'][partition][0]}" if ids else str(epoch + 1)
    name = f"{version}.{suffix}"
    return checkpoint / "spark" / "state" / "0" / str(partition) / name
