"""Plans of sources, for tests."""

from __future__ import annotations

from flow.connectors.source import Planner, Split
from flow.engine.feed.slices import plan_everything


def splits_of(planner: Planner) -> list[Split]:
    """Return the splits of a bounded source, slice after slice."""
    return [split for one in plan_everything({"in": planner})["in"] for split in one.splits]
