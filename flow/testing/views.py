"""Views of a flow that `TestDriver` runs, in memory."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from flow.connectors.sink import WriteContext
from flow.engine.plan.plan import Plan
from flow.engine.steps.outputs import sink_of
from flow.errors import FlowBuildError
from flow.views.reading import View
from flow.views.sink import ViewSink
from flow.views.views_file import Ask, opened_for_writing
from flow.views.writing import ViewRun, ViewWriter

_RUN_ID = "test"


class DriverViews:
    """The views of outputs with a `ViewSink`, written by the code that runs on Spark use too.

    Args:
        plan: the compiled flow.
    """

    def __init__(self, plan: Plan) -> None:
        self._epoch = 0
        self._sinks: dict[str, ViewSink] = {}
        for edge in plan.outputs:
            sink = sink_of(plan, edge)
            if isinstance(sink, ViewSink):
                self._sinks[edge.step_id] = sink
        if self._sinks:
            self._database = opened_for_writing(":memory:")
            weakref.finalize(self, self._database.close)
        self._writers = {
            name: ViewWriter(
                self._database, name, sink.by, sink.kept(), ViewRun(plan.flow_id, _RUN_ID, name)
            )
            for name, sink in self._sinks.items()
        }
        for writer in self._writers.values():
            writer.open()

    def commit(self, outputs: Mapping[str, list[Any]]) -> None:
        """Write an epoch's items to the views."""
        for name, writer in self._writers.items():
            context = WriteContext(name, self._epoch, 0, _RUN_ID)
            rows = self._sinks[name].write(context, iter([outputs.get(name, [])]))
            writer.commit(self._epoch, rows)
        self._epoch += 1

    def view(self, name: str) -> View:
        """Return a view.

        Raises:
            FlowBuildError: when the flow has no such view.
        """
        if name not in self._sinks:
            known = ", ".join(map(repr, self._sinks)) or "none"
            raise FlowBuildError(f"the flow has no view {name!r}; outputs with ViewSink: {known}")
        return View(name, self._sinks[name].by, self._reading)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Ask]:
        yield self._database.ask
