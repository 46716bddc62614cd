"""Runs on a checkpoint of an earlier version, with every kind of state."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

import recovery
from flow.engine.spark.versions.supported import installed_version
from tests.recovery.every_state import FIRST, ITEMS, KEYS, go_on

EARLIER = Path(__file__).parent / "earlier"

pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.skipif(
        installed_version().number < (4, 3), reason="the checkpoint was written with Spark 4.3"
    ),
]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder in which the earlier version ran, in another place."""
    shutil.unpack_archive(EARLIER / "checkpoint.zip", tmp_path)
    return tmp_path


@pytest.mark.extended
def test_resumed_outputs_equal_those_of_the_earlier_version(work: Path) -> None:
    recovery.relocate(work / "checkpoint", yes=True)
    assert recovery.verify(work / "checkpoint") == []
    outputs = go_on(work, [*FIRST, *ITEMS[300:]], drain=True)
    wanted = json.loads(gzip.decompress((EARLIER / "outputs.json.gz").read_bytes()))
    assert sorted(outputs) == sorted(wanted)
    for name in wanted:
        assert outputs[name] == wanted[name], name
    # The end of the input has loaded all keys, so all are counted.
    steps = {one.step: one for one in recovery.status(work / "checkpoint").steps}
    assert not any(one.uncounted_keys for one in steps.values())
    assert (steps["hours_objects"].open_windows, steps["hours_objects"].buffered_values) == (0, 0)
    assert (steps["counts_records"].open_windows or 0) > 0, "an end fills no window of 7 values"
    assert (steps["baskets"].open_windows, steps["baskets"].buffered_values) == (None, None)


@pytest.mark.extended
@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.extended), pytest.param(9, id="some steps")]
)
def test_tools_read_the_state_of_every_step(every: int, work: Path) -> None:
    recovery.relocate(work / "checkpoint", yes=True)
    status = recovery.status(work / "checkpoint")
    assert all(step.keys for step in status.steps)
    # The earlier version wrote no counts of open windows and buffered values.
    assert {(step.open_windows, step.buffered_values) for step in status.steps} == {(None, None)}
    uncounted = {step.step: step.uncounted_keys for step in status.steps}
    assert (uncounted["hours_objects"], uncounted["baskets"]) == (KEYS, 0)
    (line,) = (line for line in str(status).splitlines() if line.startswith("hours_objects "))
    assert line.split()[4:6] == ["unknown", "unknown"]
    for step in status.steps[::every]:
        found = recovery.inspect(work / "checkpoint", step.step)
        assert "Inert" not in repr(found)
