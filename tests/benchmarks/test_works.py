"""Works of the benchmarks, and the rules that judge their figures."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from benchmarks.windows.works import Contestant, Rule, Scale, Target, all_works

CONTESTANTS = {one for work in all_works(Scale()) for one in work.contestants}


@pytest.mark.parametrize(
    ("target", "theirs", "reached", "missed"),
    [
        (Target(Rule.TIMES_AS_FAST, 8), 8.0, 1.0, 1.1),
        (Target(Rule.TIMES_AS_FAST, 0.5), 1.0, 2.0, 2.1),
        (Target(Rule.TIMES_AS_LONG, 2), 200.0, 400.0, 401.0),
        (Target(Rule.AT_MOST, 300), None, 300.0, 301.0),
    ],
    ids=str,
)
def test_a_target_is_reached_up_to_its_limit(
    target: Target, theirs: float | None, reached: float, missed: float
) -> None:
    assert target.met(ours=reached, theirs=theirs) is True
    assert target.met(ours=missed, theirs=theirs) is False


def test_a_ratio_is_of_the_slower_figure_and_needs_a_peer() -> None:
    assert Target(Rule.TIMES_AS_FAST, 8).ratio(ours=1.0, theirs=8.0) == 8.0
    assert Target(Rule.TIMES_AS_LONG, 2).ratio(ours=300.0, theirs=200.0) == 1.5
    assert Target(Rule.AT_MOST, 300).ratio(ours=300.0, theirs=None) is None
    assert Target(Rule.TIMES_AS_FAST, 8).met(ours=1.0, theirs=None) is None


def test_names_of_works_and_of_their_contestants_are_unique() -> None:
    works = all_works(Scale())
    assert len({work.name for work in works}) == len(works)
    for work in works:
        names = [one.name for one in work.contestants]
        assert len(set(names)) == len(names)


def test_an_epoch_has_a_fifth_of_the_rows() -> None:
    assert (Scale(rows=5_000_000).epoch_rows, Scale().files_per_epoch) == (1_000_000, 4)


@pytest.mark.parametrize("contestant", sorted(CONTESTANTS, key=repr), ids=lambda one: one.name)
def test_each_contestant_exists(contestant: Contestant) -> None:
    if contestant.needs and importlib.util.find_spec(contestant.needs) is None:
        pytest.skip(f"{contestant.needs} is not installed")
    module = importlib.import_module(f"benchmarks.windows.{contestant.module}")
    assert callable(getattr(module, contestant.function))
