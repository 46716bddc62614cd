"""Relocation: rewriting the absolute paths in a checkpoint that was moved or copied.

Each file is replaced atomically. The files that a run checks first are replaced last, so that a run
is refused after an interrupted relocation; a second relocation replaces the remaining files.

Paths are in the metadata of each level's operator, which names files with schemas; in the lists of
files of static data frames, and the logs and plans of the epochs that read them; and in those of an
epoch that loads a seed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from flow.connectors.source import Json
from flow.errors import CheckpointError, first_line
from recovery.reading.checkpoint_reader import CheckpointReader, open_checkpoint
from recovery.reading.file_problems import FileProblem, PathLike, command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.connectors.files.filesystems import Place
    from recovery.reading.checkpoint_files import CheckpointFiles


NOTE = "why-this-is-here.txt"


@dataclass(frozen=True)
class Relocation:
    """A relocation, planned or done.

    Attributes:
        path: the checkpoint's directory.
        places: the other directories that the files name, in order.
        files: the names of the files that name other directories, in order.
        backup: the folder in the checkpoint's directory with the old files.
        done: True if the relocation is done, False if planned.
    """

    path: str
    places: tuple[str, ...]
    files: tuple[str, ...]
    backup: str
    done: bool

    def __str__(self) -> str:
        """Return the relocation as text for people."""
        return "\n".join(_lines(self))


def relocate(path: PathLike, *, yes: bool = False, spark: SparkSession | None = None) -> Relocation:
    """Rewrite the paths in a checkpoint that was moved or copied, so that a run can continue on it.

    Some files name other files by absolute paths; the tool rewrites the files that name another
    directory. Offsets and state do not change.

    Args:
        path: the checkpoint's directory, as `RecoveryConfig` will have it.
        yes: True to make the changes; by default the tool only returns the plan.
        spark: the session to use; by default the active one, else a new local one.

    Raises:
        CheckpointError: when the directory is not a checkpoint, a file of it is not whole, or a run
            is using it; the checkpoint is then unchanged.
    """
    checkpoint = open_checkpoint(path, spark)
    with checkpoint.files.locked(changes=yes):
        checkpoint.files.check_settled()
        checkpoint = open_checkpoint(path, spark)  # Read again under the lock.
        changed = list(rewrites(checkpoint))
        relocation = _planned(checkpoint, changed, yes)
        if yes and changed:
            _write(checkpoint, changed, relocation)
    return relocation


def _planned(checkpoint: CheckpointReader, changed: list[FileRewrite], done: bool) -> Relocation:
    return Relocation(
        path=checkpoint.root,
        places=tuple(dict.fromkeys(place for file in changed for place in file.places)),
        files=tuple(file.file for file in changed),
        backup=f"relocated-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}",
        done=done,
    )


def _write(
    checkpoint: CheckpointReader, changed: list[FileRewrite], relocation: Relocation
) -> None:
    """Write the backup of the old files, then the new files."""
    files = checkpoint.files
    files.write_text(f"{relocation.backup}/{NOTE}", _note(relocation))
    for file in changed:
        files.write_text(f"{relocation.backup}/{file.file}", file.before)
    for file in changed:
        files.write_text(file.file, file.after)


def _note(relocation: Relocation) -> str:
    file_list = "\n".join(f"  {name}" for name in relocation.files)
    return (
        f"Files of the checkpoint {relocation.path} named its earlier directory,\n"
        f"{', '.join(relocation.places)}, and were rewritten. This directory has the old files.\n"
        "No run needs them: if the checkpoint is moved again, or back, relocate it again. This\n"
        f"directory can be removed.\n\n{file_list}\n"
    )


def _lines(relocation: Relocation) -> Iterator[str]:
    if not relocation.files:
        yield f"all paths in {relocation.path} are up to date: nothing to do"
        return
    count = len(relocation.files)
    yield f"{relocation.path} was in {', '.join(relocation.places)}; files that say so: {count}"
    if relocation.done:
        yield f"  these files are rewritten; the old files are in {relocation.backup}"
    else:
        yield f"  these files would be rewritten, and the old files copied to {relocation.backup}"
        yield "nothing has been changed: give --yes to do it"


_SCHEMA = re.compile(r"(.+)/(spark(?:-\d+)?/state/\d+/_stateSchema/.+)")
_SEED = re.compile(r"(.+)/(seed-\d+)")
_INPUT = re.compile(r"(.+)/(inputs/[^/]+/[^/]+)")


@dataclass(frozen=True)
class FileRewrite:
    """A file that names another directory, and its text with this directory.

    Attributes:
        file: the file's name in the checkpoint.
        before: the file's text.
        after: the text with paths of this directory.
        places: the other directories that the file names.
    """

    file: str
    before: str
    after: str
    places: tuple[str, ...]


@dataclass
class Here:
    """The present directory of a checkpoint, to which paths in its files are rewritten.

    Attributes:
        files: the checkpoint's files.
        others: the other directories in the rewritten paths so far.
    """

    files: CheckpointFiles
    others: list[str] = field(default_factory=list)
    _exists: dict[str, bool] = field(default_factory=dict)

    def path(self, path: str) -> str:
        """Return a path in Spark's metadata, or to a seed, rewritten to this directory."""
        schema = _SCHEMA.fullmatch(path)
        if schema is not None:
            return self._at(self.files.storage.uri, schema, path)
        seed = _SEED.fullmatch(path)
        return path if seed is None else self._at(self.files.root, seed, path)

    def input(self, value: Json) -> Json:
        """Return JSON of an epoch's input, or of a list of files, with paths of this directory."""
        match value:
            case [str(), str(path), int() as size] if found := _INPUT.fullmatch(path):
                moved = self._at(self._place.path, found, path)
                return value if moved == path else [self._place.store, moved, size]
            case list():
                return [self.input(element) for element in value]
            case dict():
                return {name: self.input(element) for name, element in value.items()}
        return value

    def has_input(self, store: str, path: str) -> bool:
        """Return True if a file in a list of files exists."""
        from pyarrow import fs

        if store != self._place.store:
            return False
        return bool(self._place.filesystem.get_file_info(path).type == fs.FileType.File)

    def _at(self, root: str, parts: re.Match[str], path: str) -> str:
        """Return a path rewritten to this root, if the checkpoint has a file of the same name.

        Args:
            root: the root of the result.
            parts: the match of the path: its root, and its name below the root.
            path: the path; returned unchanged if the checkpoint has no such file.
        """
        other, name = parts.groups()
        if other == root:
            return path
        if name not in self._exists:
            self._exists[name] = self.files.storage.exists(name)
        if not self._exists[name]:
            return path
        self.others.append(re.sub(r"^file:/+", "/", other))
        return f"{root}/{name}"

    @cached_property
    def _place(self) -> Place:
        from flow.connectors.files.filesystems import locate

        return locate(self.files.root)


def rewrites(checkpoint: CheckpointReader) -> Iterator[FileRewrite]:
    """Yield the files that name another directory, with their new text.

    The files that a run checks first are yielded last, so that a run is refused until all files are
    replaced.

    Raises:
        FileProblem: when a file is not whole.
    """
    spark, files = checkpoint.identity.spark, checkpoint.files
    for epoch in checkpoint.logged:
        name = checkpoint.identity.log_file("offsets", epoch)
        if files.storage.exists(name):
            yield from _rewrite_of(checkpoint, name, _offset)
    yield from _rewrite_of(checkpoint, "flow.json", _identity)
    for name in input_lists(files):
        yield from _rewrite_of(checkpoint, name, _list)
    for operator in checkpoint.operators:
        for name in files.storage.names(f"{spark}/state/{operator}/_metadata/v2"):
            file = f"{spark}/state/{operator}/_metadata/v2/{name}"
            yield from _rewrite_of(checkpoint, file, _metadata)


def input_lists(files: CheckpointFiles) -> Iterator[str]:
    """Yield the names of the lists of files of static data frames."""
    for frame in files.storage.names("inputs"):
        names = files.storage.names(f"sources/{frame}")
        yield from (f"sources/{frame}/{name}" for name in names if name.endswith(".json"))


def lost(files: CheckpointFiles, name: str, path: str, *, moved: bool) -> FileProblem:
    """Return the problem of a file that names a missing file.

    Args:
        files: the checkpoint's files.
        name: the file.
        path: the path of the missing file.
        moved: True if the checkpoint has the missing file in its present directory.
    """
    problem = f"names {path}, which is not there"
    if not moved:
        return FileProblem(name, problem)
    way_out = command("relocate", files.root)
    return FileProblem(name, f"{problem}: the checkpoint was moved", way_out)


def lost_inputs(files: CheckpointFiles) -> Iterator[FileProblem]:
    """Yield the problems of lists that name a missing file of another directory.

    This directory has a file of the same name.
    """
    for name in input_lists(files):
        try:
            path = _lost_input(files, name)
        except (CheckpointError, ValueError, TypeError, KeyError):
            continue  # `verify` reports a list that cannot be read as another problem.
        if path is not None:
            yield lost(files, name, path, moved=True)


def _lost_input(files: CheckpointFiles, name: str) -> str | None:
    """Return the first missing path in a list whose file this directory has, or ``None``."""
    from flow.engine.checkpoint.stored_log import entries_of

    here = Here(files)
    entries = entries_of(name, files.storage.read(name))
    for entry in (file for page in entries for file in page["files"]):
        store, path, _ = entry
        if here.input(entry) != entry and not here.has_input(store, path):
            return str(path)
    return None


def _rewrite_of(
    checkpoint: CheckpointReader, name: str, rewrite: Callable[[str, Here], str]
) -> Iterator[FileRewrite]:
    here = Here(checkpoint.files)
    before = checkpoint.files.text(name)
    try:
        after = rewrite(before, here)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise FileProblem(name, f"cannot be read: {first_line(error)}") from error
    if here.others:
        yield FileRewrite(name, before, after, tuple(dict.fromkeys(here.others)))


def _metadata(text: str, here: Here) -> str:
    """Rewrite an operator's metadata: a line with the version, and a line of JSON."""
    version, _, content = text.partition("\n")
    described = json.loads(content)
    for store in described["stateStoreInfo"]:
        store["stateSchemaFilePaths"] = [here.path(one) for one in store["stateSchemaFilePaths"]]
    compact = json.dumps(described, separators=(",", ":"), ensure_ascii=False)
    return f"{version}\n{compact}"


def _offset(text: str, here: Here) -> str:
    """Rewrite an epoch's log; the third line is the flow's own offset, with or without a name."""
    lines = text.split("\n")
    start = lines[2].index("{")
    lines[2] = lines[2][:start] + json.dumps(_moved(json.loads(lines[2][start:]), here))
    return "\n".join(lines)


def _identity(text: str, here: Here) -> str:
    """Rewrite the identity, which may have offsets of the generation before, and undone ones."""
    content = json.loads(text)
    for name in ("start", "begun"):
        content[name] = _moved(content.get(name), here)
    content["undone"] = [_moved(offset, here) for offset in content["undone"]]
    return json.dumps(content, indent=1)


def _list(text: str, here: Here) -> str:
    return json.dumps(here.input(json.loads(text)), indent=1)


def _moved(offset: Json, here: Here) -> Json:
    """Return the offset of the flow's feed, with paths of its input and seed in this directory."""
    if not offset or "read" not in offset:
        return offset
    moved = {**offset, "read": here.input(offset["read"])}
    return {**moved, "seed": here.path(offset["seed"])} if "seed" in offset else moved
