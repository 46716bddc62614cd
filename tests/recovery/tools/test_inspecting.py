"""Inspection of a step's state, key by key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow
from flow.execution import StopFlag
from flow.instants import datetime_us
from flow.testing import TestingSink, TestingSource
from recovery import inspect
from tests.recovery.checkpoints import run_flow
from tests.recovery.kept_flow import NOW

HOUR = datetime_us(NOW) // 3_600_000_000
OPEN = {"id": HOUR, "open": "2023-12-14T10:00:00Z", "close": "2023-12-14T11:00:00Z"}


def state_of(found: Any, key: str) -> Any:
    return next(one.state for one in found.keys if one.key == key)


def waits(clock_time: str, n: int) -> Any:
    at = f"2023-12-14T{clock_time}:00Z"
    return {"timestamp": at, "value": {"at": at, "n": n}}


def test_shows_watermark_open_windows_and_buffered_values_also_as_text_and_json(
    checkpoint: Path,
) -> None:
    found = inspect(checkpoint, "hourly")
    assert (found.step, found.epoch, found.total) == ("hourly", 3, 2)
    assert found.now == "2023-12-14T10:00:00Z"
    a, b = state_of(found, "a"), state_of(found, "b")
    assert a["watermark"] == "2023-12-14T10:50:00Z"
    assert a["windows"] == [{**OPEN, "value": {"n": 2, "total": 3}}]
    assert a["waiting"] == [waits("11:00", 3)]
    assert b["watermark"] == "2023-12-14T10:30:00Z"
    assert b["windows"] == [{**OPEN, "value": {"n": 2, "total": 30}}]
    assert b["waiting"] == [waits("10:40", 30)]

    text = str(found)
    assert text.startswith("step hourly after epoch 3, at 2023-12-14T10:00:00Z: 2 keys")
    assert "\nkey: a\ndue: never\nstate:\n  watermark: 2023-12-14T10:50:00Z\n" in text
    assert '      value: {"n": 2, "total": 3}\n' in text
    assert json.loads(json.dumps(asdict(found)))["keys"][0]["state"]["windows"][0]["id"] == HOUR


@pytest.mark.extended
def test_shows_an_earlier_epoch(checkpoint: Path) -> None:
    found = inspect(checkpoint, "hourly", key="a", epoch=0)
    (only,) = found.keys
    assert only.state["watermark"] == "2023-12-14T09:55:00Z"
    assert (only.state["windows"], only.state["waiting"]) == ([], [waits("10:05", 1)])
    assert only.due is None


@pytest.mark.extended
def test_shows_sessions_by_their_first_and_last_values(checkpoint: Path) -> None:
    (only,) = inspect(checkpoint, "sessions", key="a").keys
    (session,) = only.state["windows"]
    assert (session["open"], session["close"]) == ("2023-12-14T10:05:00Z", "2023-12-14T10:30:00Z")
    assert [value["n"] for _, value in session["value"]] == [1, 2]
    assert only.due == "2023-12-14T10:10:00Z"


def test_shows_the_watermark_of_a_whole_stream(checkpoint: Path) -> None:
    found = inspect(checkpoint, "whole")
    assert [one.state["watermark"] for one in found.keys] == ["2023-12-14T10:50:00Z"] * 2
    b = state_of(found, "b")
    assert [value["n"] for _, value in b["windows"][0]["value"]] == [10, 20]
    assert b["waiting"] == []


@pytest.mark.extended
@pytest.mark.usefixtures("spark")
def test_shows_the_holds_of_a_key(tmp_path: Path) -> None:
    """Views are read up to minute 1, of clicks all; the window of minute 0 waits for the views."""
    flow, stop = Dataflow("shop"), StopFlag()
    views = op.input("views", flow, TestingSource([("k", 60 * n) for n in range(9)], 2))
    clicks = op.input("clicks", flow, TestingSource([("k", 60 * n + 1) for n in range(9)], 9))
    clock = win.EventClock(lambda at: at, "0s")
    merged = op.merge("merged", views, clicks)
    out = win.collect_window("by_minute", merged, clock, win.TumblingWindower("1m"), ordered=False)
    op.output("out", out.down, TestingSink([]))
    path = tmp_path / "checkpoint"
    run_flow(path, flow, system_time=NOW, stop=stop, on_epoch=lambda *_: stop.ask())
    (only,) = inspect(path, "by_minute").keys
    assert only.state["watermark"] == "1970-01-01T00:01:00Z"
    assert [one["id"] for one in only.state["windows"]] == list(range(1, 9))
    assert only.due == "held until partitions behind reach 1970-01-01T00:02:00Z"


def test_shows_the_state_of_other_steps_unchanged_and_no_more_keys_than_asked_for(
    checkpoint: Path, printed: Callable[..., str]
) -> None:
    found = json.loads(printed("inspect", checkpoint, "--step=counts", "--limit=1", "--json"))
    assert (found["total"], [one["state"] for one in found["keys"]]) == (2, [3])
    assert printed("inspect", checkpoint, "--step=counts", "--epoch=1", "--key=a") == (
        "step counts after epoch 1, at 2023-12-14T10:00:00Z: 2 keys, of which 1 are shown\n\n"
        "key: a\ndue: never\nstate: 2\n"
    )
    assert state_of(inspect(checkpoint, "baskets", key="b"), "b") == {
        "class": "tests.recovery.kept_flow.Basket",
        "fields": {"owner": "me", "sizes": [10, 20, 30]},
    }


def test_an_unknown_step_or_epoch_is_an_error_that_lists_the_known(checkpoint: Path) -> None:
    steps = "'hourly', 'sessions', 'whole', 'baskets', 'counts', 'named'"
    problem = f"{checkpoint}: step 'nix' keeps no state at epoch 3; steps that do: {steps}"
    with pytest.raises(CheckpointError, match=f"^{re.escape(problem)}$"):
        inspect(checkpoint, "nix")
    with pytest.raises(CheckpointError, match=r"epoch 7 is not kept in .*; kept are 0 to 3"):
        inspect(checkpoint, "hourly", epoch=7)
    with pytest.raises(CheckpointError, match="'hourly' keeps nothing of key 'z' at epoch 3"):
        inspect(checkpoint, "hourly", key="z")
