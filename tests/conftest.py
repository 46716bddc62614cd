"""One Spark session for the whole test run, and how hypothesis searches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from flow.engine.spark.session.session import SparkSettings, make_session

# The same examples each time, so that a change that breaks nothing never fails; look for new ones
# with --hypothesis-profile=search. No deadline: the first example pays for imports.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1_000)
settings.load_profile("steady")

CONF = {
    "spark.driver.memory": "3g",
    # Many short queries: compiling hot code well costs more than it gives.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what takes long out, unless it is asked for by its marker or its folder."""
    if "faults" in config.option.markexpr or any("tests/faults" in name for name in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("faults")]
    items[:] = [item for item in items if not item.get_closest_marker("faults")]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = make_session("flow-tests", SparkSettings("local[2]", CONF))
    yield session
    session.stop()
