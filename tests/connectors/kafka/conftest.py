"""One broker for all tests of Kafka."""

from __future__ import annotations

import pytest

from tests.support.kafka import Broker, running_broker


@pytest.fixture(scope="session")
def broker() -> Broker:
    """A real broker; tests are skipped where it cannot be installed."""
    return running_broker()
