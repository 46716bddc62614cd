"""Runs of the market, and what is compared of their outputs, state, tables and calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from typing_extensions import override

from flow.durations import duration_us
from recovery import export
from tests.faults.market import FEES_KEPT
from tests.support.faults import Results, Shop, as_text, lines_in, rows_in

EDITIONS = ("edition", "edition again")
STEPS_WITH_CALLS = ("charged", "confirmed")


@dataclass
class Market(Shop):
    """A folder with the market's inputs, checkpoint and outputs."""

    FLOW: ClassVar[str] = "market"

    @override
    def results(self) -> Results:
        log = Counter(as_text(_alike(line)) for line in lines_in(self.home / "out" / "log"))
        return Results(Counter(as_text(row) for row in rows_in(self.home / "out" / "panes")), log)

    @override
    def state(self, spark: SparkSession) -> dict[tuple[str, str], Any]:
        """Return the state of each (step, key), and the values of each (table, key)."""
        found = super().state(spark)
        rows = [*self._table("limits", spark), *self._table("fees", spark)]
        values = defaultdict[tuple[str, str], list[Any]](list)
        for table, row in rows:
            values[table, row["key"]].append((row.get("from"), row["value"]))
        return {**found, **{name: _kept(times) for name, times in values.items()}}

    def _table(self, table: str, spark: SparkSession) -> list[tuple[str, Mapping[str, Any]]]:
        file = self.home / f"{table}.parquet"
        export(self.checkpoint, table, file, spark=spark)
        return [(table, row) for row in pq.read_table(file).to_pylist()]

    @override
    def check(self) -> None:
        """Check that the items of an epoch saw one edition, and that calls kept their identity."""
        for folder in (self.home / "out" / "log").glob("epoch=*"):
            lines = lines_in(folder.parent, folder.name)
            seen = {line["edition"] for line in lines if line["what"] in EDITIONS}
            assert len(seen) <= 1, f"the items of {folder.name} saw the editions {sorted(seen)}"
        for step in STEPS_WITH_CALLS:
            self._check_calls(step)

    def _check_calls(self, step: str) -> None:
        served = {call: set(numbers) for call, numbers in self.calls(step).items()}
        mixed = {call: numbers for call, numbers in served.items() if len(numbers) > 1}
        assert not mixed, f"{step}: calls of different items have one identity: {mixed}"
        for number, call in self.logged_calls(step).items():
            assert served.get(call) == {number}, f"{step}: {number} was not served as {call}"

    def calls(self, step: str) -> dict[str, list[int]]:
        """Return the numbers of the trades of each call that was made, by the call's identity."""
        files = (self.home / "calls" / step).iterdir()
        return {file.name: [int(line) for line in file.read_text().split()] for file in files}

    def logged_calls(self, step: str) -> dict[int, str]:
        """Return the identity of the call for each trade, as the log of outputs has it."""
        lines = lines_in(self.home / "out" / "log")
        calls = [line for line in lines if line["what"] == "call" and line["step"] == step]
        return {line["n"]: line["call"] for line in calls}


def _alike(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record without the values that may differ between two runs."""
    return {name: value for name, value in line.items() if name not in ("edition", "call")}


def _kept(values: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the values of a key that a table keeps, without those that it may drop already."""
    newest, _ = values[-1]
    if newest is None:
        return values
    oldest = newest - timedelta(microseconds=duration_us(FEES_KEPT))
    replaced = [at for at, _ in values if at <= oldest]
    return values[max(len(replaced) - 1, 0) :]


def new_market(home: Path, **options: Any) -> Market:
    """Return a market in a new folder, with its inputs."""
    home.mkdir(parents=True, exist_ok=True)
    market = Market(home, **options)
    market.write_inputs()
    return market
