"""A player of transcripts: each alone in the test's process, or many as one flow on Spark."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, EpochReport, run
from flow.connectors.source import Source
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from tests.support.epochs import EpochsSource, SourceEpoch
from tests.support.transcript import Epoch, Order, Transcript

Received = Mapping[str, Sequence[Any]]
"""The items that each output received."""


@dataclass(frozen=True)
class Engine:
    """An engine, and the way in which it plays transcripts.

    Attributes:
        name: the name in the ids of tests.
        shards: the number of shards of the key space.
        on_spark: the engine's name in `run`; ``None`` for a driver in the test's process.
        key_by_key: True if no step runs over columns.
        item_by_item: True if each item is an epoch of its own.
        is_ordinary: True if an ordinary run plays transcripts in it.
    """

    name: str
    shards: int
    on_spark: Literal["batch", "streaming"] | None = None
    key_by_key: bool = False
    item_by_item: bool = False
    is_ordinary: bool = True

    def __str__(self) -> str:
        return self.name

    def can_play(self, transcript: Transcript) -> bool:
        """Return True if the engine must give the outputs of a transcript."""
        if self.on_spark == "batch":
            return transcript.stands_still
        return not (self.item_by_item and transcript.depends_on_epochs)

    def group(self, transcript: Transcript) -> Hashable:
        """Return a value that is equal for transcripts that are played together."""
        if self.on_spark is None:
            return transcript.name
        if transcript.builder.shares_time and not transcript.depends_on_epochs:
            return transcript.start
        return transcript.start, frozenset(transcript.times)


ENGINES = (
    Engine("in_process_1_shard", 1, is_ordinary=False),
    Engine("in_process_3_shards", 3),
    Engine("in_process_key_by_key", 2, key_by_key=True),
    Engine("in_process_item_by_item", 2, item_by_item=True, is_ordinary=False),
    Engine("batch", 8, on_spark="batch"),
    Engine("query", 8, on_spark="streaming"),
)


@dataclass
class Played:
    """The outputs of a transcript that was played.

    Attributes:
        epochs: the items that outputs received in each epoch and at the end of input; in a batch,
            all items as one epoch.
        keys: the number of keys with state after each epoch, by step, where it is known.
        counts: the counts of steps by the end, where they are known.
        in_batch: True if the engine was a batch.
    """

    epochs: list[Received] = field(default_factory=list)
    keys: list[Mapping[str, int]] | None = None
    counts: Mapping[tuple[str, str], int] | None = None
    in_batch: bool = False


def play(
    engine: Engine, transcripts: Sequence[Transcript], spark: Callable[[], SparkSession]
) -> dict[str, Played]:
    """Play transcripts of one group; return the outputs of each by its name."""
    if engine.on_spark is None:
        return {one.name: play_in_process(one, engine) for one in transcripts}
    together = _Together(transcripts)
    summary = run(
        together.flow,
        spark=spark(),
        engine=engine.on_spark,
        system_time=transcripts[0].start,
        on_epoch=together.on_epoch,
        shards=engine.shards,
    )
    if engine.on_spark == "batch":
        return {
            one.name: Played([together.received[one.name]], in_batch=True) for one in transcripts
        }
    epochs = len(together.times) + 1
    assert summary.epochs == epochs, "each epoch of the transcripts must run once, and the end"
    return {one.name: together.played(one) for one in transcripts}


def play_in_process(transcript: Transcript, engine: Engine = ENGINES[0]) -> Played:
    """Play one transcript as the test of a user would: move time, send items, end the input."""
    flow = Dataflow("transcript")
    _add(transcript, flow, "", lambda name: TestingSource([]))
    played, now = Played(keys=[]), transcript.start
    path = key_by_key() if engine.key_by_key else nullcontext()
    with path, TestDriver(flow, now=now, shards=engine.shards) as driver:
        for epoch in transcript.epochs:
            if epoch.now > now:
                driver.advance(epoch.now - now)
                now = epoch.now
            for parts, behind in epoch.pieces if engine.item_by_item else [(epoch.inputs, [])]:
                driver.send_parts(parts, behind=behind)
            _note(played, driver, transcript, epoch)
        driver.end()
        _note(played, driver, transcript, transcript.end)
    played.counts = {counted: driver.stats.counts[counted] for counted in transcript.counts}
    return played


def _note(played: Played, driver: TestDriver, transcript: Transcript, epoch: Epoch) -> None:
    """Note what outputs have received since the last epoch, and the steps' keys."""
    played.epochs.append({name: driver.take(f"to_{name}") for name in transcript.builder.outputs})
    if played.keys is not None:
        played.keys.append({step: driver.stats.gauges[step, "keys"] for step in epoch.keys})


def _add(
    transcript: Transcript, flow: Dataflow, prefix: str, source: Callable[[str], Source[Any]]
) -> dict[str, list[Any]]:
    """Add the flow of a transcript to a flow.

    Args:
        transcript: the transcript.
        flow: the flow.
        prefix: the text before all step ids.
        source: a function that returns the source of an input.

    Returns:
        The lists to which the sinks of the outputs append.
    """

    def step(step_id: str) -> str:
        return f"{prefix}{step_id}"

    inputs = [op.input(step(name), flow, source(name)) for name in transcript.inputs]
    outputs = transcript.builder.build(step, *inputs, **transcript.arguments)
    assert outputs.keys() == transcript.builder.outputs.keys()
    received = {name: list[Any]() for name in outputs}
    for name, stream in outputs.items():
        op.output(step(f"to_{name}"), stream, TestingSink(received[name]))
    return received


class _Together:
    """Many transcripts with the same start as one flow, with the epochs of all of them.

    A transcript also runs through the epochs of the others: time that passes in several steps, or
    that continues after its last epoch, must change only the epoch in which time takes effect.
    Transcripts for which more changes are together with those of the same times only: those that
    depend on epochs, and those of a builder with a false `shares_time`.
    """

    def __init__(self, transcripts: Sequence[Transcript]) -> None:
        self.flow = Dataflow("transcripts")
        self.times = _common_times(transcripts)
        self.received = {
            transcript.name: self._add(f"t{number}.", transcript)
            for number, transcript in enumerate(transcripts)
        }
        self._sizes: list[dict[str, dict[str, int]]] = []

    def on_epoch(self, _: EpochReport) -> None:
        """Note how many items each output has received after each epoch."""
        self._sizes.append(
            {
                transcript: {name: len(items) for name, items in received.items()}
                for transcript, received in self.received.items()
            }
        )

    def played(self, transcript: Transcript) -> Played:
        """Return the outputs of a transcript, cut at its epochs."""
        received, played = self.received[transcript.name], Played()
        before = dict.fromkeys(received, 0)
        for number in [*self._places(transcript), len(self._sizes) - 1]:
            after = self._sizes[number][transcript.name]
            played.epochs.append(
                {name: items[before[name] : after[name]] for name, items in received.items()}
            )
            before = after
        return played

    def _places(self, transcript: Transcript) -> list[int]:
        """Return the numbers of the transcript's epochs among all epochs."""
        places: list[int] = []
        for now in transcript.times:
            places.append(self.times.index(now, places[-1] + 1 if places else 0))
        return places

    def _add(self, prefix: str, transcript: Transcript) -> dict[str, list[Any]]:
        epochs = dict(zip(self._places(transcript), transcript.epochs, strict=True))

        def source(name: str) -> EpochsSource:
            read, before = list[SourceEpoch](), transcript.start
            for place, now in enumerate(self.times):
                parts = epochs[place].inputs.get(name, ()) if place in epochs else ()
                read.append(SourceEpoch(tuple(parts), now - before))
                before = now
            return EpochsSource(tuple(read))

        return _add(transcript, self.flow, prefix, source)


def _common_times(transcripts: Sequence[Transcript]) -> list[datetime]:
    """Return the system time of every epoch that transcripts together need."""
    needed: dict[datetime, int] = defaultdict(int)
    for transcript in transcripts:
        for now in transcript.times:
            needed[now] = max(needed[now], transcript.times.count(now))
    return [now for now in sorted(needed) for _ in range(needed[now])]


def check(transcript: Transcript, played: Played) -> None:
    """Compare the outputs of a transcript with those that it states.

    Raises:
        AssertionError: with the whole script and the difference, if they differ.
    """
    batch = played.in_batch
    epochs = [transcript.batch] if batch else [*transcript.epochs, transcript.end]
    expected, received = list[str](), list[str]()
    for number, (epoch, items) in enumerate(zip(epochs, played.epochs, strict=True)):
        title = "end of input" if epoch is transcript.end else f"epoch {number + 1}"
        expected += [title, *_expected(transcript, epoch, mixed=batch)]
        received += [title, *_received(transcript, items, mixed=batch)]
        if played.keys is not None:
            expected += [f"  keys    {step}: {count}" for step, count in epoch.keys.items()]
            received += [f"  keys    {step}: {n}" for step, n in played.keys[number].items()]
    if played.counts is not None:
        expected += _counted(transcript.counts)
        received += _counted(played.counts)
    if expected != received:
        lines = difflib.ndiff(expected, received)
        difference = "\n".join(line for line in lines if not line.startswith("?"))
        raise AssertionError(
            f"{transcript.name}: {transcript.behaviour}\n"
            f"(- expected and not received, + received and not expected)\n{difference}"
        )


def _expected(transcript: Transcript, epoch: Epoch, *, mixed: bool) -> list[str]:
    notation, lines = transcript.notation, list[str]()
    for name, order in transcript.builder.outputs.items():
        read = [notation.rewritten(name, line) for line in epoch.lines[name]]
        lines += _in_order(name, order, read, mixed=mixed)
    return lines


def _received(transcript: Transcript, items: Received, *, mixed: bool) -> list[str]:
    notation, lines = transcript.notation, list[str]()
    for name, order in transcript.builder.outputs.items():
        written = [notation.written(name, item) for item in items[name]]
        lines += _in_order(name, order, written, mixed=mixed)
    return lines


def _in_order(
    output: str, order: Order, lines: Iterable[tuple[str, str]], *, mixed: bool
) -> list[str]:
    """Return the lines of an output in the order in which they are compared."""
    if order is Order.KEY:
        by_key = grouped(lines)
        ordered = [line for key in sorted(by_key) for line in by_key[key]]
    else:
        ordered = [line for _, line in lines]
        if mixed or order is Order.ANY:
            ordered.sort()
    return [f"  {output:7} {line}" for line in ordered]


def _counted(counts: Mapping[tuple[str, str], int]) -> list[str]:
    return [f"counted {what} of {step}: {count}" for (step, what), count in counts.items()]


def grouped(items: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each key, in order."""
    by_key: dict[str, list[Any]] = {}
    for key, value in items:
        by_key.setdefault(key, []).append(value)
    return by_key
