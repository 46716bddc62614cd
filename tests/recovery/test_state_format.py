"""Checkpoints of format 1 of Spark's state, that of Spark 4.0, whose files have no unique names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow
from flow.engine.checkpoint import identity
from flow.engine.spark.session.session_settings import QUERY_CONF
from flow.engine.spark.session.versions import state_format
from flow.testing import EOF, TestingSink, TestingSource
from recovery import inspect, rescale, rewind, verify
from tests.recovery.checkpoints import identity_of, run_flow
from tests.recovery.damage import cut_off

pytestmark = [pytest.mark.spark, pytest.mark.each_spark, pytest.mark.usefixtures("spark")]

_CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@pytest.fixture(autouse=True)
def format_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give new checkpoints the format of Spark 4.0, on all versions."""
    monkeypatch.setattr(identity, "state_format", lambda version, is_remote: 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def run_letters(path: Path, text: str, mark: str = "", **options: Any) -> list[Any]:
    """Append the letters of a key, each with a mark; each run reads up to the next ``|``."""
    flow, out = Dataflow("letters"), list[Any]()

    def append(kept: str | None, letter: str) -> tuple[str, str]:
        return (kept or "") + letter + mark, (kept or "") + letter + mark

    letters = TestingSource([EOF() if one == "|" else ("key", one) for one in text])
    appended = op.stateful_map("appended", op.input("in", flow, letters), append)
    op.output("out", appended, TestingSink(out))
    run_flow(path, flow, **options)
    return [value for _, value in out]


def value_in(path: Path) -> Any:
    return inspect(path, "appended").keys[0].state


def test_a_checkpoint_continues_and_can_be_read_and_rewound(path: Path) -> None:
    assert run_letters(path, "a|") == ["a"]
    assert run_letters(path, "a|b|") == ["ab"]
    names = {file.name for file in path.glob("spark/state/0/0/*.changelog")}
    assert names == {f"{number}.changelog" for number in range(1, len(names) + 1)}
    assert (identity_of(path)["state_format"], verify(path), value_in(path)) == (1, [], "ab")
    rewind(path, 0, yes=True)
    assert value_in(path) == "a"
    assert run_letters(path, "a|c|") == ["ac"]
    assert (verify(path), value_in(path)) == ([], "ac")


def test_a_rescaled_checkpoint_continues_in_the_format_of_its_spark(
    path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_letters(path, "a|")
    monkeypatch.undo()
    rescale(path, shards=8, partitions=2)
    assert identity_of(path)["state_format"] == state_format(spark.version)
    assert run_letters(path, "a|b|") == ["ab"]


def test_verify_names_a_changelog_that_was_cut_off(path: Path) -> None:
    run_letters(path, "a|")
    run_letters(path, "a|b|")
    newest = max(path.glob("spark/state/0/0/*.changelog"), key=lambda file: int(file.stem))
    cut_off(newest)
    assert [problem.file for problem in verify(path)] == [str(newest.relative_to(path))]


def test_a_snapshot_of_an_epoch_that_was_not_finished_is_not_loaded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch runs again with another function, as after an error, and makes no snapshot."""
    run_letters(path, "a|")
    with monkeypatch.context() as patched:
        patched.setitem(QUERY_CONF, _CHANGELOGS, "false")  # type: ignore[arg-type]
        assert run_letters(path, "a|b|", "-wrong") == ["ab-wrong"]
    (path / "spark/commits/1").unlink()
    (path / "spark/commits/.1.crc").unlink()
    assert (path / "spark/state/0/0/2.zip").exists()
    assert run_letters(path, "a|b|", "-right") == ["ab-right"]
    assert value_in(path) == "ab-right"
    assert run_letters(path, "a|b|c|", "-right") == ["ab-rightc-right"]
