"""Names of topics as data sets."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flow.connectors.datasets import Dataset

_PORT = re.compile(r":\d+$")


def datasets_of_topics(servers: str, topics: Iterable[str]) -> tuple[Dataset, ...]:
    """Return the data sets of topics; their system has the name of the first server.

    >>> datasets_of_topics("SASL_SSL://one, two:9093", ["orders"])
    (Dataset(namespace='kafka://one:9092', name='orders'),)
    """
    first = servers.split(",")[0].strip()
    address = first.rpartition("://")[2].rpartition("@")[2]
    server = address if _PORT.search(address) else f"{address}:9092"
    return tuple(Dataset(f"kafka://{server}", topic) for topic in topics)
