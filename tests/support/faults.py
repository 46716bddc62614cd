"""Kills of runs of the shop, new starts, and comparison of the results."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from flow import run
from flow.engine.spark.session.session import query_conf
from flow.engine.spark.session.session_settings import STATE_FORMAT
from flow.engine.state.segment import Segment
from flow.engine.state.store import PROGRESS_SEGMENT, unpack
from flow.keyed.state import IDS, kind_of
from flow_windowing.columnar.state.segments import SegmentContent
from flow_windowing.columnar.state.snapshots import snapshots_of_content
from flow_windowing.deduplication.segments import IdSegment, snapshots_of_segment
from recovery import RecoveryConfig
from tests.faults.flows import FLOWS
from tests.faults.shop import Size
from tests.faults.striking import NO_FAULT, Fault, Whom

PROJECT = Path(__file__).parents[2]
TOKEN = "FLOW_TEST_CHILD"
LEVELS = 2
SHARDS, PARTITIONS = 8, 2
STANDING = "2024-06-01T00:00:00Z"
"""A system time to stand still at: then state holds nothing of how long a run took."""


class Victims(Enum):
    """Processes of a run that are killed from outside.

    Attributes:
        DRIVER: the Python process that started the flow, alone.
        JVM: Spark alone.
        BOTH: the driver and the JVM at once.
        EVERYTHING: the driver, the JVM and the Python workers.
    """

    DRIVER = "driver"
    JVM = "jvm"
    BOTH = "both"
    EVERYTHING = "everything"


class Phase(Enum):
    """Phase of a run when it was killed, as its files show.

    Attributes:
        STARTING: no epoch had begun.
        BETWEEN: the last epoch was committed, and the next had not begun.
        COMPUTING: an epoch had begun.
        STATE: a part of the epoch's state was committed.
        PUBLISHED: a part of the epoch's outputs was visible.
    """

    STARTING = "starting"
    BETWEEN = "between epochs"
    COMPUTING = "computing"
    STATE = "state committed"
    PUBLISHED = "outputs published"


@dataclass
class Shop:
    """A folder with the shop's inputs, checkpoint and outputs.

    Attributes:
        FLOW: the name of the flow.
        home: the folder.
        size: how much there is to do.
        options: what every run is given, as `tests.faults.child` takes it.
        place: the name of the checkpoint's folder.
    """

    FLOW: ClassVar[str] = "shop"

    home: Path
    size: Size = field(default_factory=Size)
    options: tuple[str, ...] = ()
    place: str = "checkpoint"

    @property
    def checkpoint(self) -> Path:
        """The directory of the shop's checkpoint."""
        return self.home / self.place

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the checkpoint; empty before a run has made it."""
        file = self.checkpoint / "flow.json"
        found: Mapping[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found

    @property
    def spark(self) -> Path:
        """Spark's checkpoint of this generation."""
        generation = self.identity.get("generation", 0)
        return self.checkpoint / (f"spark-{generation}" if generation else "spark")

    def write_inputs(self) -> None:
        """Write the inputs of the flow."""
        FLOWS[self.FLOW].write_inputs(self.home, self.size)

    def start(self, *options: str) -> Child:
        """Start a run in a process of its own."""
        command = [sys.executable, "-m", "tests.faults.child", str(self.home)]
        command += ["--flow", self.FLOW]
        command += ["--hours", str(self.size.hours), "--epochs", str(self.size.epochs)]
        command += ["--checkpoint", str(self.checkpoint)]
        return Child.start([*command, *self.options, *options], self.home)

    def start_struck(self, point: str, at: int, whom: Whom = Whom.ALL, times: int = 1) -> Child:
        """Start a run in which a fault strikes."""
        fault = ("--point", point, "--at", str(at), "--whom", whom.value, "--times", str(times))
        return self.start(*fault)

    def run_here(self, spark: SparkSession, fault: Fault = NO_FAULT, **options: Any) -> Any:
        """Run it in this process."""
        chosen = {"drain": False, "system_time": STANDING, **options}
        return run(
            FLOWS[self.FLOW].make_flow(self.home, self.size, fault),
            spark=spark,
            recovery=RecoveryConfig(self.checkpoint),
            shards=SHARDS,
            partitions=PARTITIONS,
            **chosen,
        )

    def results(self) -> Results:
        """Read the outputs, which are the same for all runs that lose and double nothing."""
        return Results(
            Counter(as_text(row) for row in rows_in(self.home / "out" / "hours")),
            Counter(as_text(line) for line in lines_in(self.home / "out" / "log")),
        )

    def check(self) -> None:
        """Check what must hold in each flow, killed or not, and differs between two of them."""

    def state(self, spark: SparkSession) -> dict[tuple[str, str], Any]:
        """Return the state of each (step, key) after the last epoch.

        How far a step's stream has come is kept by each shard, and comes by the key "".
        """
        kept: dict[tuple[str, str], Any] = {}
        conf = {STATE_FORMAT: str(self.identity["state_format"])}
        with query_conf(spark, PARTITIONS, extra=conf):
            for level in range(LEVELS):
                reader = spark.read.format("statestore").option("operatorId", level)
                reader = reader.option("stateVarName", "segments")
                for row in reader.load(str(self.spark)).collect():
                    key, value = row.user_map_key, row.user_map_value
                    content = unpack(bytes(value.content))
                    if key.number == PROGRESS_SEGMENT:
                        kept.setdefault((key.step, ""), set()).add(content)
                    else:
                        kept.update(_kept(key.step, content))
        return kept

    def logged(self, log: str) -> int:
        """The number of the last epoch in Spark's log of ``offsets`` or ``commits``.

        It is that before this generation's first if there is none: -1 for a flow's first runs.
        """
        first = self.identity.get("first_epoch", 0)
        return max(self.epochs(log), default=int(first) - 1)

    def epochs(self, log: str) -> list[int]:
        """The epochs of this generation in one of Spark's logs, in order."""
        folder, first = self.spark / log, int(self.identity.get("first_epoch", 0))
        names = [file.name for file in folder.iterdir()] if folder.exists() else []
        return sorted(first + int(name) for name in names if name.isdigit())

    def phase(self, begun_before: int) -> Phase:
        """Return the phase in which the last run was killed.

        Args:
            begun_before: the number of epochs that had begun before the run.
        """
        begun_count, done_count = self.logged("offsets"), self.logged("commits")
        if begun_count == done_count:
            return Phase.STARTING if begun_count == begun_before else Phase.BETWEEN
        if any(self.home.glob(f"out/*/epoch={begun_count:08d}-*")):
            return Phase.PUBLISHED
        version = begun_count + 1 - int(self.identity.get("first_epoch", 0))
        if any(self.spark.glob(f"state/*/*/{version}_*")):
            return Phase.STATE
        return Phase.STARTING if begun_count == begun_before else Phase.COMPUTING


@dataclass(frozen=True)
class Results:
    """Rows of the outputs as text, each with its number of occurrences.

    Attributes:
        rows: the rows of the Parquet files.
        log: the records of the JSON lines.
    """

    rows: Counter[str]
    log: Counter[str]

    def kinds(self) -> Counter[str]:
        """Return the number of rows of each kind."""
        kinds = Counter({"row": self.rows.total()})
        for line, times in self.log.items():
            kinds[json.loads(line)["what"]] += times
        return kinds

    def in_any_layout(self) -> Results:
        """The same, with a town's numbers apart from what happened there.

        At the end of the input the visits of all users end at once. Between keys no order is
        promised: a town sees them in an order that depends on the layout, and numbers them so.
        """
        separated: Counter[str] = Counter()
        for line, times in self.log.items():
            row = json.loads(line)
            number = row.pop("number", None)
            separated[as_text(row)] += times
            if number is not None:
                separated[as_text({"town": row["town"], "number": number})] += times
        return Results(self.rows, separated)


def assert_same(got: Results, wanted: Results) -> None:
    """Nothing lost, nothing twice; shows a few rows of what is."""
    for name in (output.name for output in fields(wanted)):
        lost = getattr(wanted, name) - getattr(got, name)
        extra = getattr(got, name) - getattr(wanted, name)
        rows = f"lost such as {sorted(lost)[:3]}, too many such as {sorted(extra)[:3]}"
        assert not lost + extra, f"{name}: {lost.total()} lost, {extra.total()} too many: {rows}"


@dataclass
class Child:
    """A run in a process of its own, which leads a session: all that it starts belongs there.

    The number of a session is given to another one, soon where many processes start, so what
    belongs to this one carries a token in its environment as well.
    """

    process: subprocess.Popen[str]
    log: Path
    token: str

    @classmethod
    def start(
        cls, command: list[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start a command of the project; what it prints goes to a file in the folder."""
        log = folder / f"run-{len(list(folder.glob('run-*.log'))):03d}.log"
        token = uuid.uuid4().hex
        with log.open("w") as out:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(PROJECT), TOKEN: token, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        return cls(process, log, token)

    @property
    def output(self) -> str:
        """The text that the process has printed so far."""
        return self.log.read_text("utf-8")

    @property
    def epochs(self) -> list[int]:
        """The epochs whose outputs it has written so far."""
        lines = [line.split() for line in self.output.splitlines() if line.startswith("epoch ")]
        return [int(words[1]) for words in lines if len(words) == 2]

    @property
    def ended(self) -> bool:
        """True if the process has ended or was killed."""
        return self.process.poll() is not None

    def finish(self, seconds: float = 280) -> str:
        """Wait until it has ended well, and all that it had started with it."""
        code = self.process.wait(seconds)
        assert code == 0, f"ended with {code}:\n{self.output}"
        self.vanish()
        return self.output

    def die(self, seconds: float = 200) -> None:
        """Wait until it has been killed, and all that it had started has ended too."""
        code = self.process.wait(seconds)
        assert code == -signal.SIGKILL, f"ended with {code}:\n{self.output}"
        self.vanish()

    def vanish(self, seconds: float = 60) -> float:
        """Wait until no process that it had started is left; how long that took."""
        started = time.monotonic()
        while members := self.members():
            elapsed = time.monotonic() - started
            assert elapsed < seconds, f"still there after {elapsed:.0f} s: {members}"
            time.sleep(0.02)
        return time.monotonic() - started

    def members(self) -> dict[int, str]:
        """The living processes of its session, with their command lines."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state not in "ZX" and self._has(stat):
                    line = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(stat.parent.name)] = line
        return found

    def _has(self, stat: Path) -> bool:
        """Return True if a process carries this child's token, or is ending without memory."""
        environment = (stat.parent / "environ").read_bytes()
        return not environment or self.token.encode() in environment

    def jvm(self) -> int | None:
        """Spark's process; one that it is just starting looks like it for a moment."""
        return min((pid for pid, line in self.members().items() if _is_jvm(line)), default=None)

    def workers(self) -> list[int]:
        """The Python processes that Spark has started, those that fork the others first."""
        members = self.members()
        return [pid for pid, line in sorted(members.items()) if "pyspark" in line[:300]]

    def kill(self, victims: Victims) -> None:
        """Kill some of its processes, so that they have no time to do anything about it."""
        if victims is Victims.DRIVER:
            self.process.kill()  # which knows whether it has ended, and its number is another's
            return
        members = self.members()
        for pid, line in sorted(members.items()):
            if _is_victim(victims, pid == self.process.pid, _is_jvm(line)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def wait_for(self, what: Callable[[], Any], seconds: float = 240) -> Any:
        """Wait until something is so while it runs; what it is, or nothing if it has ended."""
        deadline = time.monotonic() + seconds
        while not (found := what()) and not self.ended:
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds:.0f} s:\n{self.stacks()}")
            time.sleep(0.002)
        return found

    def stacks(self) -> str:
        """Return the output of the process, with the stacks of its Python threads."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(1)
        return self.output


@contextlib.contextmanager
def no_leftovers() -> Iterator[list[Child]]:
    """A list of children, whose remaining processes are killed after the test."""
    children: list[Child] = []
    try:
        yield children
    finally:
        for child in children:
            child.kill(Victims.EVERYTHING)
            child.process.wait()


def _is_jvm(line: str) -> bool:
    return "java" in line.partition(" ")[0]


def _is_victim(victims: Victims, is_driver: bool, is_jvm: bool) -> bool:
    match victims:
        case Victims.DRIVER:
            return is_driver
        case Victims.JVM:
            return is_jvm
        case Victims.BOTH:
            return is_driver or is_jvm
        case Victims.EVERYTHING:
            return True


def _kept(step: str, content: bytes) -> dict[tuple[str, str], Any]:
    """Return the state and the due time of each key in a segment, of any kind."""
    if kind_of(content) == IDS:
        ids = snapshots_of_segment(IdSegment.decode(content))
        return {(step, key): (state, due) for key, state, due in ids}
    segment = Segment.decode(content, step, _snapshots_in)
    return {(step, key): (_comparable(one), due) for key, (one, due) in segment.kept.items()}


@dataclass(frozen=True)
class _Sketch:
    """The content of a sketch, which has no equality of its own."""

    precision: int
    content: bytes


class _Comparable(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if global_name == "DistinctSketch":
            return _Sketch
        return super().find_class(module_name, global_name)


def _comparable(snapshot: bytes) -> Any:
    """Return a snapshot that is equal to another one with the same content."""
    return _Comparable(io.BytesIO(snapshot)).load()


def _snapshots_in(content: bytes) -> Iterator[tuple[str, Any, int]]:
    return snapshots_of_content(SegmentContent.decode(content))


def rows_in(folder: Path) -> list[Mapping[str, Any]]:
    """Return the rows of the Parquet files of all epochs."""
    files = sorted(folder.glob("epoch=*/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def lines_in(folder: Path, epochs: str = "epoch=*") -> list[Mapping[str, Any]]:
    """Return the records of the JSON lines of all epochs, or of some by their folders' names."""
    files = sorted(folder.glob(f"{epochs}/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def as_text(row: Mapping[str, Any]) -> str:
    """A row as text; in Parquet a column may come later than a row, where there is nothing."""
    values = {name: value for name, value in row.items() if value is not None}
    return json.dumps(values, sort_keys=True, default=str)
