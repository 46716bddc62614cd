"""The product's functions that a process calls, by the part of a batch run that calls them.

The part of a call is that of the innermost caller in `PARTS`. A call without such a caller, as in a
thread or in a generator that Spark resumes, belongs to the part of the call before.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER_VARIABLE = "FLOW_BENCHMARK_JOURNEY"

PLANNING, READING, LEVEL, SINK = "planning", "reading", "level", "sink"
NO_PART = ""
PARTS = {
    "BatchJob": PLANNING,
    "_read_partition": READING,
    "_level_partition": LEVEL,
    "TaskWriting": SINK,
    "OutputTask": SINK,
    "EpochOutputs": SINK,
    "run_batch": NO_PART,
    "run_traced": NO_PART,  # The driver, before and after the batch.
    "read_command": NO_PART,  # PySpark unpickles the function of a task.
    "_find_and_load": NO_PART,  # Python imports a module.
}
"""The part of what classes and functions call, by their names."""

_OF_PRODUCT = re.compile(rf"{re.escape(str(ROOT))}/((?:flow|flow_windowing|recovery)/.*)")
_INNER = re.compile(r"(\.<locals>)?\.<(lambda|genexpr|listcomp|setcomp|dictcomp)>")


class Function(NamedTuple):
    """A function or method of the product.

    Attributes:
        file: its file, relative to the project's folder.
        name: its qualified name; a lambda or comprehension has the name of the function around it.
    """

    file: str
    name: str


Journey = Mapping[str, list[Function]]
"""The functions of each part, in order of their first call."""


class Tracer:
    """Context manager that records calls of this thread, and of threads that start inside.

    The records are lines of a file of this process.

    Args:
        folder: the folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        # Spark ends workers with a signal, so each line is written at once.
        self._file = (folder / f"{uuid.uuid4().hex}.tsv").open("w", buffering=1)
        self._seen: set[tuple[str, Function]] = set()
        self._part = NO_PART

    def __enter__(self) -> None:
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self._file.close()

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not _is_function(code):
            return
        function = function_of(code.co_filename, code.co_qualname)
        if function is None or not (part := part_of(frame, self._part)):
            return
        self._part = part
        if (part, function) not in self._seen:
            self._seen.add((part, function))
            print(time.time_ns(), part, *function, sep="\t", file=self._file)


@cache
def function_of(path: str, name: str) -> Function | None:
    """Return the function of a code object by its path and name; ``None`` in other packages."""
    found = _OF_PRODUCT.fullmatch(path)
    return None if found is None else Function(found[1], _INNER.sub("", name))


def part_of(frame: FrameType, otherwise: str) -> str:
    """Return the part of a call by its callers, or another part if no caller has one."""
    caller: FrameType | None = frame
    while caller is not None:
        part = PARTS.get(caller.f_code.co_qualname.partition(".")[0])
        if part is not None and _is_function(caller.f_code):
            return part
        caller = caller.f_back
    return otherwise


def _is_function(code: CodeType) -> bool:
    """Return False for the code of a module or of a class's body, which imports run."""
    return bool(code.co_flags & CO_OPTIMIZED)


def journey_in(folder: Path) -> Journey:
    """Return the functions that all processes have recorded in a folder."""
    texts = (path.read_text("utf-8") for path in folder.glob("*.tsv"))
    lines = [line.split("\t") for text in texts for line in text.splitlines()]
    found: dict[str, dict[Function, None]] = {part: {} for part in PARTS.values() if part}
    for _, part, file, name in sorted(lines, key=lambda line: int(line[0])):
        found[part][Function(file, name)] = None
    return {part: list(functions) for part, functions in found.items()}
