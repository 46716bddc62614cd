"""Size of a checkpoint and resources of a run over many epochs: both stay bounded.

The long run is for two cores of their own, before a release: ``FLOW_STEADY_EPOCHS=5000`` in the
environment asks for that many epochs at a constant pace, in 35 minutes. ``-s`` shows all figures.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from flow.engine.checkpoint.checkpoint import MAX_CHANGES
from tests.support.faults import Child
from tests.support.footprint import Footprint, footprint, growth

EPOCHS = int(os.environ.get("FLOW_STEADY_EPOCHS", "0"))
SECONDS = 600 + 3 * EPOCHS
"""Seconds that the long run may take: seven times what it takes on two idle cores."""

PACE = "0.4s"
"""Interval of the long run's epochs, longer than an epoch takes: a checkpoint contains the changes
of the epochs of some seconds, so a run that becomes faster keeps more files."""

OFTEN = "spark.cleaner.periodicGC.interval=30s"
"""Spark removes the files of old shuffles when the JVM collects their owners, by default every half
hour: files would rise for that time."""

EVERY_SECONDS = 5
WARM_UP = 0.4
"""The part of the epochs after which nothing grows: heaps and pools of threads fill at first."""

KEEP = 20

pytestmark = [pytest.mark.spark, pytest.mark.extended]

MOST_GROWTH = {
    "checkpoint: files": 25,
    "checkpoint: MB": 0.1,
    "tmp: files": 40,
    "tmp: MB": 0.4,
    "driver: MB": 1,
    "driver: threads": 0.5,
    "driver: descriptors": 0.5,
    "workers: MB": 10,
    "workers: threads": 1,
    "workers: descriptors": 5,
    "workers": 1,
    "jvm: MB": 40,
    "jvm: threads": 5,
    "jvm: descriptors": 10,
}
"""Greatest growth of each figure in 1 000 epochs, by the line that fits it best."""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a short name: the sockets that Python workers are reached by are in it."""
    with tempfile.TemporaryDirectory(prefix="grow-") as folder:
        yield Path(folder)


def start(home: Path, temporary: Path, epochs: int, keep: int, *more: str) -> Child:
    """Start a run whose temporary files, the JVM's too, are all in one folder."""
    command = [sys.executable, "-m", "tests.faults.child", str(home), "--flow", "clockwork"]
    command += ["--epochs", str(epochs), "--keep-epochs", str(keep), "--no-drain"]
    environment = {
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
    }
    return Child.start([*command, *more], home, environment)


def versions(home: Path) -> list[int]:
    """The versions of a partition's state that are in the checkpoint."""
    names = (home / "checkpoint" / "spark" / "state" / "0" / "0").glob("*_*.changelog")
    return sorted(int(name.name.partition("_")[0]) for name in names)


#  run          1      2      3      4
#  epochs      25     50     75    100
#  snapshots    1     26     51     76    in a run's first epoch, where the last is 20 epochs back
@pytest.mark.timeout(4 * 600 + 60)
def test_short_runs_do_not_accumulate_files(
    tmp_path: Path, temporary: Path, watched: Callable[[Child], Child]
) -> None:
    keep, of_a_run, runs = 5, 25, 4
    found = []
    for number in range(1, runs + 1):
        watched(start(tmp_path, temporary, number * of_a_run, keep)).finish(600)
        found.append(len(versions(tmp_path)))
    assert versions(tmp_path)[-1] == runs * of_a_run
    # Without maintenance there would be as many as there were epochs: 100.
    assert max(found) <= keep + MAX_CHANGES + 2 * of_a_run


@pytest.mark.timeout(SECONDS)
@pytest.mark.skipif(
    not EPOCHS, reason="takes 35 minutes of two idle cores: FLOW_STEADY_EPOCHS=5000 asks for it"
)
def test_many_epochs_do_not_grow_the_footprint(
    tmp_path: Path, temporary: Path, watched: Callable[[Child], Child]
) -> None:
    paced = ["--trigger", PACE, "--conf", OFTEN]
    child = watched(start(tmp_path, temporary, EPOCHS, KEEP, *paced))
    folders = {"checkpoint": tmp_path / "checkpoint", "tmp": temporary}
    samples: list[tuple[int, Footprint]] = []
    while not child.ended:
        time.sleep(EVERY_SECONDS)
        figures = footprint(child, folders)
        # A scan of the processes can miss one while processes start and end.
        if child.epochs and figures["jvm: threads"]:
            samples.append((child.epochs[-1], figures))
            print(json.dumps({"epoch": samples[-1][0], **samples[-1][1]}))  # noqa: T201  (shown by -s)
    assert child.finish().endswith(f"done after {EPOCHS} epochs\n")
    assert len(versions(tmp_path)) <= 1.3 * KEEP + 6 * most_in_five_seconds(samples) + 40
    assert_flat([sample for sample in samples if WARM_UP * EPOCHS < sample[0] < EPOCHS - 1])


def most_in_five_seconds(samples: list[tuple[int, Footprint]]) -> int:
    """The most epochs that were done between two samples."""
    epochs = [epoch for epoch, _ in samples]
    return max(after - before for before, after in pairwise(epochs))


def assert_flat(samples: list[tuple[int, Footprint]]) -> None:
    """Nothing grows by more than it may; tells of all that does."""
    epochs = [epoch for epoch, _ in samples]
    growths = {
        name: growth(epochs, [figures[name] for _, figures in samples]) for name in MOST_GROWTH
    }
    print(json.dumps(growths))  # noqa: T201  (shown by -s)
    too_much = {name: by for name, by in growths.items() if by > MOST_GROWTH[name]}
    assert not too_much, f"grows in 1,000 epochs, of {len(samples)} samples: {too_much}"
