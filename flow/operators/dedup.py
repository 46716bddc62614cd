"""The operator that drops repeated values of a key, by system time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar, Literal, TypeVar

from typing_extensions import override

from flow.checks import check_choice, check_getter
from flow.dataflow import KeyedStream
from flow.durations import Duration
from flow.errors import FlowBuildError, shorten
from flow.instants import NEVER, Moment, from_us
from flow.keyed.id_segments import IdState
from flow.keyed.ids import IdOf
from flow.keyed.logic import DISCARD, KEEP, Keep, KeyLogic, StatefulLogic
from flow.keyed.shard_ids import DOWN, DUPLICATES, ShardIds
from flow.keyed.step import LogicBuilder, Lowering, OverColumns, Stateful
from flow.operators.building import add_step
from flow.operators.expiring import check_ttl

V = TypeVar("V")


def dedup(
    step_id: str,
    up: KeyedStream[V],
    id: Callable[[V], Any] | str | None = None,  # The field's word, as `filter` is.
    *,
    ttl: Duration,
    by: Literal["system"] = "system",
) -> KeyedStream[V]:
    """Pass the first value of each key and id, and drop its repeats for a time.

    An id is remembered for `ttl` of system time after the value that passed; repeats in between do
    not extend the time. The next value with the id at or after the end of that time passes, and the
    time starts again. Dropped values are counted as ``duplicates`` of the step.

    The state of a key is its remembered ids, which an epoch reads and writes as a whole. For ids
    that are unique in the stream, key on the id: ``op.key_on("by_id", stream, "id")``.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        id: a function of the value, or the path of a field, such as ``"order.id"``, that gives the
            id; by default the id is the whole value. Ids are compared with ``==`` and must be plain
            values, or dicts, lists, sets and tuples of plain values.
        ttl: how long an id is remembered; positive.
        by: ``"system"``. By event time, use `flow_windowing.dedup`, which has a clock.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> clicks = [("ann", 1), ("ann", 1), ("bob", 1), ("ann", 2)]
        >>> run_once(clicks, lambda s: op.dedup("once", s, ttl="10m"))
        [('ann', 1), ('bob', 1), ('ann', 2)]
    """
    check_by(step_id, by)
    builder = DedupBuilder(checked_id(step_id, id), check_ttl(step_id, ttl))
    return add_step(step_id, Stateful(builder, "dedup", emits=("down", "duplicates")), up)[0]


def checked_id(step_id: str, getter: Any) -> IdOf:
    """Return the id of values, after a check of the argument `id`.

    Raises:
        FlowTypeError: when it is no function, path or ``None``.
        FlowBuildError: when it is text that is no path.
    """
    if getter is not None:
        check_getter(f"step {shorten(step_id)}: id", getter, "order.id")
    return IdOf(getter)


def check_by(step_id: str, by: str) -> None:
    """Raise a `FlowBuildError` unless `by` is ``"system"``."""
    check_choice(f"step {shorten(step_id)}: by", by, ("system", "event"))
    if by == "event":
        raise FlowBuildError(
            f"step {shorten(step_id)}: by='event' needs a clock that reads timestamps: use "
            "flow_windowing.dedup(step_id, stream, EventClock(...), id=..., ttl=...)"
        )


@dataclass(frozen=True)
class DedupBuilder(LogicBuilder):
    """The builder of a step that drops repeated values by system time.

    Attributes:
        id_of: the id of a value.
        ttl_us: how long an id is remembered, in µs.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"ttl_us"})

    id_of: IdOf
    ttl_us: int

    @override
    def __call__(self, snapshot: IdState | None) -> KeyLogic[Any, Any]:
        _, ids, first_us = snapshot or (None, [], [])
        return _DedupLogic(self, dict(zip(ids, first_us, strict=True)))

    @property
    @override
    def settings(self) -> str:
        return f"ttl {self.ttl_us}"

    @override
    def lower(self) -> Lowering:
        # The streams carry whole records.
        shard_logic = partial(ShardIds, self.id_of, self.ttl_us)
        return OverColumns(shard_logic, self.id_of.fields, frozenset({DOWN, DUPLICATES}))

    @override
    def view(self, snapshot: IdState, moment: Moment) -> dict[Hashable, datetime]:
        _, ids, first_us = snapshot
        return dict(zip(ids, map(from_us, first_us), strict=True))


class _DedupLogic(StatefulLogic[Any, tuple[int, Any], IdState]):
    """The remembered ids of a key; emits ``(port, value)``.

    Invariant: `_first_us` has the system time of the value that passed for each id, in ascending
    order. The engine calls a due timer before the values of an epoch, so no value meets an expired
    id.
    """

    detaches = True

    def __init__(self, config: DedupBuilder, first_us: dict[Hashable, int]) -> None:
        self._id_of, self._ttl_us = config.id_of, config.ttl_us
        self._first_us = first_us

    @override
    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        found = self._id_of(value)
        if found in self._first_us:
            return ((DUPLICATES, value),), KEEP
        self._first_us[found] = moment.now_us
        return ((DOWN, value),), KEEP

    @override
    def on_notify(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        last_us = moment.now_us - self._ttl_us
        expired = list(takewhile(lambda one: one[1] <= last_us, self._first_us.items()))
        for found, _ in expired:
            del self._first_us[found]
        return (), KEEP if self._first_us else DISCARD

    @override
    def notify_at_us(self) -> int:
        return min(next(iter(self._first_us.values()), NEVER) + self._ttl_us, NEVER)

    @override
    def snapshot(self) -> IdState:
        return None, list(self._first_us), list(self._first_us.values())
