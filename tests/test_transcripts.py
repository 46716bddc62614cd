"""Every transcript, through every engine that can play it: the results must be the same."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import groupby

import pytest
from pyspark.sql import SparkSession

import tests.transcripts
from tests.support.playing import Played, chosen, play_in_process, play_on_spark, timeline
from tests.support.transcript import FLOWS, Transcript, check

MODULES = [
    importlib.import_module(f"tests.transcripts.{module.name}")
    for module in pkgutil.iter_modules(tests.transcripts.__path__)
]
TRANSCRIPTS: list[Transcript] = [one for module in MODULES for one in module.TRANSCRIPTS]
STILL = [one for one in TRANSCRIPTS if len(one.times) == 1]

on_transcripts = pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
on_still_transcripts = pytest.mark.parametrize("transcript", STILL, ids=str)


def hold(transcript: Transcript, played: Played, *, mixed: bool = False) -> None:
    check(transcript.expected, played.received, mixed=mixed)
    if transcript.before_end is not None and played.before_end is not None:
        check(transcript.before_end, played.before_end)


def test_every_transcript_has_a_name_of_its_own() -> None:
    names = [transcript.name for transcript in TRANSCRIPTS]
    assert sorted(names) == sorted(set(names))


def test_every_builder_is_used() -> None:
    assert {transcript.flow for transcript in TRANSCRIPTS} == set(FLOWS)


@pytest.mark.parametrize("shards", [1, 32])
@on_transcripts
def test_in_process(transcript: Transcript, shards: int) -> None:
    hold(transcript, play_in_process(transcript, shards))


@pytest.fixture(scope="module")
def in_a_batch(request: pytest.FixtureRequest, spark: SparkSession) -> dict[str, Played]:
    """All transcripts in which time stands still, in one Spark job."""
    transcripts = sorted(chosen(request, "test_in_a_batch"), key=timeline)
    played: dict[str, Played] = {}
    for _, together in groupby(transcripts, key=timeline):
        played |= play_on_spark(list(together), spark, "batch", shards=8)
    return played


@pytest.mark.spark
@on_still_transcripts
def test_in_a_batch(transcript: Transcript, in_a_batch: dict[str, Played]) -> None:
    hold(transcript, in_a_batch[transcript.name], mixed=True)


@pytest.fixture(scope="module")
def in_a_query(request: pytest.FixtureRequest, spark: SparkSession) -> dict[str, Played]:
    """All transcripts with the same times in one streaming query."""
    transcripts = sorted(chosen(request, "test_in_a_query"), key=timeline)
    played: dict[str, Played] = {}
    for _, together in groupby(transcripts, key=timeline):
        played |= play_on_spark(list(together), spark, "streaming", shards=8)
    return played


@pytest.mark.spark
@on_transcripts
def test_in_a_query(transcript: Transcript, in_a_query: dict[str, Played]) -> None:
    hold(transcript, in_a_query[transcript.name])
