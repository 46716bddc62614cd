"""Every window transcript, through every engine that can play it: the results must be the same."""

from __future__ import annotations

from itertools import groupby

import pytest
from pyspark.sql import SparkSession

from tests.support.playing import chosen
from tests.support.window_playing import (
    Items,
    Played,
    check,
    check_batch,
    play_in_a_batch,
    play_in_a_query,
    play_in_process,
)
from tests.support.window_transcripts import (
    WindowTranscript,
    parse_transcript,
    read_transcripts,
)

TRANSCRIPTS = read_transcripts()
STILL = [one for one in TRANSCRIPTS if one.stands_still]
CUTTABLE = [one for one in TRANSCRIPTS if not one.emits_by_epoch]

on_transcripts = pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
on_cuttable_transcripts = pytest.mark.parametrize("transcript", CUTTABLE, ids=str)
on_still_transcripts = pytest.mark.parametrize("transcript", STILL, ids=str)


def by_day(transcripts: list[WindowTranscript]) -> list[list[WindowTranscript]]:
    """The transcripts that can be played together."""
    ordered = sorted(transcripts, key=lambda one: one.day)
    return [list(together) for _, together in groupby(ordered, key=lambda one: one.day)]


def test_no_two_transcripts_show_the_same() -> None:
    behaviours = [transcript.behaviour for transcript in TRANSCRIPTS]
    assert sorted(behaviours) == sorted(set(behaviours))


EXAMPLE = """
behaviour = "an example"
clock = "EventClock('at', '0s')"
windower = "TumblingWindower('10s')"
operator = "collect_window"
counts = { late = 1 }

[[epochs]]
in = ["k 1 a", "k 12 b", "k 3 c"]
down = ["k #0 [0, 10): a"]
late = ["k 3 c: late, watermark 12, missed #0 [0, 10)"]
keys = 1

[end]
down = ["k #1 [10, 20): b"]
"""
WRONG = {
    "a window's id": ("#0 [0, 10): a", "#1 [0, 10): a"),
    "a window's bound": ("[10, 20)", "[10, 21)"),
    "merged ids": ("#0 [0, 10): a", "#0 [0, 10) merged #1: a"),
    "a timestamp": ("[10, 20)", "[10, 20) at 12"),
    "a value": (": b", ": c"),
    "a key": ('"k #1', '"j #1'),
    "a late value's time": ("k 3 c: late", "k 4 c: late"),
    "the watermark": ("watermark 12", "watermark 11"),
    "the reason": ("c: late", "c: gap"),
    "the window missed": (", missed #0 [0, 10)", ""),
    "an epoch": ("[end]", "[[epochs]]"),
    "what has closed": ("[end]", "[end]\nclosed = []"),
    "the number of keys": ("keys = 1", "keys = 0"),
    "what was counted": ("late = 1", "late = 2"),
}
REFUSED = {
    "unknown: when": ("[end]", "[end]\nwhen = 1"),
    "unknown: clocks": ("clock =", "clocks ="),
    "missing: operator": ('operator = "collect_window"', ""),
    "system time never goes back": ("keys = 1", 'keys = 1\nnow = "-1"'),
    "has no ': '": ("[10, 20): b", "[10, 20)"),
}


def test_a_transcript_that_holds() -> None:
    example = parse_transcript("example", EXAMPLE)
    check(example, play_in_process(example, 1))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_transcript_that_does_not_hold_fails(wrong: str) -> None:
    example = parse_transcript("example", EXAMPLE.replace(*WRONG[wrong]))
    with pytest.raises(AssertionError, match="example: an example"):
        check(example, play_in_process(example, 1))


def test_a_failure_shows_the_whole_script_and_the_difference() -> None:
    example = parse_transcript("example", EXAMPLE.replace(": b", ": c"))
    with pytest.raises(AssertionError) as caught:
        check(example, play_in_process(example, 1))
    assert str(caught.value).splitlines()[-5:] == [
        "  end of input",
        "-   down    k #1 [10, 20): c",
        "+   down    k #1 [10, 20): b",
        "    closed  k #1 [10, 20)",
        "  counted late: 1",
    ]


@pytest.mark.parametrize("problem", REFUSED)
def test_what_is_not_part_of_the_format_is_refused(problem: str) -> None:
    with pytest.raises(ValueError, match=f"example: .*{problem}"):
        parse_transcript("example", EXAMPLE.replace(*REFUSED[problem]))


@pytest.mark.parametrize("line", ["k #0 (0, 10]", "k @0 [0, 10)", "k #0 [0, 10): a", "k [0, 10)"])
def test_a_line_must_be_written_as_its_windows_are(line: str) -> None:
    example = parse_transcript("example", EXAMPLE.replace("keys = 1", f'closed = ["{line}"]'))
    with pytest.raises(ValueError, match=r"windows|not a line"):
        check(example, play_in_process(example, 1))


@pytest.mark.parametrize("shards", [1, 32])
@on_transcripts
def test_in_process(transcript: WindowTranscript, shards: int) -> None:
    check(transcript, play_in_process(transcript, shards))


@on_cuttable_transcripts
def test_an_epoch_for_each_item_changes_nothing(transcript: WindowTranscript) -> None:
    check(transcript, play_in_process(transcript, 32, singly=True))


@pytest.fixture(scope="module")
def in_a_batch(request: pytest.FixtureRequest, spark: SparkSession) -> dict[str, Items]:
    """All transcripts in which time stands still, in a Spark job for each day."""
    played: dict[str, Items] = {}
    for together in by_day(chosen(request, "test_in_a_batch")):
        played |= play_in_a_batch(together, spark)
    return played


@pytest.mark.spark
@on_still_transcripts
def test_in_a_batch(transcript: WindowTranscript, in_a_batch: dict[str, Items]) -> None:
    check_batch(transcript, in_a_batch[transcript.name])


@pytest.fixture(scope="module")
def in_a_query(request: pytest.FixtureRequest, spark: SparkSession) -> dict[str, Played]:
    """All transcripts, in a streaming query for each day."""
    played: dict[str, Played] = {}
    for together in by_day(chosen(request, "test_in_a_query")):
        played |= play_in_a_query(together, spark)
    return played


@pytest.mark.spark
@on_transcripts
def test_in_a_query(transcript: WindowTranscript, in_a_query: dict[str, Played]) -> None:
    check(transcript, in_a_query[transcript.name])
