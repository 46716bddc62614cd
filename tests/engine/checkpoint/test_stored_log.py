"""The log of a source on disk: pages, a summary that replaces them, and crashes in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flow.engine.checkpoint import stored_log
from flow.engine.checkpoint.stored_log import StoredLog
from flow.errors import CheckpointError


class Dies(Exception):
    """The process dies here."""


class Disk:
    """Files in memory, in the place of `Storage`, that dies before or after a change of them."""

    root = "ckpt"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.changes = 0
        self.dies_at: tuple[int, bool] | None = None

    def names(self, folder: str) -> list[str]:
        return sorted(name.removeprefix(f"{folder}/") for name in self.files)

    def read_bytes(self, name: str) -> bytes:
        return self.files[name]

    def read(self, name: str) -> Any:
        return json.loads(self.files[name])

    def write_bytes(self, name: str, data: bytes) -> None:
        self._change(lambda: self.files.update({name: data}))

    def remove(self, name: str) -> None:
        self._change(lambda: self.files.pop(name))

    def _change(self, change: Any) -> None:
        number, after = self.dies_at or (-1, False)
        self.changes += 1
        if self.changes - 1 == number and not after:
            raise Dies
        change()
        if self.changes - 1 == number:
            raise Dies

    def log(self) -> StoredLog:
        return StoredLog(self, "in")  # type: ignore[arg-type]  # as far as a log needs one


def content(disk: Disk) -> tuple[bytes | None, list[Any]]:
    log = disk.log()
    return log.summary(), log.entries()


def test_entries_share_pages_and_are_read_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_log, "PAGE_BYTES", 7)
    disk = Disk()
    log = disk.log()
    assert (log.summary(), log.entries()) == (None, [])
    for number in range(4):
        log.append([number])
    log.append(["longer than a page"])
    log = disk.log()
    log.append([5])
    assert content(disk) == (None, [[0], [1], [2], [3], ["longer than a page"], [5]])
    assert disk.names("in") == [
        "000000000.page.json",
        "000000002.page.json",
        "000000004.page.json",
        "000000005.page.json",
    ]


def test_a_resumed_run_fills_the_newest_page() -> None:
    disk = Disk()
    for number in range(3):
        disk.log().append({"n": number})
    assert disk.names("in") == ["000000000.page.json"]
    assert content(disk)[1] == [{"n": 0}, {"n": 1}, {"n": 2}]


def filled() -> Disk:
    """A log with a summary, pages after it, and what is left of those before."""
    disk = Disk()
    log = disk.log()
    for number in range(3):
        log.append(number)
    log.compact(b"first")
    log.append(3)
    return disk


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("action", ["compact", "append"])
def test_a_killed_process_leaves_the_log_before_or_after_a_change(action: str, after: bool) -> None:
    contents = []
    for number in range(20):
        disk = filled()
        disk.dies_at = disk.changes + number, after
        log = disk.log()
        try:
            log.compact(b"second") if action == "compact" else log.append(4)
        except Dies:
            contents.append(content(disk))
            disk.dies_at = None
            again = disk.log()
            again.compact(b"third")
            again.append("more")
            assert content(disk) == (b"third", ["more"])
            assert len(disk.names("in")) == 2
            continue
        break
    whole = (b"second", []) if action == "compact" else (b"first", [3, 4])
    assert content(filled()) == (b"first", [3])
    assert set(map(str, contents)) <= {str((b"first", [3])), str(whole)}
    assert len(contents) == (3 if action == "compact" else 1), "every change is one to die at"
    assert str(content(disk)) == str(whole)


def test_a_damaged_summary_is_refused() -> None:
    disk = filled()
    name = "in/000000003.summary"
    data = disk.files[name]
    for broken in (data[:-1], data[:-1] + b"x"):
        disk.files[name] = broken
        with pytest.raises(CheckpointError, match=r"ckpt/in/000000003\.summary is not what was"):
            disk.log().summary()
    disk.files[name] = b"sum"
    with pytest.raises(CheckpointError, match="is no summary of a source's log: put it back"):
        disk.log().summary()


def test_a_missing_or_invalid_page_is_refused() -> None:
    disk = filled()
    page = disk.files.pop("in/000000003.page.json")
    disk.files["in/000000004.page.json"] = page
    with pytest.raises(
        CheckpointError, match=r"000000003\.page\.json is missing, and 000000004\.page"
    ):
        disk.log().entries()
    disk.files["in/000000003.page.json"] = b'{"version": 1}'
    with pytest.raises(CheckpointError, match="is no page of a source's log"):
        disk.log().entries()
