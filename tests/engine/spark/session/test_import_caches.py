"""Importers of zip files in the cache of workers."""

from __future__ import annotations

import importlib
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipimport import zipimporter

import pytest

from flow.engine.spark import level_processor
from flow.engine.spark.session.versions import forget_zip_importers
from flow.engine.spark.shipping import Layout
from flow.engine.spark.ticker import TickReading
from tests.support.programs import printed_by

NAMES = ("zipped_first", "zipped_second")


def zip_importers() -> list[str]:
    cache = sys.path_importer_cache.items()
    return [path for path, importer in cache if isinstance(importer, zipimporter)]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A zip file of two modules, on the path."""
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as written:
        for name in NAMES:
            written.writestr(f"{name}.py", f"own = {name!r}\n")
    monkeypatch.syspath_prepend(archive)
    yield archive
    for name in NAMES:
        sys.modules.pop(name, None)


def test_modules_of_a_zip_are_imported_after_its_importers_are_forgotten(modules: Path) -> None:
    for name in NAMES:
        assert importlib.import_module(name).own == name
        assert str(modules) in zip_importers()
        forget_zip_importers()
        assert zip_importers() == []


def test_a_task_that_reads_an_input_forgets_zip_importers(modules: Path) -> None:
    importlib.import_module("zipped_first")
    assert str(modules) in zip_importers()
    plan: Any = None
    TickReading(plan, Layout(shards=1, partitions=1, levels=0)).read(pickle.dumps(None))
    assert zip_importers() == []


def test_a_level_forgets_zip_importers(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_processor, "SparkStore", lambda *_: None)
    importlib.import_module("zipped_first")
    assert str(modules) in zip_importers()
    shipped: Any = SimpleNamespace(plan=lambda: SimpleNamespace(state_names={}, holding={}))
    layout = Layout(shards=1, partitions=1, levels=1)
    level_processor.SparkLevel(shipped, layout, 0, "run").open(None, None)
    assert zip_importers() == []


PREPARE = """
import sys
sys.path.insert(0, sys.argv[1])
import zipped_first
from flow.engine.spark.daemon import prepare
prepare()
print([path for path in sys.path_importer_cache if path.startswith(sys.argv[1])])
"""


def test_the_daemon_forgets_zip_importers_before_it_forks_workers(modules: Path) -> None:
    assert printed_by("-c", PREPARE, modules) == "[]\n"
