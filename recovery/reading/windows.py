"""The state of a key of a windowing step: watermark, open windows, and buffered values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import flow_windowing
from flow.engine.progress.stream_progress import StepProgress
from flow.errors import FlowError
from flow.instants import MIN_US, NEVER, NO_PROGRESS, Moment, datetime_us, from_us
from flow_windowing import Windower
from flow_windowing.rules.key_state import DriverState, IntervalState, Waiting, mark_of, side_of
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.time_joins.interval_matching import RIGHT
from recovery.reading.epoch_state import EpochState
from recovery.reading.inert import load_inert
from recovery.reading.rendering import Json, plain, time_text


class OpenWindow(NamedTuple):
    """An open window.

    Attributes:
        window_id: the window's id.
        metadata: the window's bounds; ``None`` for a custom windower.
        value: the state of the window's logic.
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
    """

    config: Mapping[str, Json]
    moment: Moment
    progress: StepProgress | None = None

    @classmethod
    def of(cls, state: EpochState, step_id: str) -> WindowingStep:
        """Return the description of a step that may be a windowing step."""
        checkpoint = state.checkpoint
        config = checkpoint.fingerprint["keyed"].get(step_id, {}).get("config")
        return cls(
            config if isinstance(config, dict) else {},
            checkpoint.log(state.epoch).moment,
            state.progress(checkpoint.state_name(step_id)),
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
            return _folded(snapshot, builder.get("aggregator") or {})
        if builder.get("type") == "JoinBuilder":
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
    described = dict(config) if isinstance(config, dict) else {}
    name = str(described.pop("type", ""))
    kind = getattr(flow_windowing, name, None) if name in flow_windowing.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, Windower)):
        return None
    times = {one.name for one in fields(kind) if "datetime" in str(one.type)}  # type: ignore[arg-type]
    given = {
        name: from_us(value) if name in times and isinstance(value, int) else value
        for name, value in described.items()
        if value is not None
    }
    try:
        made: Windower[Any] = kind(**given)
    except (FlowError, TypeError):
        return None
    return made


def _folded(snapshot: Any, aggregator: Json) -> Any:
    """Return the accumulators of a folding window: by name if there are several."""
    if not isinstance(snapshot, tuple) or len(snapshot) not in {1, 2}:
        return snapshot
    state = snapshot[0]  # The state of the panes of a window with a trigger follows.
    described = aggregator if isinstance(aggregator, dict) else {}
    if described.get("type") == "OneOfEachSide":
        return [None if entry is None else entry[1] for entry in state]
    names = described.get("names")
    if isinstance(names, list) and isinstance(state, list) and len(names) == len(state):
        return dict(zip(names, state, strict=True))
    return state


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
