"""One Spark session for each process of a run, which tests run, and how hypothesis searches."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

import dev
from flow.engine.spark.session.session import SparkSettings, make_session
from tests.support import choosing
from tests.support.cluster import make_bare_python, running_cluster
from tests.support.connect import connect_server
from tests.support.java import QUICK
from tests.support.ordering import longest_files_first
from tests.support.progress import Progress
from tests.support.sampling import EXAMPLES, ORDINARY
from tests.support.strict_python import PYSPARK_LEAVES_SOCKETS

# The same examples each time, so that a change that breaks nothing never fails; look for new ones
# with --hypothesis-profile=search. No deadline: the first example pays for imports.
settings.register_profile(ORDINARY, deadline=None, derandomize=True, max_examples=EXAMPLES[True])
settings.register_profile("thorough", settings.get_profile(ORDINARY), max_examples=EXAMPLES[False])
settings.register_profile("search", deadline=None, max_examples=1_000)
settings.load_profile(ORDINARY)

_JAVA_OPTIONS = " ".join(QUICK)
if sys.platform == "linux":
    # As in sessions that users get: Hadoop starts a process for each file that it makes.
    _JAVA_OPTIONS += " -Djdk.lang.Process.launchMechanism=VFORK"
CONF = {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": _JAVA_OPTIONS}


def pytest_addoption(parser: pytest.Parser) -> None:
    choosing.add_options(parser)
    parser.addoption(
        "--connect",
        action="store_true",
        help="run tests that share a session on one of Spark Connect, with a server of its own",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Try all examples of every property where every test is asked for.

    This comes before test modules are imported, and before hypothesis takes a profile that the
    command line names.
    """
    if choosing.tries_all_examples(config):
        settings.load_profile("thorough")
    if PYSPARK_LEAVES_SOCKETS:
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


def pytest_sessionstart(session: pytest.Session) -> None:
    Progress.install(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the collector of garbage, which would take a third of the time for nothing.

    What has been imported and collected stays to the end: the collector need not look at it later.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of this run, and put files that take long first where files run at once."""
    mark_users_of_spark(items)
    mark_shortened_properties(items)
    skip_without_java(items)
    chosen = choosing.choose(config, items)
    left_out = set(items).difference(chosen)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = chosen
    if hasattr(config, "workerinput"):
        items[:] = longest_files_first(items)


def mark_users_of_spark(items: Sequence[pytest.Item]) -> None:
    """Give the marker ``spark`` to tests with the fixture of that name; others have it written."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


def mark_shortened_properties(items: Sequence[pytest.Item]) -> None:
    """Give the marker ``sampled`` to properties, of which an ordinary run tries fewer examples."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("sampled")


def skip_without_java(items: Sequence[pytest.Item]) -> None:
    """Skip tests on Spark where it would find no Java."""
    users = [
        item
        for item in items
        if any(item.get_closest_marker(name) for name in ("spark", "cluster"))
    ]
    try:
        if users:
            dev.require_java()
    except dev.SetupError as error:
        for item in users:
            item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    if request.config.getoption("--connect"):
        with connect_server(tmp_path_factory.mktemp("connect")) as server:
            builder: Any = SparkSession.builder
            remote: SparkSession = builder.remote(server.url).getOrCreate()
            yield remote
            remote.stop()
        return
    session = make_session("flow-tests", SparkSettings("local[2]", CONF))
    yield session
    session.stop()


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    return make_bare_python(tmp_path / "bare")


@pytest.fixture
def master(tmp_path: Path, bare_python: str) -> Iterator[str]:
    with running_cluster(tmp_path, bare_python) as url:
        yield url
