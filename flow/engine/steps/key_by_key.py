"""A keyed step that runs key by key: the calls of its logics, in one shard and one epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flow.columns.chunks import AFTER_ITEMS, AT_END, BEFORE_ITEMS, Chunk, Pairs
from flow.engine.packets.packets import Run
from flow.engine.progress.step_time import StepTime
from flow.engine.state.key_states import KeyStates
from flow.errors import RAISED, FlowError, StepError, brief, shorten, step_error
from flow.instants import NEVER
from flow.keyed.logic import (
    COUNTED,
    DISCARD,
    KEEP,
    BoundedValue,
    FailedCall,
    OneToOneLogic,
    RejectedValue,
    StampedValue,
    StatefulBatchLogic,
    StatefulLogic,
    detach_items,
)
from flow.keyed.shard_logic import KeyFailure, ShardOutput


def cause_of(error: BaseException) -> BaseException | None:
    """Return the exception to chain: the cause of an error that a logic wraps, or the error."""
    return error.__cause__ if isinstance(error, (RejectedValue, FailedCall)) else error


def raised(what: str, error: BaseException) -> str:
    """Return the error text of a call that raised an exception."""
    if isinstance(error, FailedCall) and error.__cause__ is not None:
        return f"{error.what} raised {brief(error.__cause__)}"
    return f"{what} raised {brief(error)}"


def failed_at(step_id: str, failure: KeyFailure) -> StepError:
    """Return the error of a step that runs over columns."""
    error, problem, value = failure.cause, raised("on_batch", failure.cause), failure.value
    if isinstance(error, RejectedValue):
        problem, value = error.problem, error.value
    return step_error(step_id, problem, key=failure.key, item=value, error=error)


Logic = Any


@dataclass
class EmittedValues:
    """Emitted values of a step, each with the position of the item or timer that caused it.

    Attributes:
        watermarks_us: the watermarks of the keys that were called, in µs.
    """

    keys: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    pos: list[int] = field(default_factory=list)
    watermarks_us: list[int] = field(default_factory=list)

    def add(self, key: str, values: list[Any], pos: list[int]) -> None:
        """Add values of one key."""
        self.keys += [key] * len(values)
        self.values += values
        self.pos += pos

    def by_port(self, ports: int) -> ShardOutput:
        """Return a chunk for each port, and the values of the port `COUNTED`.

        With several ports, emitted values are pairs ``(port, value)``.
        """
        pos, marks = np.array(self.pos, np.int64), np.array(self.watermarks_us, np.int64)
        if ports == 1:
            pairs = Pairs(self.keys, self.values, pos)
            return ShardOutput([[pairs]], [0], watermarks_us=marks)
        which = np.array([port for port, _ in self.values], np.int64)
        chunks = [
            [self._port(pos, np.flatnonzero(which == port).tolist())] for port in range(ports)
        ]
        counted = [self.values[row][1] for row in np.flatnonzero(which == COUNTED).tolist()]
        return ShardOutput(chunks, [0] * ports, counted, marks)

    def _port(self, pos: Any, rows: list[int]) -> Chunk:
        keys = [self.keys[row] for row in rows]
        return Pairs(keys, [self.values[row][1] for row in rows], pos[rows])


class KeyedRun:
    """Execution of one keyed step over one shard's part of an epoch."""

    def __init__(
        self,
        step_id: str,
        builder: Callable[[Any], Logic],
        states: KeyStates,
        time: StepTime,
    ) -> None:
        self._step_id = step_id
        self._builder = builder
        self._states = states
        self._before, self._moment = time.moment.before, time.moment
        self._due_before, self._due_after = time.due_before, time.due_after
        self._emitted = EmittedValues()
        self._after_items = AFTER_ITEMS

    def run(self, runs: dict[str, Run], end_of_input: bool) -> EmittedValues:
        """Call due timers, process the values, and at the end of input end every key."""
        if end_of_input:  # The results that a step reads may have this position.
            self._after_items = AT_END
        self._notify_changed()
        due = self._states.due(self._due_before)
        self._states.prepare(list(runs))
        for key in due:
            if key not in runs:
                self._touch(key, None, True)
        was_due = set(due)
        for key, run in runs.items():
            self._touch(key, run, key in was_due)
        if self._due_after != self._due_before:
            self._notify_reached(was_due | runs.keys())
        if end_of_input:
            for key in self._states.all():
                self._end(key)
        return self._emitted

    def _notify_changed(self) -> None:
        """Call `on_changed` of every key if the step's settings differ from those of the state."""
        before = self._states.changed_from()
        if before is None:
            return
        for key in self._states.all():
            logic = self._take(key)
            if logic is not None:
                self._emit("on_changed", key, BEFORE_ITEMS, logic.on_changed, before, self._before)
                self._store(key, logic, self._due(key, logic))

    def _emit(self, what: str, key: str, pos: int, method: Callable[..., Any], *args: Any) -> None:
        """Emit the values of a call that does not return `KEEP` or `DISCARD`."""
        try:
            values = list(method(*args))
        except RAISED as error:
            raise self._failed(what, error, key) from cause_of(error)
        self._emitted.add(key, values, [pos] * len(values))

    def _notify_reached(self, touched: set[str]) -> None:
        """Notify keys that became due because items of other keys advanced the time."""
        for key in self._states.due(self._due_after):
            if key not in touched:
                logic = self._take(key)
                if logic is not None:
                    logic = self._notify(key, logic, self._after_items)
                self._end_epoch(key, logic, self._due(key, logic))

    def _touch(self, key: str, run: Run | None, is_due: bool) -> None:
        """Run a key's epoch: the due timer, the values, the timer that they made due, the store."""
        logic = self._take(key)
        if is_due and logic is not None:
            logic = self._notify(key, logic, BEFORE_ITEMS)
        if run is not None:
            logic = self._feed(key, logic, run)
        due_us = self._due(key, logic)
        if logic is not None and self._due_after.includes(due_us):
            logic = self._notify(key, logic, self._after_items)
            due_us = self._due(key, logic)
        self._end_epoch(key, logic, due_us)

    def _end_epoch(self, key: str, logic: Logic | None, due_us: int) -> None:
        """Call `on_epoch_end` where a logic overrides it, and store the logic."""
        if logic is not None and type(logic).on_epoch_end is not StatefulLogic.on_epoch_end:
            self._emit("on_epoch_end", key, self._after_items, logic.on_epoch_end, self._moment)
            due_us = self._due(key, logic)
        if logic is not None and type(logic).watermark_us is not StatefulLogic.watermark_us:
            watermark_us = logic.watermark_us(self._moment)
            if watermark_us is not None:
                self._emitted.watermarks_us.append(watermark_us)
        self._store(key, logic, due_us)

    def _feed(self, key: str, logic: Logic | None, run: Run) -> Logic | None:
        """Call the logic with a key's values; return the logic, or ``None`` if discarded."""
        if logic is None:
            logic = self._build(key)
        if isinstance(logic, StatefulLogic):
            return self._feed_items(key, logic, run)
        if isinstance(logic, OneToOneLogic):
            return self._feed_run(key, logic, run)
        return self._call(
            key, logic, "on_batch", run.pos[-1], logic.on_batch, run.values, self._moment
        )

    def _feed_run(self, key: str, logic: OneToOneLogic, run: Run) -> Logic | None:
        try:
            values, keep = logic.on_run(run.values, self._moment)
        except RAISED as error:
            raise self._failed("on_run", error, key, run.values) from cause_of(error)
        self._emitted.add(key, values, run.pos)
        return logic if keep is KEEP else None

    def _feed_items(self, key: str, logic: Logic | None, run: Run) -> Logic | None:
        moment, value = self._moment, None
        values: list[Any] = []
        pos: list[int] = []
        try:
            for value, item_pos in zip(run.values, run.pos, strict=True):
                if logic is None:
                    logic = self._build(key)
                items, keep = logic.on_item(value, moment)
                if not logic.detaches:
                    items = detach_items(logic, items)
                before = len(values)
                values += items
                pos += [item_pos] * (len(values) - before)
                if keep is not KEEP:
                    logic = self._decided(keep, logic)
        except StepError:
            raise
        except RAISED as error:
            raise self._failed("on_item", error, key, value) from cause_of(error)
        self._emitted.add(key, values, pos)
        return logic

    def _notify(self, key: str, logic: Logic, pos: int) -> Logic | None:
        """Call the due timer of a key; return the logic, or ``None`` if it was discarded."""
        moment = self._before if pos == BEFORE_ITEMS else self._moment
        return self._call(key, logic, "on_notify", pos, logic.on_notify, moment)

    def _end(self, key: str) -> None:
        logic = self._take(key)
        if logic is None:
            return
        logic = self._call(key, logic, "on_end", AT_END, logic.on_end, self._moment)
        self._store(key, logic, self._due(key, logic))

    def _call(
        self, key: str, logic: Logic, what: str, pos: int, method: Callable[..., Any], *args: Any
    ) -> Logic | None:
        try:
            items, keep = method(*args)
            values = list(items) if logic.detaches else detach_items(logic, items)
            self._emitted.add(key, values, [pos] * len(values))
            return logic if keep is KEEP else self._decided(keep, logic)
        except StepError:
            raise
        except RAISED as error:
            raise self._failed(what, error, key, *args[:-1]) from cause_of(error)

    def _decided(self, keep: Any, logic: Logic) -> Logic | None:
        if keep is DISCARD:
            return None
        if keep is KEEP:
            return logic
        raise TypeError(
            f"{type(logic).__name__} must return KEEP or DISCARD beside its values, "
            f"got {shorten(keep)}"
        )

    def _build(self, key: str) -> Logic:
        try:
            logic = self._builder(None)
        except RAISED as error:
            raise self._failed("its builder", error, key) from cause_of(error)
        return self._checked_logic(key, logic)

    def _take(self, key: str) -> Logic | None:
        """Return the logic of a key, restored from its state; ``None`` for a key without state."""
        try:
            logic = self._states.take(key)
        except FlowError:
            raise
        except RAISED as error:
            what = "making its logic from a snapshot"
            raise self._failed(what, error, key) from cause_of(error)
        return None if logic is None else self._checked_logic(key, logic)

    def _checked_logic(self, key: str, logic: Logic) -> Logic:
        """Return a logic after a check that the engine can call it."""
        if not isinstance(logic, (StatefulLogic, StatefulBatchLogic, OneToOneLogic)):
            problem = (
                "its builder must return a StatefulLogic or a StatefulBatchLogic, "
                f"got {type(logic).__name__}"
            )
            raise step_error(self._step_id, problem, key=key, has_item=False)
        return logic

    def _due(self, key: str, logic: Logic | None) -> int:
        """Return the due time of a logic in µs; `NEVER` for one that was discarded."""
        if logic is None:
            return NEVER
        try:
            return int(logic.notify_at_us())
        except RAISED as error:
            raise self._failed("notify_at", error, key) from cause_of(error)

    def _store(self, key: str, logic: Logic | None, due_us: int) -> None:
        """Store the logic of a key, or remove the state of a key whose logic was discarded."""
        if logic is None:
            self._states.drop(key)
            return
        try:
            self._states.put(key, logic, due_us)
        except StepError:
            raise
        except RAISED as error:
            raise self._failed("snapshot", error, key) from cause_of(error)

    def _failed(self, what: str, error: BaseException, key: str, *item: Any) -> StepError:
        if isinstance(error, RejectedValue):
            return step_error(self._step_id, error.problem, key=key, item=error.value)
        problem = raised(what, error)
        shown = without_stamps(item[0]) if item else None
        return step_error(self._step_id, problem, key=key, item=shown, has_item=bool(item))


def without_stamps(item: Any) -> Any:
    """Return a value, or a list of values, without the engine's stamps and bounds."""
    if type(item) is list:
        return [without_stamps(value) for value in item]
    return item.value if isinstance(item, (StampedValue, BoundedValue)) else item
