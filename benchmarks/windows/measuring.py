"""The measurement of works: fresh processes, contestants in turn, a comparison of answers."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.windows.answers import Answer, answer_in
from benchmarks.windows.data import FILES, Events, last_us, make
from benchmarks.windows.interpreters import interpreter_with
from benchmarks.windows.job import Figure, Job
from benchmarks.windows.works import Contestant, Scale, Work

ROOT = Path(__file__).resolve().parents[2]
WARM_ROWS = 20_000
PATIENCE = 600.0
"""The seconds from the start of a contestant's process after which it is stopped."""
Say = Callable[[str], None]


class MeasurementError(Exception):
    """A contestant has no result."""


class StoppedError(MeasurementError):
    """A contestant was stopped, since it took longer than the patience."""


@dataclass
class Standing:
    """The results of a contestant in a work.

    Attributes:
        figures: the result of each run.
        answer: the summary of the first run's output.
        problem: the reason for missing results; empty if there are none missing.
        stopped_after: the seconds after which the contestant was stopped; ``None`` if it was not.
    """

    figures: list[Figure] = field(default_factory=list)
    answer: Answer | None = None
    problem: str = ""
    stopped_after: float | None = None

    @property
    def failed(self) -> bool:
        """True if the contestant failed for another reason than time."""
        return bool(self.problem) and self.stopped_after is None

    @property
    def median(self) -> float | None:
        """The median of the runs; ``None`` without runs."""
        return statistics.median(one.value for one in self.figures) if self.figures else None


@dataclass
class Measured:
    """The results of all contestants of a work, by their names."""

    work: Work
    standings: dict[str, Standing]

    @property
    def disagreement(self) -> str:
        """The answers that differ from the first contestant's; empty if all agree."""
        answers = {
            name: one.answer for name, one in self.standings.items() if one.answer is not None
        }
        first = next(iter(answers.values()), None)
        others = [f"{name}: {answer}" for name, answer in answers.items() if answer != first]
        return "" if not others else f"not {first} but {', '.join(others)}"


@dataclass(frozen=True)
class Bench:
    """The folder, the scale and the number of runs of measurements.

    Attributes:
        home: the folder for data, and for the outputs of contestants.
        scale: the size of the works.
        runs: the number of runs of each contestant.
        say: called with the progress as text.
        patience: the seconds after which a contestant is stopped.
    """

    home: Path
    scale: Scale
    runs: int
    say: Say
    patience: float = PATIENCE

    def measure(self, work: Work) -> Measured:
        """Run all contestants of a work, in turn, `runs` times."""
        self.say(f"{work.name}: {work.title}")
        folders = self.data_of(work.events)
        measured = Measured(work, {one.name: Standing() for one in work.contestants})
        for run in range(self.runs):
            for contestant in work.contestants:
                standing = measured.standings[contestant.name]
                if not standing.problem:
                    self._once(work, contestant, standing, folders, first=run == 0)
        if measured.disagreement:
            self.say(f"  THE ANSWERS DIFFER: {measured.disagreement}")
        return measured

    def run_contestant(self, contestant: Contestant, job: Job, root: Path = ROOT) -> Figure:
        """Run a contestant's job in a process of its own, with the packages of a checkout.

        Raises:
            StoppedError: when the contestant takes longer than the patience.
            MeasurementError: when the contestant fails; the message has its last lines of output.
        """
        python = interpreter_with(contestant.needs, self.home)
        if python is None:
            raise MeasurementError(f"{contestant.needs} is not installed")
        scratch = Path(job.scratch)
        job_file, figure_file = scratch / "job.json", scratch / "figure.json"
        log = scratch / "log.txt"
        job_file.write_text(json.dumps(asdict(job)))
        module = "benchmarks.windows.contestant"
        arguments = contestant.module, contestant.function, str(job_file), str(figure_file)
        with log.open("w") as output:
            try:
                subprocess.run(
                    [python, "-m", module, *arguments],
                    cwd=root,
                    env=_environment(python, root),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    timeout=self.patience,
                    check=True,
                )
            except subprocess.TimeoutExpired as error:
                raise StoppedError(f"over {self.patience:g} s, stopped") from error
            except subprocess.SubprocessError as error:
                raise MeasurementError(f"it failed:\n{_last_lines(log)}") from error
        return Figure(**json.loads(figure_file.read_text()))

    def job(self, work: Work, contestant: Contestant, folders: tuple[Path, Path] | None) -> Job:
        """Return the job of a contestant, and make its empty folders."""
        place = self.home / "runs" / work.name
        shutil.rmtree(place, ignore_errors=True)
        (place / "scratch").mkdir(parents=True)
        data, warm = map(str, folders or ("", ""))
        rows = work.events.rows if work.events else self.scale.rows
        return Job(
            data,
            warm,
            str(place / "out"),
            str(place / "scratch"),
            rows,
            rows * self.scale.files_per_epoch // FILES,
            self.scale.files_per_epoch,
            contestant.cores or self.scale.cores,
            {**work.settings, **contestant.settings},
        )

    def data_of(self, events: Events | None) -> tuple[Path, Path] | None:
        """Return the folders of a data set and of a small one for the warm-up, made if needed."""
        if events is None:
            return None
        few = Events(min(events.rows, WARM_ROWS), events.keys, events.spread, events.form)
        data = self.home / "data"
        return make(events, data), make(few, data)

    def answer(self, work: Work, job: Job) -> Answer | None:
        """Return the summary of the output of a job; ``None`` for works without a data set."""
        if work.events is None:
            return None
        return answer_in(Path(job.out), work.figures, work.windows, last_us(Path(job.data)))

    def _once(
        self,
        work: Work,
        contestant: Contestant,
        standing: Standing,
        folders: tuple[Path, Path] | None,
        first: bool,
    ) -> None:
        started = time.monotonic()
        job = self.job(work, contestant, folders)
        try:
            standing.figures.append(self.run_contestant(contestant, job))
            if first and contestant.has_answer:
                standing.answer = self.answer(work, job)
            outcome = f"{standing.figures[-1].value:,.2f} {work.unit}"
        except MeasurementError as error:
            standing.problem = outcome = str(error)
            if isinstance(error, StoppedError):
                standing.stopped_after = self.patience
        shutil.rmtree(Path(job.scratch).parent, ignore_errors=True)
        self.say(f"  {contestant.name}: {outcome} ({time.monotonic() - started:.0f} s in all)")


def _environment(python: str, root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root), "PYSPARK_PYTHON": python}


def _last_lines(log: Path, count: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


def as_json(measured: Iterable[Measured]) -> list[dict[str, Any]]:
    """Return all results, for the results file."""
    return [
        {
            "work": one.work.name,
            "title": one.work.title,
            "unit": one.work.unit,
            "target": None if one.work.target is None else str(one.work.target),
            "contestants": {name: asdict(standing) for name, standing in one.standings.items()},
            "disagreement": one.disagreement,
        }
        for one in measured
    ]
