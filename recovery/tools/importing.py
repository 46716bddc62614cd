"""Import of state from a Parquet file, to seed a flow."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pyarrow.parquet as pq

from flow.connectors.files.places.place import locate, raise_as
from flow.errors import CheckpointError
from flow.keyed.segments import WINDOWS, kind_of
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.storage.snapshots import snapshots_of_content


def read_states(file: str | os.PathLike[str], *, trust: bool = False) -> dict[str, Any]:
    """Read each key's state from a Parquet file with a column ``key``.

    The column ``state`` has plain values. A trusted file of `export` may have the column
    ``snapshot`` with pickles instead.

    Args:
        file: the file, a path or a URI.
        trust: True to read pickled snapshots, which may run any code; only for exports that you
            made.

    Raises:
        CheckpointError: when the file cannot be read, lacks these columns, or has only pickles and
            is not trusted.
    """
    where = os.fspath(file)
    with raise_as(CheckpointError, f"{where} cannot be read"):
        place = locate(where)
        table = pq.read_table(place.path, filesystem=place.filesystem)
    names = table.column_names
    if "key" not in names or not {"state", "snapshot"} & set(names):
        raise CheckpointError(
            f"{where} has the columns {', '.join(names)}: a seed needs 'key', and 'state' or the "
            "'snapshot' of an export"
        )
    keys = table.column("key").to_pylist()
    if trust and "snapshot" in names:
        snapshots = table.column("snapshot").to_pylist()
        return {key: _snapshot(content) for key, content in zip(keys, snapshots, strict=True)}
    if "state" not in names:
        raise CheckpointError(
            f"{where} holds pickled snapshots alone, which may run any code when they are read: "
            "if you have exported it yourself, say so with --trust"
        )
    return dict(zip(keys, table.column("state").to_pylist(), strict=True))


def _snapshot(content: bytes) -> Any:
    """Read a snapshot of a step that runs key by key, or of a columnar step."""
    if kind_of(content) != WINDOWS:
        return pickle.loads(content)
    ((_, state, _),) = snapshots_of_content(SegmentContent.decode(content))
    return state
