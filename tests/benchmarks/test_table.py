"""The table of benchmark results."""

from __future__ import annotations

import pytest

from benchmarks.windows.answers import Answer
from benchmarks.windows.data import Events
from benchmarks.windows.job import Figure
from benchmarks.windows.measuring import Measured, Standing
from benchmarks.windows.table import as_markdown, as_text, lines_of, put_into
from benchmarks.windows.works import Contestant, Rule, Target, Work

OURS, PEER = Contestant("ours", "ours", "streaming"), Contestant("peer", "spark_peer", "streaming")
OTHER = Contestant("other", "duckdb_peer", "batch")
SUMS = Work(
    "sums",
    "sums of minutes",
    (OURS,),
    (PEER, OTHER),
    target=Target(Rule.TIMES_AS_FAST, 8),
    events=Events(rows=1_000_000, keys=10),
)


def standing(*seconds: float, answer: Answer | None = None) -> Standing:
    return Standing([Figure(one) for one in seconds], answer)


STOPPED = Standing(problem="over 60 s, stopped", stopped_after=60)


def test_medians_are_compared_with_the_best_peer() -> None:
    ours, peer, other = standing(0.9, 0.5, 0.1), standing(4.0, 5.0, 9.0), standing(8.0)
    assert lines_of(Measured(SUMS, {"ours": ours, "peer": peer, "other": other})) == [
        ("sums of minutes", "ours", "0.50 s", "2,000,000", "10.00x", "at least 8x as fast", "yes"),
        ("", "peer", "5.00 s", "200,000", "", "", ""),
        ("", "other", "8.00 s", "125,000", "", "", ""),
    ]


@pytest.mark.parametrize(
    ("peer", "other", "shown", "ratio", "reached"),
    [
        (standing(7.9), standing(9.0), "7.90 s", "7.90x", "no"),
        (Standing(problem="boom"), standing(9.0), "failed", "9.00x", "yes"),
        (STOPPED, standing(50.0), "over 60 s", "50.00x", "yes"),
        (STOPPED, STOPPED, "over 60 s", "", ""),
        (Standing(), Standing(), "failed", "", ""),
    ],
    ids=["target missed", "peer failed", "peer stopped", "all peers stopped", "no peers"],
)
def test_the_verdict_is_about_the_peers_that_finished(
    peer: Standing, other: Standing, shown: str, ratio: str, reached: str
) -> None:
    standings = {"ours": standing(1.0), "peer": peer, "other": other}
    lines = lines_of(Measured(SUMS, standings))
    assert lines[0][4:] == (ratio, "at least 8x as fast", reached)
    assert lines[1][1:3] == ("peer", shown)


def test_differing_answers_replace_the_verdict() -> None:
    right, wrong = Answer(2, {"total": 3.0}, "aa"), Answer(2, {"total": 3.5}, "ab")
    standings = {
        "ours": standing(1.0, answer=right),
        "peer": standing(9.0, answer=wrong),
        "other": standing(9.0),
    }
    measured = Measured(SUMS, standings)
    assert "peer" in measured.disagreement
    assert [line[-1] for line in lines_of(measured)] == ["ANSWERS DIFFER"] * 3


def test_milliseconds_are_whole_and_have_no_rate() -> None:
    work = Work("one", "one item", (OURS,), target=Target(Rule.AT_MOST, 300), unit="ms")
    [line] = lines_of(Measured(work, {"ours": standing(312.4)}))
    assert line == ("one item", "ours", "312 ms", "", "", "at most 300", "no")


def test_a_table_is_aligned_on_a_terminal_and_markdown_in_a_document() -> None:
    work = Work("one", "one item", (OURS,), target=Target(Rule.AT_MOST, 300), unit="ms")
    measured = [Measured(work, {"ours": standing(7.0)})]
    assert as_text(measured).splitlines() == [
        "work      who   median  rows/s  ratio  to reach     reached",
        "--------  ----  ------  ------  -----  -----------  -------",
        "one item  ours    7 ms                 at most 300  yes",
    ]
    assert as_markdown(measured, "measured today").splitlines() == [
        "measured today",
        "",
        "| work | who | median | rows/s | ratio | to reach | reached |",
        "|---|---|---:|---:|---:|---|---|",
        "| one item | ours | 7 ms |  |  | at most 300 | yes |",
    ]


@pytest.mark.parametrize(
    ("document", "then"),
    [
        (
            "# Speed\n<!-- figures -->\nold\n<!-- end of figures -->\nThe end.\n",
            "# Speed\n<!-- figures -->\nnew\n<!-- end of figures -->\nThe end.\n",
        ),
        ("", "new\n"),
        ("an older table\n", "new\n"),
    ],
)
def test_a_table_replaces_the_earlier_one_between_markers_or_the_file(
    document: str, then: str
) -> None:
    assert put_into(document, "new\n") == then
