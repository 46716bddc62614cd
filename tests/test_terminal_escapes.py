"""Display of names and values with terminal escapes, control characters and markup."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError
from flow.connectors.source import BadInput
from flow.engine.epoch.statistics import LateSource, Stats
from flow.engine.epoch.summary import Summary
from flow.engine.plan.compiler import compile_flow
from flow.errors import brief, first_line, printable
from flow.reports.failure_text import describe_failure
from flow.reports.loss_warnings import DropWarnings, LateWarnings
from flow.reports.progress import StatusLine
from flow.testing import TestDriver, TestingSink, TestingSource
from flow.visualize import to_mermaid

EVIL = "\x1b]0;title\x07\x1b[2J<b>\"'|]\u202e\x9b31m"
RAW = ("\x1b", "\x07", "\x9b", "\u202e")


def harmless(text: str) -> None:
    assert not any(one in text for one in RAW), repr(text)


def failing(item: Any) -> Any:
    raise ValueError(f"cannot read {item}")


def flow_of(step: Callable[[Any], Any]) -> Dataflow:
    flow = Dataflow(EVIL)
    op.output(f"out {EVIL}", step(op.input(EVIL, flow, TestingSource([]))), TestingSink([]))
    return flow


def test_failures_are_shown_harmlessly() -> None:
    flow = flow_of(lambda s: op.map(f"map {EVIL}", s, failing))
    with TestDriver(flow) as driver, pytest.raises(StepError) as caught:
        driver.send(EVIL, [EVIL])
    harmless(str(caught.value))
    harmless(printable(describe_failure(caught.value)))
    harmless(brief(ValueError(EVIL)))
    harmless(first_line(ValueError(EVIL)))


def test_inspected_items_are_shown_harmlessly(capsys: pytest.CaptureFixture[str]) -> None:
    with TestDriver(flow_of(lambda s: op.inspect(f"inspect {EVIL}", s))) as driver:
        driver.send(EVIL, [EVIL])
    shown = capsys.readouterr().out
    assert "title" in shown
    harmless(shown)


def test_warnings_are_shown_harmlessly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bad = BadInput(f"{EVIL}.jsonl, line 1", EVIL, f"not JSON: {EVIL}")
    DropWarnings()(Stats(notes=[f"step {EVIL!r} dropped {bad}", EVIL]))
    clock, windower = win.EventClock("at", "1s"), win.TumblingWindower("1s")
    flow = flow_of(lambda s: win.collect_window(EVIL + "2", s, clock, windower).down)
    stats = Stats()
    stats.counts[EVIL + "2", "late"] = 1
    stats.lateness[EVIL + "2", 1_000_000] = 1
    stats.late_sources[LateSource(EVIL + "2", EVIL, EVIL)] = 1
    LateWarnings(compile_flow(flow))(stats)
    assert len(caplog.messages) == 3
    for message in caplog.messages:
        harmless(message)


def test_the_summary_and_the_progress_line_are_shown_harmlessly() -> None:
    summary = Summary(EVIL, "batch", behind={EVIL: {f"{EVIL}/0": 3}}, step_ids=(EVIL,))
    harmless(str(summary))
    terminal = StringIO()
    StatusLine(terminal).show(f"{EVIL}/0 3 behind")
    harmless(terminal.getvalue().removeprefix("\r\x1b[K"))


def test_the_picture_of_a_flow_escapes_markup_in_names() -> None:
    picture = to_mermaid(flow_of(lambda s: op.map(f"map {EVIL}", s, str)))
    harmless(picture)
    assert "<b>" not in picture


def test_tools_print_names_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from recovery.__main__ import _print

    _print(f"step {EVIL}")
    _print(json.dumps({"key": EVIL}))
    shown = capsys.readouterr().out
    harmless(shown)
    assert json.loads(shown.splitlines()[1]) == {"key": EVIL}
