"""Standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from typing_extensions import override

from flow.connectors.sink import Guarantee, Sink, WriteContext, Written
from flow.errors import FlowTypeError, SinkError, shorten

X = TypeVar("X")


@dataclass(frozen=True)
class StdOutSink(Sink[X]):
    """Print items where the flow was started, a line each, as their epoch is committed.

    Items are turned into text in the workers; all lines of an epoch are then in the memory of the
    process that prints them, so this is for looking on, not for large output. At least once: an
    epoch that is run again is printed again.

    Args:
        format: makes the text of an item; ``None`` for `str`. A record of a columnar stream is
            given as a `dict`.

    Raises:
        SinkError: when the flow runs, if `format` raises; its exception is the ``__cause__``.

    >>> sink = StdOutSink(format=lambda item: f"{item:.1f}")
    >>> message = sink.write(WriteContext("out", 0, 0, "run"), iter([[1.25, 2.0]]))
    >>> sink.commit(0, [message])
    1.2
    2.0
    """

    format: Callable[[X], object] | None = None

    guarantee = Guarantee.AT_LEAST_ONCE

    def __post_init__(self) -> None:
        if self.format is not None and not callable(self.format):
            raise FlowTypeError(
                f"format must be a function, got {type(self.format).__name__} "
                f"{shorten(self.format)}"
            )

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> list[str]:
        return [
            self._text(item, context.step_id)
            for batch in batches
            for item in (batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch)
        ]

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        lines = [line for message in messages for line in message]
        if lines:
            print("\n".join(lines))
            sys.stdout.flush()

    def _text(self, item: Any, step_id: str) -> str:
        try:
            return str(item if self.format is None else self.format(item))
        except Exception as error:  # a user's function may raise anything
            what = "str" if self.format is None else "format"
            raise SinkError(
                f"step {step_id!r}: {what} raised {type(error).__name__}: {error}\n"
                f"  item: {shorten(item)}"
            ) from error
