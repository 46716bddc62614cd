"""Rescaling of state to another layout, and runs that continue with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow, StopFlag
from flow.connectors.dataframe import DataFrameSource
from flow.engine.plan.compiler import compile_flow
from flow.engine.state.step_state import Header
from flow.engine.state.store import FIRST_BLOCK, seed_files, seeds_in
from flow.keyed.step import Stateful
from flow.testing import ABORT, EOF, TestDriver, TestingSink, TestingSource, key_by_key
from recovery import inspect, verify
from recovery.reading import epoch_state
from recovery.reading.epoch_state import _without_blocks
from recovery.tools.layouts import rescale
from tests.faults.shop import Size
from tests.recovery.checkpoints import Prepared, identity_of, run_flow
from tests.support.faults import Shop, assert_same

pytestmark = pytest.mark.usefixtures("spark")

KEYS = 40
Outputs = dict[str, list[str]]


def items(first: int, last: int) -> list[Any]:
    return [(f"key {number % KEYS}", number) for number in range(first, last)]


def interrupted_at(number: int, mark: Any) -> list[Any]:
    return [*items(0, number), mark, *items(number, 200)]


def count_value(total: int | None, value: int) -> tuple[int, int]:
    return (total or 0) + 1, (total or 0) + 1


class Case:
    """A flow that counts values by key, and collects them in windows on the stream's watermark."""

    def __init__(self, values: list[Any], more: bool = False) -> None:
        self.received: dict[str, list[Any]] = {"counts_out": [], "windows_out": []}
        self.flow = Dataflow("rescaled")
        stream = op.input("in", self.flow, TestingSource(values, batch_size=50))
        if more:  # one level more, below all that was there
            more = op.stateful_map("more", stream, count_value)
            stream = op.map_value("back", op.join("both", stream, more), lambda both: both[0])
        counts = op.stateful_map("counts", stream, count_value)
        clock = win.EventClock(float, "10s", on_idle="hold", scope="stream")
        windows = win.collect_window("windows", stream, clock, win.TumblingWindower("30s"))
        for (name, received), out in zip(
            self.received.items(), (counts, windows.down), strict=True
        ):
            op.output(name, out, TestingSink(received))

    def run(self, checkpoint: Path, **options: Any) -> Any:
        settings = {"drain": True, "shards": 8, **options}
        return run_flow(checkpoint, self.flow, **settings)

    def sorted(self) -> Outputs:
        return {name: sorted(map(repr, found)) for name, found in self.received.items()}


Stopped = Callable[..., tuple[Case, Path]]
"""Makes a flow of which 120 values have been read, with what it received, and its checkpoint."""


@pytest.fixture(scope="module")
def golden() -> Outputs:
    driver = TestDriver(Case([]).flow)
    driver.send("in", items(0, 200))
    driver.end()
    names = ("counts_out", "windows_out")
    return {name: sorted(map(repr, driver.received(name))) for name in names}


@pytest.fixture(scope="module")
def make_stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    values = interrupted_at(120, EOF())
    first = Case(values)
    path = tmp_path_factory.mktemp("stopped") / "checkpoint"
    prepared = Prepared(path, lambda path: first.run(path, drain=False))

    def make(more: bool = False) -> tuple[Case, Path]:
        case = Case(values, more)
        for name, received in first.received.items():
            case.received[name] += received
        return case, prepared.restored()

    return make


def without_leaves(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield headers and segments, without the blocks of the step `sessions`."""
    found = (row for row in rows if row[0] != "sessions" or row[2] > FIRST_BLOCK)
    return _without_blocks(found)


def test_values_in_blocks_move_to_another_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that wait, of an ordered step, values in lists of windows, of one that is not, and
    sessions under a trigger."""
    waiting = [("key", number * 7919 % 2_400) for number in range(2_400)]
    flow, received = Dataflow("blocks"), {"ordered": list[Any](), "unordered": list[Any]()}
    source = TestingSource([*waiting, EOF(), ("key", 2_400)], batch_size=1_200)
    clock = win.EventClock(float, "10000s", on_idle="hold")
    up, windows = op.input("in", flow, source), win.TumblingWindower("35m")
    for name, items in received.items():
        out = win.collect_window(name, up, clock, windows, ordered=name == "ordered")
        op.output(f"{name}_out", out.down, TestingSink(items))
    sessions, panes = win.SessionWindower("500ms"), list[Any]()
    trigger = win.Early(count=2)
    out = win.collect_window("sessions", up, clock, sessions, ordered=False, emit=trigger)
    op.output("sessions_out", out.down, TestingSink(panes))
    run_flow(tmp_path / "checkpoint", flow)
    assert list(verify(tmp_path / "checkpoint")) == []
    (kept,) = inspect(tmp_path / "checkpoint", "sessions").keys
    assert len(kept.state["windows"]) == 2_400
    with monkeypatch.context() as patched:
        patched.setattr(epoch_state, "_without_blocks", without_leaves)
        with pytest.raises(CheckpointError, match="key 'key' cannot be read: a block of its wind"):
            rescale(tmp_path / "checkpoint", shards=3)
    rescale(tmp_path / "checkpoint", shards=3)
    run_flow(tmp_path / "checkpoint", flow, drain=True, shards=3)
    for name, items in received.items():
        found = [values if name == "ordered" else sorted(values) for _, (_, values) in items]
        assert found == [list(range(2_100)), list(range(2_100, 2_401))], name
    assert sorted(values for _, (_, values) in panes) == [[number] for number in range(2_401)]


@pytest.mark.parametrize(
    ("shards", "partitions", "is_key_by_key"),
    [
        (3, 2, False),
        pytest.param(32, 1, False, marks=pytest.mark.extended),
        pytest.param(None, None, False, marks=pytest.mark.extended),
        # The run before went over columns.
        pytest.param(3, None, True, marks=pytest.mark.extended),
    ],
)
def test_a_run_resumes_with_the_state_in_another_layout(
    shards: int | None,
    partitions: int | None,
    is_key_by_key: bool,
    golden: Outputs,
    make_stopped: Stopped,
) -> None:
    case, path = make_stopped()
    moved = rescale(path, shards=shards, partitions=partitions)
    assert (moved.shards, moved.partitions) == (shards or 8, partitions or 1)
    # Every key is counted; open windows have the 30 values from 90 on.
    assert moved.keys == KEYS + 30
    seed = f"{path}/seed-1"
    settings = {
        (row.step, Header.decode(row.content, row.step).settings)
        for row in seeds_in(seed, seed_files(seed))
        if row.number is None
    }
    windows = compile_flow(case.flow).steps["windows"].operator
    assert isinstance(windows, Stateful)
    assert settings == {("counts", ""), ("windows", windows.capabilities.settings)}
    with key_by_key() if is_key_by_key else nullcontext():
        case.run(path)
    assert case.sorted() == golden


@pytest.mark.extended
def test_a_rescale_in_a_backlog_makes_no_value_late(tmp_path: Path) -> None:
    """The dense input is behind the other, whose values hold no window open for it."""
    out: list[Any] = []
    flow = Dataflow("merged")
    inputs = [
        op.input(name, flow, TestingSource(list(seconds), batch_size=30))
        for name, seconds in (("dense", range(120)), ("sparse", range(0, 120, 4)))
    ]
    clock = win.EventClock(float, "0s", on_idle="hold")
    merged = op.merge("merged", *inputs)
    counts = win.count_window("n", merged, clock, win.TumblingWindower("1m"), lambda _: "all")
    op.output("out", op.map("count", counts.down, lambda item: item[1][1]), TestingSink(out))
    stop, path = StopFlag(), tmp_path / "checkpoint"
    run_flow(path, flow, on_epoch=lambda _: stop.ask(), stop=stop)
    rescale(path, partitions=2)
    done = run_flow(path, flow, drain=True)
    assert done.counts.get(("n", "late"), 0) == 0
    assert out == [75, 75]


@pytest.mark.extended
def test_an_interrupted_epoch_is_replayed_in_the_new_layout(
    golden: Outputs, tmp_path: Path
) -> None:
    case, path = Case(interrupted_at(110, ABORT())), tmp_path / "checkpoint"
    assert case.run(path).aborted
    rescale(path, shards=5)
    case.run(path)
    assert case.sorted() == golden


@pytest.mark.extended
def test_a_flow_with_another_level_resumes_once_its_state_has_moved(
    golden: Outputs, make_stopped: Stopped
) -> None:
    case, path = make_stopped(more=True)
    with pytest.raises(CheckpointError, match="python -m recovery rescale") as caught:
        case.run(path)
    assert "had 1 shuffle by key, one after the other, and has 3" in str(caught.value)
    rescale(path)
    case.run(path)
    assert case.sorted() == golden


@pytest.mark.extended
def test_state_can_be_moved_repeatedly(golden: Outputs, make_stopped: Stopped) -> None:
    case, path = make_stopped()
    rescale(path, shards=3)
    case.run(path, drain=False, trigger="available")
    assert rescale(path, shards=7).shards == 7
    case.run(path)
    assert case.sorted() == golden
    assert identity_of(path)["generation"] == 2


@pytest.mark.extended
def test_a_checkpoint_whose_steps_keep_no_key_is_moved(tmp_path: Path) -> None:
    received: list[Any] = []
    flow, path = Dataflow("forgets"), tmp_path / "checkpoint"
    stream = op.input("in", flow, TestingSource([*items(0, 5), EOF(), *items(5, 7)]))
    op.output("out", op.stateful_map("last", stream, forget), TestingSink(received))
    run_flow(path, flow)
    assert rescale(path, shards=2).keys == 0
    assert verify(path) == []
    run_flow(path, flow)
    assert [number for _, number in received] == list(range(7))


def forget(_state: None, value: int) -> tuple[None, int]:
    return None, value


@pytest.mark.extended
def test_inputs_that_spark_reads_cannot_be_moved(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"id": "a"}\n')
    frame = spark.readStream.schema("id string").json(str(tmp_path / "in"))
    flow, path = Dataflow("foreign"), tmp_path / "checkpoint"
    keyed = op.key_on("key", op.input("in", flow, DataFrameSource(frame)), "id")
    op.output("out", op.stateful_map("n", keyed, count_value), TestingSink([]))
    run_flow(path, flow, trigger="available")
    with pytest.raises(CheckpointError, match="inputs that Spark itself reads"):
        rescale(path, shards=3)


@pytest.mark.extended
def test_inputs_are_read_in_the_same_epochs_after_a_move(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The pairs of the shop's `op.join` depend on the epochs in which its two inputs are read."""
    still, moved = (Shop(tmp_path / name, Size(hours=5, epochs=10)) for name in ("still", "moved"))
    for shop in (still, moved):
        shop.write_inputs()
    still.run_here(spark)
    flag, done = StopFlag(), count(1)
    moved.run_here(spark, stop=flag, on_epoch=lambda _: next(done) == 2 and flag.ask())
    rescale(moved.checkpoint, shards=5, partitions=3, spark=spark)
    moved.run_here(spark)
    assert_same(moved.results(), still.results())
