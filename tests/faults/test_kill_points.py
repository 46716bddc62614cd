"""Kills before and after each write of an epoch, and the runs that recover.

An epoch writes, in this order: the log of offsets, the state of each level, the files of the sinks,
what makes these files visible, and the log of commits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.faults.conftest import Watch
from tests.faults.striking import Whom
from tests.support.faults import Shop, Victims

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

EPOCH = 4
"""One in which hours close, so that both sinks have something to write."""
ITEM = {"level 1": 680, "level 2": 140}
"""A click and an order of that epoch."""


class LoggedEpochs(NamedTuple):
    """The last epochs in Spark's logs."""

    offsets: int
    commits: int


BEGUN = LoggedEpochs(EPOCH, EPOCH - 1)
POINTS = {
    "plan": LoggedEpochs(EPOCH - 1, EPOCH - 1),
    "read": BEGUN,
    "level 1": BEGUN,
    "level 2": BEGUN,
    "before write hours": BEGUN,
    "amid write log": BEGUN,
    "after write log": BEGUN,
    "before commit hours": BEGUN,
    "after commit hours": BEGUN,
    "before commit log": BEGUN,
    "after commit log": BEGUN,
    "after outputs": BEGUN,
}
"""Logged epochs after a kill at each point of an epoch."""
SEEN = {
    "after commit hours": {"hours"},
    "before commit log": {"hours"},
    "after commit log": {"hours", "log"},
    "after outputs": {"hours", "log"},
}
"""Which sinks show the epoch already, by point."""


def kills() -> list[Any]:
    """Return each point with its logged epochs, for a driver killed alone and with its JVM.

    An ordinary run, on each Spark, has the kill after one of two sinks has shown the epoch.
    """
    names = {Whom.ALL: "with its JVM", Whom.DRIVER: "alone"}
    ordinary = ("after commit hours", Whom.ALL)
    return [
        pytest.param(
            *(point, logged, whom),
            marks=pytest.mark.each_spark if (point, whom) == ordinary else pytest.mark.extended,
            id=f"{point}, {name}",
        )
        for (point, logged), (whom, name) in itertools.product(POINTS.items(), names.items())
    ]


@pytest.mark.parametrize(("point", "logged", "whom"), kills())
def test_a_driver_killed_at_any_point_of_an_epoch_loses_and_doubles_nothing(
    point: str,
    logged: LoggedEpochs,
    whom: Whom,
    shop: Shop,
    watched: Watch,
    assert_unharmed: Callable[[], None],
) -> None:
    watched(shop.start_struck(point, ITEM.get(point, EPOCH), whom)).die()
    assert LoggedEpochs(shop.logged("offsets"), shop.logged("commits")) == logged
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
