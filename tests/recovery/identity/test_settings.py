"""`RecoveryConfig`: the one setting of recovery, checked when it is made."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from flow.errors import FlowBuildError, FlowTypeError
from recovery import RecoveryConfig


def test_keeps_the_path_as_text() -> None:
    assert RecoveryConfig("s3a://bucket/departures").path == "s3a://bucket/departures"
    assert RecoveryConfig(Path("state") / "departures").path == "state/departures"


def test_compares_by_value_and_has_a_valid_repr() -> None:
    config = RecoveryConfig(Path("state"))
    assert config == RecoveryConfig("state") != RecoveryConfig("other")
    assert hash(config) == hash(RecoveryConfig("state"))
    assert repr(config) == "RecoveryConfig(path='state')"


def test_cannot_be_changed() -> None:
    config = RecoveryConfig("state")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.path = "other"  # type: ignore[misc]


@pytest.mark.parametrize("path", ["", "  "])
def test_refuses_an_empty_path(path: str) -> None:
    with pytest.raises(FlowBuildError, match="got an empty one"):
        RecoveryConfig(path)


@pytest.mark.parametrize(
    ("path", "shown"), [(None, "NoneType None"), (7, "int 7"), (b"state", "bytes b'state'")]
)
def test_refuses_a_path_that_is_no_text(path: object, shown: str) -> None:
    with pytest.raises(FlowTypeError, match=f"needs a directory's path, got {shown}"):
        RecoveryConfig(path)  # type: ignore[arg-type]
