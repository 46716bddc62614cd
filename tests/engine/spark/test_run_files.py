"""Files of a run over Spark Connect, and modules that a server loads from memory."""

from __future__ import annotations

import io
import logging
import pickle
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.errors import PySparkException

from flow import CheckpointError, EngineError, StopFlag, Summary
from flow.engine.checkpoint.identity import Identity
from flow.engine.checkpoint.storage import LocalStorage
from flow.engine.epoch.statistics import Stats
from flow.engine.feed.feed import FeedReport
from flow.engine.feed.input_progress import InputProgress
from flow.engine.plan.compiler import compile_flow
from flow.engine.spark import shipped_code
from flow.engine.spark.remote_host import opened
from flow.engine.spark.remote_streaming import RunFollower, RunLease, ServerCalls
from flow.engine.spark.run_files import (
    KEPT_REPORTS,
    CommittedEpoch,
    LogLinesKept,
    RunEnd,
    RunFiles,
    RunReport,
    newest_run,
)
from flow.engine.spark.run_host import StreamingSettings
from flow.engine.spark.session.session import code_sent_to, send_files, send_packages
from flow.engine.spark.shipped_code import Shipped
from flow.engine.spark.shipping import ShippedPlan
from tests.support.one_stream import a_flow, as_read


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


def test_a_program_that_was_behind_hears_that_reports_were_removed(
    storage: LocalStorage, caplog: pytest.LogCaptureFixture
) -> None:
    files, told = RunFiles(storage, "one"), list[int]()

    def tell(epoch: int, *_: object) -> None:
        told.append(epoch)
        if len(told) == 1:  # The epochs that pass while the program has much to do.
            for number in range(5, KEPT_REPORTS + 7):
                files.report(report(number))
            files.write_end(RunEnd(Summary("flow", "streaming")))

    files.report(report(4))
    plan = replace(compile_flow(a_flow(as_read)), outputs=())
    follower = RunFollower(plan, ServerCalls(None, here=True), storage.root, "one", tell)
    follower.follow(lambda: True, StopFlag())
    assert told == [4, *range(7, KEPT_REPORTS + 7)]
    (line,) = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert "neither the reports of 2 epochs nor what their sinks write here" in line


class ConnectSession:
    """A session of Spark Connect, whose server takes one file of each name."""

    session_id = "of this test"

    def __init__(self) -> None:
        self.taken: dict[str, bytes] = {}

    def addArtifacts(self, path: str, pyfile: bool) -> None:
        content = Path(path).read_bytes()
        time.sleep(0.1)
        if self.taken.setdefault(Path(path).name, content) != content:
            raise PySparkException("The artifact already exists.")


def test_a_server_gets_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConnectSession, "__module__", "pyspark.sql.connect.session")
    session, module = ConnectSession(), tmp_path / "mine.py"
    with ThreadPoolExecutor(3) as pool:  # As of runs that start together.
        assert [*pool.map(send_packages, [session] * 3)] == [None] * 3
    module.write_text("VALUE = 1")
    send_files(session, [module])
    send_files(session, [str(module)])
    with zipfile.ZipFile(io.BytesIO(code_sent_to(session, has_packages=True))) as archive:
        assert archive.namelist() == ["mine.py"]
    module.write_text("VALUE = 2")
    with pytest.raises(EngineError, match=r"mine\.py': The artifact already exists\. A s"):
        send_files(session, [module])


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


def test_a_program_reaches_a_checkpoint_if_its_path_leads_there(
    storage: LocalStorage, tmp_path: Path
) -> None:
    own = Identity.new("flow", 2, None, None, "4.3.0")
    storage.write("flow.json", own.to_json())
    reached = []
    for root, identity in (
        (tmp_path, own),
        (tmp_path, replace(own, run_id="other")),
        (tmp_path / "none", own),
    ):
        calls = ServerCalls(None)
        calls.look_for(str(root), identity)
        reached.append(calls.here)
    assert reached == [True, False, False]


def test_a_server_gets_the_format_of_state_that_it_continues(tmp_path: Path) -> None:
    """Spark before 4.3 fails over Spark Connect with state of a classic session, of format 2."""
    shipped = ShippedPlan.pack(compile_flow(a_flow(as_read)))

    def open_at(name: str, version: str) -> int:
        root = str(tmp_path / name)
        return opened(root, shipped, StreamingSettings(), 2, version)[0].state_format

    formats = {version: open_at(version, version) for version in ("4.0.5", "4.1.2", "4.2.0")}
    assert formats == dict.fromkeys(formats, 1)
    assert open_at("4.1.2", "4.3.0") == 1, "a checkpoint keeps its format"
    assert open_at("4.3.0", "4.3.0") == 2
    for version in ("4.1.2", "4.2.0"):
        classic = Identity.new("example", 2, None, None, "4.1.0")
        LocalStorage(str(tmp_path / "classic")).write("flow.json", classic.to_json())
        with pytest.raises(CheckpointError) as caught:
            open_at("classic", version)
        assert str(caught.value) == (
            f"{tmp_path}/classic has state of format 2, as it was made in a classic session, and "
            f"Spark {version} cannot continue it over Spark Connect: continue it in a classic "
            "session, or with Spark 4.3"
        )
    assert open_at("classic", "4.3.0") == 2


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
