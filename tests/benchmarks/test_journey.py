"""The functions that a row crosses: calls recorded by part, and a run of the batch engine."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from benchmarks.journey.run import counts, crossed, report
from benchmarks.journey.tracing import ROOT, Function, Tracer, journey_in

MOST_FILES, MOST_IN_LEVEL = 60, 36
"""The most files that a row may cross in all, and in the level."""

PROGRAM = """
class BatchJob:
    def frame(self):
        return sorted(key(n) for n in range(2))

def key(number): return number
def imported(): ...
def _find_and_load(): imported()
def run_batch(): BatchJob().frame(); other()
def other(): ...

def _level_partition():
    _find_and_load()
    return packets()

def packets():
    yield key(1)
    yield key(2)

class OutputTask:
    def write_all(self, items):
        for item in items:
            key(item)

run_batch()
OutputTask().write_all(_level_partition())
after = list(_level_partition())
"""


def test_a_call_belongs_to_its_innermost_caller_with_a_part_or_to_the_part_before(
    tmp_path: Path,
) -> None:
    """The items of `packets` are made after the return of its caller, as in a worker."""
    program = compile(PROGRAM, str(ROOT / "flow" / "program.py"), "exec")
    with Tracer(tmp_path):
        exec(program, {"__name__": "program"})
    names = {
        part: [function.name for function in functions]
        for part, functions in journey_in(tmp_path).items()
    }
    assert names == {
        "planning": ["BatchJob.frame", "key"],
        "reading": [],
        "level": ["_level_partition", "packets", "key"],
        "sink": ["OutputTask.write_all", "packets", "key"],
    }


def test_the_report_counts_a_file_and_a_function_once_in_all() -> None:
    split, read = Function("flow/a.py", "split"), Function("flow/a.py", "Source.read")
    push = Function("flow/b.py", "push")
    journey = {"planning": [split], "reading": [read, push, split]}
    assert list(report(journey)) == [
        *("planning     1 files     1 functions", "  flow/a.py", "      split"),
        *("reading      2 files     3 functions", "  flow/a.py", "      Source.read, split"),
        *("  flow/b.py", "      push", "in all       2 files     3 functions"),
    ]
    assert list(report(journey, only_counts=True)) == [
        "planning     1 files     1 functions",
        "reading      2 files     3 functions",
        "in all       2 files     3 functions",
    ]


@pytest.mark.spark
def test_a_row_is_planned_read_put_into_windows_and_written() -> None:
    journey = crossed()
    first = {part: functions[0].name for part, functions in journey.items()}
    assert (first["planning"], first["reading"]) == ("BatchJob.of", "_read_partition")
    assert (first["level"], first["sink"]) == ("_level_partition", "EpochOutputs.open")
    names = {part: {function.name for function in journey[part]} for part in journey}
    assert {"ParquetSource.cuts", "BatchJob.frame"} < names["planning"]
    assert {"FileSource.read_fields", "Pipeline.push"} < names["reading"]
    assert {"run_level", "ShardWindows._enter", "Emitter.emit_closed"} < names["level"]
    assert {"ParquetSink.write_parts", "DirectorySink.commit"} < names["sink"]
    assert "compile_flow" not in set().union(*names.values())
    assert MOST_IN_LEVEL >= counts(journey["level"])[0] > counts(journey["reading"])[0] > 10
    assert counts(chain.from_iterable(journey.values()))[0] <= MOST_FILES
    picture = (ROOT / "docs" / "journey.svg").read_text("utf-8")
    crossed_files = {function.file for functions in journey.values() for function in functions}
    assert {file for file in crossed_files if file not in picture} == set()
