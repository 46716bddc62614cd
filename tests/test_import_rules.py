"""The import rules of rooms and packages, and the public names."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping
from typing import TypeVar

import pytest

from docs.architecture.imports import (
    PACKAGES,
    ROOT,
    Import,
    When,
    circles,
    imports,
    imports_in,
    module_graph,
    modules,
    reachable,
    room_graph,
    room_of,
)

RUNTIME = (When.LOADING, When.CALLING)

BASE = "flow.base"
ENGINE = "flow.engine"
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "flow.base": (),
    "flow.columns": (BASE,),
    "flow.keyed": (BASE, "flow.columns"),
    "flow.operators": (BASE, "flow.columns", "flow.keyed", "flow.connectors"),
    "flow.connectors": (BASE, "flow.columns", "flow.operators"),
    "flow.engine": (BASE, "flow.columns", "flow.keyed", "flow.operators", "flow.connectors"),
    "flow.config": (BASE, ENGINE),
    "flow.reports": (BASE, "flow.keyed", "flow.operators", ENGINE),
    "flow.monitoring": (
        *(BASE, "flow.keyed", "flow.operators", "flow.connectors", ENGINE, "flow.reports"),
    ),
    "flow.web": (BASE, ENGINE, "flow.config", "flow.monitoring", "flow.views"),
    "flow.frames": (
        *(BASE, "flow.operators", "flow.connectors", ENGINE, "flow.config", "flow.reports"),
    ),
    "flow.runs": (BASE, "flow.operators", ENGINE, "flow.reports"),
    "flow.run": (
        *(BASE, "flow.operators", "flow.connectors", ENGINE, "flow.config", "flow.reports"),
        *("flow.frames", "flow.runs", "flow.web"),
    ),
    "flow.views": (BASE, "flow.columns", "flow.connectors"),
    "flow.testing": (
        *(BASE, "flow.columns", "flow.keyed", "flow.operators", "flow.connectors"),
        *(ENGINE, "flow.views"),
    ),
    "flow_windowing": (BASE, "flow.columns", "flow.keyed", "flow.operators", ENGINE),
    "recovery": (
        *(BASE, "flow.columns", "flow.keyed", "flow.operators", "flow.connectors"),
        *(ENGINE, "flow_windowing", "flow.monitoring"),
    ),
    "recovery.cli": (
        *(BASE, ENGINE, "flow.config", "flow.monitoring", "flow.web", "flow.cli", "recovery"),
    ),
    "flow.cli": (
        *(BASE, "flow.operators", "flow.connectors", ENGINE, "flow.config", "flow.reports"),
        *("flow.run", "recovery"),
    ),
    "commands": (
        *(BASE, "flow.operators", "flow.connectors", ENGINE, "flow.config", "flow.reports"),
        *("flow.run", "flow.cli", "recovery", "recovery.cli"),
    ),
}
"""The rooms that each room may import. A room stands for its folder and all folders in it, unless
an inner room has a row of its own."""


def outer_room(room: str) -> str:
    """Return the room's row in `ALLOWED`."""
    return max((row for row in ALLOWED if is_inside(room, row)), key=len)


def is_inside(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


def importers(package: str) -> set[str]:
    """Return the modules that import a package at run time."""
    return {
        found.importer
        for found in imports()
        if found.when in RUNTIME and is_inside(found.imported, package)
    }


def test_imports_are_found_anywhere_in_a_module() -> None:
    source = """
import a.b
from c.d import e
if TYPE_CHECKING:
    import only_types
def f():
    from g import h
    if TYPE_CHECKING:
        import also_types
"""
    assert set(imports_in("m", source, ["g.h"])) == {
        Import("m", "a.b", When.LOADING),
        Import("m", "c.d", When.LOADING),
        Import("m", "only_types", When.TYPING),
        Import("m", "g.h", When.CALLING),
        Import("m", "also_types", When.TYPING),
    }


def test_circles_are_found_through_other_nodes() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str]()}
    assert circles(graph) == [("a", "b", "c")]
    assert reachable(graph, "d") == {"e"}


def test_the_packages_are_found() -> None:
    assert {"flow.dataflow", "flow_windowing", "recovery.settings"} <= set(modules())
    assert {room_of(name).split(".")[0] for name in modules()} == {*PACKAGES, "commands"}


def test_rooms_import_only_the_rooms_in_the_table() -> None:
    arrows = {
        (outer_room(room), outer_room(other))
        for room, others in room_graph(*RUNTIME).items()
        for other in others
    }
    allowed = {(room, other) for room, others in ALLOWED.items() for other in others}
    assert {arrow for arrow in arrows - allowed if arrow[0] != arrow[1]} == set()


def test_types_are_imported_along_the_same_arrows() -> None:
    arrows = {
        (outer_room(room), outer_room(other))
        for room, others in room_graph(When.TYPING).items()
        for other in others
    }
    allowed = {(room, other) for room, others in ALLOWED.items() for other in others}
    assert {arrow for arrow in arrows - allowed if arrow[0] != arrow[1]} == set()


def test_rooms_form_no_circles() -> None:
    assert circles(room_graph(*RUNTIME)) == []


def test_modules_form_no_circles() -> None:
    assert circles(module_graph(*RUNTIME)) == []


def test_flow_does_not_import_packages_built_on_it() -> None:
    """By way of any module: `flow.cli` and the commands alone reach `recovery`."""
    graph = module_graph(*RUNTIME)
    for name in modules():
        if name.startswith("flow.") and outer_room(room_of(name)) not in ("flow.cli", "commands"):
            found = {other for other in reachable(graph, name) if not is_inside(other, "flow")}
            assert found == set(), name


def test_flow_imports_no_windowing() -> None:
    assert {name for name in importers("flow_windowing") if is_inside(name, "flow")} == set()


def test_recovery_is_imported_by_the_command_line_only() -> None:
    outside = {name for name in importers("recovery") if not is_inside(name, "recovery")}
    assert {outer_room(room_of(name)) for name in outside} == {"flow.cli", "commands"}


def test_the_command_line_is_imported_by_commands_only() -> None:
    outside = {room_of(name) for name in importers("flow.cli") if not is_inside(name, "flow.cli")}
    assert outside == {"commands", "recovery.cli"}
    assert {room_of(name) for name in importers("flow.testing")} == {"flow.testing"}
    readers = {room_of(name) for name in importers("flow.views")}
    assert readers == {"flow.views", "flow.testing", "flow.web"}


def test_only_the_engine_and_connectors_import_pyspark() -> None:
    strangers = {
        name
        for name in importers("pyspark") | importers("py4j")
        if not name.startswith(("flow.engine.", "flow.connectors."))
    }
    assert strangers == set()


CONNECTORS = "flow.connectors"
NOT_IMPORTED = {
    "formats": ("files", "kafka", "sql"),
    "files": ("kafka", "sql"),
    "kafka": ("files", "sql"),
    "sql": ("files", "kafka"),
    "then": ("files", "kafka", "sql"),
    "files.places": ("files.reading", "files.writing"),
    "files.reading": ("files.writing",),
    "files.writing": ("files.reading",),
    "kafka.reading": ("kafka.writing", "kafka.source", "kafka.sink", "kafka.dead_letters"),
    "kafka.writing": ("kafka.reading", "kafka.source", "kafka.sink", "kafka.dead_letters"),
}
"""For each room of connectors, the rooms and modules beside it that it must not import."""


@pytest.mark.parametrize("room", NOT_IMPORTED)
def test_connectors_share_formats_and_nothing_else(room: str) -> None:
    found = {
        name
        for other in NOT_IMPORTED[room]
        for name in importers(f"{CONNECTORS}.{other}")
        if is_inside(name, f"{CONNECTORS}.{room}")
    }
    assert found == set()


def test_connectors_never_import_the_engine() -> None:
    assert {name for name in importers(ENGINE) if is_inside(name, CONNECTORS)} == set()


def test_no_package_imports_the_tests() -> None:
    assert importers("tests") | importers("pytest") | importers("hypothesis") == set()


@pytest.mark.parametrize(
    "module",
    ["flow", "flow.operators", "flow.testing", "flow.views", "flow_windowing", "recovery"],
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
        "BackgroundRun",
        "CheckpointError",
        "Dataflow",
        "Duration",
        "EngineError",
        "EnvironmentProblem",
        "EpochReport",
        "FlowBuildError",
        "FlowConfig",
        "FlowError",
        "Instant",
        "KeyedStream",
        "LateItem",
        "LateSource",
        "Moment",
        "RunState",
        "SinkError",
        "SourceError",
        "Step",
        "StepError",
        "StopFlag",
        "Stream",
        "Summary",
        "TimestampError",
        "UnusedStepWarning",
        "__version__",
        "run",
        "to_dataframe",
    ],
    "flow.operators": [
        "COUNTED",
        "DISCARD",
        "KEEP",
        "BranchOut",
        "CallId",
        "Counted",
        "ExpiringOut",
        "ItemError",
        "Keep",
        "KeyedTable",
        "LogicBuilder",
        "Progress",
        "RejectedValue",
        "Retry",
        "Stamped",
        "StateCounts",
        "StatefulBatchLogic",
        "StatefulLogic",
        "TTLCache",
        "TryOut",
        "branch",
        "call_id",
        "collect",
        "count_final",
        "dedup",
        "enrich_cached",
        "filter",
        "filter_map",
        "filter_map_value",
        "filter_value",
        "filter_with",
        "flat_map",
        "flat_map_value",
        "flat_map_with",
        "flatten",
        "fold_final",
        "input",
        "inspect",
        "join",
        "key_on",
        "key_rm",
        "lookup_table",
        "map",
        "map_async",
        "map_batches",
        "map_value",
        "map_window",
        "map_with",
        "max_final",
        "merge",
        "min_final",
        "output",
        "raises",
        "records",
        "redistribute",
        "reduce_final",
        "stateful",
        "stateful_batch",
        "stateful_flat_map",
        "stateful_map",
        "table",
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
    "flow.connectors.datasets": ["Dataset"],
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
    "flow.connectors.items": ["ItemsSource", "from_items"],
    "flow.connectors.kafka": [
        "Avro",
        "BadMessage",
        "KafkaMessage",
        "KafkaRecord",
        "KafkaSink",
        "KafkaSource",
        "dead_letters",
    ],
    "flow.connectors.sink": [
        "CheckpointContext",
        "Guarantee",
        "OutputContext",
        "Sink",
        "WriteContext",
        "to_record",
    ],
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
    "flow.connectors.then": ["AfterOffsets", "FromTime", "StartRule", "Then"],
    "flow.monitoring.lineage": ["OpenLineageEvents"],
    "flow.monitoring.otel": ["OpenTelemetryMetrics"],
    "flow.views": [
        "VIEWS_FILE",
        "Answer",
        "Entry",
        "JsonAnswer",
        "Page",
        "QueryError",
        "UnknownViewError",
        "View",
        "ViewError",
        "ViewSink",
        "ViewWindow",
        "Views",
        "answer",
        "open",
    ],
    "flow_windowing": [
        "NEVER",
        "NO_WATERMARK",
        "AfterWatermark",
        "Aggregator",
        "ApproxCountDistinct",
        "ApproxQuantile",
        "ApproxTopK",
        "Arrival",
        "CalendarWindower",
        "Clock",
        "ClockLogic",
        "Collect",
        "CollectUnique",
        "Count",
        "CountDistinct",
        "CountWindower",
        "DatetimeClockLogic",
        "DatetimeWindower",
        "DedupOut",
        "DroppedValue",
        "Earliest",
        "Early",
        "EpochWindowLogic",
        "EventClock",
        "EventSlidingWindower",
        "Filled",
        "First",
        "IndexedLogic",
        "JoinedPair",
        "Last",
        "Late",
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
        "Pane",
        "PaneTiming",
        "Quantile",
        "Reading",
        "Retracted",
        "SessionWindower",
        "SlidingWindower",
        "StdDev",
        "Sum",
        "SystemClock",
        "TimedStateOut",
        "TopK",
        "TumblingWindower",
        "WindowLogic",
        "WindowMetadata",
        "WindowOut",
        "Windower",
        "WindowerLogic",
        "aggregate",
        "aggregate_window",
        "aggregate_window_all",
        "collect_window",
        "count_window",
        "dedup",
        "fold_window",
        "join_asof",
        "join_interval",
        "join_window",
        "max_window",
        "mean_window",
        "min_window",
        "reduce_window",
        "stateful_flat_map",
        "stateful_map",
        "sum_window",
        "top_n",
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
    # Connectors share formats, types, logs and the leveling of partitions, which are no systems.
    shared = {"formats", "leveling", "source_log", "spark_types"}
    assert names - {"__init__", "__pycache__", *shared} == listed


def public_names(module: str) -> list[str]:
    """Return a module's ``__all__``, or the classes and functions that it defines."""
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
def test_the_public_names_are_listed(module: str) -> None:
    assert sorted(public_names(module)) == sorted(PUBLIC[module])


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_exists(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in PUBLIC[module] if not hasattr(loaded, name)] == []
