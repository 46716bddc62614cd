"""This checkout beside another one: the same works in pairs of runs, with a verdict.

The two sides of a pair run one after the other, and the first side of a pair is the second of the
next, so that a change in the speed of the machine affects both. Each side has the packages of its
checkout, benchmarks too, with the interpreter and the data of this process. The ratio of this
checkout to the other is the median of the ratios of pairs; more than `MOST_RATIO` is slower.
"""

from __future__ import annotations

import math
import shutil
import statistics
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.windows.answers import Answer
from benchmarks.windows.measuring import ROOT, Bench, MeasurementError
from benchmarks.windows.works import Contestant, Work

PAIRS = 10
MOST_RATIO = 1.05


@dataclass(frozen=True)
class Row:
    """A contestant of this library in a work: the figures of both checkouts, pair by pair.

    Attributes:
        name: the name of the row.
        unit: the unit of the figures; less is better.
        here: the figures of this checkout.
        there: the figures of the other checkout.
        answers: the different summaries of outputs, at most one if the checkouts agree.
    """

    name: str
    unit: str
    here: list[float] = field(default_factory=list)
    there: list[float] = field(default_factory=list)
    answers: list[Answer | None] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """The ratio of each pair."""
        return [ours / theirs for ours, theirs in zip(self.here, self.there, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the ratios: of an even number, the geometric mean of the middle two.

        The side that runs first may be slower in each pair, such as 1.5 and 1 / 1.5 in turn.
        """
        return math.sqrt(statistics.median_low(self.ratios) * statistics.median_high(self.ratios))

    @property
    def verdict(self) -> str:
        """The problem of the row; empty if this checkout is not slower."""
        if len(self.answers) > 1:
            return "ANSWERS DIFFER"
        return "SLOWER" if self.ratio > MOST_RATIO else ""


def checkout(text: str) -> Path:
    """Return the folder of a checkout, given on the command line.

    Raises:
        ArgumentTypeError: when the folder has no benchmarks.
    """
    folder = Path(text).resolve()
    if not (folder / "benchmarks").is_dir():
        raise ArgumentTypeError(f"{folder} is no checkout: it has no folder benchmarks")
    return folder


def measure_beside(bench: Bench, works: Sequence[Work], other: Path, pairs: int = PAIRS) -> int:
    """Measure works in two checkouts and print a table; 1 if a row is slower, differs or fails."""
    rows, failed = list[Row](), False
    for work in works:
        for contestant in work.ours:
            try:
                rows.append(measure_row(bench, work, contestant, (ROOT, other), pairs))
            except MeasurementError as error:
                bench.say(f"  {error}")
                failed = True
    print(table(rows))
    return int(failed or any(row.verdict for row in rows))


def measure_row(
    bench: Bench, work: Work, contestant: Contestant, checkouts: tuple[Path, Path], pairs: int
) -> Row:
    """Run a contestant in pairs, each in both checkouts.

    Raises:
        MeasurementError: when a run fails; the message has the checkout.
    """
    row = Row(f"{work.name}, {contestant.name}", work.unit)
    sides = [*zip(checkouts, (row.here, row.there), strict=True)]
    folders = bench.data_of(work.events)
    bench.say(f"{row.name}: {work.title}")
    for number in range(pairs):
        for root, figures in sides if number % 2 == 0 else reversed(sides):
            job = bench.job(work, contestant, folders)
            try:
                figures.append(bench.run_contestant(contestant, job, root).value)
            except MeasurementError as error:
                raise MeasurementError(f"{root}: {error}") from error
            answer = bench.answer(work, job)
            if answer not in row.answers:
                row.answers.append(answer)
            # A process of Spark that is ending may still write there; the folder goes with `bench`.
            shutil.rmtree(Path(job.scratch).parent, ignore_errors=True)
        bench.say(f"  {row.here[-1]:,.2f} {row.unit}, beside {row.there[-1]:,.2f}")
    return row


def table(rows: Sequence[Row]) -> str:
    """Return a line for each row: medians and ratio, each with its least and greatest value."""
    lines = [f"{'row':32}{'here':>24}{'there':>24}{'ratio':>24}"]
    for row in rows:
        medians = statistics.median(row.here), statistics.median(row.there), row.ratio
        values = zip(medians, (row.here, row.there, row.ratios), strict=True)
        cells = (f"{median:,.2f} ({min(all_):,.2f}..{max(all_):,.2f})" for median, all_ in values)
        line = "".join(f"{cell:>24}" for cell in cells)
        lines.append(f"{f'{row.name}, {row.unit}':32}{line}  {row.verdict}".rstrip())
    return "\n".join(lines)
