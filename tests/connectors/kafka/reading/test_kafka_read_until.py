"""Time up to which topics are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from tests.support.kafka_planning import Brokers, new_planner


def test_a_source_is_read_until_the_last_poll_whose_ends_it_has_reached() -> None:
    brokers = Brokers({"t/0": (0, 10), "t/1": (0, 0)})
    plan = new_planner(brokers, per_epoch=5)
    until, offset = [], None
    for now_us, end in enumerate([10, 12, 20, 20, 20, 20, 20, 21], start=1):
        brokers.partitions_there["t/0"] = (0, end)
        planned = plan.next(offset)
        offset = offset if planned is None else planned.end
        until.append((offset["t/0"], plan.read_until_us(now_us, bool(planned and planned.behind))))
    assert until == [(5, None), (10, 1), (15, 2), (20, 4), (20, 5), (20, 6), (20, 7), (21, 8)]


def test_missing_or_stale_ends_are_no_poll() -> None:
    clock, brokers = Clock(), Brokers({"t/0": (0, 2)})
    plan = new_planner(brokers, clock)
    offset = plan.next(None).end
    assert plan.read_until_us(1, False) == 1
    brokers.silent = True
    assert (plan.next(offset), plan.read_until_us(2, False)) == (None, None)
    brokers.silent = False
    brokers.partitions_there["t/0"] = (0, 1)  # a broker that has just started knows no better
    assert (plan.next(offset), plan.read_until_us(3, False)) == (None, None)
    brokers.partitions_there["t/0"] = (0, 2)
    assert (plan.next(offset), plan.read_until_us(4, False)) == (None, 4)


@dataclass(frozen=True)
class Epoch:
    """Messages appended to each partition before an epoch, and the limit of what it reads."""

    appended: tuple[int, int, int]
    per_epoch: int


EPOCHS = st.lists(
    st.builds(
        Epoch, st.tuples(*[st.one_of(st.just(0), st.integers(0, 40))] * 3), st.integers(1, 30)
    ),
    max_size=25,
)


@given(EPOCHS, st.tuples(*[st.integers(1, 1_000)] * 3))
def test_messages_are_read_once_with_exact_behind_and_read_until(
    epochs: list[Epoch], paces: tuple[int, int, int]
) -> None:
    names = ["t/0", "t/1", "t/2"]
    most = {"now": 1}
    scales: Any = type("Scales", (), {"most": lambda *_: most["now"]})()
    brokers = Brokers(dict.fromkeys(names, (0, 0)))
    plan = new_planner(brokers, scales=scales)
    offset: Any = None
    polls: list[tuple[int, list[int]]] = []
    now_us = 0
    rest = [Epoch((0, 0, 0), 5_000)] * 3  # more than there is
    for epoch in epochs + rest:
        now_us, most["now"] = now_us + 1, epoch.per_epoch
        ends = [brokers.partitions_there[name][1] for name in names]
        ends = [end + more for end, more in zip(ends, epoch.appended, strict=True)]
        brokers.partitions_there = {name: (0, end) for name, end in zip(names, ends, strict=True)}
        polls.append((now_us, ends))
        before = offset or dict.fromkeys(names, 0)
        waiting = sum(ends) - sum(before.values())
        plan.hear({n: before[name] * paces[n] for n, name in enumerate(names) if before[name]})
        planned = plan.next(offset)
        assert planned is not None or (offset is not None and not waiting)
        if planned is not None:
            ranges = [tuple(split.what[1:]) for split in planned.splits]
            at = dict(before)
            for number, start, end in ranges:
                assert start == at[f"t/{number}"]
                at[f"t/{number}"] = end
            assert at == planned.end
            offset = planned.end
            assert sum(at.values()) - sum(before.values()) == min(waiting, epoch.per_epoch)
            assert planned.behind == [n for n in range(3) if at[names[n]] < ends[n]]
        behind = bool(planned and planned.behind)
        reached = [
            time_us
            for time_us, theirs in polls
            if all(offset[name] >= end for name, end in zip(names, theirs, strict=True))
        ]
        assert plan.read_until_us(now_us, behind) == max(reached, default=None)
        assert behind or plan.read_until_us(now_us, behind) == now_us
