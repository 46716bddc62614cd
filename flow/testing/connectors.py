"""Laws of connectors: what recovery needs of a source and of a sink, run against one's own.

Each law is a function whose docstring is the law. A law gets an empty directory of its own, drives
the connector as the engines do, and fails with a `LawBroken` that states the law, what was expected
and what was found.
"""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar
from unittest import mock

import pyarrow as pa

import flow.operators as op
from flow.connectors.sink import CheckpointContext, Guarantee, OutputContext, Sink, SinkBatch
from flow.connectors.sink import WriteContext as Context
from flow.connectors.source import MemoryLog, Slice, Source, Split
from flow.dataflow import Dataflow
from flow.engine.plan.portability import as_in_workers
from flow.errors import FlowError, brief, shorten
from flow.testing.lists import TestingSink, TestingSource, items_of

__all__ = ["LawBroken", "check_sink", "check_source"]

Row: TypeAlias = tuple[str, int]
"""A row that a sink writes: its key, and a number."""

Run: TypeAlias = Callable[[Dataflow, str], Any]
"""Function that runs a flow on Spark with a checkpoint in a directory."""

STEP, FLOW = "output № 1: 'x/y'", "laws"
ODD = ("Zürich ✈", "it's", 'say "so"', "a,b;c\td", "null", " ", "%2F..\\", "日本", "a" * 300)
_PLANS = 1_000


class LawBroken(AssertionError):
    """A connector that breaks a law.

    Attributes:
        law: the law, in one sentence.
    """

    def __init__(self, connector: object, law: str, found: str) -> None:
        self.law = law
        super().__init__(f"{shorten(connector)} breaks the law:\n  {law}\n{found}")


def as_record(key: str, n: int) -> dict[str, Any]:
    """Return a row as a record, the item that a sink gets by default."""
    return {"key": key, "n": n}


def check_sink(
    make: Callable[[Path], Sink[Any]],
    read: Callable[[Path], Sequence[Row]],
    *,
    item: Callable[[str, int], Any] = as_record,
    secrets: Sequence[str] = (),
    run: Run | None = None,
) -> None:
    """Check a sink by the laws that recovery rests on; takes a second, and more with `run`.

    The sink of a test writes items with the fields ``key``, text that differs from row to row, and
    ``n``, a whole number. A sink that is at least once may write rows again.

    Args:
        make: function that returns the sink that writes to a place. The place is an empty
            directory; a connector to a server can take its name for the name of a topic or table.
            The function is called for each run that a law starts.
        read: function that returns the rows at a place, in any order, as pairs of ``key`` and
            ``n``; it is also called before the first commit.
        item: function that returns the item of a row, for sinks of other items.
        secrets: texts, such as passwords that `make` gives the sink, that nothing may show.
        run: function that runs a flow on Spark, to check the sink there too:
            ``lambda flow, path: run(flow, recovery=RecoveryConfig(path))``.

    Raises:
        LawBroken: the sink breaks a law.

    >>> import json
    >>> from flow.connectors.files import JsonLinesSink
    >>> def read(place):
    ...     files = place.glob("out/epoch=*/*.jsonl")
    ...     rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    ...     return [(row["key"], row["n"]) for row in rows]
    >>> check_sink(lambda place: JsonLinesSink(place / "out"), read)
    """
    for law in [*_SINK_LAWS, *([_runs_on_spark] if run else [])]:
        with _trial(_SinkTrial, law, make, secrets, run, read=read, item=item) as trial:
            law(trial)


def check_source(
    make: Callable[[Path], Source[Any]],
    fill: Callable[[Path, int], Sequence[Any]],
    *,
    per_epoch: int | None = None,
    grows: bool = True,
    secrets: Sequence[str] = (),
    run: Run | None = None,
) -> None:
    r"""Check a source by the laws that recovery rests on; takes a second, and more with `run`.

    Args:
        make: function that returns the source that reads a place, a directory; see `check_sink`.
            The source is bounded, or has no new data after its last item.
        fill: function that adds data to a place, and returns the items that the source reads of it.
            It is called with the place and 0 before the first run, and with 1 between two runs.
            Use enough data for several epochs.
        per_epoch: the greatest number of items of an epoch; ``None`` to check no limit.
        grows: False if the source reads no data that are added after its first run.
        secrets: texts that nothing may show, such as passwords.
        run: function that runs a flow on Spark; see `check_sink`.

    Raises:
        LawBroken: the source breaks a law.

    >>> from flow.connectors.files import TextSource
    >>> def fill(place, part):
    ...     lines = [f"{part}-{n}" for n in range(9)]
    ...     (place / f"{part}.txt").write_text("\n".join(lines))
    ...     return lines
    >>> check_source(lambda place: TextSource(place / "*.txt", bytes_per_epoch=8), fill)
    """
    laws = [*_SOURCE_LAWS, *([_later_data] if grows else []), *([_resumes_on_spark] if run else [])]
    for law in laws:
        with _trial(_SourceTrial, law, make, secrets, run, fill=fill, per_epoch=per_epoch) as trial:
            trial.items = list(fill(trial.place, 0))
            law(trial)


@dataclass
class _Trial:
    """A connector, a place of its own, and the law that it is to keep."""

    make: Callable[[Path], Any]
    secrets: Sequence[str]
    run: Run
    place: Path
    law: str

    def broken(self, found: str) -> NoReturn:
        """Raise `LawBroken`."""
        raise LawBroken(self.make(self.place), self.law, found)

    def close(self) -> None:
        """Release resources; called at the end of the law."""

    def check_secrets(self, *shown: Any) -> None:
        """Raise `LawBroken` with a text that has a secret, and without the secret."""
        for secret in self.secrets:
            for text in map(str, shown):
                if secret in text:
                    self.broken(f"a secret is in the text: {shorten(text.replace(secret, '***'))}")

    def run_dying(self, flow: Dataflow, sink: Sink[Any], died: str) -> None:
        """Run a flow on Spark whose sink fails before or after the commit of epoch 1."""
        commit = type(sink).commit

        def failing(sink: Sink[Any], epoch: int, messages: Sequence[Any]) -> None:
            if (epoch, died) == (1, "before"):
                raise RuntimeError("died before a commit")
            commit(sink, epoch, messages)
            if (epoch, died) == (1, "after"):
                raise RuntimeError("died after a commit")

        with (
            mock.patch.object(type(sink), "commit", failing),
            contextlib.suppress(*([FlowError] if died else [])),
        ):
            self.run(flow, str(self.place / "checkpoint"))


T = TypeVar("T", bound=_Trial)


@contextlib.contextmanager
def _trial(
    kind: Callable[..., T],
    law: Callable[[T], None],
    make: Callable[[Path], Any],
    secrets: Sequence[str],
    run: Run | None,
    **options: Any,
) -> Iterator[T]:
    """Yield a trial of a law; an exception of the connector becomes a `LawBroken`."""
    with contextlib.ExitStack() as closing, tempfile.TemporaryDirectory(prefix="law-") as name:
        text = " ".join((law.__doc__ or "").split())
        trial = kind(make, secrets, run or (lambda *_: None), Path(name), text, **options)
        closing.callback(trial.close)
        try:
            yield trial
        except LawBroken:
            raise
        except Exception as error:
            raise LawBroken(make(trial.place), text, f"it raised {brief(error)}") from error


# --- sinks ---------------------------------------------------------------------------------------


@dataclass
class _SinkTrial(_Trial):
    """A place, and the runs of a sink that write to it."""

    read: Callable[[Path], Sequence[Row]]
    item: Callable[[str, int], Any]
    opened: list[Sink[Any]] = field(default_factory=list)

    def close(self) -> None:
        """Close all sinks, also those of runs that were killed."""
        for sink in self.opened:
            sink.close()

    def open(self, last_epoch: int = -1, rewinds: int = 0, run_id: str = "run-one") -> _SinkRun:
        """Start a run after the last epoch that the checkpoint has as done."""
        sink = self.make(self.place)
        checkpoint = CheckpointContext(str(self.place), str(self.place), last_epoch, rewinds)
        resuming = last_epoch >= 0 or rewinds > 0
        sink.check(resuming)
        sink.attach(OutputContext(FLOW, STEP, checkpoint))
        self.opened.append(sink)
        sink.open(run_id, resuming)
        return _SinkRun(self, sink, run_id, rewinds)

    def expect(self, *rows: Row) -> None:
        """Raise `LawBroken` unless the place has exactly these rows."""
        found = sorted((key, n) for key, n in self.read(self.place))
        wanted = sorted(rows)
        if self.make(self.place).guarantee is not Guarantee.EXACTLY_ONCE:
            found = sorted(set(found))
        if found != wanted:
            self.broken(f"expected the rows {shorten(wanted)}\nfound    the rows {shorten(found)}")


@dataclass
class _SinkRun:
    """A run of a sink: it writes by pickled copies, as in workers, and commits."""

    trial: _SinkTrial
    sink: Sink[Any]
    run_id: str
    rewinds: int

    def task(self, epoch: int, partition: int, *batches: SinkBatch) -> Any:
        """Write the batches of a task, and return its message."""
        context = Context(STEP, epoch, partition, self.run_id, self.rewinds)
        sink = as_in_workers(self.sink)
        return pickle.loads(pickle.dumps(sink.write(context, iter(batches))))

    def write(self, epoch: int, *rows: Row) -> list[Any]:
        """Write an epoch in two tasks, and return their messages."""
        items = [self.trial.item(*row) for row in rows]
        halves = items[: len(items) // 2], items[len(items) // 2 :]
        return [self.task(epoch, n, half) for n, half in enumerate(halves) if half]

    def publish(self, epoch: int, *rows: Row) -> None:
        """Write and commit an epoch."""
        self.sink.commit(epoch, self.write(epoch, *rows))

    def close(self) -> None:
        """End the run; the trial closes the sink once more, as the engine may."""
        self.sink.close()


def _commits_whole_epochs(trial: _SinkTrial) -> None:
    """Rows are visible once their epoch is committed, all of them."""
    run = trial.open()
    run.publish(0, ("a", 0), ("b", 0))
    messages = run.write(1, ("c", 1), ("d", 1))
    if run.sink.guarantee is Guarantee.EXACTLY_ONCE:
        trial.expect(("a", 0), ("b", 0))
    run.sink.commit(1, messages)
    trial.expect(("a", 0), ("b", 0), ("c", 1), ("d", 1))


def _commits_once(trial: _SinkTrial) -> None:
    """An epoch that is committed twice, or written and committed again, is in the output once."""
    run = trial.open()
    run.publish(0, ("a", 0), ("b", 0))
    messages = run.write(1, ("c", 1), ("d", 1))
    run.sink.commit(1, messages)
    run.close()
    run = trial.open(0)
    run.publish(1, ("c", 1), ("d", 1))
    run.publish(1, ("c", 1), ("d", 1))
    trial.expect(("a", 0), ("b", 0), ("c", 1), ("d", 1))


def _survives_kills(trial: _SinkTrial) -> None:
    """After a kill before, during or after the writing of an epoch its replay writes rows once."""
    done: list[Row] = [("start", 0)]
    trial.open().publish(0, *done)
    kills: list[Callable[[_SinkRun, int, list[Row]], Any]] = [
        lambda *_: None,
        lambda run, epoch, rows: run.task(epoch, 0, [trial.item(*rows[0])]),
        lambda run, epoch, rows: run.write(epoch, *rows),
        lambda run, epoch, rows: run.publish(epoch, *rows),
    ]
    for epoch, kill in enumerate(kills, 1):
        rows = [(f"{name}{epoch}", epoch) for name in "ab"]
        kill(trial.open(epoch - 1), epoch, rows)  # The run is not closed: its process has died.
        run = trial.open(epoch - 1)
        run.publish(epoch, *rows)
        done += rows
        trial.expect(*done)


def _leaves_out_lost_attempts(trial: _SinkTrial) -> None:
    """A task that Spark attempts twice is in the output once, as the attempt that succeeded."""
    run = trial.open()
    first, second = (run.write(0, ("a", 0), ("b", 0)) for _ in range(2))
    run.sink.commit(0, [first[0], second[1]])
    trial.expect(("a", 0), ("b", 0))


def _takes_empty_epochs(trial: _SinkTrial) -> None:
    """Epochs without items, and numbers that are left out, change nothing."""
    run = trial.open()
    run.sink.commit(0, [])
    run.publish(1, ("a", 1), ("b", 1))
    run.sink.commit(2, [run.task(2, 0), run.task(2, 1, [])])
    run.close()
    run = trial.open(2)
    run.sink.commit(3, [])
    run.publish(7, ("c", 7))
    trial.expect(("a", 1), ("b", 1), ("c", 7))


def _keeps_odd_text(trial: _SinkTrial) -> None:
    """Text comes back as it was written, whatever its characters."""
    run = trial.open()
    rows = [(key, n) for n, key in enumerate(ODD)]
    run.publish(0, *rows)
    trial.expect(*rows)


def _takes_record_batches(trial: _SinkTrial) -> None:
    """Record batches are written as their rows are, also among lists and empty batches."""
    if trial.item is not as_record:
        return
    run = trial.open()
    batch = pa.record_batch({"key": ["b", "c"], "n": pa.array([1, 2], pa.int64())})
    messages = [run.task(0, 0, [as_record("a", 0)], batch.slice(0, 0), batch, [as_record("d", 3)])]
    run.sink.commit(0, messages)
    trial.expect(("a", 0), ("b", 1), ("c", 2), ("d", 3))


def _keeps_flows_apart(trial: _SinkTrial) -> None:
    """Epochs of two flows are not mistaken for each other: rows are added, or the flow refused."""
    run = trial.open()
    run.publish(0, ("a", 0))
    run.close()
    rows = [("a", 0)]
    with contextlib.suppress(FlowError):
        other = trial.open(run_id="run-two")
        other.publish(0, ("b", 0))
        rows.append(("b", 0))
    trial.expect(*rows)


def _undoes_or_refuses_rewinds(trial: _SinkTrial) -> None:
    """Epochs made again after a rewind replace the former ones, or an error says what to do."""
    if trial.make(trial.place).guarantee is not Guarantee.EXACTLY_ONCE:
        return
    run = trial.open()
    for epoch, key in enumerate("abc"):
        run.publish(epoch, (key, 1))
    run.close()
    try:
        run = trial.open(0, rewinds=1)
        run.publish(1, ("b", 2))
        run.publish(1, ("b", 2))
        run.publish(2, ("c", 2))
    except FlowError as error:
        if len(str(error)) < 60 or ":" not in str(error):
            trial.broken(f"the error does not say what to do: {error}")
        trial.expect(("a", 1), ("b", 1), ("c", 1))
    else:
        trial.expect(("a", 1), ("b", 2), ("c", 2))


def _tells_no_secret(trial: _SinkTrial) -> None:
    """No text about a sink, and no message of a task, has a secret."""
    run = trial.open()
    messages = run.write(0, ("a", 0))
    sink = run.sink
    trial.check_secrets(repr(sink), str(sink), sink.only_output, sink.datasets(), messages)


def _runs_on_spark(trial: _SinkTrial) -> None:
    """On Spark, a flow killed before and after a commit has the rows of one that was not."""
    rows = [(f"k{n}", n) for n in range(6)]
    items = [trial.item(*row) for row in rows]
    for died in ("before", "after", ""):
        flow, sink = Dataflow(FLOW), trial.make(trial.place)
        op.output(STEP, op.input("in", flow, TestingSource(items, batch_size=2)), sink)
        trial.run_dying(flow, sink, died)
    trial.expect(*rows)


_SINK_LAWS: Sequence[Callable[[_SinkTrial], None]] = (
    _commits_whole_epochs,
    _commits_once,
    _survives_kills,
    _leaves_out_lost_attempts,
    _takes_empty_epochs,
    _keeps_odd_text,
    _takes_record_batches,
    _keeps_flows_apart,
    _undoes_or_refuses_rewinds,
    _tells_no_secret,
)


# --- sources -------------------------------------------------------------------------------------


@dataclass
class _SourceTrial(_Trial):
    """A place with data, and the runs that read it."""

    fill: Callable[[Path, int], Sequence[Any]]
    per_epoch: int | None
    items: list[Any] = field(default_factory=list)

    def plan(self, log: MemoryLog | None = None, start: Any = None, tasks: int = 2) -> _Plan:
        """Plan the epochs of a run from an offset to the end of the data."""
        source, plan = self.make(self.place), _Plan(log or MemoryLog())
        with contextlib.closing(source.planner(plan.log, tasks)) as planner:
            planner.stop_at_present()
            while (planned := planner.next(start)) is not None:
                start = self._logged(planned.end)
                splits = [Split(self._logged(s.what), s.partition, s.order) for s in planned.splits]
                plan.slices.append(Slice(start, splits))
                plan.logs.append(copy.deepcopy(plan.log))
                if len(plan.slices) > _PLANS:
                    self.broken(f"after {_PLANS} epochs there is still data to read")
            if source.bounded and not planner.finished(start):
                self.broken(f"a bounded source is not finished at its end, {shorten(start)}")
        return plan

    def _logged(self, value: Any) -> Any:
        """Return a value as the checkpoint gives it back."""
        try:
            return json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            self.broken(f"{shorten(value)} is not JSON: {error}")

    def read(self, slices: Sequence[Slice]) -> dict[int, list[Any]]:
        """Return the items of slices by source partition, read as in workers."""
        source = as_in_workers(self.make(self.place))
        found: dict[int, list[Any]] = {}
        for planned in slices:
            for split in sorted(planned.splits, key=lambda one: (one.partition, one.order)):
                items = found.setdefault(split.partition, [])
                items += [one for batch in source.read(split) for one in items_of(batch)]
        return {partition: items for partition, items in found.items() if items}

    def expect(self, wanted: Any, found: Any, what: str) -> None:
        """Raise `LawBroken` unless two values are equal."""
        if wanted != found:
            text = f"expected {shorten(wanted)}\nfound    {shorten(found)}"
            self.broken(f"{what}:\n{text}")


@dataclass
class _Plan:
    """Epochs of a run.

    Attributes:
        log: the log of the source.
        slices: the slice of each epoch.
        logs: copies of the log, after each slice was planned.
    """

    log: MemoryLog
    slices: list[Slice] = field(default_factory=list)
    logs: list[MemoryLog] = field(default_factory=list)


def _reads_all(trial: _SourceTrial) -> None:
    """A run reads each item once, and ends; offsets and splits are JSON."""
    found = [item for items in trial.read(trial.plan().slices).values() for item in items]
    trial.expect(_sorted(trial.items), _sorted(found), "the items of all epochs")


def _replays(trial: _SourceTrial) -> None:
    """A split gives the same items, in the same order, each time that it is read."""
    for number, one in enumerate(trial.plan().slices):
        trial.expect(trial.read([one]), trial.read([one]), f"epoch {number}, by partition")


def _resumes(trial: _SourceTrial) -> None:
    """A run continues at any offset, also if its source's log is ahead, with what is not read."""
    plan = trial.plan()
    for number, before in enumerate(plan.slices):
        wanted = trial.read(plan.slices[number + 1 :])
        for log in plan.logs[number : number + 2]:
            rest = trial.plan(copy.deepcopy(log), before.end)
            what = f"from the offset {shorten(before.end)} on, by partition"
            trial.expect(wanted, trial.read(rest.slices), what)


def _cuts_alike(trial: _SourceTrial) -> None:
    """The number of tasks changes neither the items of a source partition nor their order."""
    one, seven = (trial.read(trial.plan(tasks=tasks).slices) for tasks in (1, 7))
    trial.expect(one, seven, "with one task and with seven, by partition")


def _limits_epochs(trial: _SourceTrial) -> None:
    """An epoch has at most as many items as the source says, so that a backlog fits in memory."""
    for number, one in enumerate(trial.plan().slices if trial.per_epoch else []):
        count = sum(map(len, trial.read([one]).values()))
        if count > (trial.per_epoch or count):
            trial.broken(f"epoch {number} has {count} items, and not at most {trial.per_epoch}")


def _leaves_out_fields(trial: _SourceTrial) -> None:
    """Fields that no step reads may be left out; those that steps read stay as they are."""
    source = trial.make(trial.place)
    for split in (split for one in trial.plan().slices for split in one.splits):
        whole = [item for batch in source.read(split) for item in items_of(batch)]
        names = {name: None for item in whole if isinstance(item, Mapping) for name in item}
        for name in names:
            batches = source.read_fields(split, frozenset([name]))
            part = [item.get(name) for batch in batches for item in items_of(batch)]
            trial.expect([item.get(name) for item in whole], part, f"field {name!r}")


def _keeps_identity(trial: _SourceTrial) -> None:
    """The identity of a source is JSON, and the same in the next run."""
    first, second = (trial._logged(trial.make(trial.place).identity()) for _ in range(2))
    trial.expect(first, second, "the identity")


def _keeps_secrets(trial: _SourceTrial) -> None:
    """No text about a source, and nothing that a checkpoint keeps of it, has a secret."""
    source, plan = trial.make(trial.place), trial.plan()
    trial.check_secrets(repr(source), str(source), source.identity(), source.datasets())
    trial.check_secrets(plan.log.summary(), plan.log.entries(), plan.slices)


def _later_data(trial: _SourceTrial) -> None:
    """Data that come after a run are read by the next run, once."""
    plan = trial.plan()
    trial.expect([], trial.plan(plan.log, plan.slices[-1].end).slices, "a run without new data")
    later = list(trial.fill(trial.place, 1))
    rest = trial.plan(plan.log, plan.slices[-1].end)
    found = [item for items in trial.read(rest.slices).values() for item in items]
    trial.expect(_sorted(later), _sorted(found), "the items that came later")


def _resumes_on_spark(trial: _SourceTrial) -> None:
    """On Spark, a flow killed before and after a commit has the items of one that was not."""
    received: list[Any] = []
    sink = TestingSink(received)
    for died in ("before", "after", ""):
        flow = Dataflow(FLOW)
        op.output(STEP, op.input("in", flow, trial.make(trial.place)), sink)
        trial.run_dying(flow, sink, died)
    trial.expect(_sorted(trial.items), _sorted(received), "the items that reached the sink")


_SOURCE_LAWS: Sequence[Callable[[_SourceTrial], None]] = (
    _reads_all,
    _replays,
    _resumes,
    _cuts_alike,
    _limits_epochs,
    _leaves_out_fields,
    _keeps_identity,
    _keeps_secrets,
)


def _sorted(items: Sequence[Any]) -> list[Any]:
    """Return items of any type in an order that does not depend on how they came."""
    return sorted(items, key=repr)
