"""The contract of an aggregate: values are added one by one to a state, which gives a figure.

An `Aggregator` is configuration; what it knows of one window's values is a state of its own choice,
made by `initialize` and handed to each call. Laws that every aggregator keeps, and that the
built-in ones are tested for:

- Merging the states of two parts of the values gives the result of adding all of them to one state,
  wherever the parts are cut, and whichever of the two is merged into the other (but for the last
  digits of a `StdDev`).
- `result` does not change the state, and what it returned does not change when the state goes on.
- A state can be pickled, and is as small as the figure allows: it is written down with the window.

States may be changed in place: whoever needs a state as it was takes a copy. Those of the built-in
aggregates hold nothing that changes one level down, so that `copy.copy` is enough.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from typing_extensions import override

from flow.errors import RAISED, FlowBuildError, FlowTypeError, brief, shorten
from flow.fields import FieldPath, field_path
from flow.instants import Instant, instant_us
from flow.keyed.logic import FailedCall
from flow.operators import RejectedValue

V = TypeVar("V")
S = TypeVar("S")
R = TypeVar("R")

Field: TypeAlias = str | Callable[[Any], Any] | None
"""What to aggregate: a field's path, a function of the value, or ``None``, the value itself."""


class Arrival(NamedTuple):
    """When a value came.

    Attributes:
        timestamp_us: its timestamp, in microseconds since the Unix epoch.
        number: how many values of the key came before it.
        entered: its number in the order in which the key's values enter windows. Where values wait
            to enter in timestamp order, that is not the order in which they came.
    """

    timestamp_us: int
    number: int
    entered: int


AT_ONCE = Arrival(0, 0, 0)
"""Of values that all arrive so, those added earlier come first, and a state's before another's."""


class Aggregator(ABC, Generic[V, S, R]):
    """A figure of a window's values: the contract for one's own.

    The engine calls `add_at`, `merge` and `result`, never `add`: whoever needs no more than the
    value writes `add`, whoever needs to know when it came overrides `add_at`.

    Example:
        >>> class Product(Aggregator[float, float, float]):
        ...     def initialize(self):
        ...         return 1
        ...
        ...     def add(self, state, value):
        ...         return state * value
        ...
        ...     def merge(self, state, other):
        ...         return state * other
        ...
        ...     def result(self, state):
        ...         return state
        >>> aggregate(Product(), [2, 3, 4])
        24
    """

    FUNCTIONS: ClassVar[Mapping[str, str]] = {}
    """What errors call the functions behind its methods, where these were given by a user."""

    @abstractmethod
    def initialize(self) -> S:
        """Make the state of a window that holds no value yet: a new one each time."""

    @abstractmethod
    def add(self, state: S, value: V) -> S:
        """Return the state with a value more; it may be the one given, changed.

        Raises:
            RejectedValue: when the value cannot be aggregated; the flow stops, and names it.
        """

    def add_at(self, state: S, value: V, at: Arrival) -> S:  # noqa: ARG002
        """Return the state with a value more, which came at `at`; by default, what `add` does."""
        return self.add(state, value)

    @abstractmethod
    def merge(self, state: S, other: S) -> S:
        """Return the state of two windows that became one.

        Either of the two may be the one that is returned, changed; neither is used otherwise
        afterwards. Values of the two may have come in any order.
        """

    @abstractmethod
    def result(self, state: S) -> R:
        """Return the figure. Called once as a window closes, or more often to show updates."""


def aggregate(
    aggregator: Aggregator[V, Any, R],
    values: Iterable[V],
    times: Iterable[Instant] | None = None,
) -> R:
    """Aggregate values without a flow, as one window would: to try an aggregator, or to test one.

    Args:
        aggregator: what to work out.
        values: the values, in order of arrival.
        times: a timestamp for each value: an aware datetime, Unix seconds or ISO 8601 text. Without
            them the values come a microsecond apart.

    Raises:
        FlowTypeError: for anything that is not an aggregator, such as its class.
        RejectedValue: when the aggregator refuses a value.
        ValueError: when there are not as many times as values.

    >>> from flow_windowing import Latest, Mean
    >>> aggregate(Mean("price"), [{"price": 1}, {"price": 2}, {}])
    1.5
    >>> aggregate(Latest(), ["a", "b", "c"], times=[10, 30, 20])
    'b'
    """
    if not isinstance(aggregator, Aggregator):
        raise FlowTypeError(
            f"aggregate needs an Aggregator such as Count(), got {shorten(aggregator)}"
        )
    held = list(values)
    stamps = range(len(held)) if times is None else map(instant_us, times)
    state = aggregator.initialize()
    for number, (value, timestamp_us) in enumerate(zip(held, stamps, strict=True)):
        state = aggregator.add_at(state, value, Arrival(timestamp_us, number, number))
    return aggregator.result(state)


def called(aggregator: Aggregator[Any, Any, Any], method: str, *arguments: Any) -> Any:
    """Call a method of an aggregator; where it raises, the error says whose fault that is.

    Raises:
        RejectedValue: when it cannot aggregate the value.
        FailedCall: when it raised something without having been given a value.
    """
    try:
        return getattr(aggregator, method)(*arguments)
    except RAISED as error:
        value = arguments[1:2] if method == "add_at" else ()
        failure = failure_of(aggregator, method, error, *value)
        raise failure from failure.__cause__


def failure_of(
    aggregator: Aggregator[Any, Any, Any], method: str, error: BaseException, *value: Any
) -> Exception:
    """What to raise because of what a method of an aggregator raised, unless that says enough.

    Args:
        aggregator: whose method it is.
        method: its name.
        error: what it raised.
        value: the value that it was given, if it was one.
    """
    if isinstance(error, (RejectedValue, FailedCall, UnfitError)):
        return error
    name = method.removesuffix("_at")
    what = aggregator.FUNCTIONS.get(name, f"{type(aggregator).__name__}.{name}")
    failure = (
        RejectedValue(value[0], f"{what} raised {brief(error)}") if value else FailedCall(what)
    )
    failure.__cause__ = error
    return failure


class UnfitError(Exception):
    """Something that was found in a value cannot be aggregated; becomes a `RejectedValue`.

    Attributes:
        found: what was found.
        problem: what cannot be done with it, without a subject: ``"cannot add 'abc' (str)"``.
    """

    def __init__(self, found: object, problem: str) -> None:
        self.found = found
        self.problem = problem
        super().__init__(found, problem)


def described(found: object) -> str:
    """A value with its type, for an error.

    >>> described("abc")
    "'abc' (str)"
    """
    return f"{shorten(found)} ({type(found).__name__})"


@dataclass(frozen=True, repr=False)
class FieldAggregator(Aggregator[Any, S, R]):
    """An aggregate of one field of the values; a value without it, or with ``None``, is skipped.

    Subclasses write `_take`, which adds what was found, and `_join`, which merges; both may raise
    an `UnfitError`.
    """

    # How many arguments a repr shows by place; the rest go by name.
    _by_place: ClassVar[int] = 2
    # Whether `_take` asks when a value came.
    by_arrival: ClassVar[bool] = True

    field: Field = None

    def __post_init__(self) -> None:
        name, field = type(self).__name__, self.field
        if field is None or (callable(field) and not isinstance(field, str)):
            return
        if not isinstance(field, str):
            raise FlowTypeError(
                f"{name}: field must be a field's path, a function or None, got {shorten(field)}"
            )
        if not FieldPath(field).is_valid:
            raise FlowBuildError(
                f"{name}: field must be a path such as 'details.price', got {field!r}"
            )

    @override
    def __repr__(self) -> str:
        shown = []
        skipped = False
        for place, one in enumerate(fields(self)):
            value = getattr(self, one.name)
            if value == one.default:
                skipped = True
            elif skipped or place >= self._by_place:
                shown.append(f"{one.name}={_typed(value)}")
            else:
                shown.append(_typed(value))
        return f"{type(self).__name__}({', '.join(shown)})"

    @override
    def add(self, state: S, value: Any) -> S:
        """Add a value as if it came together with all others that are added so."""
        return self.add_at(state, value, AT_ONCE)

    @override
    def add_at(self, state: S, value: Any, at: Arrival) -> S:
        try:
            return self.add_found(state, self._find(value), at)
        except UnfitError as error:
            raise self.rejected(value, error) from error.__cause__

    def add_found(self, state: S, found: Any, at: Arrival) -> S:
        """Return the state with what was found in a value that came at `at`, if anything was.

        Raises:
            UnfitError: when it cannot be aggregated.
        """
        return state if found is None else self._take(state, found, at)

    def rejected(self, value: Any, error: UnfitError) -> RejectedValue:
        """What is raised for a value in which something unfit was found."""
        return RejectedValue(value, f"{self!r} {error.problem}")

    @override
    def merge(self, state: S, other: S) -> S:
        try:
            return self._join(state, other)
        except UnfitError as error:
            raise self.rejected(error.found, error) from error.__cause__

    @abstractmethod
    def _take(self, state: S, found: Any, at: Arrival) -> S: ...

    @abstractmethod
    def _join(self, state: S, other: S) -> S: ...

    def _find(self, value: Any) -> Any:
        """What there is to aggregate in a value; ``None`` for nothing."""
        field = self.field
        if field is None:
            return value
        try:
            return _at_path(value, field) if isinstance(field, str) else field(value)
        except RejectedValue:
            raise
        except RAISED as error:
            problem = f"{self!r}: reading the value raised {brief(error)}"
            raise RejectedValue(value, problem) from error


def _at_path(value: Any, path: str) -> Any:
    # Values are dicts more often than not, and asking for that is far cheaper than for a Mapping.
    if (type(value) is dict or isinstance(value, Mapping)) and path in value:
        return value[path]
    try:
        return field_path(path).value_in(value)
    except KeyError:
        return None


def _typed(value: object) -> str:
    """How a person would type an argument: a function by its name."""
    return getattr(value, "__name__", repr(value)) if callable(value) else repr(value)
