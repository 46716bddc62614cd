"""Paths, globs and URIs of users, the file systems behind them, and listings of their files.

Errors of file systems become errors of a flow here, without the credentials of URIs.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import logging
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from flow.checks import wrong_type
from flow.connectors.source import Dataset, Json
from flow.errors import FlowBuildError, FlowError, SourceError, printable, shorten

# Hadoop writes file:/data, with a single slash.
URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?://([^/?#]*)|(?=/))")
"""Start of a URI: its scheme, and its host or bucket."""


def as_paths(path: object) -> str | tuple[str, ...]:
    """Return the `path` argument of a source as text, or a list of paths as a tuple of texts.

    Raises:
        FlowBuildError: the argument, or a path in it, is empty.
        FlowTypeError: a path is neither text nor a `pathlib.Path`.
    """
    if isinstance(path, (list, tuple)):
        if not path:
            raise FlowBuildError("path must name at least one file, got an empty list")
        return tuple(map(as_path, path))
    return as_path(path)


def as_path(path: object) -> str:
    """Return one path or URI as text; raise the errors of `as_paths`."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise wrong_type("path must be text or a pathlib.Path", path)
    if not text.strip():
        raise FlowBuildError(f"path must name a file or a directory, got {text!r}")
    return text


def absolute(text: str) -> str:
    """Return a path from the root; a URI unchanged."""
    return text if URI.match(text) else os.path.abspath(os.path.expanduser(text))


def is_local(text: str) -> bool:
    """Return True for a path on this machine, also as a URI with the scheme ``file``."""
    return not URI.match(text) or text.startswith("file:")


def split_glob(text: str) -> tuple[str, list[str]]:
    """Return the directory before a glob's first wildcard, and the glob's parts from there on.

    In a URI a question mark starts the options, such as ``?region=eu-west-1``, and is no wildcard.
    A path without wildcards, and one that exists as written, has no parts. Nor is a directory that
    exists as written a part, such as ``old [1]``, unless its name has a star.
    """
    is_uri = URI.match(text)
    body, mark, options = text.partition("?") if is_uri else (text, "", "")
    if not is_uri and os.path.exists(os.path.expanduser(text)):
        return text, []
    segments = body.split("/")
    wildcards = "*[" if is_uri else "*?["
    wild = [n for n, part in enumerate(segments) if any(c in part for c in wildcards)]
    while wild and not is_uri and "*" not in segments[wild[0]]:
        if not os.path.exists(os.path.expanduser("/".join(segments[: wild[0] + 1]))):
            break
        del wild[0]
    first = wild[0] if wild else None
    if first is None:
        return text, []
    base = "/".join(segments[:first]) + "/" if first else "."
    parts = [part for part in segments[first:] if part]
    return base + mark + options, [_decoded(part) for part in parts] if is_uri else parts


def _decoded(part: str) -> str:
    """Return a part of a URI's glob as text, in which escaped wildcards stand for themselves."""
    return re.sub("(%[0-9A-Fa-f]{2})+", lambda found: glob.escape(unquote(found[0])), part)


CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes with the name of a container before the host, in the place of a user."""

_PASSWORD = r"[^/@]*:[^/@]*@"

_USER_AND_PASSWORD = re.compile(rf"(?<=://){_PASSWORD}")

_SECRET_OPTION = re.compile(
    r"([?&][\w.-]*(?:secret|password|token|signature|sig|(?:account|secret)_key)=)[^&\s'\"]*", re.I
)
"""An option of a URI with a secret, such as that of an application or a signature for Azure."""

_BEFORE_HOST = re.compile(rf"([\w+.-]*)://((?:{_PASSWORD}|[^/@\s]*@)+)")


def without_credentials(text: str) -> str:
    """Return a URI, or a text with URIs, without secrets and all before hosts and an "@".

    The name of a container stays. Stars stand for the secrets of options.

    >>> without_credentials("s3://me:secret@bucket/data and https://token@host")
    's3://bucket/data and https://host'
    >>> without_credentials("abfss://box@account.dfs.core.windows.net")
    'abfss://box@account.dfs.core.windows.net'
    """
    return _SECRET_OPTION.sub(r"\1***", _BEFORE_HOST.sub(_without_user, text))


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match.groups()
    is_container = scheme.lower() in CONTAINER_SCHEMES and ":" not in user
    return match[0] if is_container else f"{scheme}://"


def without_passwords(uri: str) -> str:
    """Return a URI without secrets and a user that has a password, as checkpoints hold it.

    A user alone stays: some stores are opened with it.

    >>> without_passwords("s3://me:secret@bucket/data"), without_passwords("hdfs://me@node/data")
    ('s3://bucket/data', 'hdfs://me@node/data')
    """
    return _SECRET_OPTION.sub(r"\1***", _USER_AND_PASSWORD.sub("", uri))


def repr_without_credentials(self: Any) -> str:
    """Return the `repr` of a dataclass, without credentials of URIs in its fields."""
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr]
    return without_credentials(f"{type(self).__name__}({', '.join(shown)})")


@contextmanager
def raise_as(error: type[FlowError], problem: str) -> Iterator[None]:
    """Raise errors of the block as `error`, with a message of `problem` and their first line."""
    try:
        yield
    except (OSError, pa.ArrowException, EOFError, UnicodeEncodeError, zlib.error) as cause:
        reason = str(cause).strip().partition("\n")[0]
        if isinstance(cause, UnicodeEncodeError):
            reason = f"the path {cause.object!a} is not UTF-8; rename it, or read others by a glob"
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            reason += "; make room there and run the flow again"
        raise error(without_credentials(f"{problem}: {reason}")) from cause


LOCAL = ""
"""Store of the files on this machine's own file system."""

_HADOOP_S3 = re.compile(r"^s3[an](?=://)")
"""Schemes that Hadoop, and so the path of a checkpoint, has for S3."""


@dataclass(frozen=True)
class Place:
    """A path or URI, resolved.

    Attributes:
        store: `LOCAL`, or the start of the URI without credentials, such as ``s3://bucket``.
        path: the path as pyarrow takes it; absolute on this machine.
        uri: the URI that connects to the file system; not used for `LOCAL`.
    """

    store: str
    path: str
    uri: str = ""

    @property
    def filesystem(self) -> Any:
        """The `pyarrow.fs.FileSystem` of the place."""
        return fs.LocalFileSystem() if self.store == LOCAL else _connect(self.uri)[0]

    def __str__(self) -> str:
        return display_name(self.store, self.path)


def locate(text: str) -> Place:
    """Resolve a path or URI.

    Raises:
        OSError: the file system cannot be connected to.
        pyarrow.ArrowInvalid: the URI cannot be read.
    """
    if not URI.match(text):
        return Place(LOCAL, absolute(text))
    filesystem, path = _connect(text)
    path = path.rstrip("/") or "/"
    if filesystem.type_name == "local":
        return Place(LOCAL, path)
    return Place(_store(text), path, text)


def file_identity(store: str, path: str) -> tuple[str, str]:
    """Return the store and path of a file with links resolved, equal for all names of the file.

    >>> file_identity("s3a://bucket", "bucket/a.csv")
    ('s3://bucket', 'bucket/a.csv')
    """
    return (LOCAL, os.path.realpath(path)) if store == LOCAL else (canonical_store(store), path)


def canonical_store(store: str) -> str:
    """Return a store with the scheme ``s3`` in place of Hadoop's schemes for S3.

    >>> canonical_store("s3a://bucket")
    's3://bucket'
    """
    return _HADOOP_S3.sub("s3", store)


def connect(store: str, paths: Sequence[str]) -> Any:
    """Return the file system of a store.

    Args:
        store: the store of a `Place`.
        paths: paths as the user gave them; a URI of the store has the options of the connection.
    """
    if store == LOCAL:
        return fs.LocalFileSystem()
    bases = [base for base, _ in map(split_glob, paths)]
    uris = [base for base in bases if canonical_store(_store(base)) == canonical_store(store)]
    return _connect(uris[0] if uris else store)[0]


def display_name(store: str, path: str) -> str:
    """Return the name of a file for messages."""
    if store == LOCAL or path.startswith("/"):
        return store + path
    return f"{store.partition('://')[0]}://{path}"


def _store(uri: str) -> str:
    match = URI.match(without_passwords(uri))
    return f"{match[1].lower()}://{match[2] or ''}" if match else LOCAL


@lru_cache(maxsize=32)
def _connect(uri: str) -> tuple[Any, str]:
    connection: tuple[Any, str] = fs.FileSystem.from_uri(canonical_store(uri))
    return connection


def datasets_of_files(paths: Iterable[str]) -> tuple[Dataset, ...]:
    """Return the data sets of paths, globs and URIs, sorted, without credentials and options.

    The data set of a glob is the directory before its first wildcard. A URI without a host, such as
    ``hdfs:///data``, has none, as the name of its system is not known.

    >>> datasets_of_files(["/data/day=*/*.csv", "s3://me:secret@bucket/orders?region=eu-west-1"])
    (Dataset(namespace='file', name='/data'), Dataset(namespace='s3://bucket', name='orders'))
    """
    found = (_dataset_of(split_glob(path)[0]) for path in paths)
    return tuple(sorted({dataset for dataset in found if dataset is not None}))


def _dataset_of(path: str) -> Dataset | None:
    """Return the data set of a path or URI without wildcards."""
    if not URI.match(path):
        return Dataset("file", absolute(path))
    parts = urlsplit(canonical_store(without_credentials(path)))
    if parts.scheme == "file":
        return Dataset("file", os.path.normpath(unquote(parts.path)))
    host = parts.netloc
    # A password with an unescaped slash ends the host; what is before it is no port.
    _, colon, port = host.partition(":")
    if not host or (colon and not port.isdigit()):
        return None
    name = parts.path.rstrip("/")
    # The key of an object begins without a slash, the path of a file with one.
    is_store = parts.scheme in ("s3", "gs", "gcs", *CONTAINER_SCHEMES)
    scheme = "gs" if parts.scheme == "gcs" else parts.scheme
    return Dataset(f"{scheme}://{host}", (name.lstrip("/") if is_store else name) or "/")


class File(NamedTuple):
    """A file in a listing.

    Attributes:
        store: the store, see `Place`.
        path: the path in the store.
        size: size in bytes; a file of another size when it is read has changed.
        mtime: modification time, in ns since the Unix epoch; 0 if it is unknown.
    """

    store: str
    path: str
    size: int
    mtime: int = 0

    def to_json(self) -> Json:
        """Return the file as a list that `from_json` reads."""
        return [self.store, self.path, self.size]

    @classmethod
    def from_json(cls, entry: Json) -> File:
        """Return the file that `to_json` encoded."""
        return cls(*entry)

    def __str__(self) -> str:
        return display_name(self.store, self.path)

    def check(self, filesystem: Any) -> None:
        """Raise `SourceError` if the file was removed, or has another size than listed."""
        info = filesystem.get_file_info(self.path)
        if info.type != fs.FileType.File:
            raise SourceError(f"{self} has vanished since it was listed ({self.size} bytes then)")
        if info.size != self.size:
            raise SourceError(
                f"{self} has changed since it was listed: it had {self.size} bytes and now has "
                f"{info.size}. Files must be complete when they appear, and stay as they are"
            )


@contextmanager
def open_file(filesystem: Any, file: File) -> Iterator[Any]:
    """Check a file and open it for random access.

    Raises:
        SourceError: the file has changed since the listing, cannot be opened, or a read in the
            block fails.
    """
    with raise_as(SourceError, f"{file} cannot be read"):
        file.check(filesystem)
        with filesystem.open_input_file(file.path) as stream:
            yield stream


logger = logging.getLogger("flow")

HIDDEN = ("_", ".")
"""First characters of names that are skipped in a directory, as Spark and pyarrow do."""

OBJECT_STORES = ("s3", "gcs", "abfs")
"""Stores in which a directory ends with its last file, and is moved by a copy of each file."""

_REMOVED = "no file matches %s any more: files that an earlier run listed there are not read again"


def find_files(
    paths: Sequence[str],
    *,
    required: bool,
    was_there: Callable[[Place], bool] = lambda _: False,
) -> list[File]:
    """List the files that match paths, directories, globs and URIs, each file once.

    Args:
        paths: paths as the user gave them.
        required: True if each path must match at least one file; otherwise the directory before
            its first wildcard must exist.
        was_there: returns True if files were listed before in a place, the part of a path before
            its first wildcard; the path may then match no file, which is logged. The place may then
            be missing, too, but a directory that a run follows only in an object store.

    Raises:
        SourceError: a path matches no file, or cannot be listed.
    """
    files: dict[tuple[str, str], File] = {}
    for text in paths:
        with raise_as(SourceError, f"{without_credentials(text)} cannot be listed"):
            matches = list(_files_of(text, required, was_there))
        for identity, file in matches:
            files.setdefault(identity, file)
    return list(files.values())


def check_found(paths: Sequence[str], *, required: bool) -> None:
    """Check that `find_files` finds a file for each path, without a listing of all files.

    Raises:
        SourceError: a path matches no file, or cannot be listed.
    """
    for text in paths:
        with raise_as(SourceError, f"{without_credentials(text)} cannot be listed"):
            next(_files_of(text, required, lambda _: False), None)


def _files_of(
    text: str, required: bool, was_there: Callable[[Place], bool]
) -> Iterator[tuple[tuple[str, str], File]]:
    base, parts = split_glob(text)
    place = locate(base)
    store = canonical_store(place.store)
    info = place.filesystem.get_file_info(place.path)
    name = without_credentials(text)
    may_be_gone = required or place.filesystem.type_name in OBJECT_STORES
    if info.type == fs.FileType.NotFound and not (may_be_gone and was_there(place)):
        target = f"{'/'.join(parts)} in {place}" if parts else str(place)
        raise SourceError(
            f"no file matches {shorten(name)}: looked for {target}, which does not exist"
        )
    is_empty = True
    for real, found in _matching(place, info, parts):
        is_empty = False
        file = File(place.store, found.path, found.size or 0, found.mtime_ns or 0)
        yield (store, real), file
    if is_empty and required and was_there(place):
        logger.warning(_REMOVED, printable(shorten(name)))
    elif is_empty and required:
        target = "/".join(parts) if parts else "any file"
        raise SourceError(
            f"no file matches {shorten(name)}: looked for {target} in {place}; names that start "
            "with '_' or '.' are skipped"
        )


def _matching(place: Place, root: Any, parts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the files below a directory that match the parts of a glob, each once, without links.

    Links are followed last, so that a link that is made later does not change the path of a file.

    Args:
        place: the directory, or a file, which is yielded itself.
        root: its `pyarrow.fs.FileInfo`.
        parts: the parts; if a directory matches the last one, all files below it match.

    Returns:
        The path of each file with links resolved, and its `FileInfo`.
    """
    seen: set[tuple[str, int]] = set()
    pending = deque([(root, file_identity(place.store, place.path)[1], parts)])
    while pending:
        info, real, parts = pending.popleft()
        if (real, len(parts)) in seen:
            continue
        seen.add((real, len(parts)))
        kind, path = info.type, info.path
        if kind == fs.FileType.File and not parts:
            yield real, info
        for entry, is_link in _entries(place, path, parts) if kind == fs.FileType.Directory else ():
            inner = os.path.realpath(entry.path) if is_link else real + entry.path[len(path) :]
            below = [(entry, inner, rest) for rest in _below(entry.base_name, parts)]
            (pending.extend if is_link else pending.extendleft)(below)


def _entries(place: Place, directory: str, parts: Sequence[str]) -> Iterable[tuple[Any, bool]]:
    """Return the entries of a directory that match the first part, each with True if it is a link.

    Without parts, an object store lists all files below in one request.
    """
    if place.store != LOCAL:
        selector = fs.FileSelector(directory, recursive=not parts, allow_not_found=True)
        infos = place.filesystem.get_file_info(selector)
        return [(info, False) for info in infos if parts or _is_visible(info, directory)]
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as found:
        entries = sorted(
            (entry for entry in found if _below(entry.name, parts)), key=attrgetter("name")
        )
        infos = place.filesystem.get_file_info([entry.path for entry in entries])
        return zip(infos, [entry.is_symlink() for entry in entries], strict=True)
    return ()


def _is_visible(info: Any, directory: str) -> bool:
    below = info.path[len(directory) :].strip("/").split("/")
    return info.type == fs.FileType.File and not any(name.startswith(HIDDEN) for name in below)


def _below(name: str, parts: Sequence[str]) -> list[Sequence[str]]:
    """Return the parts of a glob that are left below an entry, for each way to match its name."""
    visible = [] if name.startswith(HIDDEN) else [parts]
    if not parts:
        return visible
    if parts[0] == "**":
        return visible + _below(name, parts[1:])
    return [parts[1:]] if _matches(name, parts[0]) else []


def _matches(name: str, part: str) -> bool:
    is_hidden = name.startswith(HIDDEN) and not part.startswith(name[0])
    return not is_hidden and fnmatchcase(name, part)
