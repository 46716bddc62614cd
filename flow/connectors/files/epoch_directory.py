"""A directory to which epochs are published, each as a whole.

::

    out/
      _flow.json                    which runs write here
      epoch=00000012-1a2b3c4d/      what one run published for one epoch
        part-00003.parquet
      .tmp-1a2b3c4d-00000013/       what the workers are writing

Workers write files of their own below a temporary directory. A commit moves those that it was told
of to a directory that nobody else knows, and renames that one. So a reader sees all of an epoch or
nothing of it, and a task that was thought dead and goes on writing does no harm. Readers skip names
that start with ``_`` or ``.``, and take ``epoch`` for a partition column.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2s
from types import TracebackType
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pyarrow import fs

from flow.connectors.files.places import Place, locate
from flow.connectors.formats.epoch_column import EPOCH_COLUMN
from flow.connectors.sink import WriteContext
from flow.errors import SinkError

IfExists: TypeAlias = Literal["error", "replace", "append"]
"""What to do with a directory that holds something already."""

IF_EXISTS = ("error", "replace", "append")

_MARKER = "_flow.json"
_TEMPORARY = ".tmp-"
_EPOCH = re.compile(EPOCH_COLUMN + r"=(\d{8,})-([0-9a-f]{8})")
# Moving a directory copies what is in it, file by file, so that it would not come as a whole.
_WITHOUT_RENAME = ("s3", "gcs", "abfs")


@dataclass(frozen=True)
class Part:
    """A file that a worker has written.

    Attributes:
        path: where it is, not yet published.
        context: which piece of the output it holds.
        rows: how many items.
        schema: its columns, serialized; empty for files without.
    """

    path: str
    context: WriteContext
    rows: int
    schema: bytes = b""


@dataclass(frozen=True)
class Marker:
    """What is known of a directory that a flow writes to.

    Attributes:
        runs: the runs that write to it, by their short names.
        step: the output step that does.
        schema: the columns that have been written, where a format has columns.
    """

    runs: dict[str, str] = field(default_factory=dict)
    step: str | None = None
    schema: pa.Schema | None = None

    def to_bytes(self) -> bytes:
        """The marker as the content of its file."""
        schema = None if self.schema is None else _serialized(self.schema)
        content = {"format": 1, "runs": self.runs, "step": self.step, "schema": schema}
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Marker | None:
        """Read what `to_bytes` wrote; ``None`` when this is something else."""
        try:
            content = json.loads(data)
            schema = content["schema"] and read_schema(base64.b64decode(content["schema"]))
            return cls(dict(content["runs"]), content["step"], schema)
        except (ValueError, TypeError, KeyError, pa.ArrowException):
            return None


def read_schema(data: bytes) -> pa.Schema:
    """Read a serialized schema."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def short_name(run_id: str) -> str:
    """Eight characters that stand for a run in the names of directories."""
    return blake2s(run_id.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True)
class EpochDirectory:
    """The directory at a path or URI."""

    uri: str

    def __str__(self) -> str:
        return str(self.place)

    @property
    def place(self) -> Place:
        """Where it is."""
        return locate(self.uri)

    def open(self, run_id: str, if_exists: IfExists) -> None:
        """Make the directory ready for a run.

        Raises:
            SinkError: it holds what `if_exists` does not allow for.
        """
        names = self._names()
        marker = self.read_marker()
        short = short_name(run_id)
        if marker is None or run_id not in marker.runs.values():
            marker = self._taken_over(names, marker, if_exists)
        for name in names:
            if name.startswith(f"{_TEMPORARY}{short}-"):
                self._delete(self.path(name))
        self.place.filesystem.create_dir(self.place.path, recursive=True)
        marker = replace(marker, runs={**marker.runs, short: run_id}, step=None)
        self.write_marker(run_id, marker)

    def _taken_over(
        self, names: Sequence[str], marker: Marker | None, if_exists: IfExists
    ) -> Marker:
        """What a new run starts from, with what is there removed if it is to be replaced."""
        temporary = [name for name in names if name.startswith(_TEMPORARY)]
        epochs = [name for name in names if marker and _EPOCH.fullmatch(name)]
        known = {*temporary, *epochs, *([_MARKER] if marker else [])}
        foreign = [name for name in names if name not in known]
        if if_exists == "append":
            return marker or Marker()
        if foreign:
            raise SinkError(self._foreign_problem(foreign, if_exists))
        if epochs and if_exists == "error":
            raise SinkError(
                f"{self} holds the output of another run, {len(epochs)} epochs of it: write to "
                "another path, or pass if_exists='replace' to delete that output, or "
                "if_exists='append' to write beside it"
            )
        for name in epochs + temporary:
            self._delete(self.path(name))
        return Marker()

    def _foreign_problem(self, foreign: list[str], if_exists: IfExists) -> str:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        there = ", ".join(map(repr, sorted(foreign)[:3])) + more
        only = "if_exists='replace' deletes only what a flow wrote: " * (if_exists == "replace")
        return (
            f"{self} holds {there}, which no flow wrote: {only}write to another path or an empty "
            "directory, or pass if_exists='append' to write beside it"
        )

    def check(self, run_id: str) -> Marker:
        """Return what is known of the directory, which a run has opened.

        Raises:
            SinkError: the directory was removed since, or another run has it.
        """
        marker = self.read_marker()
        if marker is None:
            raise SinkError(
                f"{self} was removed while the flow ran, or its {_MARKER} was, and with it what "
                "the flow had published there: put it back from a copy, and run the flow again; "
                "without a copy the flow goes on in a new directory, which lacks those epochs"
            )
        if run_id not in marker.runs.values():
            raise SinkError(f"{self} was taken over by another run, which has replaced its content")
        return marker

    def claim(self, run_id: str, step_id: str) -> Marker:
        """Note which step writes here, when the first of its items of a run are there.

        Raises:
            SinkError: another step, or another run, has the directory, or it was removed.
        """
        marker = self.check(run_id)
        if marker.step not in (None, step_id):
            raise SinkError(
                f"steps {marker.step!r} and {step_id!r} both write to {self}: "
                "give each output a path of its own"
            )
        if marker.step is None:
            marker = replace(marker, step=step_id)
            self.write_marker(run_id, marker)
        return marker

    def drop_after(self, run_id: str, epoch: int) -> None:
        """Remove what the run published for later epochs, before it was set back to this one."""
        for name in self._names():
            match = _EPOCH.fullmatch(name)
            if match and match[2] == short_name(run_id) and int(match[1]) > epoch:
                self._delete(self.path(name))

    def publish(self, run_id: str, epoch: int, parts: Sequence[Part], suffix: str) -> None:
        """Make an epoch's files visible, in place of what it may have published before."""
        filesystem = self.place.filesystem
        target = self.path(f"{EPOCH_COLUMN}={epoch:08d}-{short_name(run_id)}")
        temporary = self._temporary(run_id, epoch)
        names = _part_names(parts, suffix)
        if filesystem.type_name in _WITHOUT_RENAME:
            self._publish_files(target, parts, names)
        else:
            new, old = f"{temporary}-new", f"{temporary}-old"
            self._delete(new)
            if parts:
                filesystem.create_dir(new)
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
        selector = fs.FileSelector(target, allow_not_found=True)
        before = [info.base_name for info in filesystem.get_file_info(selector)]
        for part, name in zip(parts, names, strict=True):
            filesystem.move(part.path, f"{target}/{name}")
        for name in set(before) - set(names):
            filesystem.delete_file(f"{target}/{name}")

    def path(self, name: str) -> str:
        """The path of something in the directory."""
        return f"{self.place.path.rstrip('/')}/{name}"

    def read_marker(self) -> Marker | None:
        """What is known of the directory; ``None`` when no flow has written to it."""
        filesystem = self.place.filesystem
        if filesystem.get_file_info(self.path(_MARKER)).type != fs.FileType.File:
            return None
        with filesystem.open_input_stream(self.path(_MARKER), compression=None) as stream:
            return Marker.from_bytes(stream.read())

    def write_marker(self, run_id: str, marker: Marker) -> None:
        """Write down what is known, so that a reader finds the whole of it."""
        filesystem = self.place.filesystem
        written = self.path(f"{_TEMPORARY}{short_name(run_id)}-{uuid.uuid4().hex}")
        with filesystem.open_output_stream(written, compression=None) as stream:
            stream.write(marker.to_bytes())
        filesystem.move(written, self.path(_MARKER))

    def new_file(self, context: WriteContext, suffix: str) -> str:
        """The path of a file that a worker can write; no other attempt gets the same."""
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
    """A worker's file, opened when the first of it is written, removed when that fails."""

    def __init__(self, directory: EpochDirectory, context: WriteContext, suffix: str) -> None:
        self._directory = directory
        self._context = context
        self._suffix = suffix
        self._stream: Any = None
        self._path = ""
        self.rows = 0

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is None:
            return
        self._stream.close()
        if kind is not None:
            self._directory.place.filesystem.delete_file(self._path)

    @property
    def stream(self) -> Any:
        """The file to write to."""
        if self._stream is None:
            self._path = self._directory.new_file(self._context, self._suffix)
            filesystem = self._directory.place.filesystem
            self._stream = filesystem.open_output_stream(self._path, compression=None)
        return self._stream

    def parts(self, schema: pa.Schema | None = None) -> list[Part]:
        """What to tell the commit: the file, or nothing if nothing was written."""
        if not self.rows:
            return []
        columns = b"" if schema is None else schema.serialize().to_pybytes()
        return [Part(self._path, self._context, self.rows, columns)]


def _part_names(parts: Sequence[Part], suffix: str) -> list[str]:
    """The names under which files are published: by partition, then by place in it."""
    seen: Counter[int] = Counter()
    names = []
    for part in parts:
        partition = part.context.partition
        place = f"-{seen[partition]}" if seen[partition] else ""
        seen[partition] += 1
        names.append(f"part-{partition:05d}{place}{suffix}")
    return names


def _serialized(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()
