"""Tools killed at every step, and their completion before the next run."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError
from flow.engine.checkpoint.storage import Storage
from recovery import relocate, rescale, rewind, status, verify
from recovery.reading.files import CheckpointFiles
from tests.recovery.kept_flow import run_on

pytestmark = pytest.mark.spark

CHANGING = (
    (Storage, "write"),
    (Storage, "move"),
    (Storage, "remove"),
    (CheckpointFiles, "write_text"),
)
LOCKS = "lock"
BESIDE = ("rewound-", "relocated-", LOCKS)


class Killed(BaseException):
    """Exception that stands for the end of the process."""


class Killer:
    """Kill before or after the n-th change of a file; changes of locks do not count.

    Args:
        monkeypatch: what changes the methods.
        at: which change, from 1 on.
        after: whether it is still made.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, after: bool) -> None:
        self.steps_left, self.after, self.struck = at, after, False
        for owner, name in CHANGING:
            monkeypatch.setattr(owner, name, self._fatal(getattr(owner, name)))

    def _fatal(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def changed(files: Any, name: str, *arguments: Any) -> Any:
            if name.startswith(LOCKS) or self.struck:
                return method(files, name, *arguments)
            self.steps_left -= 1
            self.struck = self.steps_left == 0
            if self.struck and not self.after:
                raise Killed
            found = method(files, name, *arguments)
            if self.struck:
                raise Killed
            return found

        return changed


def kills(tool: Callable[[], Any], afresh: Callable[[], None]) -> Iterator[tuple[int, bool]]:
    """Run a tool on fresh copies, killed at every step once, and yield each step."""
    for after in (False, True):
        for at in range(1, 100):
            afresh()
            with pytest.MonkeyPatch.context() as monkeypatch:
                killer = Killer(monkeypatch, at, after)
                with contextlib.suppress(Killed):
                    tool()
            if not killer.struck:
                break
            yield at, after


def content(directory: Path) -> dict[str, bytes]:
    """Return the files of a checkpoint by path, without backups, locks and checksums."""
    found = {path.relative_to(directory): path for path in directory.rglob("*") if path.is_file()}
    return {
        str(name): path.read_bytes()
        for name, path in found.items()
        if not name.parts[0].startswith(("rewound-", "relocated-", "lock"))
        and path.suffix != ".crc"
    }


def test_a_killed_rewind_is_completed_first(
    checkpoint: Path, copied: Path, spark: SparkSession
) -> None:
    def afresh() -> None:
        shutil.rmtree(copied)
        shutil.copytree(checkpoint, copied)

    rewind(copied, 1, yes=True, spark=spark)
    whole = content(copied)
    assert status(copied, spark=spark).epochs == (0, 1)
    kill_count = 0
    for at, after in kills(lambda: rewind(copied, 1, yes=True, spark=spark), afresh):
        kill_count += 1
        cut_off = (copied / "change.json").exists()
        if cut_off and at % 3 == 0:
            with pytest.raises(CheckpointError, match=r"recovery rewind .* --epoch 1 --yes"):
                run_on(spark, copied.parent)
            with pytest.raises(CheckpointError, match="do the rest with"):
                rewind(copied, 1, spark=spark)
            assert "tool was cut off" in str(verify(copied, spark=spark)[0])
        rewind(copied, 1, yes=True, spark=spark)
        assert content(copied) == whole, (at, after)
    assert kill_count > 10


@pytest.mark.parametrize("tool", [rescale, relocate])
def test_other_tools_are_refused_after_a_killed_rewind(
    tool: Callable[..., Any], copied: Path, spark: SparkSession
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        Killer(monkeypatch, 3, True)
        with pytest.raises(Killed):
            rewind(copied, 1, yes=True, spark=spark)
    with pytest.raises(CheckpointError, match="a tool was cut off"):
        tool(copied, spark=spark)
    assert rewind(copied, 0, yes=True, spark=spark).done, "the first is finished, then this is done"
    assert status(copied, spark=spark).epochs == (0,)
