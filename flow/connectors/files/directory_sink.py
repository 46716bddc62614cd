"""What the sinks that write a directory have in common: opening it, and publishing epochs."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from typing_extensions import override

from flow.checks import check_choice
from flow.connectors.files.epoch_directory import (
    IF_EXISTS,
    EpochDirectory,
    IfExists,
    Marker,
    Part,
    PartFile,
)
from flow.connectors.files.places import (
    absolute,
    checked_path,
    explained,
    repr_without_credentials,
    without_credentials,
)
from flow.connectors.sink import Guarantee, Sink, WriteContext, Written
from flow.errors import SinkError

X = TypeVar("X")


@dataclass
class _Run:
    """What a sink knows of the run that it was opened for."""

    run_id: str | None = None
    marker: Marker | None = None
    began: bool = False


@dataclass(frozen=True, repr=False)
class DirectorySink(Sink[X]):
    """The base of the sinks that write files; the arguments are described there."""

    path: str | os.PathLike[str]
    _: KW_ONLY
    if_exists: IfExists = "error"
    _directory: EpochDirectory = field(init=False, repr=False, compare=False)
    _run: _Run = field(default_factory=_Run, init=False, repr=False, compare=False)

    guarantee = Guarantee.EXACTLY_ONCE
    suffix = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_path(self.path))
        check_choice("if_exists", self.if_exists, IF_EXISTS)
        # A worker may have another working directory.
        object.__setattr__(self, "_directory", EpochDirectory(absolute(str(self.path))))

    __repr__ = repr_without_credentials

    @property
    @override
    def only_output(self) -> str | None:
        uri = self._directory.uri
        if "://" in uri and not uri.startswith("file:"):
            return without_credentials(uri).rstrip("/")
        return os.path.realpath(self._directory.place.path)

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        with explained(SinkError, f"{self.path} cannot be opened for writing"):
            self._directory.open(run_id, self.if_exists)
        self._run.run_id, self._run.marker, self._run.began = run_id, None, False

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        with explained(SinkError, f"step {context.step_id!r}: {self.path} cannot be written to"):
            try:
                return self.write_parts(context, batches)
            except FileNotFoundError:
                self._directory.check(context.run_id)
                raise

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        parts = [part for message in messages for part in message]
        run_id = self._run.run_id or (parts[0].context.run_id if parts else None)
        if run_id is None:
            return
        with explained(SinkError, f"epoch {epoch} cannot be published in {self.path}"):
            try:
                self._publish(run_id, epoch, parts)
            except FileNotFoundError:
                self._directory.check(run_id)
                raise

    @override
    def close(self) -> None:
        self._run.run_id, self._run.marker, self._run.began = None, None, False

    @abstractmethod
    def write_parts(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        """Write a worker's items to files of its own."""

    def settled(self, parts: list[Part], marker: Marker) -> tuple[list[Part], Marker]:
        """Make the files of an epoch agree with each other and with those before.

        Returns:
            The files to publish, and what to know of the directory from now on.
        """
        return parts, marker

    def _publish(self, run_id: str, epoch: int, parts: list[Part]) -> None:
        if self._run.run_id is not None:
            self._directory.check(run_id)
        if not self._run.began:
            self._directory.drop_after(run_id, epoch)
            self._run.began = True
        if parts:
            parts = self._settle(run_id, parts)
        self._directory.publish(run_id, epoch, parts, self.suffix)

    def _settle(self, run_id: str, parts: list[Part]) -> list[Part]:
        marker = self._run.marker or self._directory.claim(run_id, parts[0].context.step_id)
        parts, self._run.marker = self.settled(parts, marker)
        if self._run.marker != marker:
            self._directory.write_marker(run_id, self._run.marker)
        return parts

    def part_file(self, context: WriteContext) -> PartFile:
        """A new file for a worker to write."""
        return PartFile(self._directory, context, self.suffix)

    def known_schema(self) -> Any:
        """The columns that have been published, ``None`` if none have, or it is not known."""
        marker = self._directory.read_marker()
        return None if marker is None else marker.schema

    def filesystem(self) -> Any:
        """The file system that is written to."""
        return self._directory.place.filesystem
