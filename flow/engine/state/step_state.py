"""State of a step in one shard, common to steps over columns and key by key."""

from __future__ import annotations

from abc import ABC, abstractmethod

from typing_extensions import override

from flow.engine.state.header import read_header
from flow.engine.state.store import PROGRESS_SEGMENT, StateStore
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
    def count(self) -> int:
        """Return the number of keys stored for later epochs."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes stored for later epochs."""

    @abstractmethod
    def counts(self) -> StateCounts | None:
        """Return the stored open windows and buffered values; ``None`` if not all are counted."""

    @abstractmethod
    def uncounted(self) -> int:
        """Return the number of stored keys whose windows and values are not counted yet."""


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
    def counts(self) -> StateCounts | None:
        return StateCounts()

    @override
    def uncounted(self) -> int:
        return 0


class StoredState(StepState):
    """State in segments of a `StateStore`, with a header.

    Args:
        store: the store.
        step_id: the step.
        settings: the step's settings, see `flow.keyed.step.LogicBuilder.settings`.
        is_counted: True for a step whose open windows and buffered values are counted.
    """

    def __init__(
        self, store: StateStore, step_id: str, settings: str, is_counted: bool = False
    ) -> None:
        self._store = store
        self._step_id = step_id
        self._content = store.read_header(step_id)
        self._header, self._changed_from = read_header(
            self._content, step_id, settings, is_counted=is_counted
        )

    @override
    def progress(self) -> bytes | None:
        (content,) = self._store.read_segments(self._step_id, [PROGRESS_SEGMENT])
        return content

    @override
    def keep_progress(self, content: bytes) -> None:
        self._store.write_segments(self._step_id, {PROGRESS_SEGMENT: content})

    @override
    def count(self) -> int:
        return self._header.keys

    @override
    def size(self) -> int:
        return self._header.size

    @override
    def counts(self) -> StateCounts | None:
        return None if self._header.counts is None else self._header.counts.total

    @override
    def uncounted(self) -> int:
        return 0 if self._header.counts is None else self._header.counts.uncounted

    def _write_header(self) -> int:
        """Write the header if it changed; return the least due time of a key that is not held."""
        content = self._header.encode()
        if content != self._content and (self._content is not None or self._header.keys):
            self._store.write_header(self._step_id, content)
        return int(self._header.dues.min())
