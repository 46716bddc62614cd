"""Tools killed at every step, their completion, and tools that a run keeps out."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flow import CheckpointError
from flow.engine.checkpoint.storage import Storage
from recovery import relocate, rescale, rewind, status, verify
from tests.recovery.checkpoints import tree, used_by_a_run
from tests.recovery.kept_flow import run_on

pytestmark = pytest.mark.usefixtures("spark")

CHANGING = ("write_bytes", "move", "remove")
LOCKS = "lock"


class Killed(BaseException):
    """Exception that stands for the end of the process."""


class Killer:
    """Kill after the n-th change of a file, from 1 on; changes of locks do not count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.steps_left, self.struck = at, False
        for name in CHANGING:
            monkeypatch.setattr(Storage, name, self._fatal(getattr(Storage, name)))

    def _fatal(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def changed(files: Any, name: str, *arguments: Any) -> Any:
            if name.startswith(LOCKS) or self.struck:
                return method(files, name, *arguments)
            self.steps_left -= 1
            self.struck = self.steps_left == 0
            found = method(files, name, *arguments)
            if self.struck:
                raise Killed
            return found

        return changed


def kills(tool: Callable[[], Any], restore: Callable[[], None], every: int) -> Iterator[int]:
    """Run a tool on fresh copies, each killed after another step, and yield the step."""
    for at in range(every, 100, every):
        restore()
        with pytest.MonkeyPatch.context() as monkeypatch:
            killer = Killer(monkeypatch, at)
            with contextlib.suppress(Killed):
                tool()
        if not killer.struck:
            break
        yield at


def without_backups(checkpoint: Path) -> dict[str, bytes]:
    """Return the files of a checkpoint by path, without backups, locks and checksums."""
    return {
        name: content
        for name, content in tree(checkpoint).items()
        if content and not name.startswith(("rewound-", LOCKS)) and not name.endswith(".crc")
    }


@pytest.mark.parametrize(
    ("every", "count"), [(4, 1), pytest.param(1, 6, marks=pytest.mark.extended)]
)
def test_a_killed_rewind_is_completed_first(
    every: int, count: int, checkpoint: Path, copied: Path
) -> None:
    def restore() -> None:
        shutil.rmtree(copied)
        shutil.copytree(checkpoint, copied)

    rewind(copied, 1, yes=True)
    whole = without_backups(copied)
    assert status(copied).epochs == (0, 1)
    kill_count = 0
    for at in kills(lambda: rewind(copied, 1, yes=True), restore, every):
        kill_count += 1
        cut_off = (copied / "change.json").exists()
        if cut_off and at % 4 == 0:
            with pytest.raises(CheckpointError, match=r"recovery rewind .* --epoch 1 --yes"):
                run_on(copied.parent)
            with pytest.raises(CheckpointError, match="do the rest with"):
                rewind(copied, 1)
            for other in (rescale, relocate):
                with pytest.raises(CheckpointError, match="a tool was cut off"):
                    other(copied)
            assert "tool was cut off" in str(verify(copied)[0])
        rewind(copied, 1, yes=True)
        assert without_backups(copied) == whole, at
    assert kill_count >= count


def test_other_tools_are_refused_after_a_killed_rewind(copied: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        Killer(monkeypatch, 3)
        with pytest.raises(Killed):
            rewind(copied, 1, yes=True)
    for tool in (rescale, relocate):
        with pytest.raises(CheckpointError, match="a tool was cut off"):
            tool(copied)
    copy = shutil.copytree(copied, copied.with_name("copy"))
    with pytest.raises(CheckpointError, match=f"do the rest with: .* rewind {copy} --epoch 1"):
        rewind(copy, 1)
    assert rewind(copy, 1, yes=True).path == str(copy)
    assert rewind(copied, 0, yes=True).done, "the first is finished, then this is done"
    assert status(copied).epochs == (0,)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: rewind(path, 1, yes=True),
        lambda path: rewind(path, 1),
        lambda path: rescale(path, shards=3),
        lambda path: relocate(path, yes=True),
    ],
    ids=["rewind", "plan of a rewind", "rescale", "relocate"],
)
def test_a_checkpoint_that_a_run_uses_is_refused(
    change: Callable[[Path], Any], copied: Path
) -> None:
    before = tree(copied)
    with (
        used_by_a_run(copied),
        pytest.raises(CheckpointError, match=r"is in use by another run: process \d+ on"),
    ):
        change(copied)
    assert tree(copied) == before
