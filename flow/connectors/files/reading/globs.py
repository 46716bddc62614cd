"""Listings of the files that match paths, directories, globs and URIs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from pyarrow import fs

from flow.connectors.files.places.credentials import without_credentials
from flow.connectors.files.places.failures import raise_as
from flow.connectors.files.places.paths import split_glob
from flow.connectors.files.places.place import Place, locate
from flow.errors import SourceError, printable, shorten

logger = logging.getLogger("flow")

HIDDEN = ("_", ".")
"""First characters of names that are skipped in a directory, as Spark and pyarrow do."""

_REMOVED = "no file matches %s any more: files that an earlier run listed there are not read again"


class ListedFile(NamedTuple):
    """A file in a listing.

    Attributes:
        store: the store, see `Place`.
        path: the path in the store.
        size: size in bytes.
        mtime: modification time, in ns since the Unix epoch; 0 if the store has none.
    """

    store: str
    path: str
    size: int
    mtime: int


def find_files(
    paths: Sequence[str],
    *,
    required: bool,
    was_there: Callable[[Place], bool] = lambda _: False,
) -> list[ListedFile]:
    """List the files that match paths, directories, globs and URIs, each file once.

    Args:
        paths: paths as the user gave them.
        required: True if each path must match at least one file; otherwise the directory before
            its first wildcard must exist.
        was_there: returns True if an earlier run listed files in a place, the part of a path
            before its first wildcard; the path may then match no file, which is logged.

    Raises:
        SourceError: a path matches no file, or cannot be listed.
    """
    files: dict[tuple[str, str], ListedFile] = {}
    for text in paths:
        with raise_as(SourceError, f"{without_credentials(text)} cannot be listed"):
            matches = list(_files_of(text, required, was_there))
        for file in matches:
            files.setdefault((file.store, file.path), file)
    return list(files.values())


def _files_of(
    text: str, required: bool, was_there: Callable[[Place], bool]
) -> Iterator[ListedFile]:
    base, parts = split_glob(text)
    place = locate(base)
    info = place.filesystem.get_file_info(place.path)
    name = shorten(without_credentials(text))
    if info.type == fs.FileType.NotFound:
        if was_there(place):
            logger.warning(_REMOVED, printable(name))
            return
        target = f"{'/'.join(parts)} in {place}" if parts else str(place)
        raise SourceError(f"no file matches {name}: looked for {target}, which does not exist")
    if info.type == fs.FileType.File and not parts:
        yield _listed_file(place, info)
        return
    infos = _expand(place, place.path, parts) if parts else _walk(place, place.path)
    is_empty = True
    for info in infos:
        is_empty = False
        yield _listed_file(place, info)
    if is_empty and was_there(place):
        logger.warning(_REMOVED, printable(name))
    elif is_empty and required:
        target = "/".join(parts) if parts else "any file"
        raise SourceError(
            f"no file matches {name}: looked for {target} in {place}; names that start "
            "with '_' or '.' are skipped"
        )


def _expand(place: Place, directory: str, parts: Sequence[str]) -> Iterator[Any]:
    """Yield the files below a directory that match the remaining parts of a glob.

    If a directory matches the last part, all files below it match.
    """
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
    is_hidden = name.startswith(HIDDEN) and not part.startswith(name[0])
    return not is_hidden and fnmatchcase(name, part)


def _listed_file(place: Place, info: Any) -> ListedFile:
    return ListedFile(place.store, info.path, info.size or 0, info.mtime_ns or 0)
