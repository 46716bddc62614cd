"""Kill a flow many times, at random moments, and compare what it writes with a run left alone.

::

    python benchmarks/kill_test.py [--kills 500] [--seed N] [--at-once N] [--folder DIR]

The flow has two inputs, two levels of keyed steps, sessions, a join, and two file sinks; see
``tests/faults/shop.py``. Each of its runs is a process of its own and is killed with SIGKILL, its
driver, its JVM, or both, until the flow is done; then the next flow begins. ``--at-once 2`` kills
two flows side by side. It ends with 0 if every flow has written exactly what the run left alone
has.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults.killing import Kill, Killer, Tally, kill_until_done
from tests.faults.shop import Size, write_inputs
from tests.support.faults import Results, Shop, assert_same, no_leftovers

SIZE = Size(hours=20, epochs=40)


def main() -> None:
    """Kill, compare, and say what was seen."""
    options = _parser().parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="flow-kills-"))
    golden = left_alone(folder / "golden")
    print(f"left alone it writes {dict(golden.kinds())}", flush=True)
    hunt = Hunt(folder, golden, options.kills)
    killers = [Killer(random.Random(f"{seed}, {number}")) for number in range(options.at_once)]
    with ThreadPoolExecutor(options.at_once) as pool:
        for ended in [pool.submit(hunt.kill_flows, killer) for killer in killers]:
            ended.result()
    print(*hunt.tally.lines(), "equal: all", sep="\n")
    if options.folder is None:
        shutil.rmtree(folder)


@dataclass
class Hunt:
    """Killing flow after flow until there have been enough kills.

    Attributes:
        folder: where each flow gets a folder.
        golden: what each of them has to write.
        kills: how many are enough.
        tally: what was seen so far.
    """

    folder: Path
    golden: Results
    kills: int
    tally: Tally = field(default_factory=Tally)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _started: float = field(default_factory=time.monotonic)

    def kill_flows(self, killer: Killer) -> None:
        """Kill flows one after the other; several threads may do so at once."""
        while len(self.tally.kills) < self.kills:
            number = next(self._numbers)
            shop = _new_shop(self.folder / f"flow-{number:03d}")
            try:
                with no_leftovers() as children:
                    kill_until_done(shop, killer, children, self.tally, self.kills, self._report)
                assert_same(shop.results(), self.golden)
            except BaseException as error:
                self.kills = 0  # Other threads end with the flow that they are at.
                print(f"flow {number}, in {shop.home}: {error}", flush=True)
                raise
            shutil.rmtree(shop.home)
            print(f"flow {number}: equal", flush=True)

    def _report(self, kill: Kill) -> None:
        minutes = (time.monotonic() - self._started) / 60
        said = f"kill {len(self.tally.kills)} of {self.kills}, {minutes:.1f} min:"
        print(f"{said} {kill.victims.value}, {kill.phase.value}", flush=True)


def left_alone(home: Path) -> Results:
    """What a run that nobody kills writes."""
    shop = _new_shop(home)
    with no_leftovers() as children:
        children.append(shop.start())
        children[0].finish(seconds=1_000)
    return shop.results()


def _new_shop(home: Path) -> Shop:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    write_inputs(home, SIZE)
    return Shop(home, SIZE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, help="where the kills fall; chosen when left out")
    parser.add_argument("--at-once", type=int, default=1, help="how many flows run side by side")
    parser.add_argument("--folder", help="where to keep what is written; else it is removed")
    return parser


if __name__ == "__main__":
    main()
