"""State of a step in one shard, common to steps over columns and key by key."""

from __future__ import annotations

from abc import ABC, abstractmethod

from typing_extensions import override

from flow.engine.state.header import Header
from flow.engine.state.store import PROGRESS_SEGMENT, StateStore
from flow.instants import NEVER
from flow.keyed.state_counts import StateCounts


class StepState(ABC):
    """State of a step in one shard."""

    @abstractmethod
    def progress(self) -> bytes | None:
        """Return the encoded stream progress, stored beside the keys; ``None`` if there is none."""

    @abstractmethod
    def keep_progress(self, content: bytes) -> None:
        """Replace the progress of the step's stream."""

    @abstractmethod
    def flush(self) -> int:
        """Write changed state; return the least due time of a key that is not held, in µs."""

    @abstractmethod
    def hold_us(self) -> int:
        """Return the least hold of a key, in µs, after `flush`; `NEVER` for none."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of keys stored for later epochs."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes stored for later epochs."""

    @abstractmethod
    def counts(self) -> StateCounts:
        """Return the stored open windows and buffered values; 0 for a step that is not counted."""


class LiveState(StepState):
    """State in memory, for a batch run: nothing is stored for later epochs."""

    def __init__(self) -> None:
        self._progress: bytes | None = None

    @override
    def progress(self) -> bytes | None:
        return self._progress

    @override
    def keep_progress(self, content: bytes) -> None:
        self._progress = content

    @override
    def count(self) -> int:
        return 0

    @override
    def size(self) -> int:
        return 0

    @override
    def counts(self) -> StateCounts:
        return StateCounts()


class StoredState(StepState):
    """State in segments of a `StateStore`, with a header.

    Args:
        store: the store.
        step_id: the step.
        settings: the step's settings, see `flow.keyed.step.LogicBuilder.settings`.
        is_counted: True for a step whose open windows and buffered values are counted.
        hold_rule: the rule of the step's holds; empty for a step without holds.

    Attributes:
        _changed_from: the settings that the state was written with if they differ from the present
            ones, else ``None``; empty if the state has none.
        _is_new_to_counts: True if the step is counted since this run: all segments must be loaded.
        _is_new_to_holds: True if the rule of its holds is new in this run: the same.
    """

    def __init__(
        self,
        store: StateStore,
        step_id: str,
        settings: str,
        is_counted: bool = False,
        hold_rule: str = "",
    ) -> None:
        self._store = store
        self._step_id = step_id
        self._content = store.read_header(step_id)
        self._header = header = Header.empty()
        self._changed_from: str | None = None
        self._is_new_to_counts = False
        if self._content is not None:
            self._header = header = Header.decode(self._content, step_id)
            if settings and header.settings != settings:
                self._changed_from = header.settings
            self._is_new_to_counts = is_counted and not header.is_counted
            if not is_counted:
                header.counts[:] = 0
        header.settings, header.is_counted = settings, is_counted
        self._is_new_to_holds = header.set_hold_rule(hold_rule) and self._content is not None

    @override
    def progress(self) -> bytes | None:
        (content,) = self._store.read_segments(self._step_id, [PROGRESS_SEGMENT])
        return content

    @override
    def keep_progress(self, content: bytes) -> None:
        self._store.write_segments(self._step_id, {PROGRESS_SEGMENT: content})

    @override
    def hold_us(self) -> int:
        return int(self._header.holds.min(initial=NEVER))

    @override
    def count(self) -> int:
        return self._header.keys

    @override
    def size(self) -> int:
        return self._header.size

    @override
    def counts(self) -> StateCounts:
        return self._header.total

    def _write_header(self) -> int:
        """Write the header if it changed; return the least due time of a key that is not held."""
        content = self._header.encode()
        if content != self._content and (self._content is not None or self._header.keys):
            self._store.write_header(self._step_id, content)
        return int(self._header.dues.min())
