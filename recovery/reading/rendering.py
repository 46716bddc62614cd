"""Values and the state of keys as plain JSON, and JSON as indented text.

The state of a key of a windowing step is its watermark, open windows and buffered values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, TypeVar

import flow_windowing
from flow.connectors.source import Json
from flow.dataflow import Dataflow
from flow.durations import duration_text, duration_us
from flow.engine.progress.stream_progress import StepProgress
from flow.errors import FlowError
from flow.instants import MAX_US, MIN_US, NEVER, NO_PROGRESS, Moment, datetime_us, from_us
from flow.keyed.state import held_watermark_us
from flow_windowing import Aggregator, Windower
from flow_windowing.aggregates.folding import FoldingBuilder, aggregators_of, by_side
from flow_windowing.rules.key_state import (
    DriverState,
    IntervalState,
    Waiting,
    mark_of,
    side_of,
    unpack_list,
)
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.time_joins.interval_matching import RIGHT
from recovery.reading.epoch_state import EpochState
from recovery.reading.inert import Inert, load_inert

_LONGEST_BYTES = 32

Built = TypeVar("Built")


def time_text(micros: int) -> str | None:
    """Return an instant in RFC 3339; ``None`` outside the years 1 to 9999.

    >>> time_text(1_500_000), time_text(2**62)
    ('1970-01-01T00:00:01.500000Z', None)
    """
    return _utc_text(from_us(micros)) if MIN_US <= micros <= MAX_US else None


def due_text(due_us: int) -> str | None:
    """Return a due time as an instant or as the reason of a hold; ``None`` without a timer.

    >>> from flow.keyed.state import held_due_us
    >>> due_text(1_500_000), due_text(held_due_us(0))
    ('1970-01-01T00:00:01.500000Z', 'held until partitions behind reach 1970-01-01T00:00:00Z')
    """
    held_us = held_watermark_us(due_us)
    if held_us is None:
        return time_text(due_us)
    return f"held until partitions behind reach {time_text(held_us) or 'their end'}"


def plain(value: Any) -> Json:
    """Convert a value to JSON: fields by name, times in RFC 3339, other objects as text.

    >>> plain({"at": timedelta(minutes=5), 7: (1, b"ab")})
    {'at': '5m', '7': [1, '0x6162']}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {_key(key): plain(one) for key, one in value.items()}
    if isinstance(value, Inert):
        return _inert(value)
    return _structured(value)


def _structured(value: Any) -> Json:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(one) for name, one in zip(value._fields, value, strict=True)}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(one) for one in value), key=json.dumps)
    try:
        elements = None if isinstance(value, (bytes, bytearray)) else list(value)
    except TypeError:
        elements = None
    return _text(value) if elements is None else [plain(one) for one in elements]


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return _utc_text(value) if value.tzinfo is not None else value.isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return duration_text(duration_us(value))
    if isinstance(value, (bytes, bytearray)):
        more = f"… ({len(value)} bytes)" if len(value) > _LONGEST_BYTES else ""
        return f"0x{value[:_LONGEST_BYTES].hex()}{more}"
    return str(value)


def _inert(value: Inert) -> Json:
    """Convert a stand-in: its class, and its non-empty contents."""
    named = value.fields()
    rest = None if named else value.state
    shown = {
        "class": value.name,
        "args": plain(list(value.args)),
        "fields": plain(named),
        "state": plain(rest),
        "items": plain(value.items),
        "entries": {_key(key): plain(one) for key, one in value.entries},
    }
    return {name: one for name, one in shown.items() if one not in (None, [], {})}


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(plain(key), ensure_ascii=False).strip('"')


def _utc_text(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def indented(value: Json, depth: int = 0) -> Iterator[str]:
    r"""Yield JSON as lines of indented text: a line for each name, and dashes for elements.

    >>> print("\n".join(indented({"key": "a", "windows": [{"id": 1, "value": [1, 2]}]})))
    key: a
    windows:
      - id: 1
        value: [1, 2]
    """
    pad = "  " * depth
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _entry(f"{pad}{name}:", one, depth)
    elif isinstance(value, list) and value:
        for one in value:
            lines = list(indented(one, depth + 1))
            yield f"{pad}- {lines[0].strip()}"
            yield from lines[1:]
    else:
        yield pad + _line(value)


def _entry(head: str, value: Json, depth: int) -> Iterator[str]:
    if _nested(value):
        yield head
        yield from indented(value, depth + 1)
    else:
        yield f"{head} {_line(value)}"


_LONGEST_LINE = 76


def _nested(value: Json) -> bool:
    """Return True if a value needs separate lines."""
    if not isinstance(value, (dict, list)) or not value:
        return False
    objects = isinstance(value, list) and any(isinstance(one, dict) and one for one in value)
    return objects or len(_line(value)) > _LONGEST_LINE


def _line(value: Json) -> str:
    if isinstance(value, str):
        return value if _is_plain_text(value) else json.dumps(value, ensure_ascii=False)
    return "-" if value is None else json.dumps(value, ensure_ascii=False)


def _is_plain_text(text: str) -> bool:
    return bool(text) and text == text.strip() and text.isprintable() and text != "-"


Aggregates: TypeAlias = Mapping[str | None, Aggregator[Any, Any, Any]]
"""Aggregates by name; the only one of a step has the name ``None``."""


class OpenWindow(NamedTuple):
    """An open window.

    Attributes:
        window_id: the window's id.
        metadata: the window's bounds; ``None`` for a custom windower.
        value: the result so far of an aggregate; otherwise the state of the window's logic.
    """

    window_id: int
    metadata: WindowMetadata | None
    value: Any


@dataclass(frozen=True)
class WindowingStep:
    """A windowing step, from the fingerprint in its checkpoint.

    Attributes:
        config: the step's configuration in the fingerprint; empty if the fingerprint has none.
        moment: the system time of the epoch.
        progress: the stream progress and the hold of watermarks, for a step that has them.
        aggregates: the step's aggregates in the flow by name; empty without the flow.
    """

    config: Mapping[str, Json]
    moment: Moment
    progress: StepProgress | None = None
    aggregates: Aggregates = field(default_factory=dict)

    @classmethod
    def of(cls, state: EpochState, step_id: str, flow: Dataflow | None = None) -> WindowingStep:
        """Return the description of a step that may be a windowing step; of the flow, if given."""
        checkpoint = state.checkpoint
        config = checkpoint.fingerprint["keyed"].get(step_id, {}).get("config")
        return cls(
            config if isinstance(config, dict) else {},
            checkpoint.log(state.epoch).moment,
            state.progress(checkpoint.state_name(step_id)),
            aggregates_in(flow, step_id),
        )

    def watermark_us(self, state: DriverState | IntervalState, due_us: int) -> int | None:
        """Return a key's watermark at the epoch's end; ``None`` for a custom clock.

        State does not show if time alone advances the watermark, but a key with a timer does.
        For a stream's watermark, the result is the lower bound that values have set.
        """
        clock = self.config.get("clock") or {}
        if clock.get("type") == "SystemClock":
            return self.moment.now_us
        progress = self.progress
        if progress is not None and (progress.reached or clock.get("scope") == "stream"):
            reached = [one.base_us for one in progress.reached.values()]
            return max(progress.floor_us, min(reached, default=NO_PROGRESS))
        match state.clock:
            case (int(base_us), int(set_at_us), *more) if clock.get("type") in (None, "EventClock"):
                waits = bool(state.retained)
                if isinstance(state, DriverState):
                    waits = bool(state.retained or state.windows or state.waiting)
                passed_us = max(0, self.moment.inputs_us - set_at_us)
                own_us = base_us if waits and due_us >= NEVER else base_us + passed_us
                bound_us = NEVER if progress is None else progress.bound.bound_us
                return max(more[1], min(own_us, bound_us)) if len(more) > 1 else own_us
        return None

    def windows(self, state: DriverState) -> Iterator[OpenWindow]:
        """Yield the open windows of a key, in order of their ids."""
        windower = windower_of(self.config.get("windower"))
        logic = None if windower is None else windower.build(state.windower)
        for window_id, snapshot in sorted(state.windows.items()):
            metadata = None if logic is None else logic.metadata(window_id)
            yield OpenWindow(window_id, metadata, self._value(snapshot))

    def view(self, state: DriverState, due_us: int) -> Json:
        """Return the state of a key as JSON."""
        shown: dict[str, Json] = {
            **self._clock_view(state, due_us),
            "windows": [_window_view(one) for one in self.windows(state)],
            "waiting": [_timed(one.timestamp_us, one.value) for one in waiting_values(state)],
        }
        if state.retained:
            shown["kept"] = [_timed(one.timestamp_us, one.value) for one in state.retained]
        if state.emissions:
            shown["emitted"] = {
                str(one): plain(last[1] if last else self._value(state.windows[one]))
                for one, last in state.emissions.items()
            }
        return shown

    def interval_view(self, state: IntervalState, due_us: int) -> Json:
        """Return the state of a key of a join by time as JSON: the retained values of each side.

        In an interval join, a value that has had a partner is ``matched``.
        """
        is_interval = "direction" not in self.config
        sides: dict[str, list[Json]] = {"left": [], "right": []}
        for timestamp_us, tag, value in sorted(state.retained, key=lambda one: one[:2]):
            shown = _timed(timestamp_us, value)
            if is_interval:
                shown["matched"] = bool(mark_of(tag))
            sides["right" if side_of(tag) == RIGHT else "left"].append(shown)
        return {**self._clock_view(state, due_us), **sides}

    def _clock_view(self, state: DriverState | IntervalState, due_us: int) -> Json:
        watermark_us = self.watermark_us(state, due_us)
        watermark = None if watermark_us is None else time_text(watermark_us)
        return {"watermark": watermark, "clock": plain(state.clock)}

    def _value(self, snapshot: Any) -> Any:
        """Return the state of a window's logic, without the logic's wrapping."""
        builder = self.config.get("builder") or {}
        if not isinstance(builder, dict):
            return snapshot
        if builder.get("type") in ("FoldingBuilder", "DiscardingBuilder"):
            return _folded(snapshot, builder.get("aggregator") or {}, self.aggregates)
        if builder.get("type") == "JoinBuilder":  # It emits before the close.
            return [[value for _, value in side] for side in snapshot]
        return snapshot


def waiting_values(state: DriverState) -> list[Waiting]:
    """Return the buffered values of a key, in order of their timestamps."""
    live, runs = state.waiting or ((), ())
    found = list(live)
    for run in runs:
        for block in run:
            found += [Waiting(*one) for one in load_inert(block.content)]
    return sorted(found, key=lambda one: (one.timestamp_us, one.number))


def windower_of(config: Json) -> Windower[Any] | None:
    """Return the windower of a fingerprint; ``None`` for a custom windower.

    >>> windower_of({"type": "TumblingWindower", "length": "1h", "align_to": 0, "closed": "left"})
    TumblingWindower(length='1h', ...)
    """
    return _built(config, Windower)  # type: ignore[type-abstract]  # It makes a subclass.


_OF_VALUES = ("field", "where", "missing")
"""The settings of an aggregate that concern the values which it adds, not its result."""


def _built(config: Json, base: type[Built]) -> Built | None:
    """Return the object that a fingerprint describes; ``None`` for one of the user's classes."""
    described = dict(config) if isinstance(config, dict) else {}
    name = str(described.pop("type", ""))
    kind: Any = getattr(flow_windowing, name, None) if name in flow_windowing.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, base)):
        return None
    times = {one.name for one in fields(kind) if "datetime" in str(one.type)}  # type: ignore[arg-type]
    given = {
        name: from_us(value) if name in times and isinstance(value, int) else value
        for name, value in described.items()
        if value is not None and name not in _OF_VALUES
    }
    try:
        return kind(**given)
    except (FlowError, TypeError):
        return None


def aggregates_in(flow: Dataflow | None, step_id: str) -> Aggregates:
    """Return the aggregates of a flow's step by name; empty if it has none."""
    for step in () if flow is None else flow.steps:
        folding = getattr(getattr(step.operator, "builder", None), "builder", None)
        if step.step_id == step_id and isinstance(folding, FoldingBuilder):
            return aggregators_of(folding.aggregator)
    return {}


def _folded(snapshot: Any, aggregator: Json, aggregates: Aggregates) -> Any:
    """Return the result of a folding window so far: by name if there are several."""
    if not isinstance(snapshot, tuple) or len(snapshot) not in {1, 2}:
        return snapshot
    # The state of the panes of a window with a trigger follows.
    state: Any = unpack_list(snapshot[0], load_inert)
    described = aggregator if isinstance(aggregator, dict) else {}
    if described.get("type") == "OneOfEachSide":
        return [None if entry is None else entry[1] for entry in state]
    if described.get("type") == "AllOfEachSide":
        return by_side(state, described["sides"])
    names, parts = described.get("names"), described.get("aggregators")
    if isinstance(names, list) and isinstance(state, list) and len(names) == len(state):
        parts = parts if isinstance(parts, list) else [None] * len(names)
        accumulators = (unpack_list(one, load_inert) for one in state)
        own = map(aggregates.get, names)
        return dict(zip(names, map(_result, parts, accumulators, own), strict=True))
    return _result(described, state, aggregates.get(None))


def _result(aggregator: Json, accumulator: Any, own: Aggregator[Any, Any, Any] | None) -> Any:
    """Return the result of an accumulator; the accumulator itself if the aggregate is unknown.

    Args:
        aggregator: the aggregate in the fingerprint.
        accumulator: the accumulator.
        own: the aggregate in the flow, for one of a class of the user's.
    """
    built = _built(aggregator, Aggregator)  # type: ignore[type-abstract]  # It makes a subclass.
    if built is None and isinstance(aggregator, dict):
        built = own if aggregator.get("type") == type(own).__qualname__ else None
    try:
        return accumulator if built is None else built.result(accumulator)
    except Exception:  # Stand-ins for values may lack what the aggregate needs, such as an order.
        return accumulator


def _window_view(window: OpenWindow) -> Json:
    shown: dict[str, Json] = {"id": window.window_id}
    if window.metadata is not None:
        shown["open"] = time_text(datetime_us(window.metadata.open_time))
        shown["close"] = time_text(datetime_us(window.metadata.close_time))
        if window.metadata.merged_ids:
            shown["merged_ids"] = sorted(window.metadata.merged_ids)
    return {**shown, "value": plain(window.value)}


def _timed(timestamp_us: int, value: Any) -> Json:
    return {"timestamp": time_text(max(timestamp_us, MIN_US)), "value": plain(value)}
