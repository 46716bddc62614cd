"""The two ends of a flow: inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from flow.checks import wrong_type
from flow.connectors.items import from_items
from flow.connectors.sink import Sink
from flow.connectors.source import Source
from flow.dataflow import Dataflow, Operator, Stream, add_step, streams_of
from flow.errors import FlowBuildError, shorten
from flow.operators.stateless import TryOut

X = TypeVar("X")


@dataclass(frozen=True)
class Input(Operator):
    """Read a source; with `errors`, the pieces that cannot be read are a second stream."""

    source: Source[Any]
    errors: bool = False

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return ("ok", "errors") if self.errors else ("down",)


@dataclass(frozen=True)
class Output(Operator):
    """Write to a sink."""

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("sink",)

    sink: Sink[Any]

    ports = ()


def input(step_id: str, flow: Dataflow, source: Source[X] | Sequence[X]) -> Stream[X]:
    """Read a source into the flow.

    Args:
        step_id: the step's id, unique in the flow.
        flow: the flow to add to.
        source: a source of `flow.connectors` or of your code, or a list or tuple of items.

    Example:
        >>> numbers = input("numbers", Dataflow("example"), [1, 2, 3])
    """
    read = _checked_source(step_id, flow, source)
    if read.on_invalid == "errors":
        raise FlowBuildError(
            f"step {shorten(step_id)}: a source with on_invalid='errors' makes two streams: "
            "read it with op.try_input, which returns (ok, errors)"
        )
    return streams_of(flow, flow.add(step_id, Input(read)))[0]


def try_input(step_id: str, flow: Dataflow, source: Source[X]) -> TryOut:
    """Read a source made with ``on_invalid="errors"`` into a stream of items and one of errors.

    Args:
        step_id: the step's id, unique in the flow.
        flow: the flow to add to.
        source: the source to read.

    Returns:
        ``ok``, the items, and ``errors``, a `BadInput` for each piece that could not be read.
    """
    _checked_source(step_id, flow, source)
    if source.on_invalid != "errors":
        raise FlowBuildError(
            f"step {shorten(step_id)}: op.try_input needs a source with on_invalid='errors', "
            f"got on_invalid={source.on_invalid!r}"
        )
    return TryOut(*streams_of(flow, flow.add(step_id, Input(source, errors=True))))


def output(step_id: str, up: Stream[X], sink: Sink[X]) -> None:
    """Write a stream to a sink.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to write.
        sink: a sink of `flow.connectors` or of your code.
    """
    if not isinstance(sink, Sink):
        raise wrong_type(f"step {shorten(step_id)}: sink must be a Sink", sink)
    add_step(step_id, Output(sink), up)


def _checked_source(step_id: str, flow: object, source: object) -> Source[Any]:
    """Return the source of an input; a list or a tuple becomes a source of its items."""
    if not isinstance(flow, Dataflow):
        raise wrong_type(f"step {shorten(step_id)}: an input is added to a Dataflow", flow)
    if isinstance(source, (list, tuple)):
        return from_items(source)
    if not isinstance(source, Source):
        raise wrong_type(f"step {shorten(step_id)}: source must be a Source", source)
    return source
