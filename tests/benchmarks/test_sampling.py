"""Attribution of a worker's time to purposes, by the frames of its stack."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks.windows.sampling import OURS, Look, Sampler, look_at, seen_in

SPARK = "/venv/site-packages/pyspark"
WORKER = f"{SPARK}/worker.py"
SERIALIZER = f"{SPARK}/serializers.py"
LEVEL = "/repo/flow/engine/level.py"
ROWS = "/repo/flow/engine/spark/shipping.py"
STORE = "/repo/flow/engine/state/store.py"
STATE_CLIENT = f"{SPARK}/sql/streaming/stateful_processor_api_client.py"
DRIVER = "/repo/flow_windowing/driver.py"


def stack(*files: str, name: str = "work") -> FrameType:
    """The innermost frame of a stack of functions in these files, the outermost first."""

    def inside() -> Any:
        return sys._getframe()

    call: Callable[[], Any] = inside
    for file in reversed(files):
        names: dict[str, Any] = {"call": call}
        exec(compile(f"def {name}():\n    return call()", file, "exec"), names)
        call = names[name]
    frame: FrameType = call().f_back
    return frame


@pytest.mark.parametrize(
    ("files", "purpose"),
    [
        ([WORKER, LEVEL, DRIVER], "windows"),
        ([WORKER, LEVEL], "the rest of the engine"),
        ([WORKER, ROWS, "/venv/site-packages/pyarrow/x.py"], "packing"),
        ([WORKER, "/repo/flow/connectors/files/parquet_source.py"], "reading"),
        ([WORKER, "/repo/flow/connectors/files/file_sinks.py"], "sink"),
        ([WORKER, DRIVER, "/repo/benchmarks/windows/flows.py"], "user functions"),
        ([WORKER, SERIALIZER], "rows from and to Spark"),
        # Rows are fetched while the engine asks for them.
        ([WORKER, LEVEL, SERIALIZER], "rows from and to Spark"),
        ([WORKER, STORE, STATE_CLIENT, SERIALIZER], "state calls to Spark"),
        (["/usr/lib/python3/threading.py"], "Python itself"),
    ],
)
def test_the_innermost_frame_with_a_purpose_counts(files: list[str], purpose: str) -> None:
    assert look_at(stack(*files)).purpose == purpose


def test_the_place_is_a_function_of_this_project_with_the_library_function_it_calls() -> None:
    files = WORKER, ROWS, "/venv/site-packages/pyarrow/x.py"
    assert look_at(stack(*files)) == Look("packing", "spark/shipping.py:work")


def test_waiting_and_imports_are_told_by_the_names_of_functions() -> None:
    waiting = stack(WORKER, f"{SPARK}/messages/socket.py", name="get_init_message")
    assert look_at(waiting).purpose == "waiting for a task"
    importing = stack(WORKER, LEVEL, name="_find_and_load")
    assert look_at(importing).purpose == "starting a task"


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="there is no timer")
def test_wall_time_and_processor_time_are_measured_separately(tmp_path: Path) -> None:
    with Sampler(str(tmp_path)):
        time.sleep(0.3)
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
    times_by_look = seen_in(tmp_path).values()
    assert sum(times.wall for times in times_by_look) >= 0.5
    assert 0.25 <= sum(times.cpu for times in times_by_look) <= 0.45


def test_every_path_with_a_purpose_exists() -> None:
    root = Path(__file__).resolve().parents[2]
    paths = [root / path if path.endswith("/") else root / f"{path}.py" for _, path in OURS]
    assert [str(path) for path in paths if not path.exists()] == []
