"""Which package may import what, and which names are public."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("flow", "flow_windowing", "recovery")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and is_type_checking(child):
            continue
        yield child
        yield from statements(child)


def imported(source: str) -> set[str]:
    """The modules that a module's source imports when it runs."""
    found: set[str] = set()
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
    return found


def importers(package: str) -> set[str]:
    """The modules of ours that import a package."""
    return {
        name_of(path)
        for path in MODULES
        if any(name.split(".")[0] == package for name in imported(path.read_text("utf-8")))
    }


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import a.b
from c.d import e
if TYPE_CHECKING:
    import only_types
def f():
    from g import h
"""
    assert imported(source) == {"a.b", "c.d", "g"}


def test_the_packages_are_where_this_test_looks() -> None:
    names = {name_of(path) for path in MODULES}
    assert {"flow/dataflow.py", "flow_windowing/__init__.py", "recovery/__init__.py"} <= names


def test_only_the_engine_and_connectors_import_pyspark() -> None:
    strangers = {
        name
        for name in importers("pyspark") | importers("py4j")
        if not name.startswith(("flow/engine/", "flow/connectors/"))
    }
    assert strangers == set()


def test_flow_never_imports_what_is_built_on_it() -> None:
    assert {name for name in importers("flow_windowing") if name.startswith("flow/")} == set()


CONNECTORS = {
    "formats": {"files", "kafka", "sql"},
    "files": {"kafka", "sql"},
    "kafka": {"files", "sql"},
    "sql": {"files", "kafka"},
    "kafka/reading": {"kafka.writing", "kafka.source", "kafka.sink", "kafka.dead_letters"},
    "kafka/writing": {"kafka.reading", "kafka.source", "kafka.sink", "kafka.dead_letters"},
}
"""For each folder of connectors, the modules below `flow.connectors` that it must not import."""


@pytest.mark.parametrize("folder", CONNECTORS)
def test_connectors_share_formats_and_nothing_else(folder: str) -> None:
    forbidden = tuple(f"flow.connectors.{name}" for name in CONNECTORS[folder])
    found = {
        (name_of(path), name)
        for path in (ROOT / "flow" / "connectors" / folder).rglob("*.py")
        for name in imported(path.read_text("utf-8"))
        if name.startswith(forbidden)
    }
    assert found == set()


def test_connectors_never_import_the_engine() -> None:
    connectors = [path for path in MODULES if name_of(path).startswith("flow/connectors/")]
    names = {name for path in connectors for name in imported(path.read_text("utf-8"))}
    assert {name for name in names if name.startswith("flow.engine")} == set()


def test_nobody_imports_the_tests() -> None:
    assert importers("tests") | importers("pytest") | importers("hypothesis") == set()


@pytest.mark.parametrize(
    "module", ["flow", "flow.operators", "flow.testing", "flow_windowing", "recovery"]
)
def test_building_and_testing_a_flow_does_not_load_spark(module: str) -> None:
    code = f"import sys, {module}; print({{'pyspark', 'py4j', 'pandas'}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


PUBLIC: dict[str, list[str]] = {
    "flow": [
        "CheckpointError",
        "Dataflow",
        "Duration",
        "EngineError",
        "EnvironmentProblem",
        "FlowBuildError",
        "FlowError",
        "Instant",
        "KeyedStream",
        "Moment",
        "SinkError",
        "SourceError",
        "Step",
        "StepError",
        "StopFlag",
        "Stream",
        "TimestampError",
        "UnusedStepWarning",
        "run",
    ],
    "flow.operators": [
        "COUNTED",
        "DISCARD",
        "KEEP",
        "BranchOut",
        "Counted",
        "ItemError",
        "Keep",
        "LogicBuilder",
        "Progress",
        "RejectedValue",
        "Stamped",
        "StatefulBatchLogic",
        "StatefulLogic",
        "TTLCache",
        "TryOut",
        "branch",
        "collect",
        "count_final",
        "enrich_cached",
        "filter",
        "filter_map",
        "filter_map_value",
        "filter_value",
        "flat_map",
        "flat_map_value",
        "flatten",
        "fold_final",
        "input",
        "inspect",
        "join",
        "key_on",
        "key_rm",
        "map",
        "map_value",
        "max_final",
        "merge",
        "min_final",
        "output",
        "raises",
        "redistribute",
        "reduce_final",
        "stateful",
        "stateful_batch",
        "stateful_flat_map",
        "stateful_map",
        "try_input",
        "try_map",
    ],
    "flow.testing": [
        "ABORT",
        "EOF",
        "Advance",
        "Part",
        "TestDriver",
        "TestingSink",
        "TestingSource",
        "key_by_key",
        "run_once",
        "run_source",
        "swap_clock",
    ],
    "flow.connectors.dataframe": ["DataFrameSink", "DataFrameSource"],
    "flow.connectors.files": [
        "CsvSink",
        "CsvSource",
        "JsonLinesSink",
        "JsonLinesSource",
        "ParquetSink",
        "ParquetSource",
        "TextSink",
        "TextSource",
    ],
    "flow.connectors.kafka": [
        "Avro",
        "BadMessage",
        "KafkaMessage",
        "KafkaRecord",
        "KafkaSink",
        "KafkaSource",
        "dead_letters",
    ],
    "flow.connectors.sink": ["Guarantee", "Sink", "WriteContext", "to_record"],
    "flow.connectors.source": [
        "BadInput",
        "Invalid",
        "MemoryLog",
        "PartitionedSource",
        "Planner",
        "Slice",
        "Source",
        "SourceLog",
        "Split",
    ],
    "flow.connectors.sql": ["Delete", "PostgresSink", "SqliteSink"],
    "flow.connectors.stdio": ["StdOutSink"],
    "flow_windowing": [
        "NEVER",
        "NO_WATERMARK",
        "Aggregator",
        "Arrival",
        "CalendarWindower",
        "Clock",
        "ClockLogic",
        "Collect",
        "CollectUnique",
        "Count",
        "CountDistinct",
        "CountWindower",
        "DroppedValue",
        "Earliest",
        "EpochWindowLogic",
        "EventClock",
        "EventSlidingWindower",
        "Filled",
        "First",
        "IndexedLogic",
        "Last",
        "LateReason",
        "LateValue",
        "Latest",
        "Max",
        "MaxK",
        "MaxKUnique",
        "Mean",
        "Min",
        "MinK",
        "MinKUnique",
        "Opened",
        "Quantile",
        "Reading",
        "Retracted",
        "SessionWindower",
        "SlidingWindower",
        "StdDev",
        "Sum",
        "SystemClock",
        "TopK",
        "TumblingWindower",
        "WindowLogic",
        "WindowMetadata",
        "WindowOut",
        "Windower",
        "WindowerLogic",
        "aggregate",
        "aggregate_window",
        "collect_window",
        "count_window",
        "fold_window",
        "join_window",
        "max_window",
        "mean_window",
        "min_window",
        "reduce_window",
        "sum_window",
        "window",
    ],
    "recovery": [
        "CheckpointStatus",
        "Export",
        "KeyState",
        "Problem",
        "RecoveryConfig",
        "Relocation",
        "Rescaled",
        "Rewind",
        "SourceStatus",
        "StepState",
        "StepStatus",
        "export",
        "inspect",
        "relocate",
        "rescale",
        "rewind",
        "seed",
        "status",
        "verify",
    ],
}


def test_every_connector_is_in_the_list() -> None:
    folder = ROOT / "flow/connectors"
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    listed = {module.split(".")[-1] for module in PUBLIC if module.startswith("flow.connectors.")}
    # Formats are shared by connectors and no system of their own.
    assert names - {"__init__", "__pycache__", "formats"} == listed


def public_names(module: str) -> list[str]:
    """A module's ``__all__``; else the classes and functions that are made in it."""
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is not None:
        return list(names)
    return sorted(
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_")
        and not isinstance(value, TypeVar)
        and getattr(value, "__module__", None) == module
    )


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    assert sorted(public_names(module)) == sorted(PUBLIC[module])


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in PUBLIC[module] if not hasattr(loaded, name)] == []
