"""Stores of checkpoint files without a JVM: a local directory, and one that no machine has."""

from __future__ import annotations

import json
import os
import threading
from contextlib import ExitStack, suppress
from typing import Any

from flow.engine.checkpoint.storage import Storage, create_local_file, replace_local_file
from flow.errors import CheckpointError


class LocalStore(Storage):
    """Files of a local directory, written as those of a checkpoint are."""

    is_local, local_path = True, ""

    def __init__(self, root: Any) -> None:
        self.root = self.local_path = str(root)

    def exists(self, name: str) -> bool:
        return os.path.exists(f"{self.root}/{name}")

    def names(self, name: str) -> list[str]:
        found = os.listdir(f"{self.root}/{name}") if self.exists(name) else []
        return sorted(one for one in found if not one.startswith("."))

    def read(self, name: str) -> Any:
        try:
            with open(f"{self.root}/{name}", "rb") as file:
                return json.load(file)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.root}/{name} cannot be read") from error

    def write(self, name: str, content: Any) -> None:
        self._put(name, json.dumps(content).encode(), overwrite=True)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(f"{self.root}/{name}")

    def _put(self, name: str, data: bytes, overwrite: bool) -> ExitStack:
        os.makedirs(self.root, exist_ok=True)
        if not overwrite:
            return create_local_file(f"{self.root}/{name}", data)
        replace_local_file(f"{self.root}/{name}", data)
        return ExitStack()


class RemoteStore(LocalStore):
    """Files in memory, which have no locks.

    Args:
        is_exclusive: False if of several calls of `create` at a time more than one succeeds.
    """

    is_local = False

    def __init__(self, is_exclusive: bool = True) -> None:
        super().__init__("store://checkpoint")
        self.files: dict[str, Any] = {}
        self._is_exclusive, self._creating = is_exclusive, threading.Lock()

    def exists(self, name: str) -> bool:
        return name in self.files

    def names(self, name: str) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> Any:
        if name not in self.files:
            raise CheckpointError(f"{self.root}/{name} cannot be read")
        return self.files[name]

    def write(self, name: str, content: Any) -> None:
        self.files[name] = content

    def create(self, name: str, content: Any) -> ExitStack | None:
        with self._creating:
            if self._is_exclusive and self.exists(name):
                return None
            self.files[name] = content
            return ExitStack()

    def remove(self, name: str) -> None:
        self.files.pop(name, None)
