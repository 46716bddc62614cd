"""Spark's source of epochs in a process of its own, and its calls of the feed server."""

from __future__ import annotations

import json
import os
import pickle
import socket
import threading
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from flow.connectors.source import Json, Split
from flow.engine.epoch.context import Control
from flow.engine.feed.feed import Feed, FeedEnd, FeedSettings
from flow.engine.feed.offsets import EpochOffset
from flow.engine.spark import ticker
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.shipping import Layout, ShippedPlan
from flow.engine.spark.ticker import (
    HOST,
    FeedServer,
    RememberingReader,
    TickReading,
    TickTask,
    cloudpickle,
    tasks_of,
)
from flow.engine.steps.reading import Reading
from flow.errors import SourceError
from flow.instants import Moment
from tests.support.programs import printed_by

CONTROL = Control(Moment(7), False)
READ = tuple(("in", Split({"file": number})) for number in range(3))

ASK = """
import importlib, json, pickle, sys
import pyspark.sql.datasource
if sys.argv[2] == "True":
    importlib.import_module("pyspark.sql.streaming.datasource")
before = set(sys.modules)
source = pickle.load(open(sys.argv[1], "rb"))
reader = source({}).streamReader(source({}).schema())
start = reader.initialOffset()
try:
    if sys.argv[2] == "True":
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
    else:
        end = reader.latestOffset()
    answer = {"end": end, "tasks": [len(one.value) > 0 for one in reader.partitions(start, end)]}
except RuntimeError as error:
    answer = {"failed": str(error)}
imported = {name.split(".")[0] for name in set(sys.modules) - before}
print(json.dumps({**answer, "ours": sorted(imported & {"flow", "flow_windowing", "pyarrow"})}))
"""


class StandIn:
    """A feed that has one epoch, or fails."""

    def __init__(self, epoch: EpochOffset | None) -> None:
        self.end = FeedEnd()
        self.settings = FeedSettings()
        self.epoch = epoch

    def next(self, start: EpochOffset) -> EpochOffset:
        assert start == EpochOffset()
        if self.epoch is None:
            raise SourceError("the shelf is empty")
        return self.epoch

    def fitted(self, epoch: EpochOffset) -> EpochOffset:
        return epoch

    def readings(self, start: EpochOffset, epoch: EpochOffset) -> list[Reading]:
        assert start == EpochOffset()
        return epoch.readings()


@pytest.fixture
def servers() -> Iterator[list[FeedServer]]:
    opened: list[FeedServer] = []
    yield opened
    for server in opened:
        server.close()


@pytest.fixture(params=sorted({False, spark_capabilities().has_admission}))
def has_admission(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The reader with or without admission, in the place of PySpark's own."""
    found = replace(spark_capabilities(), has_admission=request.param)
    monkeypatch.setattr(ticker, "spark_capabilities", lambda: found)
    return found.has_admission


def source_of(server: FeedServer, logged: Json) -> type[DataSource]:
    shipped = ShippedPlan("plan", b"not to be read there", ())
    return server.source("ticker", TickReading(shipped, Layout(4, 2, 1)), logged)


def ask(server: FeedServer, folder: Path, has_admission: bool) -> dict[str, Any]:
    """Ask a feed server from a new process, and return the answers and the modules it imported."""
    source = source_of(server, EpochOffset().to_json())
    (folder / "source").write_bytes(cloudpickle.dumps(source))
    printed = printed_by("-I", "-c", ASK, folder / "source", str(has_admission))
    return cast("dict[str, Any]", json.loads(printed))


def test_the_source_gets_offsets_and_tasks_without_imports_of_this_project(
    tmp_path: Path, servers: list[FeedServer], has_admission: bool
) -> None:
    epoch = EpochOffset(CONTROL, {"in": {"file": 3}}, READ)
    servers.append(FeedServer(cast("Feed", StandIn(epoch)), 2))
    answers = ask(servers[0], tmp_path, has_admission)
    assert answers == {"end": epoch.to_json(), "tasks": [True, True], "ours": []}


def test_an_error_of_the_feed_is_reported_and_ends_the_run(
    tmp_path: Path, servers: list[FeedServer], has_admission: bool
) -> None:
    feed = StandIn(None)
    servers.append(FeedServer(cast("Feed", feed), 2))
    assert ask(servers[0], tmp_path, has_admission)["failed"] == "SourceError: the shelf is empty"
    assert isinstance(servers[0].failure, SourceError)
    assert feed.end.done.is_set()


def test_a_remembering_reader_goes_on_at_the_log_then_its_answer(
    servers: list[FeedServer],
) -> None:
    """As before Spark 4.2."""
    epochs = [EpochOffset(CONTROL, {"in": {"file": number}}) for number in range(4)]
    feed = StandIn(None)
    starts: list[EpochOffset] = []

    def next_epoch(start: EpochOffset) -> EpochOffset:
        starts.append(start)
        return epochs[epochs.index(start) + 1]

    feed.next = next_epoch  # type: ignore[method-assign]
    servers.append(FeedServer(cast("Feed", feed), 2))
    settings = source_of(servers[0], epochs[1].to_json())({}).streamReader(StructType())._ticker
    reader = RememberingReader(settings)
    assert reader.latestOffset() == epochs[2].to_json()
    assert reader.latestOffset() == epochs[3].to_json()
    assert starts == [epochs[1], epochs[2]]


PROCESS = Path("/proc/self")


def running() -> set[threading.Thread]:
    return set(threading.enumerate())


def sockets_of(port: int) -> set[str]:
    """The open TCP sockets of this process that have a port at either end, where the system tells.

    Other sockets of the process say nothing: those of a Spark session open and close by themselves.
    """
    table = PROCESS / "net" / "tcp"
    if not table.exists():
        return set()
    at = f":{port:04X}"
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    theirs = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(at) or row[2].endswith(at)}
    return {link for link in map(_link, (PROCESS / "fd").iterdir()) if link in theirs}


def _link(descriptor: Path) -> str:
    """Return the target of an open descriptor, or "" if it has been closed since it was listed."""
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:
        return ""


ONE_EPOCH = EpochOffset(CONTROL, {}, READ)


def assert_answered(asker: Any) -> None:
    asker.send_bytes(json.dumps({"after": EpochOffset().to_json()}).encode())
    assert json.loads(asker.recv_bytes()) == {"offset": ONE_EPOCH.to_json()}


@pytest.mark.parametrize("foreign", [False, True])
def test_a_closed_server_leaves_no_thread_and_no_socket(foreign: bool) -> None:
    """Of two that ask, one has an answer and one has not even said who it is."""
    threads = running()
    feed = StandIn(ONE_EPOCH)
    server = FeedServer(cast("Feed", feed), 2)
    with (
        Client((HOST, server._port), authkey=server._key) as asker,
        socket.create_connection((HOST, server._port)),
    ):
        opened = sockets_of(server._port)
        assert_answered(asker)
        feed.settings = FeedSettings(foreign=foreign)
        server.close()
        assert running() - threads == set()
        with pytest.raises(EOFError):
            asker.recv_bytes()
    assert opened or not PROCESS.exists()
    assert sockets_of(server._port) == set()
    server.close()


def test_a_released_server_answers_clients_and_accepts_no_more(servers: list[FeedServer]) -> None:
    """Spark still asks while its query is being stopped."""
    servers.append(FeedServer(cast("Feed", StandIn(ONE_EPOCH)), 2))
    address = (HOST, servers[0]._port)
    with Client(address, authkey=servers[0]._key) as asker:
        servers[0].release()
        assert_answered(asker)
        with pytest.raises(ConnectionError):
            socket.create_connection(address)


def test_clients_without_a_token_are_refused_and_others_answered(servers: list[FeedServer]) -> None:
    servers.append(FeedServer(cast("Feed", StandIn(ONE_EPOCH)), 2))
    address = (HOST, servers[0]._port)
    socket.create_connection(address).close()
    with pytest.raises(AuthenticationError):
        Client(address, authkey=b"another")
    silent = socket.create_connection(address)
    with silent, Client(address, authkey=servers[0]._key) as asker:
        assert_answered(asker)


def test_tasks_share_the_slices_of_an_epoch_and_one_carries_its_time() -> None:
    epoch = EpochOffset(CONTROL, {}, READ)
    tasks = [
        pickle.loads(b64decode(task.encode())) for task in tasks_of(epoch, epoch.readings(), 2)
    ]
    assert all(isinstance(task, TickTask) for task in tasks)
    assert [task.sends_control for task in tasks] == [True, False]
    read = [reading.split for task in tasks for reading in task.readings]
    assert read == [split for _, split in READ]
    assert tasks_of(EpochOffset(), [], 2) == []
    assert len(tasks_of(EpochOffset(CONTROL), [], 2)) == 1
