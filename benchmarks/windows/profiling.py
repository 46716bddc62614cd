"""The profile of a streaming epoch: Spark's own times, and samples of the workers."""

from __future__ import annotations

import importlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.windows.job import Figure, Job
from benchmarks.windows.measuring import Bench
from benchmarks.windows.sampling import FOLDER_VARIABLE, WAITING, Look, Seen, seen_in
from benchmarks.windows.works import Contestant, Work

PLACES = 15
"""The number of functions in the report."""

DURATIONS = {
    "latestOffset": "asking the sources how far to read",
    "queryPlanning": "planning the query",
    "walCommit": "writing the log of offsets",
    "addBatch": "running the epoch",
    "commitOffsets": "writing the log of commits",
    "commitBatch": "telling the sources",
}
"""The parts of an epoch, by Spark's names."""

STATE = {
    "allUpdatesTimeMs": "state tasks, until their rows are through",
    "allRemovalsTimeMs": "state tasks, removing",
    "commitTimeMs": "state tasks, committing the stores",
}


def profile_work(bench: Bench, work: Work) -> str:
    """Run this library's contestant of a work once, streaming if possible, and return a report."""
    ours = next((one for one in work.ours if one.name == "streaming"), work.ours[-1])
    watched = Contestant(
        ours.name, "profiling", "watched", settings={**ours.settings, "like": _place(ours)}
    )
    bench.say(f"{work.name}: {work.title}, watched")
    job = bench.job(work, watched, bench.data_of(work.events))
    return report(bench.run_contestant(watched, job))


def _place(contestant: Contestant) -> list[str]:
    return [contestant.module, contestant.function]


def watched(job: Job) -> Figure:
    """Run another contestant's measurement, with the stacks of the workers sampled."""
    folder = Path(job.scratch) / "samples"
    folder.mkdir()
    os.environ[FOLDER_VARIABLE] = str(folder)
    module, function = job.settings["like"]
    conf = {"spark.python.daemon.module": "benchmarks.windows.profiled_daemon"}
    job.settings["conf"] = {**job.settings.get("conf", {}), **conf}
    contestant = importlib.import_module(f"benchmarks.windows.{module}")
    figure: Figure = getattr(contestant, function)(job)
    seen = [[*look, *times] for look, times in seen_in(folder).items()]
    return Figure(figure.value, {**figure.details, "seen": seen})


def report(figure: Figure) -> str:
    """Return the report of a profile: a few short tables."""
    epochs = figure.details.get("epochs", [])
    seen = {Look(*row[:2]): Seen(*row[2:]) for row in figure.details["seen"]}
    parts = [_of_epochs(epochs)] if epochs else []
    parts += [_of_workers(seen), _of_places(seen)]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _of_epochs(epochs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    milliseconds: Counter[str] = Counter()
    for epoch in epochs:
        milliseconds.update(epoch["durationMs"])
        for operator in epoch["stateOperators"]:
            milliseconds.update({name: operator[name] for name in STATE})
    whole = milliseconds["triggerExecution"]
    yield f"{len(epochs)} epochs took {whole / 1000:.2f} s, by Spark's account:"
    for name, label in DURATIONS.items():
        share = milliseconds[name] / whole if whole else 0
        yield _line(label, milliseconds[name] / 1000, share)
    yield "of which, added up over partitions and levels:"
    for name, label in STATE.items():
        yield _line(label, milliseconds[name] / 1000, None)


def _of_workers(seen: Mapping[Look, Seen]) -> Iterator[str]:
    wall, cpu = defaultdict[str, float](float), defaultdict[str, float](float)
    for look, times in seen.items():
        wall[look.purpose] += times.wall
        cpu[look.purpose] += times.cpu
    busy = sum(cpu.values()) - cpu[WAITING]
    yield "In the Python workers, added up, with what was done to warm up; share of the work:"
    yield f"  {'':48}{'working':>9}{'':8}{'passed':>9}"
    for purpose, seconds in sorted(cpu.items(), key=lambda one: -one[1]):
        if purpose != WAITING:
            line = _line(purpose, seconds, seconds / busy if busy else 0)
            yield f"{line}{wall[purpose]:>8.2f} s"


def _of_places(seen: Mapping[Look, Seen]) -> Iterator[str]:
    busy = sum(times.cpu for look, times in seen.items() if look.purpose != WAITING)
    yield "The functions they worked longest in, with the libraries called from there:"
    ordered = sorted(seen.items(), key=lambda one: -one[1].cpu)
    working = [(look, times) for look, times in ordered if look.purpose != WAITING]
    for look, times in working[:PLACES]:
        yield _line(look.place or look.purpose, times.cpu, times.cpu / busy if busy else 0)


def _line(label: str, seconds: float, share: float | None) -> str:
    part = "" if share is None else f"{share:>7.1%} "
    return f"  {label[-48:]:<48}{seconds:>7.2f} s{part}"
