"""Playing transcripts: each alone in the in-process driver, or many together in one Spark run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, EpochReport, Stream, run
from flow.instants import from_us, instant_us
from flow.testing import TestDriver, TestingSink, TestingSource
from tests.support.epochs import EpochsSource, SourceEpoch
from tests.support.transcript import FLOWS, Epoch, Transcript, Wired

Received = dict[str, list[Any]]


@dataclass
class Played:
    """What each output received: all in all, and before the input ended."""

    received: Received
    before_end: Received | None = None


def chosen(request: pytest.FixtureRequest, test: str) -> list[Any]:
    """The transcripts that a test of this run is about, so that one alone is quick to play."""
    items = [item for item in request.session.items if getattr(item, "originalname", "") == test]
    mine = [item for item in items if item.path == request.path]
    return [item.callspec.params["transcript"] for item in mine]  # type: ignore[attr-defined]


def play_in_process(transcript: Transcript, shards: int) -> Played:
    """Play one transcript as a user's test would: move time, send items, end the input."""
    flow, outputs = Dataflow("transcript"), dict[str, str]()

    def add_input(name: str, step_id: str) -> Stream[Any]:
        return op.input(step_id, flow, TestingSource([]))

    def add_output(name: str, step_id: str, up: Stream[Any]) -> None:
        outputs[name] = step_id
        op.output(step_id, up, TestingSink([]))

    FLOWS[transcript.flow](Wired(flow, "", add_input, add_output), **transcript.options)
    with TestDriver(flow, now=transcript.start, shards=shards) as driver:
        now_us = 0
        for epoch in transcript.epochs:
            if epoch.time_us > now_us:
                driver.advance(from_us(epoch.time_us) - from_us(now_us))
                now_us = epoch.time_us
            if epoch.inputs:
                driver.send_parts({name: epoch.parts(name) for name in epoch.inputs})
        before_end = {name: list(driver.received(to)) for name, to in outputs.items()}
        driver.end()
        return Played({name: driver.received(to) for name, to in outputs.items()}, before_end)


def play_on_spark(
    transcripts: Sequence[Transcript], spark: SparkSession, engine: Any, **options: Any
) -> dict[str, Played]:
    """Play transcripts with the same times as parts of one flow, in one job or one query."""
    together = _Together(transcripts)
    start = transcripts[0].start
    summary = run(
        together.flow,
        spark=spark,
        engine=engine,
        system_time=start,
        on_epoch=together.on_epoch,
        **options,
    )
    if engine == "streaming":
        epochs = len(together.times) + 1
        assert summary.epochs == epochs, "every epoch that is written down ran once, and the end"
    return together.played()


def timeline(transcript: Transcript) -> tuple[int, tuple[int, ...]]:
    """What transcripts must have in common to be played together."""
    return instant_us(transcript.start), transcript.times


class _Together:
    """Many transcripts as one flow. Each has as many epochs at a time as the one with most."""

    def __init__(self, transcripts: Sequence[Transcript]) -> None:
        self.flow = Dataflow("transcripts")
        self.times = _common_times(transcripts)
        self._transcripts = transcripts
        self._received: dict[str, Received] = defaultdict(dict)
        self._before_end: dict[str, Received] | None = None
        for number, transcript in enumerate(transcripts):
            self._add(f"t{number}.", transcript)

    def on_epoch(self, report: EpochReport) -> None:
        """Keep what has come before the end."""
        if report.system_time is not None and not report.end_of_input:
            self._before_end = {
                name: {output: list(items) for output, items in received.items()}
                for name, received in self._received.items()
            }

    def played(self) -> dict[str, Played]:
        """What each transcript's outputs received."""
        before = self._before_end
        return {
            one.name: Played(self._received[one.name], before and before[one.name])
            for one in self._transcripts
        }

    def _add(self, prefix: str, transcript: Transcript) -> None:
        def add_input(name: str, step_id: str) -> Stream[Any]:
            return op.input(step_id, self.flow, self._source(transcript, name))

        def add_output(name: str, step_id: str, up: Stream[Any]) -> None:
            items = self._received[transcript.name][name] = list[Any]()
            op.output(step_id, up, TestingSink(items))

        wired = Wired(self.flow, prefix, add_input, add_output)
        FLOWS[transcript.flow](wired, **transcript.options)

    def _source(self, transcript: Transcript, name: str) -> EpochsSource:
        waiting: dict[int, list[Epoch]] = defaultdict(list)
        for epoch in transcript.epochs:
            waiting[epoch.time_us].append(epoch)
        epochs, before_us = list[SourceEpoch](), 0
        for time_us in self.times:
            parts = waiting[time_us].pop(0).parts(name) if waiting[time_us] else ()
            epochs.append(SourceEpoch(parts, from_us(time_us) - from_us(before_us)))
            before_us = time_us
        return EpochsSource(tuple(epochs))


def _common_times(transcripts: Sequence[Transcript]) -> list[int]:
    """The time of every epoch that all transcripts together need."""
    needed: dict[int, int] = defaultdict(int)
    for transcript in transcripts:
        for time_us in transcript.times:
            here = sum(epoch.time_us == time_us for epoch in transcript.epochs)
            needed[time_us] = max(needed[time_us], here)
    return [time_us for time_us in sorted(needed) for _ in range(needed[time_us])]
