"""`RecoveryConfig`: the one setting of recovery, checked when it is made."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from flow.errors import FlowBuildError, FlowTypeError
from recovery import RecoveryConfig


def test_the_path_is_kept_as_text_and_compares_by_value() -> None:
    assert RecoveryConfig("s3a://bucket/departures").path == "s3a://bucket/departures"
    config = RecoveryConfig(Path("state"))
    assert config == RecoveryConfig("state") != RecoveryConfig("other")
    assert hash(config) == hash(RecoveryConfig("state"))
    assert repr(config) == "RecoveryConfig(path='state')"
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.path = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"path": ""}, FlowBuildError, "got an empty one"),
        ({"path": "  "}, FlowBuildError, "got an empty one"),
        ({"path": None}, FlowTypeError, "needs a directory's path, got NoneType None"),
        ({"path": 7}, FlowTypeError, "needs a directory's path, got int 7"),
        ({"path": b"state"}, FlowTypeError, "needs a directory's path, got bytes b'state'"),
        ({"reset_steps": "hourly"}, FlowTypeError, "must be a list of step ids, got str 'hourly'"),
        ({"reset_steps": [1]}, FlowTypeError, "must be a list of step ids"),
        ({"on_removed": "keep"}, FlowBuildError, "must be 'refuse' or 'drop', got 'keep'"),
        ({"keep_epochs": 0}, FlowBuildError, "keep_epochs must be a whole number of at least 1"),
    ],
)
def test_invalid_settings_are_errors(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RecoveryConfig(**{"path": "there", **arguments})
