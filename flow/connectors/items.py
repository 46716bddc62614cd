"""Items of the user's program, such as a list, as a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from typing_extensions import override

from flow.checks import check_items, check_whole
from flow.connectors.source import Batch, Json, Planner, Slice, Source, SourceLog, Split

X = TypeVar("X")


@dataclass(frozen=True, repr=False)
class ItemsSource(Source[X], Generic[X]):
    """A sequence of items as a source, made by `from_items`.

    The items are sent to the workers with the flow, so the source is for small inputs. A run that
    continues from a checkpoint reads the items after those already read, so items may be appended.
    """

    items: Sequence[X]
    batch_size: int

    def __repr__(self) -> str:
        return f"from_items([...], batch_size={self.batch_size})"

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _ItemsPlanner(len(self.items), self.batch_size)

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        start, end = split.what
        yield list(self.items[start:end])


def from_items(items: Iterable[X], batch_size: int = 10_000) -> ItemsSource[X]:
    """Return a source of items that the program has, such as a list.

    `op.input` takes a list or a tuple as it is.

    Args:
        items: the items, in order.
        batch_size: the most items that an epoch reads.

    Raises:
        FlowTypeError: when `items` is a dict or a text, which is one item.
        FlowBuildError: when `batch_size` is not a positive whole number.

    Example:
        >>> import flow.operators as op
        >>> from flow import Dataflow
        >>> op.input("numbers", Dataflow("example"), from_items(range(3)))
        Stream('numbers' of Dataflow('example'))
    """
    check_items("from_items: items", items)
    check_whole("from_items: batch_size", batch_size, 1)
    return ItemsSource(list(items), batch_size)


class _ItemsPlanner(Planner):
    """Planner of an `ItemsSource`: the offset is the index of the next item."""

    def __init__(self, count: int, batch_size: int) -> None:
        self._count = count
        self._batch_size = batch_size

    @override
    def finished(self, start: Json | None) -> bool:
        return (start or 0) >= self._count

    @override
    def next(self, start: Json | None) -> Slice | None:
        first = start or 0
        if first >= self._count:
            return None
        end = min(first + self._batch_size, self._count)
        behind: tuple[int, ...] = (0,) if end < self._count else ()
        return Slice(end, [Split([first, end])], behind=behind)
