"""Names of files as data sets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from flow.connectors.datasets import Dataset
from flow.connectors.files.places.credentials import CONTAINER_SCHEMES, without_credentials
from flow.connectors.files.places.paths import URI, absolute, split_glob
from flow.connectors.files.places.place import canonical_store


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
