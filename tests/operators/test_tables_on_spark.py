"""Tables in runs that are interrupted, replayed, resumed, set back and moved, and in a batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import recovery
from flow import Dataflow, run
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.files import JsonLinesSource
from flow.engine.tables import table_files
from flow.errors import CheckpointError, FlowBuildError
from flow.testing import ABORT, EOF, Advance, TestingSink, TestingSource
from recovery import RecoveryConfig

pytestmark = pytest.mark.spark

LIMIT = 2_000
"""The size limit of the table, in bytes."""


class Shop:
    """A flow with a table of changes and a lookup table, for several runs on one checkpoint.

    An output is a name with its price in the table, before and after a shuffle, and its place in
    the lookup table.
    """

    def __init__(self, spark: SparkSession, path: Path, names: list[Any]) -> None:
        self.spark, self.names = spark, names
        self.changes: list[Any] = []
        self.file = path / "places.jsonl"
        self.checkpoint = path / "checkpoint"
        self.received: list[Any] = []

    def place(self, **places: str) -> None:
        rows = ({"name": name, "place": place} for name, place in places.items())
        self.file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def flow(self) -> Dataflow:
        flow = Dataflow("shop")
        changes = op.input("changes", flow, TestingSource(self.changes))
        names = op.input("names", flow, TestingSource(self.names, batch_size=2))
        prices = op.table("prices", changes, max_bytes=LIMIT)
        source = JsonLinesSource(str(self.file))
        places = op.lookup_table("places", flow, source, "name", "place", refresh="10m")
        first = op.map_with("first", names, prices, lambda name, table: (name, [table.get(name)]))
        kept = op.stateful_map("kept", first, lambda state, found: (None, found))
        second = op.map_with("second", kept, prices, extended)
        op.output("out", op.map_with("third", second, places, extended), TestingSink(self.received))
        return flow

    def run(self, keep_epochs: int = 100, **options: Any) -> Any:
        return run(
            self.flow(),
            spark=self.spark,
            recovery=RecoveryConfig(str(self.checkpoint), keep_epochs=keep_epochs),
            shards=4,
            partitions=1,
            **{"drain": False, "system_time": 0, **options},
        )

    def take(self) -> list[Any]:
        taken = [(name, *found) for name, found in self.received]
        self.received.clear()
        return taken


def extended(pair: tuple[str, list[Any]], table: Mapping[str, Any]) -> tuple[str, list[Any]]:
    name, found = pair
    return name, [*found, table.get(name)]


def pushed(name: str, table: Mapping[str, Any]) -> Any:
    table[name].append(1)
    value = table[name]
    value.append(2)
    return value


@pytest.mark.extended
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_what_a_mapper_does_to_a_value_no_other_item_sees(spark: SparkSession, engine: Any) -> None:
    flow, out = Dataflow("shop"), list[Any]()
    prices = op.table("prices", op.input("changes", flow, TestingSource([("tea", [3])])))
    names = op.input("names", flow, TestingSource(["tea"] * 3, batch_size=2))
    op.output("out", op.map_with("push", names, prices, pushed), TestingSink(out))
    run(flow, spark=spark, engine=engine, shards=2, partitions=1)
    assert out == [[3, 2]] * 3


#  run       1              2
#  changes   3              5 (in the place of 3), 4
#  names     tea ABORT      tea (replayed) │ tea
def test_a_replay_sees_the_logged_version_of_each_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path, ["tea", ABORT(), "tea"])
    shop.changes[:] = [("tea", 3)]
    shop.place(tea="shelf 1")
    assert shop.run().aborted
    assert shop.take() == []
    shop.changes[:] = [("tea", 5), ("tea", 4)]
    shop.place(tea="shelf 2")
    shop.run()
    assert shop.take() == [("tea", 3, 3, "shelf 1"), ("tea", 4, 4, "shelf 2")]


@pytest.mark.extended
def test_a_missing_version_is_found_after_a_move(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path, ["tea", EOF(), "tea", ABORT()])
    shop.changes[:] = [("tea", 3)]
    shop.place(tea="shelf 1")
    shop.run()
    shop.changes += [("tea", 4)]
    assert shop.run().aborted
    recovery.rescale(shop.checkpoint, shards=3, spark=spark)
    assert recovery.verify(shop.checkpoint, spark=spark) == []
    newest = max((shop.checkpoint / "tables" / "prices").iterdir())
    newest.unlink()
    (problem,) = recovery.verify(shop.checkpoint, spark=spark)
    assert (problem.file, problem.problem) == (f"tables/prices/{newest.name}", "is missing")


@pytest.mark.extended
def test_tables_are_shown_checked_set_back_and_moved(spark: SparkSession, tmp_path: Path) -> None:
    minute = Advance("10m")
    shop = Shop(spark, tmp_path, ["tea", minute, "tea", EOF(), "tea", EOF(), "tea"])
    shop.changes[:] = [("tea", 3), minute, ("tea", 4), ("rum", 9)]
    shop.place(tea="shelf 1", rum="shelf 2")
    shop.run()
    assert shop.take() == [("tea", 3, 3, "shelf 1"), ("tea", 4, 4, "shelf 1")]

    prices, places = recovery.status(shop.checkpoint, spark=spark).tables
    assert (prices.step, prices.version, prices.keys, prices.read) == ("prices", 2, 2, None)
    assert (places.step, places.version, places.keys) == ("places", 1, 2)
    assert places.read == "1970-01-01T00:10:00Z"
    assert recovery.verify(shop.checkpoint, spark=spark) == []

    recovery.rewind(shop.checkpoint, 0, yes=True, spark=spark)
    moved = tmp_path / "moved"
    shutil.move(shop.checkpoint, moved)
    recovery.relocate(moved, yes=True, spark=spark)
    shop.checkpoint = moved
    shop.changes += [("tea", 8)]
    shop.place(tea="shelf 3")
    shop.run()
    replayed, new = shop.take()
    assert replayed == ("tea", 4, 4, "shelf 1"), "the versions of the undone epoch"
    assert new == ("tea", 8, 8, "shelf 3"), "a new change, and the file as it is now"

    newest = max((moved / "tables" / "prices").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    (problem,) = recovery.verify(moved, spark=spark)
    assert problem.file == f"tables/prices/{newest.name}"
    assert "put it back from a copy" in problem.way_out
    with pytest.raises(CheckpointError, match=newest.name):
        shop.run()


def test_a_static_frame_is_no_lookup_table_and_a_function_of_one_is(spark: SparkSession) -> None:
    flow, received = Dataflow("people"), list[Any]()
    frame = spark.createDataFrame([("1", "Ann")], "id string, name string")
    with pytest.raises(FlowBuildError, match="a data frame keeps the files that Spark found"):
        op.lookup_table("static", flow, DataFrameSource(frame), "id")
    people = op.lookup_table("people", flow, lambda: frame, "id", "name")
    ids = op.input("ids", flow, TestingSource(["1"]))
    op.output("out", op.map_with("name", ids, people, extended_by_name), TestingSink(received))
    run(flow, spark=spark, engine="batch")
    assert received == ["1 Ann"]


def extended_by_name(found: str, people: Mapping[str, str]) -> str:
    return f"{found} {people[found]}"


def test_a_batch_reads_all_changes_first_and_gives_a_data_frame(spark: SparkSession) -> None:
    def build() -> tuple[Dataflow, Any]:
        flow = Dataflow("batch")
        names = op.input("names", flow, DataFrameSource(frame))
        changes = op.input("changes", flow, [("tea", 3), ("tea", 4)])
        prices = op.table("prices", changes)
        priced = op.map_with("price", names, prices, record_with_price)
        return flow, priced

    frame = spark.createDataFrame([("tea",), ("rum",)], "name string")
    received: list[Any] = []
    flow, priced = build()
    op.output("out", priced, TestingSink(received))
    run(flow, spark=spark, engine="batch")
    expected = [{"name": "rum", "price": None}, {"name": "tea", "price": 4}]
    assert sorted(received, key=lambda row: row["name"]) == expected
    from flow import to_dataframe

    rows = to_dataframe(build()[1], schema="name string, price int").collect()
    assert sorted(map(tuple, rows)) == [("rum", None), ("tea", 4)]


def record_with_price(record: dict[str, Any], prices: Mapping[str, int]) -> dict[str, Any]:
    return {**record, "price": prices.get(record["name"])}


def test_a_table_for_a_streamed_data_frame_needs_a_shuffle_before(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    flow = Dataflow("rate")
    rates = op.input("rates", flow, DataFrameSource(stream))
    prices = op.table("prices", op.input("changes", flow, TestingSource([])))
    op.output("out", op.map_with("price", rates, prices, max), TestingSink([]))
    with pytest.raises(FlowBuildError, match=r"step 'price' .* put op.redistribute"):
        run(flow, spark=spark, engine="streaming")


@pytest.mark.extended
def test_a_rescaled_checkpoint_is_whole_without_the_files_of_old_versions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "REMOVAL_VERSIONS", 2)
    shop = Shop(spark, tmp_path, ["tea"] * 2 + [EOF()] + ["tea"] * 24 + [EOF(), "tea"])
    second = Advance("1s")
    shop.changes[:] = [one for price in range(30) for one in (("tea", price), second)]
    shop.place(tea="shelf 1")
    shop.run(keep_epochs=2)
    recovery.rescale(shop.checkpoint, shards=3, spark=spark)
    first = {file.name for file in (shop.checkpoint / "tables" / "prices").iterdir()}
    shop.run(keep_epochs=2)
    left = {file.name for file in (shop.checkpoint / "tables" / "prices").iterdir()}
    assert not first & left, "the version at the move is not needed any more"
    assert recovery.verify(shop.checkpoint, spark=spark) == []
    shop.take()
    shop.run(keep_epochs=2)
    assert shop.take()[0][0] == "tea"
