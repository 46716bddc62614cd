"""The tables of the auction house, as Parquet files: a directory for each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark.auction_house import SHARES, AuctionHouse
from flow.connectors.files import ParquetSource

BLOCK = 500_000
"""The number of events in a file and in the files of the same number of the other tables."""
GROUP_ROWS = 65_536
_MADE_OF = "made_of.json"


@dataclass(frozen=True)
class Tables:
    """The tables of a number of events, below a directory.

    Args:
        folder: the directory.
        events: the number of persons, auctions and bids together.
        house: the auction house that makes the events.
    """

    folder: Path
    events: int
    house: AuctionHouse

    def write(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Make the files, unless they exist.

        Args:
            say: called with the progress as text.
        """
        made_of = json.dumps({"version": 1, "events": self.events, **asdict(self.house)})
        marker = self.folder / _MADE_OF
        if marker.exists() and marker.read_text("utf-8") == made_of:
            return
        for table in SHARES:
            shutil.rmtree(self.folder / table, ignore_errors=True)
            (self.folder / table).mkdir(parents=True)
        for first, tables in self._blocks():
            say(f"{first:,} of {self.events:,} events are made")
            for table, rows in tables.items():
                file = self.folder / table / f"{first // BLOCK:05d}.parquet"
                pq.write_table(rows, file, row_group_size=GROUP_ROWS)
        marker.write_text(made_of, "utf-8")

    def source(self, table: str, columns: Sequence[str], epoch_events: int) -> ParquetSource:
        """Return the source of a table, whose epochs cover the same event time for every table.

        Args:
            table: the name of the table.
            columns: the columns to read.
            epoch_events: the number of events of all tables in an epoch.
        """
        rows = max(1, round(epoch_events * SHARES[table]))
        return ParquetSource(self.folder / table, columns=columns, rows_per_epoch=rows)

    def _blocks(self) -> Iterator[tuple[int, dict[str, pa.Table]]]:
        for first in range(0, self.events, BLOCK):
            yield first, self.house.block(first, min(BLOCK, self.events - first))
