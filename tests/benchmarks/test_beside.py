"""Works and kernels in two checkouts: pairs of runs, ratios and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import compare
from benchmarks.kernels import run
from benchmarks.windows.answers import Answer
from benchmarks.windows.beside import Row, measure_row, table
from benchmarks.windows.data import FILES, Events
from benchmarks.windows.flows import deduplicated_flow
from benchmarks.windows.measuring import Bench, MeasurementError
from benchmarks.windows.works import Contestant, Scale, Work
from flow.testing import TestDriver, TestingSink, TestingSource

OURS = Contestant("streaming", "ours", "streaming")
WORK = Work("sums", "sums of minutes", (OURS,))

# In the place of the module that runs a contestant: notes its checkout, and measures two seconds.
CONTESTANT = """
import os, sys
with open(os.path.join("..", "order"), "a") as order:
    order.write(os.path.basename(os.environ["PYTHONPATH"]))
with open(sys.argv[4], "w") as figure:
    figure.write('{"value": 2.0}')
"""


def checkout(folder: Path, program: str = CONTESTANT) -> Path:
    module = folder / "benchmarks" / "windows" / "contestant.py"
    module.parent.mkdir(parents=True)
    module.write_text(program)
    return folder


def row(here: list[float], there: list[float], *answers: Answer) -> Row:
    return Row("sums, streaming", "s", here, there, list(answers))


def test_a_pair_begins_with_the_side_that_ended_the_pair_before(tmp_path: Path) -> None:
    sides = checkout(tmp_path / "A"), checkout(tmp_path / "B")
    messages: list[str] = []
    bench = Bench(tmp_path / "home", Scale(), 1, messages.append)
    assert measure_row(bench, WORK, OURS, sides, pairs=3) == Row(
        "sums, streaming", "s", [2.0, 2.0, 2.0], [2.0, 2.0, 2.0], [None]
    )
    assert (tmp_path / "order").read_text() == "ABBAAB"
    assert messages == ["sums, streaming: sums of minutes", *["  2.00 s, beside 2.00"] * 3]


def test_a_failure_names_its_checkout(tmp_path: Path) -> None:
    sides = checkout(tmp_path / "A"), checkout(tmp_path / "B", "raise SystemExit('no such row')")
    bench = Bench(tmp_path / "home", Scale(), 1, lambda _: None)
    with pytest.raises(MeasurementError, match=f"{sides[1]}: it failed:\nno such row"):
        measure_row(bench, WORK, OURS, sides, pairs=1)


@pytest.mark.parametrize("main", [compare.main, run.main])
def test_a_folder_that_is_no_checkout_is_refused(
    main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--beside", str(tmp_path)])
    assert f"{tmp_path} is no checkout: it has no folder benchmarks" in capsys.readouterr().err


def test_the_median_of_the_ratios_of_pairs_decides() -> None:
    # The medians of the two sides, 4 and 2, have another ratio.
    assert row([1.0, 4.0, 8.4], [1.0, 2.0, 8.0]).verdict == ""
    assert row([1.06, 4.0, 8.0], [1.0, 2.0, 8.0]).verdict == "SLOWER"


def test_a_first_side_that_is_always_slower_does_not_decide() -> None:
    assert row([3.0, 2.0], [2.0, 3.0]).ratio == 1.0
    assert row([3.0, 2.0, 2.1, 3.0], [2.0, 3.0, 3.0, 2.0]).verdict == ""


def test_outputs_that_differ_are_a_problem_at_any_speed() -> None:
    answers = Answer(1, {"total": 2.0}, "00"), Answer(1, {"total": 3.0}, "00")
    assert row([1.0], [2.0], *answers).verdict == "ANSWERS DIFFER"


def test_the_table_has_medians_and_spreads() -> None:
    lines = table([row([1.0, 3.0, 4.0], [1.0, 1.5, 2.0])]).splitlines()
    assert [line.split() for line in lines] == [
        ["row", "here", "there", "ratio"],
        [
            *("sums,", "streaming,", "s", "3.00", "(1.00..4.00)", "1.50", "(1.00..2.00)"),
            *("2.00", "(1.00..2.00)", "SLOWER"),
        ],
    ]


def test_a_kernel_may_take_three_percent_more_than_in_the_other_checkout() -> None:
    text = run.beside({"sums": 103.0, "hashes": 1_031.0}, {"sums": 100.0, "hashes": 1_000.0})
    assert [line.split() for line in text.splitlines()] == [
        ["kernel", "here", "there", "ratio"],
        ["sums", "103.0", "100.0", "1.030"],
        ["hashes", "1,031.0", "1,000.0", "1.031", "MORE"],
    ]


def test_the_deduplication_passes_an_event_of_each_key_a_minute() -> None:
    """The events last 144 s, with one of each key in 0.4 s."""
    flow = deduplicated_flow(TestingSource(()), TestingSink([]))
    events = Events(20_000, keys=50)
    with TestDriver(flow) as driver:
        driver.send(
            "events", [row for part in range(FILES) for row in events.table(part).to_pylist()]
        )
        driver.end()
        received = driver.received("out")
    assert len(received) == 3 * 50
    assert list(received[0]) == ["key", "open_time", "close_time", "amount"]
