"""Thresholds of the garbage collector: raised while an engine works, and restored afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.garbage import collect_seldom, collecting_seldom, no_collection
from flow.testing import TestingSink, TestingSource, run_once


@pytest.fixture(autouse=True)
def as_python_has_it() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def threshold(_item: object) -> int:
    return gc.get_threshold()[0]


def test_thresholds_are_raised_meanwhile_and_restored_afterwards() -> None:
    def fails() -> None:
        with collecting_seldom():
            assert gc.get_threshold() == (100_000, 10, 10)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("first", [0, 1_000_000])
def test_higher_or_disabled_thresholds_are_kept(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    collect_seldom()
    assert gc.get_threshold()[0] == first


def test_the_collector_is_enabled_again_if_it_was_before() -> None:
    def fails() -> None:
        with no_collection():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert gc.isenabled()
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_flow_in_process_raises_and_restores_thresholds() -> None:
    found = run_once([1], lambda items: op.map("threshold", items, threshold))
    assert found == [100_000]
    assert gc.get_threshold() == (700, 10, 10)


def test_workers_have_raised_thresholds(spark: SparkSession) -> None:
    flow, found = Dataflow("garbage"), list[int]()
    items = op.input("in", flow, TestingSource([1]))
    op.output("out", op.map("threshold", items, threshold), TestingSink(found))
    run(flow, spark=spark, engine="batch")
    assert found == [100_000]
