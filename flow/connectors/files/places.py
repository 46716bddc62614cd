"""Where files are: paths, directories, globs and URIs, and the files that they stand for."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from flow.errors import FlowBuildError, FlowError, FlowTypeError, SourceError, printable, shorten

logger = logging.getLogger("flow")

LOCAL = ""
"""The store of files on this machine's own file system."""

HIDDEN = ("_", ".")
"""How the names start that are not part of a directory's content, as Spark and pyarrow have it."""

# Hadoop writes file:/data, with a single slash.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?://([^/?#]*)|(?=/))")
_HADOOP_S3 = re.compile(r"^s3[an](?=://)")
"""What Hadoop, and so a checkpoint's path, calls an S3 store."""
_GONE = "no file matches %s any more: what was listed there by the run before is not read again"
_CREDENTIALS = re.compile(r"(?<=://)[^/@]*:[^/@]*@")


@dataclass(frozen=True)
class Place:
    """A path or URI, resolved.

    Attributes:
        store: `LOCAL`, or the start of the URI without credentials, such as ``s3://bucket``.
        path: the path in pyarrow's terms; absolute on this machine.
        uri: what the file system is connected with; not used for `LOCAL`.
    """

    store: str
    path: str
    uri: str = ""

    @property
    def filesystem(self) -> Any:
        """The `pyarrow.fs.FileSystem` of the place."""
        return fs.LocalFileSystem() if self.store == LOCAL else _connect(self.uri)[0]

    def __str__(self) -> str:
        return shown(self.store, self.path)


class Found(NamedTuple):
    """A file as a listing shows it; `mtime` is in nanoseconds since the Unix epoch."""

    store: str
    path: str
    size: int
    mtime: int


def locate(text: str) -> Place:
    """Resolve a path or URI.

    Raises:
        OSError: the file system cannot be connected to.
        pyarrow.ArrowInvalid: the URI cannot be read.
    """
    if not _URI.match(text):
        return Place(LOCAL, absolute(text))
    filesystem, path = _connect(text)
    path = path.rstrip("/") or "/"
    if filesystem.type_name == "local":
        return Place(LOCAL, path)
    return Place(_store(text), path, text)


def absolute(text: str) -> str:
    """A path from the root, whatever the working directory will be; a URI as it is."""
    return text if _URI.match(text) else os.path.abspath(os.path.expanduser(text))


def identity_of(store: str, path: str) -> tuple[str, str]:
    """Return what tells a file from others by whatever name it is reached, such as a link.

    >>> identity_of("s3a://bucket", "bucket/a.csv")
    ('s3://bucket', 'bucket/a.csv')
    """
    return (LOCAL, os.path.realpath(path)) if store == LOCAL else (hadoop_free(store), path)


def hadoop_free(store: str) -> str:
    """Return a store without the name that Hadoop has for S3.

    >>> hadoop_free("s3a://bucket")
    's3://bucket'
    """
    return _HADOOP_S3.sub("s3", store)


def connect(store: str, paths: Sequence[str]) -> Any:
    """The file system of a store; its URI, with all its options, is among the given `paths`."""
    if store == LOCAL:
        return fs.LocalFileSystem()
    uris = [base for base, _ in map(_split_glob, paths) if _store(base) == store]
    return _connect(uris[0] if uris else store)[0]


def shown(store: str, path: str) -> str:
    """A file's name for a message."""
    if store == LOCAL or path.startswith("/"):
        return store + path
    return f"{store.partition('://')[0]}://{path}"


@contextmanager
def explained(error: type[FlowError], problem: str) -> Iterator[None]:
    """Raise what the file system or a reader complains of as `error`, after the words given."""
    try:
        yield
    except (OSError, pa.ArrowException, EOFError) as cause:
        said = str(cause).strip().partition("\n")[0]
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            said += "; make room there and run the flow again"
        raise error(without_credentials(f"{problem}: {said}")) from cause


def without_credentials(text: str) -> str:
    """A URI, or text that holds one, without the user and password.

    >>> without_credentials("s3://me:secret@bucket/data")
    's3://bucket/data'
    """
    return _CREDENTIALS.sub("", text)


def repr_without_credentials(self: Any) -> str:
    """The `repr` of a dataclass, without the user and password of a URI among its fields."""
    shown = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]
    return without_credentials(f"{type(self).__name__}({', '.join(shown)})")


def checked_paths(path: object) -> str | tuple[str, ...]:
    """The `path` argument of a source as text, or as a tuple of texts for a list."""
    if isinstance(path, (list, tuple)):
        if not path:
            raise FlowBuildError("path must name at least one file, got an empty list")
        return tuple(checked_path(one) for one in path)
    return checked_path(path)


def checked_path(path: object) -> str:
    """One path or URI as text."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise FlowTypeError(
            f"path must be text or a pathlib.Path, got {type(path).__name__} {shorten(path)}"
        )
    if not text.strip():
        raise FlowBuildError(f"path must name a file or a directory, got {text!r}")
    return text


def find_files(
    paths: Sequence[str],
    *,
    required: bool,
    was_there: Callable[[Place], bool] = lambda _: False,
) -> list[Found]:
    """List the files that paths, directories, globs and URIs stand for, each file once.

    Args:
        paths: as the user gave them.
        required: whether each of them must stand for at least one file. Otherwise it is enough
            that the directory in which to look exists.
        was_there: whether files of a place, the part of a path before its first wildcard, were
            listed by an earlier run: then it may stand for nothing now, which is logged.

    Raises:
        SourceError: a path stands for nothing, or cannot be listed.
    """
    found: dict[tuple[str, str], Found] = {}
    for text in paths:
        with explained(SourceError, f"{without_credentials(text)} cannot be listed"):
            files = list(_files_of(text, required, was_there))
        for file in files:
            found.setdefault((file.store, file.path), file)
    return list(found.values())


def _files_of(text: str, required: bool, was_there: Callable[[Place], bool]) -> Iterator[Found]:
    base, parts = _split_glob(text)
    place = locate(base)
    info = place.filesystem.get_file_info(place.path)
    name = without_credentials(text)
    if info.type == fs.FileType.NotFound:
        if was_there(place):
            logger.warning(_GONE, printable(shorten(name)))
            return
        what = f"looked for {'/'.join(parts)} in {place}" if parts else f"looked for {place}"
        raise SourceError(f"no file matches {shorten(name)}: {what}, which does not exist")
    if info.type == fs.FileType.File and not parts:
        yield _found(place, info)
        return
    infos = _expand(place, place.path, parts) if parts else _walk(place, place.path)
    empty = True
    for info in infos:
        empty = False
        yield _found(place, info)
    if empty and was_there(place):
        logger.warning(_GONE, printable(shorten(name)))
    elif empty and required:
        what = "/".join(parts) if parts else "any file"
        raise SourceError(
            f"no file matches {shorten(name)}: looked for {what} in {place}; names that start "
            "with '_' or '.' are skipped"
        )


def _expand(place: Place, directory: str, parts: Sequence[str]) -> Iterator[Any]:
    """The files under a directory that match the rest of a glob; all of a directory that does."""
    head, rest = parts[0], parts[1:]
    if head == "**":
        yield from _expand(place, directory, rest) if rest else _walk(place, directory)
    for info in _entries(place, directory, recursive=False) if head != "**" or rest else ():
        is_directory = info.type == fs.FileType.Directory
        if head == "**":
            if is_directory and not info.base_name.startswith(HIDDEN):
                yield from _expand(place, info.path, parts)
        elif not _matches(info.base_name, head):
            continue
        elif is_directory:
            yield from _expand(place, info.path, rest) if rest else _walk(place, info.path)
        elif not rest:
            yield info


def _walk(place: Place, directory: str) -> Iterator[Any]:
    for info in _entries(place, directory, recursive=True):
        below = info.path[len(directory) :].strip("/").split("/")
        if info.type == fs.FileType.File and not any(name.startswith(HIDDEN) for name in below):
            yield info


def _entries(place: Place, directory: str, *, recursive: bool) -> list[Any]:
    selector = fs.FileSelector(directory, recursive=recursive, allow_not_found=True)
    entries: list[Any] = place.filesystem.get_file_info(selector)
    return entries


def _matches(name: str, part: str) -> bool:
    hidden = name.startswith(HIDDEN) and not part.startswith(name[0])
    return not hidden and fnmatchcase(name, part)


def _found(place: Place, info: Any) -> Found:
    return Found(place.store, info.path, info.size or 0, info.mtime_ns or 0)


def _split_glob(text: str) -> tuple[str, list[str]]:
    """Cut a glob into the directory before its first wildcard and the parts from there on.

    In a URI a question mark starts the options, such as ``?region=eu-west-1``; it is no wildcard.
    """
    is_uri = _URI.match(text)
    body, mark, options = text.partition("?") if is_uri else (text, "", "")
    if not is_uri and os.path.exists(os.path.expanduser(text)):
        return text, []
    segments = body.split("/")
    wild = "*[" if is_uri else "*?["
    first = next((n for n, part in enumerate(segments) if any(c in part for c in wild)), None)
    if first is None:
        return text, []
    base = "/".join(segments[:first]) + "/" if first else "."
    return base + mark + options, [part for part in segments[first:] if part]


def _store(uri: str) -> str:
    match = _URI.match(without_credentials(uri))
    return f"{match[1].lower()}://{match[2] or ''}" if match else LOCAL


@lru_cache(maxsize=32)
def _connect(uri: str) -> tuple[Any, str]:
    connected: tuple[Any, str] = fs.FileSystem.from_uri(_HADOOP_S3.sub("s3", uri))
    return connected
