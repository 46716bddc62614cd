"""The metrics of a run in the formats of Prometheus and OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from typing_extensions import override

from flow.monitoring.metrics import METRICS, MetricType
from flow.monitoring.status import RunStatus


class Exposition(NamedTuple):
    """The text of the metrics, and its content type."""

    body: bytes
    content_type: str


def exposition(status: RunStatus, accept: str | None) -> Exposition:
    """Return the metrics of a run, in the format that a request's Accept header asks for."""
    registry = CollectorRegistry()
    registry.register(_OfStatus(status))
    encode, content_type = choose_encoder(accept or "")
    return Exposition(encode(registry), content_type)


class _OfStatus(Collector):
    def __init__(self, status: RunStatus) -> None:
        self._status = status

    @override
    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            family_type = (
                CounterMetricFamily if metric.type is MetricType.COUNTER else GaugeMetricFamily
            )
            family = family_type(metric.name, metric.meaning, labels=("flow", *metric.labels))
            for sample in metric.samples(self._status):
                family.add_metric((self._status.flow_id, *sample.labels), sample.value)
            yield family
