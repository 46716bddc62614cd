"""Where the time of a Python worker goes, by looking at its stack at regular moments.

Each look is put down under the purpose of the innermost frame that has one: what Arrow or pickle do
is part of what they were called for.
"""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

FOLDER_VARIABLE = "FLOW_BENCHMARK_SAMPLES"
EVERY_SECONDS = 0.005
PUT_DOWN_SECONDS = 0.5

OURS = (
    ("sink", "flow/connectors/files/writing/"),
    ("sink", "flow/connectors/sink"),
    ("sink", "flow/engine/outputs"),
    ("sink", "flow/engine/epochs"),
    ("reading", "flow/connectors/"),
    ("reading", "flow/engine/reading"),
    ("user functions", "benchmarks/windows/flows"),
    ("windows", "flow_windowing/"),
    ("operators", "flow/operators/"),
    ("operators", "flow/paths"),
    ("state", "flow/engine/state"),
    ("packing", "flow/engine/packets"),
    ("packing", "flow/engine/rows"),
    ("packing", "flow/engine/chunks"),
    ("packing", "flow/engine/gathering"),
    ("packing", "flow/engine/shards"),
    ("the rest of the engine", "flow/"),
)
"""What the time in a module is spent for, by the beginning of its name; the first that fits."""

STATE_CALLS = "state calls to Spark"
ROWS = "rows from and to Spark"
WAITING = "waiting for a task"
STARTING = "starting a task"
FUNCTIONS = {
    "get_init_message": WAITING,
    "setup_spark_files": STARTING,
    "setup_broadcasts": STARTING,
    "read_command": STARTING,
    "_find_and_load": STARTING,
}
"""What is done under certain functions, whatever is called there; the last is Python's import."""

OTHER = "Python itself"


class Look(NamedTuple):
    """What a worker was seen doing.

    Attributes:
        purpose: what for.
        place: in which function.
    """

    purpose: str
    place: str


class Seen(NamedTuple):
    """How long it was seen doing it.

    Attributes:
        wall: seconds that went by.
        cpu: seconds that the process was working.
    """

    wall: float
    cpu: float


class Sampler:
    """Looks at what this process does, from ``with`` to its end.

    Args:
        folder: where to put down what was seen, now and then and at the end.
    """

    def __init__(self, folder: str) -> None:
        self._file = Path(folder) / f"{uuid.uuid4().hex}.json"
        self._wall = defaultdict[Look, float](float)
        self._cpu = defaultdict[Look, float](float)
        self._last = _clocks()
        self._put_down = self._last.wall
        self._looking = False

    def __enter__(self) -> Sampler:
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, EVERY_SECONDS, EVERY_SECONDS)
        self._last = _clocks()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._looking = True
        self._write()

    def _look(self, _signal: int, frame: FrameType | None) -> None:
        """Count the time since the last look: Python answers late when it is in a long C call."""
        if self._looking:  # the last look is not over: the next one counts its time
            return
        self._looking = True
        now, look = _clocks(), look_at(frame)
        self._wall[look] += now.wall - self._last.wall
        self._cpu[look] += now.cpu - self._last.cpu
        self._last = now
        if now.wall - self._put_down > PUT_DOWN_SECONDS:
            self._write()
            self._put_down = now.wall
        self._looking = False

    def _write(self) -> None:
        seen = [[*look, wall, self._cpu[look]] for look, wall in self._wall.items()]
        self._file.write_text(json.dumps(seen))


def _clocks() -> Seen:
    return Seen(time.perf_counter(), time.process_time())


def look_at(frame: FrameType | None) -> Look:
    """What the time at a frame is spent for, and where."""
    for outer in _outwards(frame):
        if outer.f_code.co_name in FUNCTIONS:
            return Look(FUNCTIONS[outer.f_code.co_name], outer.f_code.co_name)
    for outer in _outwards(frame):
        path = outer.f_code.co_filename
        if "site-packages/pyspark/" in path:
            purpose = STATE_CALLS if _is_state_call(outer) else ROWS
        else:  # most libraries have none, and what they do is their caller's
            purpose = _purpose_of(path)
        if purpose:
            return Look(purpose, f"{'/'.join(path.split('/')[-2:])}:{outer.f_code.co_name}")
    return Look(OTHER, "")


def _purpose_of(path: str) -> str:
    return next((purpose for purpose, part in OURS if f"/{part}" in path), "")


def _is_state_call(frame: FrameType) -> bool:
    """Whether one of Spark's clients for state is among the frames of Spark that lie on top."""
    for outer in _outwards(frame):
        path = outer.f_code.co_filename
        if "site-packages" not in path:
            return False
        if path.endswith(("_state_client.py", "stateful_processor_api_client.py")):
            return True
    return False


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def seen_in(folder: Path) -> dict[Look, Seen]:
    """What all workers were seen doing, and how long."""
    wall, cpu = defaultdict[Look, float](float), defaultdict[Look, float](float)
    for path in folder.glob("*.json"):
        for purpose, place, seconds, busy in json.loads(path.read_text()):
            wall[Look(purpose, place)] += seconds
            cpu[Look(purpose, place)] += busy
    return {look: Seen(seconds, cpu[look]) for look, seconds in wall.items()}
