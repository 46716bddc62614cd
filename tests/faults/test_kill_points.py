"""Kills before and after each write of an epoch, and the runs that recover.

An epoch writes, in this order: the log of offsets, the state of each level, the files of the sinks,
what makes these files visible, and the log of commits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.conftest import Watch
from tests.faults.striking import Whom
from tests.support.faults import Shop, Victims

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

EPOCH = 4
"""One in which hours close, so that both sinks have something to write."""
ITEM = {"level 1": 680, "level 2": 140}
"""A click and an order of that epoch."""


POINTS = (
    *("plan", "read", "level 1", "level 2", "before write hours", "amid write log"),
    *("after write log", "before commit hours", "after commit hours", "before commit log"),
    *("after commit log", "after outputs"),
)
"""The points of an epoch; the log of offsets has the epoch from the second on."""
SEEN = {
    "after commit hours": {"hours"},
    "before commit log": {"hours"},
    "after commit log": {"hours", "log"},
    "after outputs": {"hours", "log"},
}
"""Sinks that show the epoch already, by point."""


def kills() -> list[Any]:
    """Return each point for a driver killed alone and with its JVM.

    An ordinary run, on each Spark, has the kill after one of two sinks has shown the epoch.
    """
    names = {Whom.ALL: "with its JVM", Whom.DRIVER: "alone"}
    ordinary = ("after commit hours", Whom.ALL)
    return [
        pytest.param(
            *(point, whom),
            marks=pytest.mark.each_spark if (point, whom) == ordinary else pytest.mark.extended,
            id=f"{point}, {name}",
        )
        for point, (whom, name) in itertools.product(POINTS, names.items())
    ]


@pytest.mark.parametrize(("point", "whom"), kills())
def test_a_driver_killed_at_any_point_of_an_epoch_loses_and_doubles_nothing(
    point: str, whom: Whom, shop: Shop, watched: Watch, assert_unharmed: Callable[[], None]
) -> None:
    watched(shop.start_struck(point, ITEM.get(point, EPOCH), whom)).die()
    begun = EPOCH - 1 if point == "plan" else EPOCH
    assert (shop.logged("offsets"), shop.logged("commits")) == (begun, EPOCH - 1)
    published = {path.parent.name for path in shop.home.glob(f"out/*/epoch={EPOCH:08d}-*")}
    assert published == SEEN.get(point, set())
    assert_unharmed()


@pytest.mark.extended
@pytest.mark.parametrize(
    "file",
    [
        f"offsets/{EPOCH}",
        f"state/1/*/{EPOCH + 1}_*",
        f"state/0/*/{EPOCH + 1}_*",
        f"commits/{EPOCH}",
    ],
    ids=["offsets", "state of the level that runs last", "state of the other", "commits"],
)
def test_a_run_killed_after_any_checkpoint_file_is_written_resumes(
    file: str, shop: Shop, watched: Watch, assert_unharmed: Callable[[], None]
) -> None:
    child = watched(shop.start())
    assert child.wait_for(lambda: any(shop.checkpoint.glob(f"spark/{file}")))
    child.kill(Victims.EVERYTHING)
    child.die()
    assert_unharmed()
