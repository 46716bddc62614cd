"""The contents of a run, for readers of its page: late values, the state of keys, and views.

A run shows late values and the state of keys only with ``web_values=True``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from flow.engine.plan.plan import Plan
from flow.engine.steps.outputs import sink_of
from flow.errors import FlowError, brief, shorten
from flow.monitoring.run_status import RunStatus, late_json
from flow.views.answers import JsonAnswer, answer
from flow.views.queries import Views
from flow.views.view_sink import ViewSink

StateReader: TypeAlias = Callable[[str, str | None], Any]
"""A function of a step and a key, or ``None`` for the first keys, that returns their state as
JSON."""

HOW_TO_SHOW = (
    "Keys and values are not shown. To show them, start the run with web_values=True, "
    "--web-values or FLOW_WEB_VALUES=on."
)

NO_STATE = (
    "Keys are read from the checkpoint, and this run has none yet. "
    "A run has a checkpoint with recovery=RecoveryConfig(...) or --recovery DIR."
)

MAX_BYTES = 1 << 20
"""The largest state in an answer, as JSON."""

MAX_KEPT = 16
"""The most answers that are kept, each of at most `MAX_BYTES`, with a key of at most 64 kB."""

PATIENCE_SECONDS = 20.0
"""The longest time that a question waits for the end of another one."""


class Inside:
    """The contents of a run, for readers of its page.

    A question about state costs a small job of Spark, so one is answered at a time, and an answer
    is kept until the next epoch, or until there are `MAX_KEPT` newer ones.

    Args:
        shows_values: True if readers may see keys and values.
        how_to_show: the way to show them, in words.

    Attributes:
        reader: the reader of state; ``None`` for a run without a checkpoint, and before its start.
    """

    def __init__(self, shows_values: bool = False, how_to_show: str = HOW_TO_SHOW) -> None:
        self.shows_values = shows_values
        self.how_to_show = how_to_show
        self.reader: StateReader | None = None
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str | None], JsonAnswer] = {}
        self._epochs = -1

    def late(self, status: RunStatus, step_id: str) -> JsonAnswer:
        """Return the newest late values of a step, newest first."""
        refusal = self._refusal(status, step_id)
        if refusal is not None:
            return refusal
        items = status.steps[step_id].late_items
        return JsonAnswer(200, {"step": step_id, "late": late_json(reversed(items))})

    def state(self, status: RunStatus, step_id: str, key: str | None) -> JsonAnswer:
        """Return the state of a step's first keys, or of one key, as of a finished epoch."""
        refusal = self._refusal(status, step_id)
        if refusal is not None:
            return refusal
        if self.reader is None:
            return JsonAnswer(404, {"error": NO_STATE})
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            return JsonAnswer(503, {"error": "another question is being answered: try again"})
        try:
            if self._epochs != status.epochs:
                self._kept.clear()
                self._epochs = status.epochs
            if (step_id, key) not in self._kept:
                if len(self._kept) == MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[step_id, key] = _read(self.reader, step_id, key)
            return self._kept[step_id, key]
        finally:
            self._lock.release()

    def _refusal(self, status: RunStatus, step_id: str) -> JsonAnswer | None:
        if not self.shows_values:
            return JsonAnswer(403, {"error": self.how_to_show})
        if step_id not in status.steps:
            return JsonAnswer(404, {"error": f"the flow has no step {shorten(step_id)}"})
        return None


def _read(reader: StateReader, step_id: str, key: str | None) -> JsonAnswer:
    """Return the state that a reader finds; an error if it fails or finds too much for a page."""
    try:
        found = reader(step_id, key)
        size = len(json.dumps(found))
    except FlowError as error:
        return JsonAnswer(404, {"error": brief(error)})
    except Exception as error:  # A page must not end with an error of Spark's that is not known.
        return JsonAnswer(503, {"error": f"the state cannot be read: {brief(error)}"})
    if size > MAX_BYTES:
        problem = f"the state has {size:,} bytes, more than the page shows: {MAX_BYTES:,}"
        return JsonAnswer(404, {"error": f"{problem}; python -m recovery inspect shows it"})
    return JsonAnswer(200, found)


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
