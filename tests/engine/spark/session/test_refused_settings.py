"""Sessions that refuse settings, as those of managed platforms do."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, EnvironmentProblem, run
from flow.engine.spark.session import session
from flow.engine.spark.session.session import query_conf, session_capabilities
from flow.engine.spark.session.session_settings import QUERY_CONF, QUERY_SETTINGS
from flow.testing import EOF, TestingSink, TestingSource
from recovery import RecoveryConfig, inspect, rewind, verify

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ADAPTIVE = "spark.sql.adaptive.enabled"
USEFUL = [name for name, use in QUERY_SETTINGS.items() if not use.is_needed]
NEEDED = [name for name, use in QUERY_SETTINGS.items() if use.is_needed]
OTHERS = {
    **{name: "true" if value == "false" else "false" for name, value in QUERY_CONF.items()},
    "spark.sql.streaming.stateStore.maintenanceInterval": "1min",
    "spark.sql.streaming.numRecentProgressUpdates": "7",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
}
"""Other values than a flow's, by name."""


class RefusingConf:
    """A configuration in which some settings cannot be set.

    Attributes:
        refused: the values of these settings by name; ``None`` for one that may not be read.
    """

    def __init__(self, conf: Any, refused: dict[str, str | None]) -> None:
        self._conf = conf
        self.refused = refused

    def get(self, name: str, *default: Any) -> Any:
        if name in self.refused and self.refused[name] is None:
            raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] {name}")
        return self._conf.get(name, *default)

    def set(self, name: str, value: Any) -> None:
        if name in self.refused:
            raise AnalysisException(f"[CANNOT_MODIFY_CONFIG] {name}")
        self._conf.set(name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conf, name)


@pytest.fixture
def refuse(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that has the session refuse settings, which have the given values."""
    conf: Any = spark.conf

    def refuse_settings(refused: dict[str, str | None]) -> None:
        for name, value in refused.items():
            if value is not None:
                before = conf.get(name, None)
                conf.set(name, value)
                back.append((name, before))
        refusing = RefusingConf(conf, refused)
        monkeypatch.setattr(SparkSession, "conf", property(lambda _: refusing))
        monkeypatch.setattr(session, "_logged", set())

    back: list[tuple[str, str | None]] = []
    yield refuse_settings
    for name, before in reversed(back):
        if before is None:
            conf.unset(name)
        else:
            conf.set(name, before)


def letters(items: Iterable[Any], out: list[Any]) -> Dataflow:
    """Append the letters of each key."""
    flow = Dataflow("letters")
    source = TestingSource([EOF() if one == "|" else one for one in items], batch_size=3)

    def append(kept: str | None, letter: str) -> tuple[str, str]:
        return (kept or "") + letter, (kept or "") + letter

    keyed = op.key_on("key", op.input("in", flow, source), lambda letter: letter.lower())
    op.output("out", op.stateful_map("appended", keyed, append), TestingSink(out))
    return flow


def results(spark: SparkSession, items: str, **options: Any) -> list[Any]:
    out = list[Any]()
    run(letters(items, out), spark=spark, shards=4, partitions=2, **options)
    return sorted(out)


EXPECTED = [("a", "a"), ("a", "aA"), ("a", "aAa"), ("b", "b"), ("b", "bB"), ("c", "c")]


@pytest.mark.parametrize("engine", ["streaming", "batch"])
def test_a_run_goes_on_without_settings_for_speed_and_logs_each_once(
    engine: str, spark: SparkSession, refuse: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refuse({name: OTHERS[name] for name in USEFUL if name in OTHERS})
    with caplog.at_level(logging.WARNING, "flow"):
        assert results(spark, "abcABa", engine=engine) == EXPECTED
        assert results(spark, "abcABa", engine=engine) == EXPECTED
    lines = [line for line in caplog.messages if line.startswith("this session refuses")]
    of_batch = [name for name in USEFUL if not name.startswith("spark.sql.streaming.")]
    names = USEFUL if engine == "streaming" else of_batch
    assert len(lines) == len([name for name in names if name in OTHERS])
    assert (
        "this session refuses to set spark.sql.adaptive.enabled=false (found 'true': Spark plans a "
        "batch again while it runs)"
    ) in lines


def test_a_checkpoint_continues_without_settings_for_speed(
    spark: SparkSession, refuse: Any, tmp_path: Path
) -> None:
    """Made with all settings; the tools read it, and set it back, without them."""
    options = {"recovery": RecoveryConfig(tmp_path / "c"), "drain": False}
    assert results(spark, "ab|", **options) == [("a", "a"), ("b", "b")]
    refuse({name: OTHERS[name] for name in USEFUL if name in OTHERS})
    assert results(spark, "ab|AB|", **options) == [("a", "aA"), ("b", "bB")]
    assert verify(tmp_path / "c") == []
    rewind(tmp_path / "c", 0, yes=True)
    assert results(spark, "ab|a|", **options) == [("a", "aa")]
    assert verify(tmp_path / "c") == []
    assert {one.key: one.state for one in inspect(tmp_path / "c", "appended").keys} == {
        "a": "aa",
        "b": "b",
    }


def test_a_needed_setting_that_cannot_be_set_ends_the_run(spark: SparkSession, refuse: Any) -> None:
    found = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    refuse({PROVIDER: found, ADAPTIVE: "true"})
    with pytest.raises(EnvironmentProblem) as caught:
        results(spark, "ab", engine="streaming")
    assert str(caught.value) == (
        "this session refuses to change settings that a flow needs: set them where the session or "
        f"its cluster is configured: {PROVIDER}={QUERY_CONF[PROVIDER]} (found {found!r}: Spark's "
        "other store cannot keep the state of a flow)"
    )
    assert results(spark, "abcABa", engine="batch") == EXPECTED


def test_a_vendors_own_store_on_rocksdb_is_accepted(spark: SparkSession, refuse: Any) -> None:
    refuse({PROVIDER: "com.vendor.streaming.RocksDBStateStoreProvider"})
    assert session_capabilities(spark).refused == ()


def test_a_setting_that_may_be_neither_set_nor_read_has_no_value(
    spark: SparkSession, refuse: Any
) -> None:
    refuse({ADAPTIVE: None})
    with query_conf(spark, 2) as refused:
        assert [(one.name, one.value, one.found) for one in refused] == [(ADAPTIVE, "false", None)]


def test_a_default_of_spark_that_a_flow_needs_is_accepted(spark: SparkSession, refuse: Any) -> None:
    name = "spark.sql.streaming.minBatchesToRetain"
    spark.conf.unset(name)
    refuse({})
    conf: Any = spark.conf
    conf.refused[name] = ""
    with query_conf(spark, 2, 100) as refused:
        assert refused == ()


def test_all_settings_that_a_run_sets_have_a_use_that_the_docs_list() -> None:
    page = Path(__file__).parents[4] / "docs/reference/spark.md"
    lines = page.read_text("utf-8").splitlines()
    for name, use in QUERY_SETTINGS.items():
        value = f"`{QUERY_CONF[name].rpartition('.')[2]}`" if name in QUERY_CONF else "by run"
        assert f"| `{name}` | {value} | {use.otherwise} |" in lines
    assert {*QUERY_CONF} <= {*QUERY_SETTINGS}
    assert [*NEEDED, *USEFUL] == [*QUERY_SETTINGS]
