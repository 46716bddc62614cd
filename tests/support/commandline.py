"""The command line without Spark: a stub of `run`, and the messages of a command."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import flow.doctor.__main__ as doctor
from flow import Dataflow
from flow.cli import run_command
from flow.config.effective_config import EffectiveConfig
from flow.config.flow_config import FIELD
from flow.engine.epoch.summary import Summary
from recovery import RecoveryConfig

run_main = partial(run_command.main, RecoveryConfig)
"""The command ``python -m flow.run``."""
doctor_main = partial(doctor.main, RecoveryConfig)
"""The command ``python -m flow.doctor``."""

Write = Callable[..., None]
ErrorOutput = Callable[..., str]

FLOW = """\
import flow.operators as op
from flow import Dataflow
from flow.testing import TestingSink, TestingSource

flow = Dataflow("{name}")
op.output("out", op.input("in", flow, TestingSource([1])), TestingSink([]))
"""


class Runs:
    """Stub of `run_configured` that records its arguments and runs a given function."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.action: Callable[[], None] = lambda: None

    def fail(self, error: Exception) -> None:
        """Make the run raise an error."""

        def action() -> None:
            raise error

        self.action = action

    def __call__(self, flow: Dataflow, effective: EffectiveConfig, **arguments: Any) -> Summary:
        given = {name: effective.value(name) for name in effective.settings if name in FIELD}
        given |= {"conf": effective.value("conf")} if effective.conf else {}
        self.arguments = {"flow": flow, **given, **arguments}
        self.action()
        counts = Counter({("in", "out"): 1})
        names = tuple(step.step_id for step in flow.steps)
        made = Summary(flow.flow_id, "batch", epochs=1, seconds=1.0, counts=counts, step_ids=names)
        made.inputs = names[:1]
        return made


def without_other_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when nobody has set up logging: pytest has handlers of its own from a test's beginning."""
    monkeypatch.setattr(logging.getLogger("flow"), "propagate", False)
