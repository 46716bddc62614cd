"""Names of the data sets that sources read and sinks write, by the conventions of OpenLineage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Dataset:
    """The name of a data set, which programs that follow lineage compare.

    Attributes:
        namespace: the system that holds the data, without credentials, such as ``file``,
            ``s3://bucket``, ``kafka://host:9092`` or ``postgres://host:5432``.
        name: the data in this system, such as an absolute path, a topic, or
            ``database.schema.table``.

    Example:
        >>> Dataset("kafka://localhost:9092", "orders")
        Dataset(namespace='kafka://localhost:9092', name='orders')
    """

    namespace: str
    name: str
