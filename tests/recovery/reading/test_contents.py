"""Check of the contents of state: each piece can be read, and the pieces agree."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flow.engine.state.segment import Segment
from flow.engine.state.step_state import Header
from recovery import Problem
from recovery.reading.epoch_state import EpochState
from recovery.tools.verifying import _contents


class Contents:
    """State with content that a test gives, in one shard of the step ``total``."""

    checkpoint = SimpleNamespace(step_of=lambda name: name)

    def __init__(self, content: bytes | None, number: int = 0, keys: int = 1) -> None:
        self._content = content
        self._number = number
        self._keys = keys

    def headers(self) -> Any:
        header = Header.empty()
        header.keys = self._keys
        return {"total": {2: header}}

    def rows(self) -> Iterator[Any]:
        if self._content is not None:
            yield "total", 2, self._number, self._content

    def problems(self) -> list[Problem]:
        return list(_contents(cast("EpochState", self)))


def segment(snapshot: bytes) -> bytes:
    content = Segment({"a": (snapshot, 5)}).encode()
    assert content is not None
    return content


def test_a_segment_and_its_snapshots_are_read() -> None:
    assert Contents(segment(pickle.dumps(7))).problems() == []


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (Contents(segment(pickle.dumps(7))[:-9]), "segment 0 of shard 2 cannot be read"),
        (Contents(b"\x01K" + pickle.dumps([1])), "segment 0 of shard 2 cannot be read"),
        (Contents(b"\x09"), "has format 9, and this version reads format 1"),
        (Contents(segment(pickle.dumps(7)[:-1])), "key 'a' cannot be read"),
        (Contents(None), "1 keys are counted, 0 are there"),
        (Contents(b"\x09", number=-1, keys=0), "has format 9, and this version reads format 1"),
    ],
)
def test_unreadable_or_inconsistent_state_is_reported(state: Contents, message: str) -> None:
    problem = state.problems()[0]
    assert problem.problem.startswith("the state of step 'total'")
    assert message in problem.problem
    assert problem.way_out == "reset the step: RecoveryConfig(..., reset_steps=['total'])"
