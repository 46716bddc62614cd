"""Spark tests that run on the newest Spark alone; CI runs all others on the oldest as well.

The adapters of `flow/engine/spark/versions` do not reach what these tests are about. A flow with
every kind of step, data frames, kills and upgrades have the marker ``each_spark`` instead, and run
on each version.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import pytest

NEWEST_ONLY = {
    "benchmarks": "benchmarks are made for the Spark of the figures",
    "catching_up/test_live_files.py": "test_on_spark.py beside it runs on both",
    "cli": "the command line calls `run`, whose tests run on both",
    "connectors/kafka/reading/test_kafka_after_history.py": "test_kafka_flows.py reads topics",
    "connectors/kafka/reading/test_kafka_catching_up.py": "test_kafka_flows.py reads topics",
    "connectors/kafka/reading/test_spark_connector.py": "Maven has a connector for each Spark",
    "connectors/kafka/writing": "workers write to Kafka without Spark",
    "deploy": "the files of a deployment name one Spark",
    "engine/spark/session/test_jvm_files.py": "Java's directories do not depend on Spark",
    "engine/spark/startup": "a faster start changes no result",
    "faults/test_ground_removed.py": "the messages are those of the engine",
    "faults/test_random_kills.py": "test_kill_points.py kills runs on each Spark",
    "faults/test_views_killed.py": "test_kill_points.py kills runs on each Spark",
    "notebooks": "notebooks are documents, executed with one Spark",
    "recovery/test_state_counts.py": "workers count, and write headers of segments, without Spark",
    "test_followed_files.py": "a planner in Python follows files",
    "test_packaging.py": "the wheel is the same for each Spark",
    "test_readme.py": "the README is a document",
    "test_tutorial.py": "the tutorial is a document",
    "views": "a view is written as other sinks are",
    "web": "the page shows reports of epochs, which are the same on each Spark",
}
"""Folders and files of `tests` with the reason, relative to it."""


def runs_on_newest_only(path: PurePath) -> bool:
    """Return True if the Spark tests of a file run on the newest Spark alone.

    Args:
        path: the file, relative to `tests`.
    """
    return any(str(one) in NEWEST_ONLY for one in [path, *path.parents])


def mark_newest_only(items: Sequence[pytest.Item], tests: Path) -> None:
    """Give Spark tests of the newest Spark alone the marker ``newest_only``.

    Args:
        items: the tests of a run.
        tests: the folder `tests`.

    Raises:
        pytest.UsageError: when a test of such a file has the marker ``each_spark``.
    """
    for item in items:
        if not (item.get_closest_marker("spark") and item.path.is_relative_to(tests)):
            continue
        if not runs_on_newest_only(item.path.relative_to(tests)):
            continue
        if item.get_closest_marker("each_spark"):
            raise pytest.UsageError(
                f"{item.nodeid} has the marker each_spark, and its file is one of "
                "tests/support/newest_only.py: move the test, or remove the marker"
            )
        item.add_marker("newest_only")
