"""Check of Spark itself: a session starts, and a small flow runs on it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

from typing_extensions import override

import flow.operators as op
from flow.cli.doctor.disks import is_local_path
from flow.cli.doctor.finding import Finding, ok, problem, warning
from flow.config.effective import EffectiveConfig, of_arguments
from flow.config.sessions import session_named
from flow.connectors.items import from_items
from flow.connectors.sink import Sink, WriteContext, Written
from flow.dataflow import Dataflow
from flow.engine.spark.session.versions import installed_version
from flow.errors import FlowError
from flow.running import run_configured

SUBJECT = "Spark"
ITEMS = 100
SLOW_SECONDS = 60
"""Seconds within which a session starts also on slow machines."""


def spark_findings(effective: EffectiveConfig) -> Iterator[Finding]:
    """Start a session, run a small flow, and try the checkpoint's file system if it is remote.

    Args:
        effective: the configuration of the session.
    """
    start = time.monotonic()
    try:
        session = session_named("doctor", effective)
    except FlowError as error:
        yield problem(SUBJECT, str(error))
        return
    try:
        started = time.monotonic()
        yield _start_finding(session.version, started - start)
        yield _flow_finding(session, effective)
        yield from _remote_checkpoint_findings(session, effective.value("recovery"))
    finally:
        session.stop()


def _start_finding(version: str, seconds: float) -> Finding:
    text = f"version {version} starts in {seconds:.1f} s"
    if seconds > SLOW_SECONDS:
        advice = "the machine is overloaded, or its disk is slow; python -m flow.prepare helps"
        return warning(SUBJECT, f"{text}: {advice}")
    return ok(SUBJECT, text)


def _flow_finding(session: Any, effective: EffectiveConfig) -> Finding:
    """Run a flow with a keyed step, as a stream if this Spark can, and report its time."""
    name = "streaming" if installed_version().has_streaming else "batch"
    layout = {field: effective.value(field) for field in ("shards", "partitions")}
    config = EffectiveConfig(of_arguments({"engine": name, **layout}))
    try:
        summary = run_configured(small_flow(), config, spark=session)
    except FlowError as error:
        return problem(SUBJECT, f"a small flow failed: {error}")
    text = f"a flow of {ITEMS} items ({name}) ran in {summary.seconds:.1f} s"
    written = summary.counts["out", "in"]
    if written != ITEMS:
        return problem(SUBJECT, f"{text} and wrote {written} items: report this, it is a bug")
    return ok(SUBJECT, text)


def small_flow() -> Dataflow:
    """Return a flow with one keyed step, which any worker can run."""
    flow = Dataflow("doctor")
    items = op.input("in", flow, from_items([(f"key {n % 7}", n) for n in range(ITEMS)]))
    op.output("out", op.stateful_map("count", items, _count), NullSink())
    return flow


def _count(count: int | None, _: object) -> tuple[int, int]:
    return (count or 0) + 1, (count or 0) + 1


class NullSink(Sink[Any]):
    """Sink that reads all items and keeps none."""

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> int:
        return sum(1 for _ in batches)


def _remote_checkpoint_findings(session: Any, recovery: Any) -> Iterator[Finding]:
    """Try to create, replace and remove a file where the checkpoint is to be."""
    if recovery is None or is_local_path(recovery.path):
        return
    from flow.engine.checkpoint.storage import Storage

    name = f".flow-doctor-{uuid.uuid4().hex}"
    try:
        storage = Storage(session, recovery.path)
        storage.write(name, "old")
        storage.write(name, "new")
        content = storage.read(name)
        storage.remove(name)
    except FlowError as error:
        text = f"{recovery.path}: {error}: check the path, and the file system's settings in conf"
        yield problem("Checkpoint", text)
        return
    if content != "new":
        text = f"{recovery.path} has the old content of a file that was replaced: use another file"
        yield problem("Checkpoint", f"{text} system")
        return
    yield ok("Checkpoint", f"{recovery.path}; files can be replaced")
