"""A reference run of the shop, and shops for runs with faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.faults.shop import Size, write_inputs
from tests.support.faults import STANDING, Child, Results, Shop, assert_same, no_leftovers

SMALL = Size(hours=5, epochs=6)
"""Hours close in it from the third epoch on, or so."""
ALIKE = ("--now", STANDING, "--no-drain")
"""What a run in a process of its own needs to leave the state that one in this process does."""


Watch = Callable[[Child], Child]


@dataclass(frozen=True)
class Golden:
    """Results and state of a run without faults, whose windows stay open."""

    results: Results
    state: dict[tuple[str, str], Any]


@pytest.fixture(scope="session")
def golden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    shop = _new_shop(tmp_path_factory.mktemp("golden"))
    assert shop.run_here(spark).epochs >= SMALL.epochs
    return Golden(shop.results(), shop.state(spark))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return _new_shop(tmp_path)


def _new_shop(home: Path) -> Shop:
    write_inputs(home, SMALL)
    return Shop(home, SMALL, ALIKE)


@pytest.fixture
def assert_unharmed(shop: Shop, golden: Golden, spark: SparkSession) -> Callable[..., None]:
    """Runs the shop to its end, and checks that nothing is lost and nothing comes twice."""

    def check(is_over: bool = False) -> None:
        if not is_over:
            shop.run_here(spark)
        assert_same(shop.results(), golden.results)
        assert shop.state(spark) == golden.state

    return check


@pytest.fixture
def watched() -> Iterator[Watch]:
    """Takes a run in a process of its own; whatever is left of it after the test is killed."""
    with no_leftovers() as children:

        def watch(child: Child) -> Child:
            children.append(child)
            return child

        yield watch
