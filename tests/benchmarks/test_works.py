"""Works of the benchmarks, and the rules that judge their figures."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from benchmarks.windows.works import Contestant, Rule, Scale, Target, all_works

CONTESTANTS = {one for work in all_works(Scale()) for one in work.contestants}


def test_eight_times_as_fast_is_reached_at_an_eighth_of_the_time() -> None:
    target = Target(Rule.TIMES_AS_FAST, 8)
    assert target.ratio(ours=1.0, theirs=8.0) == 8.0
    assert target.met(ours=1.0, theirs=8.0) is True
    assert target.met(ours=1.1, theirs=8.0) is False


def test_a_fraction_as_fast_may_be_slower() -> None:
    target = Target(Rule.TIMES_AS_FAST, 0.5)
    assert target.met(ours=2.0, theirs=1.0) is True
    assert target.met(ours=2.1, theirs=1.0) is False


def test_times_as_long_compares_with_another_figure_of_ours() -> None:
    target = Target(Rule.TIMES_AS_LONG, 2)
    assert target.ratio(ours=300.0, theirs=200.0) == 1.5
    assert target.met(ours=400.0, theirs=200.0) is True
    assert target.met(ours=401.0, theirs=200.0) is False


def test_a_limit_needs_no_peer() -> None:
    target = Target(Rule.AT_MOST, 300)
    assert target.met(ours=300.0, theirs=None) is True
    assert target.met(ours=301.0, theirs=None) is False
    assert target.ratio(ours=300.0, theirs=None) is None


def test_a_ratio_without_a_peer_has_no_verdict() -> None:
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
