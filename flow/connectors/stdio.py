"""Sink that prints to standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from typing_extensions import override

from flow.checks import wrong_type
from flow.columns.record_batches import rows_as_dicts
from flow.connectors.sink import Guarantee, Sink, SinkBatch, WriteContext
from flow.errors import SinkError, shorten
from flow.process import print_text

X = TypeVar("X")


@dataclass(frozen=True)
class StdOutSink(Sink[X]):
    """Sink that prints each item as a line on the driver when its epoch is committed.

    Workers turn items into text. The driver holds all lines of an epoch in memory, so the sink is
    for small output. Delivery is at least once: the lines of a replayed epoch are printed again.

    Args:
        format: function that returns the text of an item; `str` if left out. It receives a record
            of a columnar stream as a `dict`.

    Raises:
        SinkError: when the flow runs, `format` raised; its exception is the ``__cause__``.

    >>> sink = StdOutSink(format=lambda item: f"{item:.1f}")
    >>> message = sink.write(WriteContext("out", 0, 0, "run"), iter([[1.25, 2.0]]))
    >>> sink.commit(0, [message])
    1.2
    2.0
    """

    format: Callable[[X], object] | None = None

    guarantee = Guarantee.AT_LEAST_ONCE
    commits_in_program = True

    def __post_init__(self) -> None:
        if self.format is not None and not callable(self.format):
            raise wrong_type("format must be a function", self.format)

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[str]:
        return [
            self._text(item, context.step_id)
            for batch in batches
            for item in (batch if isinstance(batch, list) else rows_as_dicts(batch))
        ]

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        lines = [line for message in messages for line in message]
        if lines:
            print_text("\n".join(lines))

    def _text(self, item: Any, step_id: str) -> str:
        try:
            return str(item if self.format is None else self.format(item))
        except Exception as error:  # A user's function may raise any exception.
            what = "str" if self.format is None else "format"
            raise SinkError(
                f"step {step_id!r}: {what} raised {type(error).__name__}: {error}\n"
                f"  item: {shorten(item)}"
            ) from error
