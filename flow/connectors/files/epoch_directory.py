"""Directory of output, to which each epoch is published as a whole.

::

    out/
      _flow.json                    the marker: runs that write here
      epoch=00000012-1a2b3c4d/      output of one run for one epoch
        part-00003.parquet
      .tmp-1a2b3c4d-00000013/       files that tasks are writing

Each attempt of a task writes a file with a unique name in a temporary directory. A commit moves the
files of its commit messages to a new directory, and renames the directory. A reader therefore sees
all of an epoch or nothing, and an abandoned task that still writes has no effect. Readers skip
names that start with ``_`` or ``.``, and read ``epoch`` as a partition column.
"""

from __future__ import annotations

import base64
import json
import os
import re
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from hashlib import blake2s
from itertools import chain
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import pyarrow as pa
from pyarrow import fs
from typing_extensions import override

from flow.checks import check_choice
from flow.connectors.files.filesystems import (
    OBJECT_STORES,
    Place,
    absolute,
    as_path,
    datasets_of_files,
    is_local,
    locate,
    raise_as,
    repr_without_credentials,
    without_credentials,
)
from flow.connectors.formats.columns import EPOCH_COLUMN
from flow.connectors.sink import Guarantee, Sink, SinkBatch, WriteContext
from flow.connectors.source import Dataset
from flow.errors import SinkError
from flow.format_version import VERSION, check_format

IfExists: TypeAlias = Literal["error", "replace", "append"]
"""Action for a directory that is not empty."""

_MARKER = "_flow.json"
_TEMPORARY = ".tmp-"
_EPOCH = re.compile(EPOCH_COLUMN + r"=(\d{8,})-([0-9a-f]{8})")


@dataclass(frozen=True)
class Part:
    """A file of a task, before its publication.

    Attributes:
        path: path of the temporary file.
        context: run, epoch, step and partition of the items.
        rows: number of items.
        schema: serialized schema; empty for formats without columns.
        directory: directory of the file below that of the epoch; empty for the latter itself.
    """

    path: str
    context: WriteContext
    rows: int
    schema: bytes = b""
    directory: str = ""


@dataclass(frozen=True)
class Marker:
    """Content of the file that marks the directory of a flow's output.

    Attributes:
        runs: ids of the runs that write to the directory, by short name.
        steps: ids of the output steps that write to the directory, by short name of their run.
        schema: schema of the published files, for formats with columns.
        owner: short name of the last run that did not append; empty if all did.
    """

    runs: dict[str, str] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)
    schema: pa.Schema | None = None
    owner: str = ""

    def to_bytes(self) -> bytes:
        """Return the marker as the content of its file."""
        schema = None
        if self.schema is not None:
            schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        content = {**vars(self), "format": VERSION, "schema": schema}
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Marker | None:
        """Return the marker that `to_bytes` encoded; ``None`` if the data is no marker.

        Args:
            data: the content of the file.
            name: the file's name, for errors.

        Raises:
            SinkError: the marker has another format.
        """
        try:
            content = json.loads(data)
            check_format(name, content["format"], SinkError, "directory")
            schema = content["schema"] and read_schema(base64.b64decode(content["schema"]))
            runs, steps = dict(content["runs"]), dict(content["steps"])
            return cls(runs, steps, schema, content["owner"])
        except (ValueError, TypeError, KeyError, pa.ArrowException):
            return None


def read_schema(data: bytes) -> pa.Schema:
    """Return a schema from its serialized form."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def short_name(run_id: str) -> str:
    """Return eight characters that identify a run in the names of directories."""
    return blake2s(run_id.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True)
class EpochDirectory:
    """Directory of output, at a path or URI."""

    uri: str

    def __str__(self) -> str:
        return str(self.place)

    @property
    def place(self) -> Place:
        """The place of the directory."""
        return locate(self.uri)

    def open(self, run_id: str, if_exists: IfExists) -> Marker:
        """Create the directory or take it over for a run, and write and return its marker.

        Raises:
            SinkError: the directory has content that `if_exists` does not allow.
        """
        names = self._names()
        marker = self.read_marker()
        short = short_name(run_id)
        if marker is None or run_id not in marker.runs.values():
            for name in self._replaced(names, marker, if_exists):
                self._delete(self.path(name))
            new = Marker(owner="" if if_exists == "append" else short)
            marker = marker if marker and if_exists == "append" else new
        for name in names:
            if name.startswith(f"{_TEMPORARY}{short}-"):
                self._delete(self.path(name))
        self.place.filesystem.create_dir(self.place.path, recursive=True)
        steps = {name: step for name, step in marker.steps.items() if name != short}
        marker = replace(marker, runs={**marker.runs, short: run_id}, steps=steps)
        self.write_marker(run_id, marker)
        return marker

    def check_writable(self, if_exists: IfExists) -> None:
        """Create the directory, and check that a new run may write to it.

        Raises:
            SinkError: the directory has content that `if_exists` does not allow.
            OSError: the directory cannot be created, or is not writable.
        """
        self._replaced(self._names(), self.read_marker(), if_exists)
        self.place.filesystem.create_dir(self.place.path, recursive=True)
        if not os.access(self.place.path, os.W_OK | os.X_OK):
            raise PermissionError("this user may not write to the directory")

    def _replaced(
        self, names: Sequence[str], marker: Marker | None, if_exists: IfExists
    ) -> list[str]:
        """Return the names of the output that a new run replaces.

        Raises:
            SinkError: the directory has content that `if_exists` does not allow.
        """
        if if_exists == "append":
            return []
        temporary = [name for name in names if name.startswith(_TEMPORARY)]
        epochs = [name for name in names if marker and _EPOCH.fullmatch(name)]
        own = {*temporary, *epochs, *([_MARKER] if marker else [])}
        foreign = [name for name in names if name not in own]
        if foreign:
            raise SinkError(self._foreign_problem(foreign, if_exists))
        if epochs and if_exists == "error":
            raise SinkError(
                f"{self} holds the output of another run, {len(epochs)} epochs of it: write to "
                "another path, or pass if_exists='replace' to delete that output, or "
                "if_exists='append' to write beside it"
            )
        return epochs + temporary

    def _foreign_problem(self, foreign: list[str], if_exists: IfExists) -> str:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        there = ", ".join(map(repr, sorted(foreign)[:3])) + more
        only = "if_exists='replace' deletes only what a flow wrote: " * (if_exists == "replace")
        return (
            f"{self} holds {there}, which no flow wrote: {only}write to another path or an empty "
            "directory, or pass if_exists='append' to write beside it"
        )

    def check(self, run_id: str, owner: str | None = None) -> Marker:
        """Return the marker of the directory, which the run has opened.

        A run that appended at the same moment may have written a marker without this run, which is
        added again.

        Args:
            run_id: the run.
            owner: owner of the directory when the run opened it; ``None`` if that is not known.

        Raises:
            SinkError: the directory was removed, or another run has taken it over.
        """
        marker = self.read_marker()
        if marker is None:
            raise SinkError(
                f"{self} was removed while the flow ran, or its {_MARKER} was, and with it what "
                "the flow had published there: put it back from a copy, and run the flow again; "
                "without a copy the flow continues in a new directory, which lacks those epochs"
            )
        if run_id not in marker.runs.values():
            if marker.owner != owner:
                problem = "was taken over by another run, which has replaced its content"
                raise SinkError(f"{self} {problem}")
            marker = replace(marker, runs={**marker.runs, short_name(run_id): run_id})
            self.write_marker(run_id, marker)
        return marker

    def claim(self, run_id: str, step_id: str, owner: str | None) -> Marker:
        """Write the id of the step into the marker, at the run's first epoch with items.

        Raises:
            SinkError: another step of the run writes to the directory, another run has taken it
                over, or it was removed.
        """
        marker, short = self.check(run_id, owner), short_name(run_id)
        first = marker.steps.get(short)
        if first not in (None, step_id):
            raise SinkError(
                f"steps {first!r} and {step_id!r} both write to {self}: "
                "give each output a path of its own"
            )
        if first is None:
            marker = replace(marker, steps={**marker.steps, short: step_id})
            self.write_marker(run_id, marker)
        return marker

    def delete_after(self, run_id: str, epoch: int) -> None:
        """Delete the run's output of later epochs, which a rewind to `epoch` has left."""
        for name in self._names():
            match = _EPOCH.fullmatch(name)
            if match and match[2] == short_name(run_id) and int(match[1]) > epoch:
                self._delete(self.path(name))

    def publish(self, run_id: str, epoch: int, parts: Sequence[Part], suffix: str) -> None:
        """Publish the files of an epoch, and replace the files of an earlier attempt."""
        filesystem = self.place.filesystem
        target = self.path(f"{EPOCH_COLUMN}={epoch:08d}-{short_name(run_id)}")
        temporary = self._temporary(run_id, epoch)
        names = _part_names(parts, suffix)
        if filesystem.type_name in OBJECT_STORES:  # A move of a directory is not atomic.
            self._publish_files(target, parts, names)
        else:
            new, old = f"{temporary}-new", f"{temporary}-old"
            self._delete(new)
            for directory in sorted({part.directory for part in parts}):
                filesystem.create_dir(f"{new}/{directory}".rstrip("/"), recursive=True)
            for part, name in zip(parts, names, strict=True):
                filesystem.move(part.path, f"{new}/{name}")
            if filesystem.get_file_info(target).type != fs.FileType.NotFound:
                filesystem.move(target, old)
            if parts:
                filesystem.move(new, target)
            self._delete(old)
        self._delete(temporary)

    def _publish_files(self, target: str, parts: Sequence[Part], names: Sequence[str]) -> None:
        filesystem = self.place.filesystem
        selector = fs.FileSelector(target, allow_not_found=True, recursive=True)
        infos = filesystem.get_file_info(selector)
        files = [info.path for info in infos if info.type == fs.FileType.File]
        before = [path[path.index(target) + len(target) + 1 :] for path in files]
        for part, name in zip(parts, names, strict=True):
            filesystem.move(part.path, f"{target}/{name}")
        for name in set(before) - set(names):
            filesystem.delete_file(f"{target}/{name}")

    def path(self, name: str) -> str:
        """Return the path of an entry of the directory."""
        return f"{self.place.path.rstrip('/')}/{name}"

    def read_marker(self) -> Marker | None:
        """Return the marker of the directory; ``None`` if no flow has written to it."""
        filesystem = self.place.filesystem
        if filesystem.get_file_info(self.path(_MARKER)).type != fs.FileType.File:
            return None
        with filesystem.open_input_stream(self.path(_MARKER), compression=None) as stream:
            return Marker.from_bytes(stream.read(), f"{self}/{_MARKER}")

    def write_marker(self, run_id: str, marker: Marker) -> None:
        """Write the marker to a temporary file and rename it, so that readers never see a part."""
        filesystem = self.place.filesystem
        temporary = self.path(f"{_TEMPORARY}{short_name(run_id)}-{uuid.uuid4().hex}")
        with filesystem.open_output_stream(temporary, compression=None) as stream:
            stream.write(marker.to_bytes())
        filesystem.move(temporary, self.path(_MARKER))

    def new_file(self, context: WriteContext, suffix: str) -> str:
        """Return the path of a new file, unique to this attempt of a task."""
        directory = self._temporary(context.run_id, context.epoch)
        self.place.filesystem.create_dir(directory, recursive=True)
        return f"{directory}/{context.partition:05d}-{uuid.uuid4().hex}{suffix}"

    def _temporary(self, run_id: str, epoch: int) -> str:
        return self.path(f"{_TEMPORARY}{short_name(run_id)}-{epoch:08d}")

    def _names(self) -> list[str]:
        place = self.place
        info = place.filesystem.get_file_info(place.path)
        if info.type == fs.FileType.NotFound:
            return []
        if info.type == fs.FileType.File:
            raise SinkError(f"{self} is a file: path must name a directory, new or existing")
        entries = place.filesystem.get_file_info(fs.FileSelector(place.path))
        return [entry.base_name for entry in entries]

    def _delete(self, path: str) -> None:
        filesystem = self.place.filesystem
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.Directory:
            filesystem.delete_dir(path)
        elif info.type == fs.FileType.File:
            filesystem.delete_file(path)


class PartFile:
    """A task's file, created by the first write."""

    def __init__(self, directory: EpochDirectory, context: WriteContext, suffix: str) -> None:
        self._directory = directory
        self._context = context
        self._suffix = suffix
        self._stream: Any = None
        self._path = ""
        self.rows = 0

    def close(self) -> None:
        """Close the file, if a write has created it."""
        if self._stream is not None:
            self._stream.close()

    def delete(self) -> None:
        """Close and delete the file, if a write has created it."""
        self.close()
        if self._stream is not None:
            self._directory.place.filesystem.delete_file(self._path)

    @property
    def stream(self) -> Any:
        """The open file."""
        if self._stream is None:
            self._path = self._directory.new_file(self._context, self._suffix)
            filesystem = self._directory.place.filesystem
            self._stream = filesystem.open_output_stream(self._path, compression=None)
        return self._stream

    def parts(self, schema: pa.Schema | None = None, directory: str = "") -> list[Part]:
        """Return the commit message: the file, or nothing if it has no items."""
        if not self.rows:
            return []
        columns = b"" if schema is None else schema.serialize().to_pybytes()
        return [Part(self._path, self._context, self.rows, columns, directory)]


def _part_names(parts: Sequence[Part], suffix: str) -> list[str]:
    """Return the published names of files: by partition, then by number in the partition.

    The names are relative to the directory of the epoch.
    """
    counts: Counter[int] = Counter()
    names = []
    for part in parts:
        partition = part.context.partition
        number = f"-{counts[partition]}" if counts[partition] else ""
        counts[partition] += 1
        names.append(f"{part.directory}/part-{partition:05d}{number}{suffix}".lstrip("/"))
    return names


X = TypeVar("X")


@dataclass
class _Run:
    """State of a sink in the run that opened it.

    Attributes:
        run_id: id of the run; ``None`` while the sink is closed.
        owner: owner of the directory when the run opened it.
        has_claimed: True after the run's first epoch with items.
        has_committed: True after the run's first commit.
    """

    run_id: str | None = None
    owner: str | None = None
    has_claimed: bool = False
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
        check_choice("if_exists", self.if_exists, get_args(IfExists))
        # A worker may have another working directory.
        object.__setattr__(self, "_directory", EpochDirectory(absolute(str(self.path))))

    __repr__ = repr_without_credentials

    @property
    @override
    def only_output(self) -> str | None:
        uri = self._directory.uri
        if not is_local(uri):
            return without_credentials(uri).rstrip("/")
        return os.path.realpath(self._directory.place.path)

    @override
    def datasets(self) -> Sequence[Dataset]:
        return datasets_of_files([self._directory.uri])

    @override
    def check(self, resuming: bool) -> None:
        if is_local(self._directory.uri):
            with raise_as(SinkError, f"{self.path} cannot be opened for writing"):
                self._directory.check_writable("append" if resuming else self.if_exists)

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        with raise_as(SinkError, f"{self.path} cannot be opened for writing"):
            owner = self._directory.open(run_id, self.if_exists).owner
        object.__setattr__(self, "_run", _Run(run_id, owner))

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[Part]:
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
        object.__setattr__(self, "_run", _Run())

    @abstractmethod
    def write_parts(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[Part]:
        """Write the items of a task to new files."""

    def common_schema(
        self,
        schemas: list[pa.Schema],  # noqa: ARG002
        known: pa.Schema | None,  # noqa: ARG002
        step_id: str,  # noqa: ARG002
    ) -> pa.Schema | None:
        """Return the columns of the files of an epoch, which later epochs have too.

        Args:
            schemas: the columns of each file.
            known: the columns of earlier epochs; ``None`` before the first.
            step_id: the output's step, for errors.

        Returns:
            The columns; ``None`` for files that need no rewriting.
        """
        return None

    def rewrite(self, part: Part, before: pa.Schema, after: pa.Schema) -> list[Part]:
        """Write a file again, with the columns of `common_schema`."""
        raise NotImplementedError

    def _publish(self, run_id: str, epoch: int, parts: list[Part]) -> None:
        # Nothing is deleted where another run has taken over; later, `_align` checks that.
        if self._run.run_id is not None and not (parts and self._run.has_committed):
            self._directory.check(run_id, self._run.owner)
        if not self._run.has_committed:
            self._directory.delete_after(run_id, epoch)
            self._run.has_committed = True
        if parts:
            parts = self._align(run_id, parts)
        self._directory.publish(run_id, epoch, parts, self.suffix)

    def _align(self, run_id: str, parts: list[Part]) -> list[Part]:
        step_id = parts[0].context.step_id
        if self._run.has_claimed:
            marker = self._directory.check(run_id, self._run.owner)
        else:
            marker = self._directory.claim(run_id, step_id, self._run.owner)
        self._run.has_claimed = True
        schemas = [read_schema(part.schema) for part in parts if part.schema]
        schema = self.common_schema(schemas, marker.schema, step_id)
        if schema is not None:
            pairs = zip(parts, schemas, strict=True)
            aligned = [[p] if own == schema else self.rewrite(p, own, schema) for p, own in pairs]
            parts = list(chain.from_iterable(aligned))
            if schema != marker.schema:
                marker = replace(marker, schema=schema)
                self._directory.write_marker(run_id, marker)
        return parts

    @contextmanager
    def part_file(self, context: WriteContext) -> Iterator[PartFile]:
        """Yield a new file for a task, which is deleted if the block fails."""
        file = PartFile(self._directory, context, self.suffix)
        try:
            yield file
        except BaseException:
            file.delete()
            raise
        file.close()

    def known_schema(self) -> Any:
        """Return the schema of the published files; ``None`` if there is none."""
        marker = self._directory.read_marker()
        return None if marker is None else marker.schema

    def filesystem(self) -> Any:
        """Return the file system of the directory."""
        return self._directory.place.filesystem
