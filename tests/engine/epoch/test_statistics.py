"""Statistics of an epoch: samples of late values, and the merge of those of tasks."""

from __future__ import annotations

import numpy as np

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.columns.chunks import Chunk, Pairs
from flow.dataflow import Step
from flow.engine.epoch.statistics import MAX_ITEMS, MAX_WINDOWS, LateItem, Stats, late_sample
from flow.testing import TestingSource
from flow_windowing.rules.metadata import LateReason, LateValue, WindowMetadata

S = 1_000_000


def late(at: int, watermark: int, windows: int = 1) -> LateValue[str]:
    """Return a late value with ten-second windows that it missed; times in seconds."""
    missed = tuple(
        WindowMetadata.of_us(n, 10 * n * S, 10 * (n + 1) * S)
        for n in range(at // 10, at // 10 + windows)
    )
    return LateValue.of_us(f"value at {at}", at * S, watermark * S, missed)


def pairs(*values: object) -> Chunk:
    return Pairs([f"k{n}" for n in range(len(values))], list(values), np.arange(len(values)))


def counting_step() -> Step:
    flow = Dataflow("flow")
    values = op.input("in", flow, TestingSource([]))
    clock, windower = win.EventClock("at", "0s"), win.TumblingWindower("10s")
    win.count_window("count", values, clock, windower, key="user")
    return next(step for step in flow.steps if step.step_id == "count")


def test_a_sample_has_times_reason_and_missed_windows() -> None:
    chunks = [[pairs("a result")], [pairs(late(12, 31))], []]
    assert late_sample(counting_step(), chunks) == [
        LateItem(
            *("count", "k0", "'value at 12'", "late", 12 * S, 31 * S),
            windows=((1, 10 * S, 20 * S),),
            missed=1,
        )
    ]


def test_a_sample_is_bounded_and_has_the_last_values() -> None:
    chunks = [[], [pairs(*(late(at, 5_000) for at in range(50)))], []]
    sample = late_sample(counting_step(), chunks)
    assert [item.value for item in sample] == [f"'value at {at}'" for at in range(30, 50)]
    (item,) = late_sample(counting_step(), [[], [pairs(late(0, 99, windows=9))], []])
    assert (len(item.windows), item.missed) == (MAX_WINDOWS, 9)


def test_a_long_key_and_a_long_value_are_cut() -> None:
    value = LateValue.of_us("v" * 10_000, 0, S, (), LateReason.GAP)
    (item,) = late_sample(counting_step(), [[], [Pairs(["k" * 10_000], [value], np.arange(1))], []])
    assert (len(item.key), len(item.value)) <= (400, 400)
    assert item.reason == "gap"


def test_items_of_another_kind_on_a_stream_named_late_are_left_out() -> None:
    assert late_sample(counting_step(), [[], [pairs("text", 7)], []]) == []


def test_tasks_samples_are_merged_and_bounded_by_step() -> None:
    def items(step_id: str, *numbers: int) -> list[LateItem]:
        return [LateItem(step_id, "k", "v", "late", n, None, ((1, 0, 9),), 1) for n in numbers]

    total = Stats()
    for sample in (items("a", *range(15)), [*items("a", *range(100, 115)), *items("b", 1)]):
        total.add(Stats.decode(Stats(late_items=sample).encode()))
    assert MAX_ITEMS == 20
    assert total.late_items == [*items("a", *range(10, 15), *range(100, 115)), *items("b", 1)]
