"""The start, end and failure of a run as events of OpenLineage."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flow.connectors.files.filesystems import without_credentials
from flow.connectors.source import Dataset, Source
from flow.dataflow import Dataflow, Step
from flow.engine.epoch.summary import Summary
from flow.engine.plan.compiler import compile_flow
from flow.errors import FlowBuildError, FlowError, StepError, brief, error_message, package_of_extra
from flow.operators.edges import Input, Output
from flow.operators.keyed_tables import LookupTable
from flow.reports.failure_text import describe_failure

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, OutputDataset

_PRODUCER = "pkg:pypi/flow-windows"
_MESSAGE_LENGTH = 4_000
_CLOSE_SECONDS = 10.0
"""Time to wait for a client that sends events in the background."""

logger = logging.getLogger("flow")


class OpenLineageEvents:
    """The start, end and failure of runs, sent by a client of OpenLineage.

    A ``with`` block is a run with an id of its own. It sends START as it begins, and one of
    COMPLETE, FAIL and ABORT. The job has the name of the flow; the inputs and outputs are those of
    `Source.datasets` and `Sink.datasets`. FAIL has the message of the error, without the key and
    the item of the step that failed, and without users and passwords of URIs.

    An event that cannot be sent is logged once a run as a warning, and the run continues. The run
    waits for the client to send START, for as long as the client tries.

    Needs the package of the extra ``openlineage`` where the flow is started.

    Args:
        flow: the flow that is run.
        namespace: the namespace of the job; by default that of ``OPENLINEAGE_NAMESPACE`` in the
            environment, else ``default``.
        client: the client; by default one for each run, configured by the environment or by
            ``openlineage.yml``.

    Attributes:
        run_id: the id of the newest run, a UUID; empty before the first run.

    Raises:
        EnvironmentProblem: openlineage-python is not installed.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import TestingSink
        >>> graph = Dataflow("example")
        >>> op.output("out", op.input("in", graph, [1, 2, 3]), TestingSink([]))
        >>> events = OpenLineageEvents(graph, namespace="reports")

        With it, ``with events: events.end(run(graph))`` runs the flow.
    """

    def __init__(
        self,
        flow: Dataflow,
        namespace: str | None = None,
        client: OpenLineageClient | None = None,
    ) -> None:
        self._api = _api()
        self._plan = compile_flow(flow)
        self._namespace = namespace or os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        self._client, self._is_own_client = client, client is None
        self._is_running = self._has_warned = False
        self.run_id = ""

    def __enter__(self) -> OpenLineageEvents:
        """Send START of a new run, and return the object itself."""
        self.run_id = str(self._api.uuid.generate_new_uuid())
        self._has_warned = False
        if self._is_own_client:
            self._client = None
            self._attempt("the client", self._make_client)
        self._send("START")
        return self

    def end(self, summary: Summary) -> None:
        """Send the end of the run, with the number of items of each data set where it is known.

        The event is COMPLETE, also for a streaming run that was asked to stop. It is ABORT for a
        batch that was stopped, which writes nothing.

        Raises:
            FlowBuildError: no run has begun.
        """
        if not self._is_running:
            raise FlowBuildError(
                f"OpenLineageEvents of {self._plan.flow_id!r} has no run to end: call end once, in "
                "the with block of the run"
            )
        is_cut = summary.aborted or (summary.stopped and summary.engine == "batch")
        self._send("ABORT" if is_cut else "COMPLETE", summary=summary)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Send the end of a run that `end` was not called for: FAIL after an error."""
        if self._is_running:
            if error is None:
                self._send("COMPLETE")
            else:
                self._send("FAIL" if isinstance(error, Exception) else "ABORT", error=error)
        if self._is_own_client and self._client is not None:
            client, self._client = self._client, None
            self._attempt("the last events", lambda: client.close(_CLOSE_SECONDS))

    def _send(
        self, kind: str, summary: Summary | None = None, error: BaseException | None = None
    ) -> None:
        client, self._is_running = self._client, kind == "START"
        if client is not None:
            self._attempt(f"event {kind}", lambda: client.emit(self._event(kind, summary, error)))

    def _attempt(self, what: str, action: Callable[[], object]) -> None:
        """Run an action on the client; log the first failure of a run."""
        try:
            action()
        except Exception as error:  # A transport may raise anything, and must not end the run.
            if not self._has_warned:
                logger.warning(
                    "flow %r: OpenLineage: %s failed, the run continues: %s",
                    self._plan.flow_id,
                    what,
                    without_credentials(brief(error)),
                )
            self._has_warned = True

    def _make_client(self) -> None:
        self._client = self._api.OpenLineageClient()

    def _event(self, kind: str, summary: Summary | None, error: BaseException | None) -> Any:
        events, facets = self._api.event_v2, self._api.facet_v2
        about_run = {}
        if error is not None:
            about_run["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(
                _message_of(error), "PYTHON", producer=_PRODUCER
            )
        return events.RunEvent(
            eventType=events.RunState[kind],
            eventTime=datetime.now(UTC).isoformat(),
            run=events.Run(self.run_id, about_run),
            job=events.Job(self._namespace, self._plan.flow_id),
            inputs=list(self._inputs(summary)),
            outputs=list(self._outputs(summary)),
            producer=_PRODUCER,
        )

    def _inputs(self, summary: Summary | None) -> Iterator[InputDataset]:
        make = self._api.facet_v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        ends = ((step, _read_by(step), "out") for step in self._plan.steps.values())
        for dataset, rows in _rows_of(ends, summary).items():
            facets = {} if rows is None else {"inputStatistics": make(rows, producer=_PRODUCER)}
            yield self._api.event_v2.InputDataset(dataset.namespace, dataset.name, facets)

    def _outputs(self, summary: Summary | None) -> Iterator[OutputDataset]:
        make = (
            self._api.facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        )
        ends = ((step, _written_by(step), "in") for step in self._plan.steps.values())
        for dataset, rows in _rows_of(ends, summary).items():
            facets = {} if rows is None else {"outputStatistics": make(rows, producer=_PRODUCER)}
            yield self._api.event_v2.OutputDataset(dataset.namespace, dataset.name, facets)


def _read_by(step: Step) -> tuple[Dataset, ...]:
    """Return the data sets that a step reads."""
    match step.operator:
        case Input(source=source) | LookupTable(source=Source() as source):
            return tuple(source.datasets())
    return ()


def _written_by(step: Step) -> tuple[Dataset, ...]:
    """Return the data sets that a step writes."""
    return tuple(step.operator.sink.datasets()) if isinstance(step.operator, Output) else ()


def _rows_of(
    ends: Iterable[tuple[Step, tuple[Dataset, ...], str]], summary: Summary | None
) -> dict[Dataset, int | None]:
    """Return the number of items of each data set, ``None`` where it is not known.

    The counter of a step counts the items of all its data sets, so that it tells the number of one
    only where the step has no other.

    Args:
        ends: inputs or outputs, each with its data sets and the name of its counter.
        summary: the counts; ``None`` without counts.
    """
    rows: dict[Dataset, int | None] = {}
    for step, datasets, counter in ends:
        count = None
        if summary is not None and len(datasets) == 1:
            count = summary.counts.get((step.step_id, counter))
        for dataset in datasets:
            before = rows.get(dataset, 0)
            rows[dataset] = None if count is None or before is None else before + count
    return rows


def _message_of(error: BaseException) -> str:
    """Return the text of an error without the item and the key that it failed for."""
    match error:
        case StepError():
            text = f"step {error.step_id!r}: {error.problem}"
        case FlowError():
            text = describe_failure(error)
        case _:
            text = error_message(error)
    return without_credentials(f"{type(error).__name__}: {text}")[:_MESSAGE_LENGTH]


def _api() -> Any:
    """Return the package `openlineage.client`, with the modules of events, facets and ids.

    Raises:
        EnvironmentProblem: the package is not installed.
    """
    with package_of_extra("openlineage", "openlineage-python", "OpenLineageEvents"):
        from openlineage import client
        from openlineage.client import event_v2, facet_v2, uuid  # noqa: F401
    return client
