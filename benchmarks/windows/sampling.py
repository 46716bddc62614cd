"""The profile of a Python worker, from samples of its stack at regular times.

A sample counts for the purpose of the innermost frame that has one, so the time in Arrow or pickle
counts for the purpose of their caller.
"""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

FOLDER_VARIABLE = "FLOW_BENCHMARK_SAMPLES"
EVERY_SECONDS = 0.005
PUT_DOWN_SECONDS = 0.5

OURS = (
    ("sink", "flow/connectors/files/epoch_directory"),
    ("sink", "flow/connectors/files/file_sinks"),
    ("sink", "flow/connectors/sink"),
    ("sink", "flow/engine/steps/outputs"),
    ("reading", "flow/connectors/"),
    ("reading", "flow/engine/steps/reading"),
    ("user functions", "benchmarks/windows/flows"),
    ("windows", "flow_windowing/"),
    ("operators", "flow/operators/"),
    ("operators", "flow/engine/steps/kernels"),
    ("operators", "flow/fields"),
    ("state", "flow/engine/state/"),
    ("packing", "flow/engine/packets/"),
    ("packing", "flow/engine/spark/shipping"),
    ("packing", "flow/columns/"),
    ("packing", "flow/engine/steps/gathering"),
    ("the rest of the engine", "flow/"),
)
"""The purpose of the time in a module, by the beginning of its path; the first match counts."""

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
"""The purpose of functions with all that they call; the last function is Python's import."""

OTHER = "Python itself"


class Look(NamedTuple):
    """The purpose and the function of a sample.

    Attributes:
        purpose: the purpose of the time.
        place: the file and the function.
    """

    purpose: str
    place: str


class Seen(NamedTuple):
    """The time of samples.

    Attributes:
        wall: elapsed seconds.
        cpu: seconds of processor time.
    """

    wall: float
    cpu: float


class Sampler:
    """Context manager that samples the stack of this process.

    Args:
        folder: the folder for the samples, which are written regularly and at the end.
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

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._looking = True
        self._write()

    def _look(self, _signal: int, frame: FrameType | None) -> None:
        """Count the time since the last sample, which may be long after a long C call."""
        if self._looking:  # The last sample has not finished; the next one counts this time.
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
    """Return the purpose and the function of the time at a frame."""
    for outer in _outwards(frame):
        if outer.f_code.co_name in FUNCTIONS:
            return Look(FUNCTIONS[outer.f_code.co_name], outer.f_code.co_name)
    for outer in _outwards(frame):
        path = outer.f_code.co_filename
        if "site-packages/pyspark/" in path:
            purpose = STATE_CALLS if _is_state_call(outer) else ROWS
        else:  # Most libraries have no purpose; their time counts for their caller.
            purpose = _purpose_of(path)
        if purpose:
            return Look(purpose, f"{'/'.join(path.split('/')[-2:])}:{outer.f_code.co_name}")
    return Look(OTHER, "")


def _purpose_of(path: str) -> str:
    return next((purpose for purpose, part in OURS if f"/{part}" in path), "")


def _is_state_call(frame: FrameType) -> bool:
    """Return True if one of Spark's innermost frames belongs to a client for state."""
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
    """Return the time of each purpose and function, summed over all workers."""
    wall, cpu = defaultdict[Look, float](float), defaultdict[Look, float](float)
    for path in folder.glob("*.json"):
        for purpose, place, seconds, busy in json.loads(path.read_text()):
            wall[Look(purpose, place)] += seconds
            cpu[Look(purpose, place)] += busy
    return {look: Seen(seconds, cpu[look]) for look, seconds in wall.items()}
