"""The metrics of a run as instruments of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flow.dataflow import Dataflow
from flow.engine.epoch.summary import EpochReport, Summary
from flow.engine.plan.compiler import compile_flow
from flow.errors import package_of_extra
from flow.monitoring.metrics import METRICS, Metric
from flow.monitoring.recorder import Recorder

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

_UNITS = {"seconds": "s", "seconds since 1970": "s", "bytes": "By", "0 or 1": ""}
"""Units of UCUM. Other units are annotations such as ``{items}``, which exporters leave out."""


class OpenTelemetryMetrics:
    """The metrics of a run, observed by a meter provider of OpenTelemetry.

    An object of this class is the `on_epoch` function of a run. The instruments are those of
    ``/metrics``: an asynchronous counter or gauge for each, with the attribute ``flow`` and the
    labels as further attributes. The name of a counter has no ``_total``, which exporters add. The
    exporters of the provider decide when values are read; a run never waits for one.

    As a context manager, it reports an error of the block as the failure of the run.

    Needs the package of the extra ``otel`` where the flow is started.

    Args:
        flow: the flow that is run.
        provider: the meter provider; by default the provider that the program has set.

    Raises:
        EnvironmentProblem: opentelemetry-api is not installed.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import TestingSink
        >>> graph = Dataflow("example")
        >>> op.output("out", op.input("in", graph, [1, 2, 3]), TestingSink([]))
        >>> metrics = OpenTelemetryMetrics(graph)

        With it, ``with metrics: metrics.end(run(graph, on_epoch=metrics))`` runs the flow.
    """

    def __init__(self, flow: Dataflow, provider: MeterProvider | None = None) -> None:
        api = _api()
        self._observation = api.Observation
        self._recorder = Recorder(compile_flow(flow), "")
        meter = (api.get_meter_provider() if provider is None else provider).get_meter("flow")
        for metric in METRICS:
            make = meter.create_observable_gauge
            if metric.is_counter:
                make = meter.create_observable_counter
            make(
                metric.name.removesuffix("_total"),
                [self._callback(metric)],
                _UNITS.get(metric.unit, f"{{{metric.unit}}}"),
                metric.meaning,
            )

    def __call__(self, report: EpochReport) -> None:
        """Add the report of an epoch."""
        self._recorder.add(report)

    def end(self, summary: Summary) -> None:
        """Report that the run has returned its summary."""
        self._recorder.end(summary)

    def __enter__(self) -> OpenTelemetryMetrics:
        """Return the object itself; a failure of the block is a failure of the run."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self._recorder.fail(error)

    def _callback(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            status = self._recorder.status
            for values, sample in metric.samples(status).items():
                labels = dict(zip(metric.labels, values, strict=True))
                yield self._observation(sample, {"flow": status.flow_id, **labels})

        return observe


def _api() -> Any:
    """Return the module `opentelemetry.metrics`.

    Raises:
        EnvironmentProblem: the package is not installed.
    """
    with package_of_extra("otel", "opentelemetry-api", "OpenTelemetryMetrics"):
        from opentelemetry import metrics
    return metrics
