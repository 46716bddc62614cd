"""The graph of a flow as immutable data: a `Dataflow`, its steps, and the streams between them.

Operator functions (`flow.operators`) build a flow: each adds one `Step` and returns the step's
streams, by `add_step`. A step never changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from flow.checks import check_function, wrong_type
from flow.displays import NotebookObject
from flow.errors import FlowBuildError, FlowTypeError, shorten

X = TypeVar("X")
X_co = TypeVar("X_co", covariant=True)
V = TypeVar("V")


@dataclass(frozen=True)
class Operator:
    """The configuration of a step. Each kind of step is a frozen subclass."""

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of the step's streams; none for an output."""
        return ("down",)

    @property
    def is_optional(self) -> bool:
        """True for a step that is left out, without a warning, if no output needs it."""
        return False


@dataclass(frozen=True)
class StreamId:
    """The identity of a stream: a step and one of its ports."""

    step_id: str
    port: str

    def __str__(self) -> str:
        return self.step_id if self.port == "down" else f"{self.step_id}.{self.port}"


@dataclass(frozen=True)
class Step:
    """A node of the graph: an id, an operator, and the streams that the step reads."""

    step_id: str
    operator: Operator
    ups: tuple[StreamId, ...]

    @cached_property
    def downs(self) -> tuple[StreamId, ...]:
        """The ids of the step's streams, in the order of the operator's ports."""
        return tuple(StreamId(self.step_id, port) for port in self.operator.ports)


@dataclass(frozen=True, eq=False)
class Dataflow(NotebookObject):
    """A flow: a name, and the steps that operators add to it. A notebook shows it as its graph.

    Args:
        flow_id: the flow's name, which identifies its checkpoint too.

    Raises:
        FlowTypeError: if the name is not text.
        FlowBuildError: if the name is empty.

    >>> Dataflow("departures")
    Dataflow('departures')
    """

    flow_id: str
    _steps: dict[str, Step] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.flow_id, str):
            raise FlowTypeError(f"a Dataflow's name must be text, got {shorten(self.flow_id)}")
        if not self.flow_id.strip():
            raise FlowBuildError("a Dataflow needs a name, got an empty one")

    def __repr__(self) -> str:
        return f"Dataflow({self.flow_id!r})"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in the order of their addition: each after the steps that it reads."""
        return tuple(self._steps.values())

    def step(self, step_id: str) -> Step:
        """Return the step of an id.

        Raises:
            FlowBuildError: if the flow has no such step; the error lists the flow's steps.
        """
        if step_id not in self._steps:
            known = ", ".join(repr(name) for name in self._steps) or "none"
            raise FlowBuildError(f"{self!r} has no step {shorten(step_id)}; its steps are: {known}")
        return self._steps[step_id]

    def add(self, step_id: str, operator: Operator, *ups: Stream[object]) -> Step:
        """Add a step; for operator functions, including those that a user writes.

        Raises:
            FlowTypeError: if the id is not text, or an upstream is not a `Stream`.
            FlowBuildError: if the id is empty or in use, or an upstream belongs to another flow.
        """
        self._check_id(step_id)
        for up in ups:
            self._check_up(step_id, up)
        step = Step(step_id, operator, tuple(up.stream_id for up in ups))
        self._steps[step_id] = step
        return step

    def with_operator(self, step_id: str, operator: Operator) -> Dataflow:
        """Return a copy of the flow in which one step has another operator."""
        changed = replace(self.step(step_id), operator=operator)
        copy = Dataflow(self.flow_id)
        copy._steps.update({**self._steps, step_id: changed})
        return copy

    def with_only(self, step_ids: Collection[str]) -> Dataflow:
        """Return a copy of the flow with some of its steps.

        Args:
            step_ids: the ids of the steps, among them all steps that each of them reads.
        """
        copy = Dataflow(self.flow_id)
        copy._steps.update({name: step for name, step in self._steps.items() if name in step_ids})
        return copy

    def _check_up(self, step_id: str, up: object) -> None:
        """Raise a `FlowError` unless an upstream is a stream of this flow."""
        stream = _checked_stream(step_id, up)
        if stream.flow is not self:
            raise FlowBuildError(
                f"step {step_id!r} reads stream {str(stream.stream_id)!r} of {stream.flow!r}, "
                f"but belongs to {self!r}: a step reads streams of one flow only"
            )

    def _check_id(self, step_id: object) -> None:
        if not isinstance(step_id, str):
            hint = ": the first argument of every operator is the step's id"
            raise wrong_type("a step id must be text", step_id, hint)
        if not step_id.strip():
            raise FlowBuildError("a step id must not be empty: name what the step does")
        if step_id in self._steps:
            raise FlowBuildError(
                f"{self!r} already has a step {step_id!r}: give each step an id of its own"
            )


@dataclass(frozen=True, eq=False)
class Stream(Generic[X_co]):
    """An edge of the graph: the items of one port of one step."""

    flow: Dataflow
    stream_id: StreamId

    def __repr__(self) -> str:
        return f"Stream({str(self.stream_id)!r} of {self.flow!r})"

    if not TYPE_CHECKING:  # A type checker that sees `__getattr__` accepts every name.

        def __getattr__(self, name: str) -> object:
            """Raise the error of an unknown attribute, with a hint that operators are functions."""
            hint = (
                ""
                if name.startswith("_")
                else (
                    f": operators are functions, such as op.map(step_id, stream, ...) of "
                    f"flow.operators; write op.{name}(...) if there is one of that name"
                )
            )
            raise AttributeError(f"a Stream has no attribute {name!r}{hint}", name=name, obj=self)

    def __iter__(self) -> Iterator[object]:
        raise FlowTypeError(
            f"{self!r} cannot be looped over while the flow is being built: "
            "use an operator such as op.map to work on its items"
        )


KeyedStream: TypeAlias = Stream[tuple[str, V]]
"""A stream of ``(key, value)`` pairs whose key is a `str`."""


def streams_of(flow: Dataflow, step: Step) -> tuple[Stream[X], ...]:
    """Return a step's streams, in the order of its operator's ports."""
    return tuple(Stream(flow, stream_id) for stream_id in step.downs)


def add_step(step_id: str, operator: Operator, *ups: Stream[Any]) -> tuple[Stream[Any], ...]:
    """Add a step that reads `ups` to their flow, and return the streams it makes."""
    flow = flow_of(step_id, *ups)
    return streams_of(flow, flow.add(step_id, operator, *ups))


def flow_of(step_id: str, *ups: object) -> Dataflow:
    """Return the flow of the first upstream after a check that it is a stream."""
    if not ups:
        raise FlowBuildError(f"step {shorten(step_id)} needs at least one stream to read")
    return _checked_stream(step_id, ups[0]).flow


def check_callable(step_id: str, what: str, value: object) -> None:
    """Raise a `FlowTypeError` that names step and parameter unless `value` can be called."""
    check_function(f"step {shorten(step_id)}: {what}", value)


def _checked_stream(step_id: str, up: object) -> Stream[Any]:
    if isinstance(up, Stream):
        return up
    hint = ""
    if isinstance(up, tuple) or hasattr(up, "_fields") or hasattr(up, "down"):
        hint = ": it holds several streams, name the one you mean, e.g. `.down` or `.trues`"
    elif isinstance(up, Dataflow):
        hint = ": make a stream of it first, with op.input"
    raise wrong_type(f"step {shorten(step_id)} must read a Stream", up, hint)
