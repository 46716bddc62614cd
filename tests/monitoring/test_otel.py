"""Metrics by OpenTelemetry, read back with a reader of its SDK."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Metric, Sum

from flow import EnvironmentProblem, Summary
from flow.errors import StepError
from flow.monitoring.metrics import METRICS
from flow.monitoring.otel import OpenTelemetryMetrics
from tests.support.monitored import epoch_report, hourly_flow, recorded

REPORTS = (epoch_report(0, 100), epoch_report(1, 50))
BY_NAME = {metric.name.removesuffix("_total"): metric for metric in METRICS}
CLOCKED = ("flow_start_time_seconds", "flow_last_commit_time_seconds")
"""Metrics of the machine's clock."""


class Observed:
    """The metrics of a flow with a provider and a reader of its own."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])
        self.metrics = OpenTelemetryMetrics(hourly_flow(), self.provider)

    def read(self) -> dict[str, Metric]:
        """Return the metrics of OpenTelemetry by name."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {one.name: one for one in data.resource_metrics[0].scope_metrics[0].metrics}

    def values(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """Return the values by name and by values of attributes but `flow`."""
        found = {}
        for name, metric in self.read().items():
            assert isinstance(metric.data, (Gauge, Sum))
            for point in metric.data.data_points:
                attributes = dict(point.attributes or {})
                assert attributes.pop("flow") == "hourly"
                key = tuple(str(attributes[label]) for label in BY_NAME[name].labels)
                assert len(key) == len(attributes)
                found[name, key] = float(point.value)
        return found


@pytest.fixture
def observed() -> Iterator[Observed]:
    found = Observed()
    yield found
    found.provider.shutdown()


def test_the_values_are_those_of_the_table_of_metrics(observed: Observed) -> None:
    for report in REPORTS:
        observed.metrics(report)
    status = recorded(*REPORTS).status
    found = observed.values()
    wanted = {
        (name, labels): float(value)
        for name, metric in BY_NAME.items()
        for labels, value in metric.samples(status).items()
    }
    assert found["flow_step_out_items", ("visits",)] == 150
    assert found.keys() == wanted.keys()
    assert {key for key in found if found[key] != wanted[key]} <= {(name, ()) for name in CLOCKED}


def test_counters_are_monotonic_sums_with_units(observed: Observed) -> None:
    observed.metrics(REPORTS[0])
    found = observed.read()
    for name, one in found.items():
        assert isinstance(one.data, Sum) == BY_NAME[name].is_counter
        assert not isinstance(one.data, Sum) or one.data.is_monotonic
        assert one.description == BY_NAME[name].meaning
    assert found["flow_step_busy_seconds"].unit == "s"
    assert found["flow_workers_memory_bytes"].unit == "By"
    assert found["flow_epochs"].unit == "{epochs}"


def test_the_end_and_the_failure_of_a_run_are_its_state(observed: Observed) -> None:
    observed.metrics(REPORTS[0])
    observed.metrics.end(Summary("hourly", "batch"))
    assert observed.values()["flow_run_state", ("ended",)] == 1
    with pytest.raises(StepError), observed.metrics:
        raise StepError("hours", "struck")
    assert observed.values()["flow_run_state", ("failed",)] == 1


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'flow-windows\[otel\]'"):
        OpenTelemetryMetrics(hourly_flow())
