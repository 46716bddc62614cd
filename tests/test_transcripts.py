"""Every transcript, played by every engine that can play it: the outputs must be the same."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.playing import ENGINES, Engine, Played, check, play, play_in_process
from tests.support.transcript import Transcript, builders, parse_transcript, read_transcripts

TRANSCRIPTS = read_transcripts()


@dataclass(frozen=True, eq=False)
class Group:
    """Transcripts that an engine plays together. Pytest compares groups by identity."""

    engine: Engine
    transcripts: list[Transcript]


def plays() -> list[Any]:
    """Return each transcript with each group of which it is a part.

    Transcripts of a group follow one another, so that pytest plays the group once. An ordinary run
    plays transcripts of two groups on Spark, on each version: one of each flow, with few moments
    of system time, as each is an epoch of the group.
    """
    params = []
    for engine in ENGINES:
        groups: dict[Hashable, Group] = {}
        for transcript in filter(engine.can_play, TRANSCRIPTS):
            group = groups.setdefault(engine.group(transcript), Group(engine, []))
            group.transcripts.append(transcript)
        played = set[str]()
        by_size = sorted(groups.values(), key=lambda group: -len(group.transcripts))
        for number, group in enumerate(by_size):
            for transcript in sorted(group.transcripts, key=lambda one: len(set(one.times))):
                is_first = number < 2 and transcript.flow not in played
                marks = marks_on(engine, is_first=is_first)
                played.add(transcript.flow)
                name = f"{engine}-{transcript}"
                params.append(pytest.param(group, transcript, id=name, marks=marks))
    return params


def marks_on(engine: Engine, *, is_first: bool) -> list[pytest.MarkDecorator]:
    """Return the marks of a transcript, which may be the first of its flow in a large group."""
    if engine.on_spark is None:
        return [] if engine.is_ordinary else [pytest.mark.extended]
    if not is_first:
        return [pytest.mark.spark, pytest.mark.extended]
    return [pytest.mark.spark, pytest.mark.each_spark]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> dict[str, Played]:
    """The outputs of a group's transcripts, as far as this run tests them."""
    group: Group = request.param
    if len(group.transcripts) == 1:
        return play(group.engine, group.transcripts, lambda: request.getfixturevalue("spark"))
    tested = {
        str(item.callspec.params["transcript"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        if item.callspec.params.get("played") is group
    }
    chosen = [transcript for transcript in group.transcripts if transcript.name in tested]
    return play(group.engine, chosen, lambda: request.getfixturevalue("spark"))


# Without a scope, the parameter that is not a fixture would let the fixture live for one test only.
@pytest.mark.parametrize(("played", "transcript"), plays(), indirect=["played"], scope="module")
def test_every_engine_gives_the_outputs(played: dict[str, Played], transcript: Transcript) -> None:
    check(transcript, played[transcript.name])


def test_no_two_transcripts_show_the_same() -> None:
    behaviours = [transcript.behaviour for transcript in TRANSCRIPTS]
    assert sorted(behaviours) == sorted(set(behaviours))


def test_every_transcript_has_a_name_of_its_own() -> None:
    names = [transcript.name for transcript in TRANSCRIPTS]
    assert sorted(names) == sorted(set(names))


def test_every_builder_is_used() -> None:
    assert {transcript.flow for transcript in TRANSCRIPTS} == set(builders())


EXAMPLE = """
behaviour = "an example"
flow = "collect_window"
clock = "EventClock('at', '0s')"
windower = "TumblingWindower('10s')"
counts = { w.late = 1 }

[[epochs]]
in = ["k 1 a", "k 12 b", "k 3 c"]
down = ["k #0 [0, 10): a"]
late = ["k 3 c: late, watermark 12, missed #0 [0, 10)"]
keys.w = 1

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
    "the number of keys": ("keys.w = 1", "keys.w = 0"),
    "what was counted": ("late = 1", "late = 2"),
}
REFUSED = {
    "unknown: when": ("[end]", "[end]\nwhen = 1"),
    "unknown: clocks": ("clock =", "clocks ="),
    "missing: flow": ('flow = "collect_window"', ""),
    "system time never goes back": ("keys.w = 1", 'keys.w = 1\nnow = "-1"'),
    "has no ': '": ("[10, 20): b", "[10, 20)"),
}


def test_a_transcript_that_holds() -> None:
    example = parse_transcript("example", EXAMPLE)
    check(example, play_in_process(example))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_transcript_that_does_not_hold_fails(wrong: str) -> None:
    example = parse_transcript("example", EXAMPLE.replace(*WRONG[wrong]))
    with pytest.raises(AssertionError, match="example: an example"):
        check(example, play_in_process(example))


def test_a_failure_shows_the_whole_script_and_the_difference() -> None:
    example = parse_transcript("example", EXAMPLE.replace(": b", ": c"))
    with pytest.raises(AssertionError) as caught:
        check(example, play_in_process(example))
    assert str(caught.value).splitlines()[-5:] == [
        "  end of input",
        "-   down    k #1 [10, 20): c",
        "+   down    k #1 [10, 20): b",
        "    closed  k #1 [10, 20)",
        "  counted late of w: 1",
    ]


@pytest.mark.parametrize("problem", REFUSED)
def test_what_is_not_part_of_the_format_is_refused(problem: str) -> None:
    with pytest.raises(ValueError, match=f"example: .*{problem}"):
        parse_transcript("example", EXAMPLE.replace(*REFUSED[problem]))


@pytest.mark.parametrize("line", ["k #0 (0, 10]", "k @0 [0, 10)", "k #0 [0, 10): a", "k [0, 10)"])
def test_a_line_must_be_written_as_its_windows_are(line: str) -> None:
    example = parse_transcript("example", EXAMPLE.replace("keys.w = 1", f'closed = ["{line}"]'))
    with pytest.raises(ValueError, match=r"windows|not a line"):
        check(example, play_in_process(example))
