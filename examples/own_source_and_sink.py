"""Custom source and sink: pages of a web API into a table of SQLite, exactly once.

A `PartitionedSource` lists its partitions, chooses the offset up to which the next epoch reads each
of them, and reads items between two offsets. The flow logs offsets before an epoch runs, and a
replay reads them again, so the same offsets must give the same items. ``arrived`` is optional: it
returns the arrival time of items, with which event clocks advance while a backlog is read.

A `Sink` gets the items in the workers (``write``). After the last worker, ``commit`` gets the
results of ``write`` in the process that started the flow. A replay has the number of its epoch, so
a sink that writes the number with the rows, and replaces those of the same number in one
transaction, writes each row once. ``attach`` tells the last epoch that the checkpoint has: a sink
that removes later rows as a run starts follows ``python -m recovery rewind``, too.
`flow.testing.connectors.check_sink` checks both.

Run it:

    python examples/own_source_and_sink.py

It prints:

    berlin 21.5
    berlin 22.0
    berlin 19.0
    madrid 33.0
    madrid 34.5
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import override

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.sink import Guarantee, OutputContext, Sink, SinkBatch, WriteContext
from flow.connectors.source import PartitionedSource

PAGES = {"berlin": [[21.5, 22.0], [19.0]], "madrid": [[33.0, 34.5]]}
PUBLISHED = {
    "berlin": ["2026-07-01T12:00:00Z", "2026-07-01T13:00:00Z"],
    "madrid": ["2026-07-01T12:00:00Z"],
}


def get_page(city: str, page: int) -> list[float]:
    """Stand in for a request to a web API."""
    return PAGES[city][page]


@dataclass(frozen=True)
class TemperatureApi(PartitionedSource[tuple[str, float]]):
    """Source of temperatures: a city is a partition, the number of a page an offset.

    Args:
        cities: the cities to read.
        pages_per_epoch: the greatest number of pages of each city in an epoch.
    """

    cities: tuple[str, ...]
    pages_per_epoch: int = 10

    @override
    def partitions(self) -> Sequence[str]:
        return self.cities

    @override
    def first_offset(self, partition: str) -> int:
        return 0

    @override
    def next_offset(self, partition: str, start: int) -> int | None:
        pages = len(PAGES[partition])
        return None if start >= pages else min(start + self.pages_per_epoch, pages)

    @override
    def read_partition(
        self, partition: str, start: int, end: int
    ) -> Iterator[list[tuple[str, float]]]:
        for page in range(start, end):
            yield [(partition, degrees) for degrees in get_page(partition, page)]

    @override
    def arrived(self, partition: str, offset: int) -> str | None:
        return PUBLISHED[partition][offset - 1] if offset else None


@dataclass
class SqliteSink(Sink[tuple[str, float]]):
    """Sink of pairs, as rows of the table ``temperatures`` of an SQLite database.

    Args:
        path: the database's file.
    """

    path: Path
    run_id: str = field(default="", init=False)
    last_epoch: int = field(default=-1, init=False)

    guarantee = Guarantee.EXACTLY_ONCE

    @override
    def attach(self, output: OutputContext) -> None:
        self.last_epoch = -1 if output.checkpoint is None else output.checkpoint.last_epoch

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        self.run_id = run_id
        columns = "city TEXT, degrees REAL, run TEXT, epoch INTEGER"
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(f"CREATE TABLE IF NOT EXISTS temperatures ({columns})")
            undone = "DELETE FROM temperatures WHERE run = ? AND epoch > ?"
            database.execute(undone, (run_id, self.last_epoch))

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[tuple[str, float]]:
        # SQLite allows one writer at a time, so the workers only return the rows.
        return [row for batch in batches for row in batch]

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        of_epoch = (self.run_id, epoch)
        rows = [(*row, *of_epoch) for message in messages for row in message]
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("DELETE FROM temperatures WHERE run = ? AND epoch = ?", of_epoch)
            database.executemany("INSERT INTO temperatures VALUES (?, ?, ?, ?)", rows)


def make_flow(database: Path) -> Dataflow:
    """Return a flow that copies the API's temperatures to a database."""
    graph = Dataflow("own_source_and_sink")
    temperatures = op.input("api", graph, TemperatureApi(("berlin", "madrid")))
    op.output("database", temperatures, SqliteSink(database))
    return graph


def main(database: Path) -> None:
    """Run the flow and print the rows of the table."""
    run(make_flow(database))
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT city, degrees FROM temperatures ORDER BY city, rowid"
        for city, degrees in connection.execute(query):
            print(city, degrees)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name) / "temperatures.db")
