"""The second level of windows over all keys: partial accumulators, merged window by window.

Both levels agree on the epoch in which a window closes. The first level's watermark is that of the
stream, so it is the same for all its keys, and windows follow from timestamps alone. So each
window closes for all keys in the same epoch, and the second level receives all partial
accumulators of the window in that epoch. It holds no state, has no clock, and calls nothing late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from typing_extensions import override

from flow.instants import Moment
from flow.keyed.logic import DISCARD, Keep, StatefulBatchLogic
from flow.keyed.step import KeyByKey, LogicBuilder, Lowering
from flow_windowing.aggregates.aggregator import Aggregator, called
from flow_windowing.contract.metadata import WindowMetadata

PORTS = ("down", "closed")
"""The streams of the second level."""
DOWN, CLOSED = range(len(PORTS))

ALL_KEYS = "all"
"""The key of results over all keys."""


class Partial(NamedTuple):
    """An accumulator of some of the values of a window.

    Attributes:
        source: the source of the accumulator; accumulators of a window are merged in order of it.
        window: the window.
        accumulator: the accumulator.
    """

    source: str
    window: WindowMetadata
    accumulator: Any


@dataclass(frozen=True)
class GatherPartials:
    """The mapper that puts the partial accumulators of a bucket under the key of all keys."""

    def __call__(self, item: tuple[str, tuple[WindowMetadata, dict[str, Any]]]) -> Any:
        """Return the item of the second level for an item of the first."""
        bucket, (window, accumulators) = item
        return ALL_KEYS, Partial(bucket, window, list(accumulators.values()))


@dataclass(frozen=True)
class MergeBuilder(LogicBuilder):
    """Builder of the logic that merges partial accumulators.

    Attributes:
        aggregator: the aggregator of the accumulators.
    """

    aggregator: Aggregator[Any, Any, Any]

    @override
    def __call__(self, snapshot: None) -> MergeLogic:
        return MergeLogic(self.aggregator)

    @override
    def keeps_back(self, port: int) -> bool:
        return False

    @override
    def lower(self) -> Lowering:
        return KeyByKey("it merges a few accumulators a window")


class MergeLogic(StatefulBatchLogic[Partial, tuple[int, Any], None]):
    """Merges the partial accumulators of the windows that close in an epoch; holds no state."""

    detaches = True

    def __init__(self, aggregator: Aggregator[Any, Any, Any]) -> None:
        self._aggregator = aggregator

    @override
    def on_batch(
        self,
        values: list[Partial],
        moment: Moment,
    ) -> tuple[Iterable[tuple[int, Any]], Keep]:
        partials_of: dict[int, list[Partial]] = {}
        for partial in values:
            partials_of.setdefault(partial.window.window_id, []).append(partial)
        output: list[tuple[int, Any]] = []
        for _, partials in sorted(partials_of.items()):
            window = _window_of(partials)
            output.append((DOWN, (window, self._result_of(partials))))
            output.append((CLOSED, window))
        return output, DISCARD

    @override
    def snapshot(self) -> None:
        return None

    def _result_of(self, partials: list[Partial]) -> Any:
        aggregator, ordered = self._aggregator, sorted(partials, key=itemgetter(0))
        merged = ordered[0].accumulator
        for partial in ordered[1:]:
            merged = called(aggregator, "merge", merged, partial.accumulator)
        return called(aggregator, "result", merged)


def _window_of(partials: list[Partial]) -> WindowMetadata:
    """Return the metadata of a window; its timestamp is the greatest of all partials."""
    windows = [partial.window for partial in partials]
    if windows[0].timestamp is None:
        return windows[0]
    return max(windows, key=attrgetter("timestamp"))
