"""Files of a run over Spark Connect, and modules that a server loads from memory."""

from __future__ import annotations

import io
import logging
import pickle
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from flow import CheckpointError, Summary
from flow.engine.checkpoint.storage import LocalStorage
from flow.engine.epoch.statistics import Stats
from flow.engine.feed.feed import FeedReport
from flow.engine.feed.input_progress import InputProgress
from flow.engine.spark import shipped_code
from flow.engine.spark.remote_streaming import RunLease, ServerCalls
from flow.engine.spark.run_files import (
    KEPT_REPORTS,
    CommittedEpoch,
    LogLinesKept,
    RunEnd,
    RunFiles,
    RunReport,
    newest_run,
)
from flow.engine.spark.shipped_code import Shipped


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def committed(epoch: int) -> CommittedEpoch:
    return CommittedEpoch(epoch, Stats(), (1.0, 2.0), ("seen",), {3: ["message"]})


def report(epoch: int) -> RunReport:
    return RunReport(committed(epoch), FeedReport(None, {}, {}, InputProgress(), Stats()))


def test_a_program_reads_the_reports_after_the_last_it_has_seen(storage: LocalStorage) -> None:
    files = RunFiles(storage, "one")
    files.begin("flow")
    for epoch in range(8, 12):
        files.report(report(epoch))
    assert [one.committed.epoch for one in files.reports_after(9)] == [10, 11]
    assert files.reports_after(9)[0].committed == committed(10)
    assert newest_run(storage.root) == ("one", 11)


def test_the_newest_reports_stay(storage: LocalStorage) -> None:
    files = RunFiles(storage, "one")
    for epoch in range(KEPT_REPORTS + 3):
        files.report(report(epoch))
    kept = [one.committed.epoch for one in files.reports_after(-1)]
    assert kept == list(range(3, KEPT_REPORTS + 3))


def test_a_new_run_removes_the_files_of_those_before(storage: LocalStorage) -> None:
    first, second = RunFiles(storage, "one"), RunFiles(storage, "two")
    first.begin("flow")
    first.write_committed(committed(1))
    first.write_end(RunEnd(Summary("flow", "streaming")))
    second.ask_to_stop()
    second.begin("flow")
    assert (first.read_committed(), first.read_end()) == (None, None)
    assert second.is_asked_to_stop()
    assert newest_run(storage.root) == ("two", -1)


def test_a_checkpoint_without_a_run_on_a_server_is_an_error(storage: LocalStorage) -> None:
    with pytest.raises(CheckpointError, match="has no run over Spark Connect: attach follows"):
        newest_run(storage.root)


def test_a_file_of_another_kind_is_refused(storage: LocalStorage) -> None:
    storage.write_bytes("run/one/end", pickle.dumps({"summary": 1}))
    with pytest.raises(CheckpointError, match="run/one/end is no file of a run"):
        RunFiles(storage, "one").read_end()


def test_lines_of_the_log_are_kept_until_they_are_taken() -> None:
    logger = logging.getLogger("flow")
    before = logger.propagate
    kept = LogLinesKept()
    try:
        logger.warning("%s is late", "a value")
        assert kept.take() == ((logging.WARNING, "a value is late"),)
        assert kept.take() == ()
    finally:
        logger.removeHandler(kept)
        logger.propagate = before


def test_a_run_that_starts_is_active_by_spark_and_later_by_its_lock() -> None:
    """Of a program that does not reach the checkpoint: a task looks at the lock."""
    looks = iter([True, None, False, None, True])
    calls = SimpleNamespace(here=False, call=lambda _: next(looks))
    lease = RunLease(cast("ServerCalls", calls), "/checkpoint", lambda: True)
    assert [lease.is_active() for _ in range(5)] == [True, True, True, True, False]


def zipped(**modules: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in modules.items():
            archive.writestr(name.replace("__", "/") + ".py", text)
    return content.getvalue()


def test_an_object_is_loaded_once_with_modules_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    code = zipped(shipped_box="from shipped_inner import VALUE", shipped_inner="VALUE = [7]")
    content = b"cshipped_box\nVALUE\n."
    shipped = pickle.loads(pickle.dumps(Shipped(content, code)))
    assert shipped.get() == [7]
    assert shipped.get() is sys.modules["shipped_inner"].VALUE
    finders = [one for one in sys.meta_path if isinstance(one, shipped_code.CodeInMemory)]
    assert len(finders) == 1
    for name in ("shipped_box", "shipped_inner"):
        del sys.modules[name]
