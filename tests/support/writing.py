"""Driving sinks as an engine does, and reading the files that they wrote."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flow.connectors.files import epoch_directory
from flow.connectors.sink import CheckpointContext, OutputContext, Sink, WriteContext

RUN, OTHER = "run-one", "run-two"


def write(
    sink: Sink[Any],
    epoch: int,
    partition: int,
    *batches: Any,
    run: str = RUN,
    step: str = "out",
    rewinds: int = 0,
) -> Any:
    """Write as a worker does, with a pickled copy of the sink, and return the pickled message."""
    sink = pickle.loads(pickle.dumps(sink))
    message = sink.write(WriteContext(step, epoch, partition, run, rewinds), iter(batches))
    return pickle.loads(pickle.dumps(message))


def publish(sink: Sink[Any], epoch: int, *partitions: Any, **options: Any) -> None:
    """Write and commit an epoch; each partition is a batch of items."""
    messages = [write(sink, epoch, n, items, **options) for n, items in enumerate(partitions)]
    sink.commit(epoch, messages)


def attached(sink: Sink[Any], checkpoint: Path) -> Sink[Any]:
    sink.attach(OutputContext("flow", "out", CheckpointContext(str(checkpoint), str(checkpoint))))
    return sink


def opened(sink: Sink[Any], run: str = RUN, resuming: bool = False) -> Sink[Any]:
    sink.open(run, resuming)
    return sink


def tree(path: Path) -> list[str]:
    """All files, with the short name of the run replaced."""
    short = {epoch_directory.short_name(run): f"<{run}>" for run in (RUN, OTHER)}
    names = [str(file.relative_to(path)) for file in sorted(path.rglob("*")) if file.is_file()]
    for name, shown in short.items():
        names = [one.replace(name, shown) for one in names]
    return names


def lines(path: Path) -> list[str]:
    """The lines of all published text files, in order of epoch and partition."""
    return [
        line
        for file in sorted(path.glob("epoch=*/*"))
        for line in file.read_text().split("\n")[:-1]
    ]


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).drop(["epoch"]).to_pylist()
