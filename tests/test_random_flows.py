"""Random flows: equal results in all engines, for any epochs and shards.

`--hypothesis-profile=search` looks at many more flows than the ones that are always tried.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.testing import Part, TestDriver, TestingSink, TestingSource
from tests.support.epochs import EpochsSource, SourceEpoch
from tests.support.playing import grouped
from tests.support.random_flows import (
    MAX_LEVEL,
    OPS,
    Choice,
    FlowSpec,
    Known,
    Order,
    Shape,
    random_flow,
)
from tests.support.sampling import sampled

KEYS = ("a", "b", "é", "long-key")
RECORD_SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])

Row = tuple[str, int]
Epochs = list[list[list[Row]]]
"""For one input: the rows of each source partition of each epoch."""

Results = dict[str, list[Any]]


def in_form(rows: Sequence[Row], shape: Shape, *, columns: bool) -> list[Any] | pa.RecordBatch:
    """Rows as items: pairs, dicts, or a record batch."""
    if shape is Shape.PAIR:
        return list(rows)
    records = [{"id": key, "n": number} for key, number in rows]
    return pa.RecordBatch.from_pylist(records, schema=RECORD_SCHEMA) if columns else records


def parts_of(epoch: list[list[Row]], shape: Shape, *, columns: bool) -> tuple[Part, ...]:
    return tuple(
        Part(in_form(rows, shape, columns=columns), number) for number, rows in enumerate(epoch)
    )


def in_process(
    spec: FlowSpec, inputs: Sequence[Epochs], shards: int, *, columns: bool
) -> tuple[Results, dict[str, Known]]:
    """Run a flow in the in-process driver, and return its outputs and their known properties."""
    flow = Dataflow("random")
    sources = [op.input(f"in {i}", flow, TestingSource([])) for i in range(len(spec.inputs))]
    known = {}
    for name, (stream, what) in spec.build(sources).items():
        op.output(name, stream, TestingSink([]))
        known[name] = what
    with TestDriver(flow, shards=shards) as driver:
        for number in range(max(map(len, inputs))):
            driver.send_parts(
                {
                    f"in {i}": parts_of(epochs[number], spec.inputs[i], columns=columns)
                    for i, epochs in enumerate(inputs)
                    if number < len(epochs)
                }
            )
        driver.end()
        return {name: driver.received(name) for name in known}, known


def count_items(items: Sequence[Any]) -> Counter[str]:
    """Return the number of occurrences of each item, as text because dicts cannot be hashed."""
    return Counter(map(repr, items))


# --- epochs and shards ------------------------------------------------------------------------


@dataclass
class HypothesisChoice:
    """A `Choice` of hypothesis."""

    draw: Callable[[st.SearchStrategy[int]], int]

    def integer(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))


@dataclass
class SeededChoice:
    """A `Choice` by a seeded generator."""

    random: Random

    def integer(self, least: int, most: int) -> int:
        return self.random.randint(least, most)


def random_rows(choose: Choice, most: int) -> list[Row]:
    return [
        (KEYS[choose.integer(0, len(KEYS) - 1)], choose.integer(0, 20))
        for _ in range(choose.integer(0, most))
    ]


ROWS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 20)), max_size=12)


@st.composite
def certain_flows(draw: Any) -> tuple[FlowSpec, list[list[Row]]]:
    """A flow whose results must not depend on epochs and shards, and the rows of its inputs."""
    spec = random_flow(HypothesisChoice(draw), certain=True)
    return spec, [draw(ROWS) for _ in spec.inputs]


def cut(rows: list[Row], places: Sequence[int]) -> Epochs:
    """Cut the rows of one source partition into epochs, some of which may be empty."""
    ends = [0, *sorted(min(place, len(rows)) for place in places), len(rows)]
    return [[rows[start:end]] for start, end in itertools.pairwise(ends)]


def check_results(
    spec: FlowSpec, inputs: list[list[Row]], places: Sequence[int], shards: int
) -> None:
    """Compare a flow over input in pieces with the same flow over the input as a whole."""
    whole = [cut(rows, []) for rows in inputs]
    wanted, known = in_process(spec, whole, shards=8, columns=False)
    pieces = [cut(rows, places) for rows in inputs]
    found, _ = in_process(spec, pieces, shards=shards, columns=True)
    for name, items in wanted.items():
        if known[name].order is Order.TOTAL:
            assert found[name] == items
        elif known[name].order is Order.BY_KEY and known[name].gathered:
            assert grouped(found[name]) == grouped(items)
        else:
            assert count_items(found[name]) == count_items(items)


@sampled(100, by_default=15)
@given(
    certain_flows(),
    st.lists(st.integers(0, 12), max_size=4),
    st.sampled_from([1, 2, 5, 16]),
)
def test_results_do_not_depend_on_epochs_shards_or_columns(
    example: tuple[FlowSpec, list[list[Row]]], places: list[int], shards: int
) -> None:
    spec, inputs = example
    check_results(spec, inputs, places, shards)


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 300), marks=pytest.mark.extended)], ids=str
)
def test_results_of_larger_flows_do_not_depend_on_epochs_shards_or_columns(seeds: range) -> None:
    """Hypothesis likes its flows small; these have eight steps as often as one."""
    for seed in seeds:
        choose = SeededChoice(Random(seed))
        spec = random_flow(choose, certain=True)
        inputs = [random_rows(choose, 12) for _ in spec.inputs]
        places = [choose.integer(0, 12) for _ in range(choose.integer(0, 4))]
        check_results(spec, inputs, places, shards=choose.integer(1, 16))


# --- engines ----------------------------------------------------------------------------------

FLOWS, EPOCHS, SHARDS = 24, 4, 8


@dataclass(frozen=True)
class Example:
    """A flow and its input, cut into epochs of one or two source partitions."""

    spec: FlowSpec
    inputs: tuple[Epochs, ...]
    columns: bool


def example(seed: int) -> Example:
    choose = SeededChoice(Random(seed))
    spec = random_flow(choose, certain=False)
    inputs = tuple(
        [[random_rows(choose, 6) for _ in range(choose.integer(0, 2))] for _ in range(EPOCHS)]
        for _ in spec.inputs
    )
    return Example(spec, inputs, columns=seed % 2 == 0)


EXAMPLES = [example(seed) for seed in range(FLOWS)]


def test_the_examples_cover_every_operator_and_level() -> None:
    used = Counter(step.op for one in EXAMPLES for step in one.spec.steps)
    assert set(used) == set(OPS)
    assert {len(one.spec.inputs) for one in EXAMPLES} == {1, 2}
    levels = {
        known.level
        for one in EXAMPLES
        for known in in_process(one.spec, one.inputs, 1, columns=False)[1].values()
    }
    assert levels == set(range(MAX_LEVEL + 1))


def on_spark(spark: SparkSession, engine: Any) -> list[Results]:
    """Run all examples in one Spark job or one query, and return the outputs of each."""
    flow, results = Dataflow("random"), list[Results]()
    for number, one in enumerate(EXAMPLES):
        sources = []
        for place, epochs in enumerate(one.inputs):
            shape = one.spec.inputs[place]
            parts = (parts_of(epoch, shape, columns=one.columns) for epoch in epochs)
            source = EpochsSource(tuple(map(SourceEpoch, parts)))
            sources.append(op.input(f"{number}: in {place}", flow, source))
        results.append({})
        for name, (stream, _) in one.spec.build(sources, f"{number}: ").items():
            received = results[-1][name] = list[Any]()
            op.output(f"{number}: {name}", stream, TestingSink(received))
    summary = run(flow, spark=spark, engine=engine, shards=SHARDS, system_time=0)
    assert summary.epochs == (1 if engine == "batch" else EPOCHS + 1)
    return results


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_spark_agrees_with_the_driver(engine: str, spark: SparkSession) -> None:
    """With the same epochs and shards, even what is uncertain otherwise is the same."""
    for one, found in zip(EXAMPLES, on_spark(spark, engine), strict=True):
        wanted, known = in_process(one.spec, one.inputs, SHARDS, columns=one.columns)
        for name, items in wanted.items():
            if known[name].gathered:
                assert grouped(found[name]) == grouped(items), (one.spec, name)
            else:
                assert count_items(found[name]) == count_items(items), (one.spec, name)
