"""The table of benchmark results."""

from __future__ import annotations

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


def test_medians_are_compared_with_the_best_peer() -> None:
    standings = {
        "ours": standing(0.9, 0.5, 0.1),
        "peer": standing(4.0, 5.0, 9.0),
        "other": standing(8.0),
    }
    assert lines_of(Measured(SUMS, standings)) == [
        (
            "sums of minutes",
            "ours",
            "0.50 s",
            "2,000,000",
            "10.00x",
            "at least 8x as fast",
            "yes",
        ),
        ("", "peer", "5.00 s", "200,000", "", "", ""),
        ("", "other", "8.00 s", "125,000", "", "", ""),
    ]


def test_a_missed_target_is_shown() -> None:
    standings = {"ours": standing(1.0), "peer": standing(7.9), "other": standing(9.0)}
    assert lines_of(Measured(SUMS, standings))[0][4:] == ("7.90x", "at least 8x as fast", "no")


def test_a_peer_that_failed_leaves_its_figures_out() -> None:
    standings = {"ours": standing(1.0), "peer": Standing(problem="boom"), "other": standing(9.0)}
    lines = lines_of(Measured(SUMS, standings))
    assert lines[0][4:] == ("9.00x", "at least 8x as fast", "yes")
    assert lines[1][1:4] == ("peer", "failed", "")


STOPPED = Standing(problem="over 60 s, stopped", stopped_after=60)


def test_the_ratio_is_empty_if_all_peers_were_stopped() -> None:
    lines = lines_of(Measured(SUMS, {"ours": standing(1.5), "peer": STOPPED, "other": STOPPED}))
    assert lines[0][4:] == ("", "at least 8x as fast", "")
    assert lines[1][1:4] == ("peer", "over 60 s", "")


def test_stopped_peers_are_left_out_if_others_finished() -> None:
    lines = lines_of(Measured(SUMS, {"ours": standing(1), "peer": STOPPED, "other": standing(50)}))
    assert lines[0][4:] == ("50.00x", "at least 8x as fast", "yes")


def test_the_verdict_is_empty_without_a_peer() -> None:
    standings = {"ours": standing(1.0), "peer": Standing(), "other": Standing()}
    assert lines_of(Measured(SUMS, standings))[0][4:] == ("", "at least 8x as fast", "")


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


def test_columns_are_aligned_on_a_terminal() -> None:
    work = Work("one", "one item", (OURS,), unit="ms")
    assert as_text([Measured(work, {"ours": standing(7.0)})]).splitlines() == [
        "work      who   median  rows/s  ratio  to reach  reached",
        "--------  ----  ------  ------  -----  --------  -------",
        "one item  ours    7 ms",
    ]


def test_markdown_has_a_headline_and_a_row_for_each_line() -> None:
    work = Work("one", "one item", (OURS,), target=Target(Rule.AT_MOST, 300), unit="ms")
    assert as_markdown(
        [Measured(work, {"ours": standing(7.0)})], "measured today"
    ).splitlines() == [
        "measured today",
        "",
        "| work | who | median | rows/s | ratio | to reach | reached |",
        "|---|---|---:|---:|---:|---|---|",
        "| one item | ours | 7 ms |  |  | at most 300 | yes |",
    ]


def test_a_table_replaces_the_earlier_one_in_a_document() -> None:
    document = "# Speed\n<!-- figures -->\nold\n<!-- end of figures -->\nThe end.\n"
    assert put_into(document, "new\n") == (
        "# Speed\n<!-- figures -->\nnew\n<!-- end of figures -->\nThe end.\n"
    )


def test_a_file_without_markers_is_replaced_by_the_table() -> None:
    assert put_into("", "new\n") == "new\n"
    assert put_into("an older table\n", "new\n") == "new\n"
