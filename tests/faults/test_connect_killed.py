"""Runs over Spark Connect that lose a process, and the runs or programs that continue."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flow import Summary, attach
from recovery import RecoveryConfig, rewind
from tests.faults.conftest import Watch
from tests.faults.flows import FLOWS
from tests.faults.striking import Whom
from tests.faults.test_kill_points import ITEM
from tests.support.connect import ConnectServer, connect_server
from tests.support.faults import Shop, Victims

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.extended, pytest.mark.timeout(290)]

EPOCH = 3
"""The epoch after whose commit a process is killed: hours close from then on."""

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
OUTPUTS = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ConnectServer]:
    with connect_server(tmp_path / "server") as server:
        yield server


def kill_on(server: ConnectServer, module: str) -> None:
    """Kill the newest process of a server that runs a module."""
    os.kill(server.processes(module)[-1], signal.SIGKILL)


def test_a_program_attaches_to_the_run_of_one_that_was_killed(
    shop: Shop, server: ConnectServer, watched: Watch, assert_unharmed: Callable[..., None]
) -> None:
    """The run continues without its program; the state is compared by a classic session."""
    child = watched(shop.start("--remote", server.url))
    assert child.wait_for(lambda: shop.logged("commits") >= 1, 200)
    os.kill(child.process.pid, signal.SIGKILL)
    child.die()
    session = server.session()
    summary = attach(
        FLOWS[shop.FLOW].make_flow(shop.home, shop.size),
        RecoveryConfig(shop.checkpoint),
        spark=session,
    )
    session.stop()
    assert isinstance(summary, Summary)
    assert summary.epochs == shop.logged("commits") + 1 >= shop.size.epochs
    assert_unharmed(is_over=True)


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (PLANNER, "the streaming query failed"),
        (OUTPUTS, "the streaming query failed"),
        ("", "the streaming query ended on the server before its inputs had"),
    ],
    ids=["planner", "outputs", "server"],
)
def test_a_classic_run_continues_one_over_connect_that_lost_a_process(
    module: str,
    problem: str,
    shop: Shop,
    server: ConnectServer,
    watched: Watch,
    assert_unharmed: Callable[..., None],
) -> None:
    child = watched(shop.start("--remote", server.url))
    assert child.wait_for(lambda: shop.logged("commits") >= EPOCH, 200)
    if module:
        kill_on(server, module)
    else:
        server.kill()
    assert child.process.wait(120) == 1
    assert problem in child.output
    assert "Traceback" not in child.output
    assert_unharmed()


def test_a_classic_run_continues_one_over_connect_that_lost_a_worker(
    shop: Shop, server: ConnectServer, watched: Watch, assert_unharmed: Callable[..., None]
) -> None:
    fault = ("--point", "level 1", "--at", str(ITEM["level 1"]), "--whom", Whom.SELF.value)
    child = watched(shop.start("--remote", server.url, *fault))
    assert child.process.wait(250) == 1
    assert "a Python worker was killed or crashed" in child.output
    assert_unharmed()


def test_a_run_over_connect_that_was_rewound_goes_on_over_connect(
    shop: Shop,
    server: ConnectServer,
    watched: Watch,
    assert_unharmed: Callable[..., None],
    spark: SparkSession,
) -> None:
    watched(shop.start("--remote", server.url)).finish()
    last = shop.logged("commits")
    assert rewind(shop.checkpoint, EPOCH, yes=True, spark=spark).undone[-1] == last
    assert max(shop.epochs("commits")) == EPOCH
    watched(shop.start("--remote", server.url)).finish()
    assert shop.logged("commits") == last
    assert_unharmed(is_over=True)


def test_a_run_over_connect_continues_a_classic_one_that_was_killed(
    shop: Shop, server: ConnectServer, watched: Watch, assert_unharmed: Callable[..., None]
) -> None:
    child = watched(shop.start())
    assert child.wait_for(lambda: shop.logged("commits") >= EPOCH, 200)
    child.kill(Victims.EVERYTHING)
    child.die()
    watched(shop.start("--remote", server.url)).finish()
    assert_unharmed(is_over=True)
