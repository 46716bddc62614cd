"""One Spark session for the whole test run, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from flow.engine.session import SparkSettings, make_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = make_session("flow-tests", SparkSettings("local[2]", {"spark.driver.memory": "3g"}))
    yield session
    session.stop()
