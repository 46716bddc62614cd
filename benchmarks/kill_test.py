"""Kill a flow many times, at random moments, and compare its output with an uninterrupted run's.

::

    python benchmarks/kill_test.py [--flow shop|market] [--kills 500] [--seed N] [--at-once N]
                                   [--only runs|tools] [--hours 20] [--epochs 40] [--folder DIR]

The flow ``shop`` has two inputs, two levels of keyed steps, sessions, two joins, and two file
sinks; see ``tests/faults/shop.py``. The flow ``market`` has tables that change, calls, joins by
time, triggers, windows over all keys, state that expires and approximate aggregates; see
``tests/faults/market.py``. Each run of a flow is a process of its own. SIGKILL kills its driver,
its JVM, or both, until the flow is done. Between two runs, the test uses some of the recovery tools
on the checkpoint, and kills them too: ``verify``, ``status``, ``rewind`` to an earlier epoch,
``rescale`` to another layout, and ``relocate`` after the checkpoint has been moved to another
folder. Then inputs end, the flow is drained, and the next flow begins.

``--at-once 2`` kills two flows at the same time; ``--only runs`` uses no tools, and with
``--only tools`` the test asks runs to stop instead; ``--hours 6 --epochs 12`` makes smaller flows.
The command exits with 0 if every flow has written exactly the output of the uninterrupted run, and
has kept the same state, before it was drained and afterwards. After ``rescale`` has changed the
layout, windows that close as the flow is drained may be numbered in another order, since the flow
promises no order between keys.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from flow.engine.spark.session.session import SparkSettings, make_session
from tests.faults.killing import Killer, Tally, kill_until_done
from tests.faults.market_runs import Market
from tests.faults.shop import Size
from tests.faults.tools import ToolUser
from tests.support.faults import STANDING, Child, Results, Shop, assert_same, no_leftovers

State = dict[tuple[str, str], Any]
OPEN = ("--now", STANDING, "--no-drain")
DRAINED = ("--now", STANDING)
KINDS: dict[str, type[Shop]] = {kind.FLOW: kind for kind in (Shop, Market)}


@dataclass(frozen=True)
class Golden:
    """Results and state of an uninterrupted run: with its windows open, and drained."""

    opened: tuple[Results, State]
    drained: tuple[Results, State]


def main() -> None:
    """Kill flows, compare their outputs, and print a summary."""
    options = _parser().parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    size = Size(options.hours, options.epochs)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="flow-kills-"))
    spark = make_session("kill-test", SparkSettings("local[1]", {"spark.driver.memory": "1g"}))
    kind = KINDS[options.flow]
    golden = left_alone(kind, folder / "golden", size, spark)
    output = f"it writes {dict(golden.drained[0].kinds())}, and kept {_keys(golden.opened[1])}"
    print(f"left alone {output} keys before it was drained", flush=True)
    hunt = Hunt(kind, folder, size, spark, golden, options.kills, options.only)
    rngs = [random.Random(f"{seed}, {number}") for number in range(options.at_once)]
    with ThreadPoolExecutor(options.at_once) as pool:
        for ended in [pool.submit(hunt.kill_flows, rng) for rng in rngs]:
            ended.result()
    print(*hunt.tally.lines(), "equal: all", sep="\n")
    if options.folder is None:
        shutil.rmtree(folder)


@dataclass
class Hunt:
    """A series of flows that are killed, until there have been enough kills.

    Attributes:
        kind: the class of the flows.
        folder: the parent of the flows' folders.
        size: the size of each flow.
        spark: the session that reads state.
        golden: the expected results and state of each flow.
        kills: the number of kills to reach.
        only: ``"runs"`` or ``"tools"`` to kill nothing else.
        tally: the counts so far.
    """

    kind: type[Shop]
    folder: Path
    size: Size
    spark: SparkSession
    golden: Golden
    kills: int
    only: str | None = None
    tally: Tally = field(default_factory=Tally)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _started: float = field(default_factory=time.monotonic)
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def kill_flows(self, rng: random.Random) -> None:
        """Kill flows one after the other; several threads may do so at once."""
        killer = Killer(rng, gentle=self.only == "tools")
        while self.tally.count < self.kills:
            number = next(self._numbers)
            shop = _new_shop(self.kind, self.folder / f"flow-{number:03d}", self.size)
            try:
                with no_leftovers() as children:
                    self._kill_flow(shop, killer, children)
            except BaseException as error:
                self.kills = 0  # Other threads end after their current flow.
                print(f"flow {number}, in {shop.home}: {error}", flush=True)
                raise
            shutil.rmtree(shop.home)
            print(f"flow {number}: equal", flush=True)

    def _kill_flow(self, shop: Shop, killer: Killer, children: list[Child]) -> None:
        user = ToolUser(killer.rng, shop, children, self.tally, self.kills, self._report)
        between = user.use if self.only != "runs" else lambda: None
        for options, golden in ((OPEN, self.golden.opened), (DRAINED, self.golden.drained)):
            shop.options = options
            kill_until_done(shop, killer, children, self.tally, self.kills, self._report, between)
            got, wanted = shop.results(), golden[0]
            if options is DRAINED and shop.identity["generation"]:  # `rescale` changed the layout
                got, wanted = got.in_any_layout(), wanted.in_any_layout()
            assert_same(got, wanted)
            shop.check()
            with self._reading:  # Reading state sets configuration that the session shares.
                assert_same_state(shop.state(self.spark), golden[1])
        self.tally.finished += 1

    def _report(self, kill: object) -> None:
        minutes = (time.monotonic() - self._started) / 60
        print(f"kill {self.tally.count} of {self.kills}, {minutes:.1f} min: {kill}", flush=True)


def left_alone(kind: type[Shop], home: Path, size: Size, spark: SparkSession) -> Golden:
    """Run a flow without interruption, and return its results and state."""
    shop = _new_shop(kind, home, size)
    found = []
    for options in (OPEN, DRAINED):
        shop.options = options
        with no_leftovers() as children:
            children.append(shop.start())
            children[0].finish(seconds=1_000)
        shop.check()
        found.append((shop.results(), shop.state(spark)))
    return Golden(*found)


def assert_same_state(got: State, wanted: State) -> None:
    """Raise unless both have the same keys with the same state; the error shows a difference."""
    differing = sorted(key for key in {*got, *wanted} if got.get(key) != wanted.get(key))
    if differing:
        one = differing[0]
        shown = f"{one}: {got.get(one)} in the place of {wanted.get(one)}"
        raise AssertionError(f"state of {len(differing)} keys differs, such as {shown}")


def _keys(state: State) -> dict[str, int]:
    """Return the number of keys that each step keeps."""
    return dict(Counter(step for step, key in state if key))


def _new_shop(kind: type[Shop], home: Path, size: Size) -> Shop:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    shop = kind(home, size)
    shop.write_inputs()
    return shop


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--flow", choices=KINDS, default="shop", help="the flow that is killed")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, help="where the kills fall; chosen when left out")
    parser.add_argument("--at-once", type=int, default=1, help="how many flows run side by side")
    parser.add_argument("--hours", type=float, default=20, help="how long each shop is open")
    parser.add_argument("--epochs", type=int, default=40, help="about how many epochs that takes")
    parser.add_argument("--only", choices=("runs", "tools"), help="kill nothing else")
    parser.add_argument("--folder", help="where to keep what is written; else it is removed")
    return parser


if __name__ == "__main__":
    main()
