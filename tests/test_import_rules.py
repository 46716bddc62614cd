"""The import rules of rooms and packages, and the public names."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping

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
from tests.support.public_names import CONNECTORS, listed, offered

RUNTIME = (When.LOADING, When.CALLING)

ALLOWED: Mapping[str, str] = {
    "flow.base": "",
    "flow.columns": "flow.base",
    "flow.keyed": "flow.base .columns",
    "flow.operators": "flow.base .columns .keyed .connectors",
    "flow.connectors": "flow.base .columns",
    "flow.engine": "flow.base .columns .keyed .operators .connectors",
    "flow.config": "flow.base .engine",
    "flow.reports": "flow.base .keyed .operators .engine",
    "flow.monitoring": "flow.base .keyed .operators .connectors .engine .reports",
    "flow.web": "flow.base .engine .config .monitoring .views",
    "flow.frames": "flow.base .operators .connectors .engine .config .reports",
    "flow.run": "flow.base .operators .engine .config .reports .frames .web",
    "flow.views": "flow.base .columns .connectors",
    "flow.testing": "flow.base .columns .keyed .operators .connectors .engine .views",
    "flow_windowing": "flow.base .columns .keyed .operators",
    "recovery": (
        "flow.base .columns .keyed .operators .connectors .engine .monitoring flow_windowing"
    ),
    "flow.cli": "flow.base .engine .config .reports .run",
    "commands": (
        "flow.base .operators .connectors .engine .config .reports .monitoring .web .run .cli "
        "recovery"
    ),
}
"""The rooms that each room may import; ``.columns`` is ``flow.columns``. A room stands for its
folder and all folders in it, unless an inner room has a row of its own."""


def allowed_rooms() -> dict[str, set[str]]:
    """Return the full names of the rooms that each room may import."""
    return {
        room: {f"flow{other}" if other.startswith(".") else other for other in others.split()}
        for room, others in ALLOWED.items()
    }


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


@pytest.mark.parametrize("times", [RUNTIME, (When.TYPING,)])
def test_rooms_import_only_the_rooms_in_the_table(times: tuple[When, ...]) -> None:
    arrows = {
        (outer_room(room), outer_room(other))
        for room, others in room_graph(*times).items()
        for other in others
    }
    allowed = {(room, other) for room, others in allowed_rooms().items() for other in others}
    assert {arrow for arrow in arrows - allowed if arrow[0] != arrow[1]} == set()


def test_rooms_and_modules_form_no_circles() -> None:
    assert circles(allowed_rooms()) == []
    assert circles(room_graph(*RUNTIME)) == []
    assert circles(module_graph(*When)) == []


def test_flow_does_not_import_packages_built_on_it() -> None:
    """By way of any module: the commands alone reach `recovery`."""
    graph = module_graph(*RUNTIME)
    for name in modules():
        if name.startswith("flow.") and room_of(name) != "commands":
            found = {other for other in reachable(graph, name) if not is_inside(other, "flow")}
            assert found == set(), name


def test_only_the_engine_and_connectors_import_pyspark() -> None:
    users = importers("pyspark") | importers("py4j")
    assert users
    assert [name for name in users if not name.startswith(("flow.engine.", f"{CONNECTORS}."))] == []


FILES_READ = (
    *("files.csv_source", "files.file_list", "files.file_planning", "files.file_source"),
    *("files.line_ranges", "files.line_sources", "files.parquet_source"),
)
FILES_WRITTEN = ("files.epoch_directory", "files.file_sinks")
KAFKA_READ = ("kafka.deserializers", "kafka.planner", "kafka.ranges")
KAFKA_WRITTEN = ("kafka.sending", "kafka.serializers")

NOT_IMPORTED: Mapping[str, tuple[str, ...]] = {
    "formats": ("files", "kafka", "sql"),
    "files": ("kafka", "sql"),
    "kafka": ("files", "sql"),
    "sql": ("files", "kafka"),
    "then": ("files", "kafka", "sql"),
    "lakehouse": ("delta", "iceberg"),
    "delta": ("iceberg", "kafka", "sql"),
    "iceberg": ("delta", "kafka", "sql"),
    "files.filesystems": (*FILES_READ, *FILES_WRITTEN),
    **dict.fromkeys(FILES_READ, FILES_WRITTEN),
    **dict.fromkeys(FILES_WRITTEN, FILES_READ),
    **dict.fromkeys(KAFKA_READ, (*KAFKA_WRITTEN, "kafka.source", "kafka.sink")),
    **dict.fromkeys(KAFKA_WRITTEN, (*KAFKA_READ, "kafka.source", "kafka.sink")),
    "kafka.source": (*KAFKA_WRITTEN, "kafka.sink"),
    "kafka.sink": (*KAFKA_READ, "kafka.source"),
}
"""For each room or module of connectors, those beside it that it must not import."""


def test_connectors_share_formats_and_nothing_else() -> None:
    found = {
        (name, other)
        for room, others in NOT_IMPORTED.items()
        for other in others
        for name in importers(f"{CONNECTORS}.{other}")
        if is_inside(name, f"{CONNECTORS}.{room}")
    }
    assert found == set()


def test_no_package_imports_the_tests() -> None:
    assert importers("tests") | importers("pytest") | importers("hypothesis") == set()


def test_building_and_testing_a_flow_does_not_load_spark() -> None:
    modules = "flow, flow.operators, flow.testing, flow.views, flow_windowing, recovery"
    code = f"import sys, {modules}; print({{'pyspark', 'py4j', 'pandas'}} & set(sys.modules))"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def test_the_public_names_are_those_of_the_list() -> None:
    remedy = "if you mean to change them, run python -m tests.support.public_names --write"
    assert offered() == listed(), remedy


def test_every_public_name_exists() -> None:
    pairs = [name.rsplit(".", 1) for name in listed()]
    assert len(pairs) > 150
    found = [hasattr(importlib.import_module(module), name) for module, name in pairs]
    assert [pair for pair, exists in zip(pairs, found, strict=True) if not exists] == []
