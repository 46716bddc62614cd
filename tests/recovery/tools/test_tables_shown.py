"""Tables in `recovery export` and `recovery inspect`."""

from __future__ import annotations

import json
import pickle
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import CheckpointError, Dataflow
from flow.engine.checkpoint.identity import Identity
from flow.engine.plan.compiler import compile_flow
from flow.testing import Part, TestingSink
from recovery import RecoveryConfig, export, inspect, status, verify
from tests.recovery.checkpoints import change_identity, identity_of, run_flow
from tests.recovery.kept_flow import NOW, Basket
from tests.support.epochs import EpochsSource, SourceEpoch


def at(minute: int) -> datetime:
    return datetime(2024, 5, 1, 0, minute, tzinfo=UTC)


#  epoch             0          1              2
#  limits            a=5 b=7    b=8            b removed, c=1
#  prices (as_of)    tea=3@1    tea=4@5        tea removed @9
#  baskets           a          (nothing)      (nothing)
CHANGES: dict[str, list[list[Any]]] = {
    "limits": [[("a", 5), ("b", 7)], [("b", 8)], [("b", None), ("c", 1)]],
    "prices": [[("tea", 3, 1)], [("tea", 4, 5)], [("tea", None, 9)]],
    "baskets": [[("a", Basket("me", [1, 2]))], [], []],
}
PLACES = [{"name": "ann", "place": "shelf 1"}]


def looked_up(name: Any, table: Any) -> Any:
    return name, table.get(name)


def in_epochs(epochs: list[list[Any]]) -> EpochsSource:
    return EpochsSource(tuple(SourceEpoch((Part(items),)) for items in epochs))


def make_flow() -> Dataflow:
    flow = Dataflow("shop")
    names = op.input("names", flow, in_epochs([["a"], ["b"], ["c"]]))
    inputs = {name: op.input(f"in_{name}", flow, in_epochs(CHANGES[name])) for name in CHANGES}
    prices = op.map("price", inputs["prices"], price_of)
    tables = [
        op.table("limits", inputs["limits"]),
        op.table("prices", prices, "item", "price", as_of="at", keep="1h"),
        op.table("baskets", inputs["baskets"]),
        op.lookup_table("places", flow, lambda: PLACES, "name", "place"),
    ]
    found = [op.map_with(f"look_up_{n}", names, one, looked_up) for n, one in enumerate(tables)]
    counted = op.stateful_map("count", found[0], lambda n, _: ((n or 0) + 1, n))
    op.output("out", op.merge("all", counted, *found[1:]), TestingSink([]))
    return flow


def price_of(change: Any) -> dict[str, Any]:
    item, price, minute = change
    return {"item": item, "price": price, "at": at(minute)}


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of the flow after epoch 2; not to be changed."""
    directory = tmp_path_factory.mktemp("tables") / "checkpoint"
    run_flow(directory, make_flow(), system_time=NOW, shards=2)
    return directory


def test_tables_are_listed_and_checked(kept: Path) -> None:
    found = {one.step: (one.version, one.keys) for one in status(kept).tables}
    assert found == {"limits": (3, 2), "prices": (3, 1), "baskets": (1, 1), "places": (1, 1)}
    assert status(kept).tables[-1].read == "2023-12-14T10:00:00Z"
    assert verify(kept) == []
    newest = max((kept / "tables" / "prices").iterdir())
    content = newest.read_bytes()
    newest.write_bytes(content[:-1])
    (problem,) = verify(kept)
    newest.write_bytes(content)
    assert problem.file == f"tables/prices/{newest.name}"
    assert "put it back from a copy" in problem.way_out


def exported(kept: Path, step: str, file: Path, **options: Any) -> pa.Table:
    export(kept, step, file, **options)
    return pq.read_table(file)


def test_a_table_has_a_row_for_each_key(kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "limits.parquet"
    made = export(kept, "limits", file)
    assert str(made) == f"step limits after epoch 2: 2 keys in 2 rows of {file}"
    table = pq.read_table(file)
    assert table.schema.field("value").type == pa.int64()
    assert table.select(["key", "value"]).to_pylist() == [
        {"key": "a", "value": 5},
        {"key": "c", "value": 1},
    ]
    assert [pickle.loads(one) for one in table["snapshot"].to_pylist()] == [5, 1]


def test_an_earlier_epoch_has_the_version_that_it_saw(kept: Path, tmp_path: Path) -> None:
    table = exported(kept, "limits", tmp_path / "limits.parquet", epoch=1)
    assert table["key"].to_pylist() == ["a", "b"]
    assert table["value"].to_pylist() == [5, 8]


def test_an_epoch_of_before_a_reset_has_its_state(kept: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(kept, tmp_path / "reset"))
    identity = Identity.from_json(identity_of(path), str(path))
    resets = RecoveryConfig(path, reset_steps=["count", "limits"])
    admitted = resets.admit(identity.recovery, compile_flow(make_flow()))
    now = identity.admitting(admitted.kept, admitted.dropped, [0, 1, 2])
    change_identity(path, **now.to_json())
    for step in ("count", "limits"):
        assert inspect(path, step, epoch=1) == inspect(kept, step, epoch=1)
    assert status(path).tables == status(kept).tables


def test_a_table_with_times_has_a_row_for_each_value_and_each_removal(
    kept: Path, tmp_path: Path
) -> None:
    table = exported(kept, "prices", tmp_path / "prices.parquet")
    assert table.schema.field("from").type == pa.timestamp("us", tz="UTC")
    assert table.drop_columns("snapshot").to_pylist() == [
        {"key": "tea", "from": at(1), "value": 3},
        {"key": "tea", "from": at(5), "value": 4},
        {"key": "tea", "from": at(9), "value": None},
    ]
    assert [one is None for one in table["snapshot"].to_pylist()] == [False, False, True]


def test_values_that_are_not_plain_are_json(kept: Path, tmp_path: Path) -> None:
    (row,) = exported(kept, "baskets", tmp_path / "baskets.parquet").to_pylist()
    assert json.loads(row["value"])["fields"] == {"owner": "me", "sizes": [1, 2]}
    assert pickle.loads(row["snapshot"]) == Basket("me", [1, 2])


def test_a_lookup_table_is_exported(kept: Path, tmp_path: Path) -> None:
    (row,) = exported(kept, "places", tmp_path / "places.parquet").to_pylist()
    assert (row["key"], row["value"]) == ("ann", "shelf 1")


def test_inspect_shows_the_values_of_a_table(kept: Path) -> None:
    found = inspect(kept, "limits")
    assert (found.version, found.total) == (3, 2)
    assert [(one.key, one.due, one.state) for one in found.keys] == [("a", None, 5), ("c", None, 1)]
    lines = str(inspect(kept, "limits", key="c")).splitlines()
    assert lines == [
        "version 3 of table limits after epoch 2, at 2023-12-14T10:00:00Z: 2 keys, of which 1 are "
        "shown",
        "",
        "key: c",
        "value: 1",
    ]


def test_inspect_shows_the_values_of_a_table_by_time(kept: Path) -> None:
    (tea,) = inspect(kept, "prices").keys
    assert tea.state == [
        {"from": "2024-05-01T00:01:00Z", "value": 3},
        {"from": "2024-05-01T00:05:00Z", "value": 4},
        {"from": "2024-05-01T00:09:00Z", "value": None},
    ]


def test_a_key_or_step_that_is_not_there_is_an_error(kept: Path) -> None:
    with pytest.raises(CheckpointError, match="step 'limits' keeps nothing of key 'b' at epoch 2"):
        inspect(kept, "limits", key="b")
    steps = r"steps that do: 'count', 'limits', 'prices', 'baskets', 'places'"
    with pytest.raises(CheckpointError, match=steps):
        inspect(kept, "nix")
