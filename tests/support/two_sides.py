"""Epochs of two streams, for joins over columns and key by key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from flow.engine.local import Part
from flow.testing import TestDriver
from tests.support.columns import rows
from tests.support.windowed_flows import SECOND

Epoch: TypeAlias = tuple[int, list[list[Any]]]
"""The seconds since the epoch before, and the values of each side."""

two_sides = st.lists(st.lists(rows, max_size=6), min_size=2, max_size=2)
epochs_of_sides = st.lists(st.tuples(st.sampled_from([0, 0, 5, 100]), two_sides), max_size=4)


LEFT_OUT = {"left": "text", "right": "whole"}
"""The column that the records of each side lack where sides have columns of their own."""


def play(
    driver: TestDriver,
    epoch: Epoch,
    form: Any,
    behind: tuple[str, ...] = (),
    has_own_columns: bool = False,
) -> None:
    """Run an epoch; the inputs `behind` have more items, which the epoch does not read."""
    later, sides = epoch
    if later:
        driver.advance(timedelta(seconds=later))
    parts = {}
    for name, some in zip(("left", "right"), sides, strict=True):
        if some:
            items = form(some)
            parts[name] = [Part(without(items, LEFT_OUT[name]) if has_own_columns else items)]
    driver.send_parts(parts, behind=behind)


def without(items: Any, column: str) -> Any:
    """Return records or dicts without a column."""
    if isinstance(items, pa.RecordBatch):
        return items.drop_columns([column])
    return [{name: value for name, value in item.items() if name != column} for item in items]


def sided(drawn: bytes) -> list[Epoch]:
    """Cut values into epochs; a byte draws key, side, second and microsecond of a value."""
    epochs: list[Epoch] = [(0, [[], []])]
    for number, byte in enumerate(drawn):
        if byte % 11 == 0:
            epochs.append(((0, 1, 3, 0)[byte // 11 % 4], [[], []]))
        value = (byte // 2 % 13 * SECOND + byte // 26 % 3 - 1, number)
        epochs[-1][1][byte % 2].append(("ab"[byte // 78 % 2], value))
    return epochs


class Counting:
    """A value that counts how often it is unpickled."""

    read = 0

    def __init__(self, at: int) -> None:
        self.at = at

    def __setstate__(self, state: dict[str, int]) -> None:
        type(self).read += 1
        self.__dict__.update(state)
