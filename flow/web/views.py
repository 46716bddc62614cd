"""Answers to queries of the views that a run writes with `ViewSink`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import unquote

from flow.engine.plan.plan import Plan
from flow.engine.steps.outputs import sink_of
from flow.errors import shorten
from flow.views.answers import JsonAnswer, answer
from flow.views.sink import ViewSink
from flow.views.views_file import Views

ViewSinks: TypeAlias = Mapping[str, ViewSink]
"""The sinks of views by the steps of their outputs."""


def view_sinks(plan: Plan) -> ViewSinks:
    """Return the sinks of a flow that write views."""
    sinks = {edge.step_id: sink_of(plan, edge) for edge in plan.outputs}
    return {step_id: sink for step_id, sink in sinks.items() if isinstance(sink, ViewSink)}


def view_answer(sinks: ViewSinks, path: str, query: Mapping[str, str]) -> JsonAnswer:
    """Answer a query of a view, see `flow.views.answers`.

    Args:
        sinks: the sinks of the run's views.
        path: the path after ``/view/``, percent-encoded.
        query: the parameters of the query, decoded.
    """
    if not path:
        return JsonAnswer(200, {"views": sorted(sinks)})
    name = unquote(path.partition("/")[0])
    sink = sinks.get(name)
    if sink is None:
        known = ", ".join(map(repr, sorted(sinks))) or "none"
        problem = f"this run has no view {shorten(name)}; its views are: {known}"
        return JsonAnswer(404, {"error": problem})
    file = sink.file
    if file is None:
        return JsonAnswer(503, {"error": f"the run has not opened the view {shorten(name)} yet"})
    return answer(Views(file), path, query)
