"""The operator that drops repeated values of a key by a clock, and the builder of its step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from typing_extensions import override

from flow.checks import check_getter
from flow.dataflow import KeyedStream, add_step
from flow.durations import Duration
from flow.errors import FlowTypeError, shorten
from flow.instants import MAX_US, MIN_US, Moment, from_us
from flow.keyed.step import Capabilities, OverColumns, Stateful
from flow.operators.stateful_steps import check_ttl
from flow_windowing.clocks.clock import Clock, ClockedBuilder, check_clock
from flow_windowing.columnar.admission.shard_clocks import shard_clock_of
from flow_windowing.deduplication.ids import IdOf
from flow_windowing.deduplication.segments import IdState
from flow_windowing.deduplication.shard import ShardIds
from flow_windowing.rules.metadata import DEDUP_PORTS, DOWN, DUPLICATES, LATE, LateValue
from flow_windowing.rules.triggers import settings_of


@dataclass(frozen=True)
class DedupBuilder(ClockedBuilder):
    """Builder of a step that drops repeated values by a clock, over columns.

    Attributes:
        clock: the clock.
        id_of: the id of a value.
        ttl_us: how long an id is remembered, in µs.
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("clock", "id_of")

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"ttl_us"})
    has_keyed_form = False

    clock: Clock[Any, Any]
    id_of: IdOf
    ttl_us: int

    def __post_init__(self) -> None:
        check_clock(self.clock)

    @property
    @override
    def capabilities(self) -> Capabilities:
        settings = f"{settings_of('close', self.clock, None)} ttl {self.ttl_us}"
        return super().capabilities._replace(settings=settings)

    @override
    def keeps_back(self, port: int) -> bool:
        return False

    @override
    def lower(self) -> OverColumns:
        clock = shard_clock_of(self.clock)
        shard_logic = partial(ShardIds, clock, self.id_of, self.ttl_us)
        of_clock, of_id = clock.fields, self.id_of.fields
        fields = None if of_clock is None or of_id is None else of_clock | of_id
        return OverColumns(shard_logic, fields, frozenset({DOWN, LATE, DUPLICATES}))

    @override
    def watermark(self, snapshot: IdState | None, moment: Moment) -> datetime | None:
        clock = self.clock.build(None if snapshot is None else snapshot[0])
        watermark_us = clock.watermark(moment)
        return from_us(watermark_us) if MIN_US <= watermark_us <= MAX_US else None

    @override
    def view(self, snapshot: IdState, moment: Moment) -> dict[str, Any]:
        _, ids, first_us = snapshot
        pairs = list(zip(ids, map(from_us, first_us), strict=True))
        return {"watermark": self.watermark(snapshot, moment), "ids": pairs}


V = TypeVar("V")


class DedupOut(NamedTuple, Generic[V]):
    """The streams of `dedup`.

    Attributes:
        down: the values that pass.
        late: ``(key, LateValue)``: the values behind the watermark, or too far ahead, of which it
            is not known whether they are repeats; `LateValue.windows` is empty.
        duplicates: the values that repeat one that passed.
    """

    down: KeyedStream[V]
    late: KeyedStream[LateValue[V]]
    duplicates: KeyedStream[V]


def dedup(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[Any, Any],
    id: Callable[[V], Any] | str | None = None,  # The field's word, as `filter` is.
    *,
    ttl: Duration,
) -> DedupOut[V]:
    """Pass the first value of each key and id, and drop its repeats for a time.

    In order of arrival, a value behind the watermark of its key goes to the stream ``late``. Any
    other value passes, unless a value of the same key and id passed whose timestamp differs by less
    than `ttl`, earlier or later. A value at exactly ``first + ttl`` passes. Repeats do not extend
    the time. So no two values of an id that pass are closer than `ttl`, in any order of arrival.

    An id is forgotten once the watermark reaches the timestamp of its value and `ttl`; a key whose
    ids are all forgotten has no state, and its clock starts again with the next value. The state of
    a key is its remembered ids, which an epoch reads and writes as a whole: for ids that are unique
    in the stream, key on the id.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock: an `EventClock`, or a `SystemClock`, by which no value is late. With
            ``scope="stream"`` a value is late by the watermark of the step, also for a key without
            state.
        id: a function of the value, or the path of a field, such as ``"order.id"``, that gives the
            id; by default the id is the whole value. Ids are compared with ``==`` and must be plain
            values, or dicts, lists, sets and tuples of plain values.
        ttl: the least difference in time of two values of an id that pass; positive.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock, dedup
        >>> clicks = [("ann", {"id": 1, "at": 0}), ("ann", {"id": 1, "at": 599.999999}),
        ...           ("ann", {"id": 1, "at": 600})]
        >>> once = lambda s: dedup("once", s, EventClock("at", "0s"), "id", ttl="10m").down
        >>> [click["at"] for _, click in run_once(clicks, once)]
        [0, 600]
    """
    if id is not None:
        check_getter(f"step {shorten(step_id)}: id", id, "order.id")
    id_of, ttl_us = IdOf(id), check_ttl(step_id, ttl)
    try:
        builder = DedupBuilder(clock, id_of, ttl_us)
    except FlowTypeError as error:
        raise FlowTypeError(f"step {shorten(step_id)}: {error}") from None
    return DedupOut(*add_step(step_id, Stateful(builder, "dedup", emits=DEDUP_PORTS), up))
