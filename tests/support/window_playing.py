"""Playing window transcripts: each alone in the in-process driver, or many in one Spark run."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, EpochReport, Stream, run
from flow.testing import TestDriver, TestingSink, TestingSource
from tests.support.epochs import EpochsSource, SourceEpoch
from tests.support.transcript import Wired, grouped
from tests.support.window_transcripts import PORTS, WindowEpoch, WindowTranscript

Items = dict[str, list[Any]]
"""Of each stream, what it has emitted."""


@dataclass
class Played:
    """What came of a transcript.

    Attributes:
        epochs: what was emitted in each epoch, and at the end of input.
        keys: how many keys had a state after each, where that is known.
        counts: what was counted, where that is known.
    """

    epochs: list[Items] = field(default_factory=list)
    keys: list[int] | None = None
    counts: Mapping[str, int] | None = None


def play_in_process(transcript: WindowTranscript, shards: int, *, singly: bool = False) -> Played:
    """Play a transcript as a user's test would: move time, send items, end the input.

    Args:
        transcript: the transcript.
        shards: how many slices the key space has.
        singly: whether each item is an epoch.
    """
    flow = Dataflow("transcript")

    def add_input(name: str, step_id: str) -> Stream[Any]:
        return op.input(step_id, flow, TestingSource([]))

    def add_output(name: str, step_id: str, up: Stream[Any]) -> None:
        op.output(step_id, up, TestingSink([]))

    transcript.wire(Wired(flow, "", add_input, add_output))
    played, now = Played(keys=[]), transcript.day
    with TestDriver(flow, now=now, shards=shards) as driver:
        for epoch in transcript.epochs:
            if epoch.now > now:
                driver.advance(epoch.now - now)
                now = epoch.now
            for parts, behind in epoch.items if singly else [(epoch.inputs, [])]:
                driver.send_parts(parts, behind=behind)
            _note(played, driver)
        driver.end()
        _note(played, driver)
    played.counts = {what: driver.stats.counts["w", what] for what in transcript.counts}
    return played


def _note(played: Played, driver: TestDriver) -> None:
    """Note what has come out since the last epoch."""
    received: Items = {}
    for port in PORTS:
        received[port] = driver.take(f"to_{port}")
    played.epochs.append(received)
    if played.keys is not None:
        played.keys.append(driver.stats.gauges["w", "keys"])


def play_in_a_batch(
    transcripts: Sequence[WindowTranscript], spark: SparkSession
) -> dict[str, Items]:
    """Play transcripts in which time stands still in one Spark job; return all that came out."""
    together = _Together(transcripts)
    day = transcripts[0].day
    run(together.flow, spark=spark, engine="batch", system_time=day, shards=8)
    return together.received


def play_in_a_query(
    transcripts: Sequence[WindowTranscript], spark: SparkSession
) -> dict[str, Played]:
    """Play transcripts of the same day in one streaming query."""
    together = _Together(transcripts)
    summary = run(
        together.flow,
        spark=spark,
        engine="streaming",
        system_time=transcripts[0].day,
        on_epoch=together.on_epoch,
        shards=8,
    )
    epochs = len(together.times) + 1
    assert summary.epochs == epochs, "every epoch that is written down ran once, and the end"
    return {one.name: together.played(one) for one in transcripts}


class _Together:
    """Many transcripts of one day as one flow, with an epoch whenever one of them has one.

    A transcript also lives through the epochs of the others: time that passes in several steps, or
    that goes on after its last epoch, must change nothing but when windows close.
    """

    def __init__(self, transcripts: Sequence[WindowTranscript]) -> None:
        self.flow = Dataflow("transcripts")
        self.times = _common_times(transcripts)
        self.received: dict[str, Items] = defaultdict(dict)
        self._sizes: list[dict[tuple[str, str], int]] = []
        for number, transcript in enumerate(transcripts):
            self._add(f"t{number}.", transcript)

    def on_epoch(self, report: EpochReport) -> None:
        """Note how much each output has received after each epoch."""
        self._sizes.append(
            {
                (name, port): len(items)
                for name, ports in self.received.items()
                for port, items in ports.items()
            }
        )

    def played(self, transcript: WindowTranscript) -> Played:
        """What came of a transcript."""
        last_epochs = [*self._places(transcript), len(self._sizes) - 1]
        played, before = Played(), dict.fromkeys(PORTS, 0)
        for last in last_epochs:
            after = {port: self._sizes[last][transcript.name, port] for port in PORTS}
            received = self.received[transcript.name]
            played.epochs.append(
                {port: received[port][before[port] : after[port]] for port in PORTS}
            )
            before = after
        return played

    def _places(self, transcript: WindowTranscript) -> list[int]:
        """Which of all epochs are the transcript's."""
        places: list[int] = []
        for epoch in transcript.epochs:
            after = places[-1] + 1 if places else 0
            places.append(self.times.index(epoch.now, after))
        return places

    def _add(self, prefix: str, transcript: WindowTranscript) -> None:
        def add_input(name: str, step_id: str) -> Stream[Any]:
            return op.input(step_id, self.flow, self._source(transcript, name))

        def add_output(name: str, step_id: str, up: Stream[Any]) -> None:
            items = self.received[transcript.name][name] = list[Any]()
            op.output(step_id, up, TestingSink(items))

        transcript.wire(Wired(self.flow, prefix, add_input, add_output))

    def _source(self, transcript: WindowTranscript, name: str) -> EpochsSource:
        places = dict(zip(self._places(transcript), transcript.epochs, strict=True))
        epochs, before = list[SourceEpoch](), transcript.day
        for place, now in enumerate(self.times):
            parts = places[place].inputs.get(name, ()) if place in places else ()
            epochs.append(SourceEpoch(tuple(parts), now - before))
            before = now
        return EpochsSource(tuple(epochs))


def _common_times(transcripts: Sequence[WindowTranscript]) -> list[datetime]:
    """The time of every epoch that all transcripts together need."""
    needed: dict[datetime, int] = defaultdict(int)
    for transcript in transcripts:
        times = [epoch.now for epoch in transcript.epochs]
        for time in times:
            needed[time] = max(needed[time], times.count(time))
    return [time for time in sorted(needed) for _ in range(needed[time])]


def check(transcript: WindowTranscript, played: Played) -> None:
    """Hold what came of each epoch against what the transcript says.

    Raises:
        AssertionError: with the whole script, and what is more and less in it.
    """
    wanted = [*transcript.epochs, transcript.end]
    expected, received = list[str](), list[str]()
    for number, (epoch, items) in enumerate(zip(wanted, played.epochs, strict=True)):
        title = f"epoch {number + 1}" if epoch is not transcript.end else "end of input"
        expected += [title, *_expected(transcript, [epoch])]
        received += [title, *_received(transcript, items)]
        if epoch.keys is not None and played.keys is not None:
            expected.append(f"  keys    {epoch.keys}")
            received.append(f"  keys    {played.keys[number]}")
    if played.counts is not None:
        expected += [f"counted {what}: {count}" for what, count in transcript.counts.items()]
        received += [f"counted {what}: {count}" for what, count in played.counts.items()]
    _compare(transcript, expected, received)


def check_batch(transcript: WindowTranscript, items: Items) -> None:
    """Hold what came of a batch, all in all, against what the transcript says.

    Raises:
        AssertionError: with the whole script, and what is more and less in it.
    """
    wanted = _expected(transcript, transcript.batch)
    _compare(transcript, wanted, _received(transcript, items))


def _expected(transcript: WindowTranscript, epochs: Sequence[WindowEpoch]) -> list[str]:
    notation, lines = transcript.notation, list[str]()
    for port in PORTS:
        said = [line for epoch in epochs for line in epoch.lines[port]]
        lines += _by_key(port, (notation.rewritten(port, line) for line in said))
    return lines


def _received(transcript: WindowTranscript, items: Items) -> list[str]:
    notation, lines = transcript.notation, list[str]()
    for port in PORTS:
        written = ((key, notation.written(port, key, item)) for key, item in items[port])
        lines += _by_key(port, written)
    return lines


def _by_key(port: str, lines: Iterable[tuple[str, str]]) -> list[str]:
    """The lines of a stream: the keys one after the other, the lines of a key in order."""
    by_key = grouped(lines)
    return [f"  {port:7} {line}" for key in sorted(by_key) for line in by_key[key]]


def _compare(transcript: WindowTranscript, expected: list[str], received: list[str]) -> None:
    if expected != received:
        lines = difflib.ndiff(expected, received)
        difference = "\n".join(line for line in lines if not line.startswith("?"))
        raise AssertionError(
            f"{transcript.name}: {transcript.behaviour}\n"
            f"(- is expected and did not come, + came and is not expected)\n{difference}"
        )
