"""One broker for all tests of Kafka."""

from __future__ import annotations

import pytest

from tests.support.kafka import Broker, running_broker


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip from one place, so that the report has one line for all that cannot run."""
    if "broker" in getattr(item, "fixturenames", ()):
        running_broker()


@pytest.fixture(scope="session")
def broker() -> Broker:
    """A real broker; tests are skipped where it cannot be installed."""
    return running_broker()
