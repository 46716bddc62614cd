"""The window driver of one key of a step with a trigger: windows emit panes.

A window fires early and late panes by the number of values since its last pane, as a value enters,
or by a timer of system time. The on-time pane fires as the watermark passes the end of the window,
without grace. So panes by count and on-time panes do not depend on the boundaries of epochs, and
panes by time do so only as far as system time advances between epochs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

from typing_extensions import override

from flow.instants import NEVER, Moment
from flow_windowing.aggregates.folding import FoldingLogic
from flow_windowing.by_key.window_driver import WindowDriver, WindowingConfig
from flow_windowing.rules.key_state import DriverState
from flow_windowing.rules.leaves import Leaves, StoredWindow, need_leaves
from flow_windowing.rules.metadata import Pane, PaneTiming, WindowMetadata
from flow_windowing.rules.triggers import AfterWatermark
from flow_windowing.rules.window_logic import Calling, WindowLogic
from flow_windowing.windowers.session_windower import SessionLogic


@dataclass(slots=True)
class PaneState:
    """The panes of an open window.

    Attributes:
        index: the index of the next pane.
        values: the number of values in the window.
        pending: the number of values since the last pane.
        due_us: the system time at which the next pane is due; `NEVER` for none.
        is_past: True if the watermark had passed the window's end when its last value entered, or
            has passed it since.
    """

    index: int = 0
    values: int = 0
    pending: int = 0
    due_us: int = NEVER
    is_past: bool = False


_FIELDS = attrgetter(*PaneState.__slots__)
"""Returns the fields of a `PaneState` without copying them deeply, as `astuple` does."""


class PaneDriver(WindowDriver):
    """The logic of one key of a windowing step with a trigger.

    Invariants: `_panes` has an entry for each open window. `_ends_us` has the least watermark that
    passes the end of each open window, without those that it has passed and those that close at
    their end; `_end_heap` has its items, and some that are outdated. `_entering_us` is the
    watermark at which a value enters windows, and `_reached` has the windows in which that value
    reaches the count of a rule.
    """

    def __init__(
        self, config: WindowingConfig, trigger: AfterWatermark, snapshot: DriverState | None
    ) -> None:
        super().__init__(config, snapshot)
        self._trigger = trigger
        self._entering_us = -NEVER
        self._reached: list[int] = []
        self._panes = {} if snapshot is None else _panes_in(snapshot)
        self._ends_us: dict[int, int] = {}
        self._end_heap: list[tuple[int, int]] = []
        for window_id in self._panes:
            self._set_end(window_id)

    @override
    def _restore(self, stored: StoredWindow) -> None:
        super()._restore(stored)
        (window_id, *_), (_, pane), *_ = stored
        self._panes[window_id] = PaneState(*pane)
        self._set_end(window_id)

    @override
    def on_changed(self, before: str, moment: Moment) -> Iterable[tuple[int, Any]]:
        self._moment = moment
        self._take_due(NEVER)
        for pane in self._panes.values():
            if pane.pending:
                self._start_timer(pane)
        return super().on_changed(before, moment)

    @override
    def snapshot(self) -> DriverState:
        if need_leaves(len(self._windows), self._leaves):
            self._move_to_leaves()
        state = super().snapshot()
        windows = {
            window_id: (*window, _FIELDS(self._panes[window_id]))
            for window_id, window in state.windows.items()
        }
        return state._replace(windows=windows)

    def _move_to_leaves(self) -> None:
        """Move the sessions in memory to leaves."""
        if self.blocks is None or not isinstance(self._windower, SessionLogic):
            return
        self._leaves = self._leaves or Leaves()
        self._leaves.put(map(self._stored, self._windower.snapshot() or ()), self.blocks)
        self._windower = self._config.windower.build(None)
        for of_windows in (self._windows, self._panes, self._ends_us, self._emitted, self._latest):
            of_windows.clear()

    def _stored(
        self, session: tuple[int, int, int, tuple[int, ...]]
    ) -> tuple[StoredWindow, int, int]:
        """Return a session, and the watermark and the system time at which its window is due."""
        window_id, pane = session[0], self._panes[session[0]]
        window = (*self._windows[window_id].snapshot(), _FIELDS(pane))
        emission, latest_us = self._emitted.get(window_id), self._latest.get(window_id)
        if isinstance(emission, tuple):
            emission = pickle.dumps(emission, 5)
        closing_us = self._windower.closed_at_us(window_id)
        next_us = min(closing_us, self._ends_us.get(window_id, NEVER))
        return (session, window, emission, latest_us), next_us, pane.due_us

    @override
    def _enter(self, value: Any, timestamp_us: int, number: int, watermark_us: int) -> None:
        self._entering_us = watermark_us
        super()._enter(value, timestamp_us, number, watermark_us)
        reached, self._reached = self._reached, []
        for window_id in reached:
            if window_id in self._panes:  # A window that the value filled has had its last pane.
                self._fire_by_rule(window_id)

    @override
    def _count_values(self, window_id: int, count: int) -> None:
        """Count values that entered a window; its pane is due if the count is reached."""
        pane = self._panes.setdefault(window_id, PaneState())
        pane.values += count
        pane.pending += count
        # The end of a session advances with its values: its watermark may be before the end again.
        pane.is_past = self._end_us(window_id) <= self._entering_us
        self._set_end(window_id)
        rule = self._trigger.late if pane.is_past else self._trigger.early
        if rule is not None and rule.count is not None and pane.pending >= rule.count:
            self._reached.append(window_id)
        else:
            self._start_timer(pane)

    @override
    def _merge(self, original: int, target: int) -> None:
        merged = self._panes.pop(original)
        self._ends_us.pop(original, None)
        super()._merge(original, target)
        pane = self._panes.setdefault(target, PaneState())
        pane.values += merged.values
        # The panes of a session that accumulates are retracted, so all its values are pending.
        pane.pending += merged.values if self._trigger.accumulate else merged.pending
        pane.due_us = min(pane.due_us, merged.due_us)

    @override
    def _close_passed(self, watermark_us: int) -> bool:
        """Fire on-time panes and close windows, in order of the watermarks that they wait for."""
        has_fired = False
        while (end_us := self._next_end_us()) <= watermark_us < NEVER:
            has_fired = True
            super()._close_passed(end_us - 1)
            _, window_id = heappop(self._end_heap)
            self._panes[window_id].is_past = True
            self._ends_us.pop(window_id)
            self._fire(window_id, PaneTiming.ON_TIME)
        return super()._close_passed(watermark_us) or has_fired

    @override
    def _emit_last(self, metadata: WindowMetadata, logic: WindowLogic[Any, Any, Any]) -> None:
        """Emit the on-time pane of a window that closes at its end, or values in its grace."""
        pane = self._panes.pop(metadata.window_id)
        self._ends_us.pop(metadata.window_id, None)
        if pane.pending or not pane.is_past:
            timing = PaneTiming.LATE if pane.is_past else PaneTiming.ON_TIME
            self._emit_pane(metadata, logic, pane, Pane(pane.index, timing, is_last=True))

    def _fire_by_rule(self, window_id: int) -> None:
        is_past = self._panes[window_id].is_past
        self._fire(window_id, PaneTiming.LATE if is_past else PaneTiming.EARLY)

    def _fire(self, window_id: int, timing: PaneTiming) -> None:
        """Emit a pane of an open window."""
        pane, logic = self._panes[window_id], self._windows[window_id]
        metadata = self._windower.metadata(window_id)
        self._emit_pane(metadata, logic, pane, Pane(pane.index, timing))

    def _emit_pane(
        self,
        metadata: WindowMetadata,
        logic: WindowLogic[Any, Any, Any],
        state: PaneState,
        pane: Pane,
    ) -> None:
        if not isinstance(logic, FoldingLogic):
            raise TypeError(f"a window with a trigger must fold, got {type(logic).__name__}")
        with Calling(logic, "on_epoch_end"):
            self._emit(replace(metadata, pane=pane), logic.on_epoch_end())
        if not self._trigger.accumulate:
            logic.discard()
        state.index += 1
        state.pending, state.due_us = 0, NEVER

    def _start_timer(self, pane: PaneState) -> None:
        """Start the timer of a pane with values, unless it runs; stop it if no rule has a time."""
        rule = self._trigger.late if pane.is_past else self._trigger.early
        if rule is None or rule.every_us is None:
            pane.due_us = NEVER
        else:
            pane.due_us = min(pane.due_us, self._moment.inputs_now_us + rule.every_us)

    @override
    def _fire_timers(self) -> None:
        now_us = self._moment.inputs_now_us
        if self._leaves is not None and self._leaves.due_us <= now_us:
            self._take_due(now_us=now_us)
        for window_id in sorted(self._panes):
            if self._panes[window_id].due_us <= now_us:
                self._fire_by_rule(window_id)

    @override
    def _timer_us(self) -> int:
        due_us = min((pane.due_us for pane in self._panes.values()), default=NEVER)
        if self._leaves is not None:
            due_us = min(due_us, self._leaves.due_us)
        if due_us >= NEVER or not self._has_progress:
            return min(due_us, NEVER)
        # Due times are then watermarks of the stream, which advance at least as fast as system
        # time: a key that is called before its timer is due waits for the rest of the time.
        rest_us = max(due_us - self._moment.inputs_now_us, 0)
        return min(self._moment.progress_us + rest_us, NEVER)

    @override
    def _next_us(self) -> int:
        return min(super()._next_us(), self._next_end_us())

    def _end_us(self, window_id: int) -> int:
        """Return the least watermark that passes the end of an open window, without grace."""
        closed_at_us = self._windower.closed_at_us(window_id)
        return closed_at_us - (self._grace_us or 0) if closed_at_us < NEVER else NEVER

    def _set_end(self, window_id: int) -> None:
        """Note the end of a window, unless it is past or the window closes at its end."""
        if not self._grace_us or self._panes[window_id].is_past:
            self._ends_us.pop(window_id, None)
            return
        end_us = self._end_us(window_id)
        if self._ends_us.get(window_id) != end_us:
            self._ends_us[window_id] = end_us
            heappush(self._end_heap, (end_us, window_id))

    def _next_end_us(self) -> int:
        """Return the least of `_ends_us`, after removing outdated items of the heap before it."""
        heap = self._end_heap
        while heap and self._ends_us.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else NEVER


def _panes_in(state: DriverState) -> dict[int, PaneState]:
    """Return the panes of windows in a snapshot.

    A snapshot of a step without a trigger has none: all values of a window then count as one value
    that no pane has.
    """
    return {
        window_id: PaneState(*panes[0]) if panes else PaneState(values=1, pending=1)
        for window_id, (_, *panes) in state.windows.items()
    }
