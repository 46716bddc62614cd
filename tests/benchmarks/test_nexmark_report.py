"""Timing of a Nexmark run, and its table of results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.nexmark.auction_house import AuctionHouse
from benchmarks.nexmark.measuring import Mark, Measured, Settings, measured
from benchmarks.nexmark.processor_time import processor_seconds
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.report import FLINK_PER_CORE, table
from benchmarks.nexmark.run import main
from benchmarks.nexmark.tables import Tables

SETTINGS = Settings(Tables(Path("nowhere"), 1_000, AuctionHouse()), "streaming", 2, 500)
BURN = "import time\nwhile time.process_time() < 0.4: pass"


def test_timing_starts_at_the_end_of_the_first_epoch() -> None:
    #                 rows  s     processors
    began = Mark(0, 100.0, 50.0)
    epochs = [Mark(460, 110.0, 60.0), Mark(920, 114.0, 66.0), Mark(920, 115.0, 67.0)]
    measurement = measured(began, epochs, Mark(0, 116.0, 68.0), SETTINGS)
    assert measurement == Measured(
        events=500.0, rows=460, seconds=5.0, core_seconds=7.0, whole_seconds=16.0
    )
    assert measurement.per_core == 500 / 7


def test_a_run_of_one_epoch_is_timed_as_a_whole() -> None:
    measurement = measured(Mark(0, 1.0, 5.0), [Mark(920, 4.0, 9.0)], Mark(0, 5.0, 9.5), SETTINGS)
    assert measurement == Measured(1_000.0, 920, 4.0, 4.5, whole_seconds=4.0)


def test_without_processor_times_all_given_cores_count() -> None:
    epochs = [Mark(460, 2.0, None), Mark(920, 5.0, None)]
    measurement = measured(Mark(0, 1.0, None), epochs, Mark(0, 6.0, None), SETTINGS)
    assert measurement.core_seconds == 6.0


def test_the_table_shows_the_median_run_beside_flink() -> None:
    runs = [Measured(1e6, 920_000, 10.0, 20.0 / faster, 12.0) for faster in (1, 4, 2)]
    lines = table({"q7": runs}, QUERIES).splitlines()
    assert lines[0].split() == [
        *["query", "rows", "s", "cores", "s,", "whole"],
        *["events/s/core", "Flink's", "ratio"],
    ]
    assert lines[2].split() == [
        *["q7", "highest", "bid", "920,000", "10.0", "1.00", "12.0"],
        *["100,000", "12,330", "8.1x"],
    ]


def test_every_query_has_a_published_figure() -> None:
    assert list(FLINK_PER_CORE) == list(QUERIES)


@pytest.mark.skipif(processor_seconds() is None, reason="the system does not say")
def test_processor_time_counts_children_that_run_and_that_have_ended() -> None:
    before = processor_seconds() or 0
    subprocess.run([sys.executable, "-c", BURN], check=True)
    ended = processor_seconds() or 0
    assert ended - before > 0.3
    with subprocess.Popen(
        [sys.executable, "-c", f"{BURN}\nprint(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert (processor_seconds() or 0) - ended > 0.3
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--queries=q5,q6", "no query 'q6': there are q5, q7, q8, q11, q12"),
        ("--events=49", "needs a whole number of at least 50, got '49'"),
        ("--runs=0", "needs a whole number of at least 1, got '0'"),
    ],
)
def test_invalid_arguments_are_refused(
    argument: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([argument])
    assert message in capsys.readouterr().err
