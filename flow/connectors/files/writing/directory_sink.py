"""Base of the sinks of files: opening of the directory, and publication of epochs."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from typing_extensions import override

from flow.checks import check_choice
from flow.connectors.datasets import Dataset
from flow.connectors.files.places.place import (
    absolute,
    as_path,
    datasets_of_files,
    raise_as,
    repr_without_credentials,
    without_credentials,
)
from flow.connectors.files.writing.epoch_directory import (
    IF_EXISTS,
    EpochDirectory,
    IfExists,
    Marker,
    Part,
    PartFile,
)
from flow.connectors.sink import Guarantee, Sink, WriteContext, Written
from flow.errors import SinkError

X = TypeVar("X")


@dataclass
class _Run:
    """State of a sink in the run that opened it.

    Attributes:
        run_id: id of the run; ``None`` while the sink is closed.
        marker: content of the directory's marker, after the run's first epoch with items.
        has_committed: True after the run's first commit.
    """

    run_id: str | None = None
    marker: Marker | None = None
    has_committed: bool = False


@dataclass(frozen=True, repr=False)
class DirectorySink(Sink[X]):
    """Base of the sinks of files; see `TextSink` for the arguments."""

    path: str | os.PathLike[str]
    _: KW_ONLY
    if_exists: IfExists = "error"
    _directory: EpochDirectory = field(init=False, repr=False, compare=False)
    _run: _Run = field(default_factory=_Run, init=False, repr=False, compare=False)

    guarantee = Guarantee.EXACTLY_ONCE
    suffix = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", as_path(self.path))
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
    def datasets(self) -> Sequence[Dataset]:
        return datasets_of_files([self._directory.uri])

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        with raise_as(SinkError, f"{self.path} cannot be opened for writing"):
            self._directory.open(run_id, self.if_exists)
        self._set_run(run_id)

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        with raise_as(SinkError, f"step {context.step_id!r}: {self.path} cannot be written to"):
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
        with raise_as(SinkError, f"epoch {epoch} cannot be published in {self.path}"):
            try:
                self._publish(run_id, epoch, parts)
            except FileNotFoundError:
                self._directory.check(run_id)
                raise

    @override
    def close(self) -> None:
        self._set_run(None)

    @abstractmethod
    def write_parts(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        """Write the items of a task to new files."""

    def align_parts(self, parts: list[Part], marker: Marker) -> tuple[list[Part], Marker]:
        """Bring the files of an epoch to the columns of each other and of earlier epochs.

        Returns:
            The files to publish, and the new content of the directory's marker.
        """
        return parts, marker

    def _set_run(self, run_id: str | None) -> None:
        self._run.run_id, self._run.marker, self._run.has_committed = run_id, None, False

    def _publish(self, run_id: str, epoch: int, parts: list[Part]) -> None:
        if self._run.run_id is not None:
            self._directory.check(run_id)
        if not self._run.has_committed:
            self._directory.delete_after(run_id, epoch)
            self._run.has_committed = True
        if parts:
            parts = self._align(run_id, parts)
        self._directory.publish(run_id, epoch, parts, self.suffix)

    def _align(self, run_id: str, parts: list[Part]) -> list[Part]:
        marker = self._run.marker or self._directory.claim(run_id, parts[0].context.step_id)
        parts, self._run.marker = self.align_parts(parts, marker)
        if self._run.marker != marker:
            self._directory.write_marker(run_id, self._run.marker)
        return parts

    def part_file(self, context: WriteContext) -> PartFile:
        """Return a new file for a task."""
        return PartFile(self._directory, context, self.suffix)

    def known_schema(self) -> Any:
        """Return the schema of the published files; ``None`` if there is none."""
        marker = self._directory.read_marker()
        return None if marker is None else marker.schema

    def filesystem(self) -> Any:
        """Return the file system of the directory."""
        return self._directory.place.filesystem
