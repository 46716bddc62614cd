"""The command ``python -m flow.doctor``: check that flows can run here.

Each check prints lines that begin with ``ok``, ``warning`` or ``problem``; the last two say what to
do. The configuration is that of ``python -m flow.run``: environment variables such as
``FLOW_MASTER``, and the options of the same names.

With ``--runtime NAME`` it checks nothing here: it prints what works on a platform, what does not
and why, what to set there, and the facts with their sources (`flow.doctor.runtimes`).

The exit code is 0 without a problem, 1 with one, and 2 if the command line or a variable is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from typing_extensions import override

import flow.operators as op
from flow.cli.command_line import (
    CommandError,
    CommandParser,
    add_option,
    config_of,
    exit_if_hidden,
    print_error,
)
from flow.config.config_problems import advice, refused, without_effect
from flow.config.effective_config import EffectiveConfig, MakeRecovery, of_arguments
from flow.config.flow_config import FIELDS, read_setting
from flow.config.machine import size_text, this_machine
from flow.config.spark_session import session_named
from flow.connectors.items import from_items
from flow.connectors.sink import Sink, SinkBatch, WriteContext
from flow.dataflow import Dataflow
from flow.doctor.findings import (
    Finding,
    Level,
    checkpoint_findings,
    is_local_path,
    java_findings,
    kafka_findings,
    master_findings,
    ok,
    package_findings,
    problem,
    pyspark_findings,
    python_findings,
    temporary_findings,
    warning,
)
from flow.doctor.runtimes import runtime_lines
from flow.engine.spark.session.session_settings import is_local_master
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.errors import FlowError, brief
from flow.execution import run_configured

_NEEDED_BY_SPARK = ("Java", "PySpark", "SPARK_HOME", "Python of workers", "Temporary files")
"""Subjects whose problems keep a session from starting."""

Check = tuple[str, Callable[[], Iterable[Finding]]]
"""A subject, and the function that checks it."""

_OTHER_VARIABLES = ("FLOW_PRELOAD", "FLOW_KAFKA_JARS", "FLOW_BENCHMARK_SAMPLES")
"""Variables of this project that are no fields of a configuration."""


def main(make_recovery: MakeRecovery, argv: Sequence[str] | None = None) -> int:
    """Run all checks, and print what they find.

    Args:
        make_recovery: returns the recovery settings for the directory of a checkpoint.
        argv: the arguments; by default, those of this process.

    Returns:
        The exit code.
    """
    try:
        options = _parser().parse_args(argv)
        if options.runtime is not None:
            sys.stdout.writelines(f"{line}\n" for line in runtime_lines(options.runtime))
            return 0
        effective = config_of(options, make_recovery)
        properties = dict(
            read_setting("--kafka-property", text) for text in options.kafka_property or ()
        )
    except (CommandError, FlowError) as error:
        print_error(str(error))
        return 2
    found: list[Finding] = []
    try:
        with _quiet_log():
            for finding in _findings(effective, options, properties, found):
                found.append(finding)
                sys.stdout.write(finding.line() + "\n")
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    counts = Counter(each.level for each in found)
    problems, warnings = counts[Level.PROBLEM], counts[Level.WARNING]
    sys.stdout.write(f"{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}\n")
    return 1 if problems else 0


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """Keep this package's log from standard error, because the findings say the same."""
    logger, handler = logging.getLogger("flow"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _parser() -> CommandParser:
    parser = CommandParser("python -m flow.doctor", "Check that flows can run here.")
    parser.add_version()
    for field in FIELDS:
        add_option(parser, field)
    add = parser.add_argument
    add("--kafka", metavar="HOST:PORT", help="brokers of Kafka to reach, separated by commas")
    add(
        "--kafka-property",
        metavar="K=V",
        action="append",
        help="a property of Kafka's client, such as of a login; give it again for more",
    )
    add("--no-spark", action="store_true", help="start no Spark session")
    add(
        "--runtime",
        metavar="NAME",
        nargs="?",
        const="",
        help="check nothing here: print what works on a platform; without a name, list the names",
    )
    return parser


def _findings(
    effective: EffectiveConfig,
    options: argparse.Namespace,
    properties: dict[str, str],
    found: Sequence[Finding],
) -> Iterator[Finding]:
    """Yield the findings of all checks, that of Spark last.

    Args:
        effective: the configuration.
        options: the options of the command line.
        properties: properties of Kafka's client.
        found: the findings so far, as the caller collects them.
    """
    for subject, check in _checks(effective, options, properties):
        yield from _guarded(subject, check)
    if options.no_spark:
        return
    if any(each.level is Level.PROBLEM and each.subject in _NEEDED_BY_SPARK for each in found):
        yield warning("Spark", "not started, because of the problems above: solve them first")
        return
    yield from _guarded("Spark", lambda: spark_findings(effective))


def _checks(
    effective: EffectiveConfig, options: argparse.Namespace, properties: dict[str, str]
) -> list[Check]:
    """Return the checks that need no Spark session, in order."""
    conf, master = effective.value("conf"), effective.value("master")
    recovery, is_local = effective.value("recovery"), is_local_master(master)
    checkpoint = None if recovery is None else recovery.path
    return [
        ("Java", java_findings),
        ("Python", lambda: python_findings(conf, is_local)),
        ("PySpark", pyspark_findings),
        ("Extras", package_findings),
        ("Configuration", lambda: configuration_findings(effective)),
        ("Machine", lambda: machine_findings(effective)),
        ("Temporary files", lambda: temporary_findings(conf)),
        ("Checkpoint", lambda: checkpoint_findings(checkpoint, is_local)),
        ("Master", lambda: master_findings(master)),
        ("Kafka", lambda: kafka_findings(options.kafka, properties)),
    ]


def _guarded(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; an unexpected exception is a problem of one line."""
    try:
        yield from check()
    except Exception as error:
        yield problem(subject, f"the check itself failed: {brief(error)}")


def configuration_findings(effective: EffectiveConfig) -> Iterator[Finding]:
    """Check a configuration; name each contradiction, or else the values that are set."""
    findings = [
        *(problem("Configuration", text) for text in refused(effective)),
        *(warning("Configuration", text) for text in without_effect(effective)),
        *_variable_findings(os.environ),
    ]
    if not findings:
        given = [f"{name} ({each.origin})" for name, each in effective.settings.items()]
        findings = [ok("Configuration", f"set: {', '.join(given)}" if given else "defaults")]
    yield from findings


def machine_findings(effective: EffectiveConfig) -> Iterator[Finding]:
    """Check that memory and parallelism fit this machine."""
    machine = this_machine()
    texts = list(advice(effective, machine))
    for text in texts:
        yield warning("Machine", text)
    if not texts:
        memory = "memory unknown" if machine.usable is None else size_text(machine.usable)
        cpus = "1 CPU" if machine.cpus == 1 else f"{machine.cpus} CPUs"
        yield ok("Machine", f"{machine.place} has {cpus}, {memory}")


def _variable_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield warnings of variables whose names are close to those of fields."""
    known = [field.variable for field in FIELDS]
    for name in sorted(environ):
        if name.startswith("FLOW_") and name not in (*known, *_OTHER_VARIABLES):
            close = get_close_matches(name, known, n=1, cutoff=0.8)
            if close:
                text = f"the variable {name} has no effect: is it {close[0]}?"
                yield warning("Configuration", text)
    options = environ.get("PYSPARK_SUBMIT_ARGS", "")
    if options.strip() not in ("", "pyspark-shell"):
        text = (
            f"PYSPARK_SUBMIT_ARGS is {options!r}, which may replace settings of a run: unset it "
            "and use FLOW_CONF"
        )
        yield warning("Configuration", text)


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
        yield problem("Spark", str(error))
        return
    try:
        started = time.monotonic()
        yield _start_finding(session.version, started - start)
        yield _session_finding(session)
        yield _flow_finding(session, effective)
        yield from _remote_checkpoint_findings(session, effective.value("recovery"))
    finally:
        session.stop()


def _start_finding(version: str, seconds: float) -> Finding:
    text = f"version {version} starts in {seconds:.1f} s"
    if seconds > SLOW_SECONDS:
        advice = "the machine is overloaded, or its disk is slow; python -m flow.prepare helps"
        return warning("Spark", f"{text}: {advice}")
    return ok("Spark", text)


def _session_finding(session: Any) -> Finding:
    from flow.engine.spark.session.session import session_capabilities

    found = session_capabilities(session)
    judged = ok if found.has_jvm and not found.refused else warning
    if found.has_jvm and any(one.use.is_needed for one in found.refused):
        judged = problem
    return judged("Session", str(found))


def _flow_finding(session: Any, effective: EffectiveConfig) -> Finding:
    """Run a flow with a keyed step, as a stream if this Spark can, and report its time."""
    name = "streaming" if spark_capabilities().adapters else "batch"
    layout = {field: effective.value(field) for field in ("shards", "partitions")}
    config = EffectiveConfig(of_arguments({"engine": name, **layout}))
    try:
        summary = run_configured(small_flow(), config, spark=session)
    except FlowError as error:
        return problem("Spark", f"a small flow failed: {error}")
    text = f"a flow of {ITEMS} items ({name}) ran in {summary.seconds:.1f} s"
    written = summary.counts["out", "in"]
    if written != ITEMS:
        return problem("Spark", f"{text} and wrote {written} items: report this, it is a bug")
    return ok("Spark", text)


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
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> int:
        return sum(1 for _ in batches)


def _remote_checkpoint_findings(session: Any, recovery: Any) -> Iterator[Finding]:
    """Try to create, replace and remove a file where the checkpoint is to be."""
    if recovery is None or is_local_path(recovery.path):
        return
    from flow.engine.checkpoint.storage import open_storage

    name = f".flow-doctor-{uuid.uuid4().hex}"
    try:
        storage = open_storage(recovery.path, session)
        storage.write(name, "old")
        storage.write(name, "new")
        content = storage.read(name)
        storage.check_seen_by(session, name)
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


if __name__ == "__main__":
    exit_if_hidden()
    from recovery import RecoveryConfig

    sys.exit(main(RecoveryConfig))
