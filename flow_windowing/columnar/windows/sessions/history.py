"""The history of sessions that merge or may have late values, computed value by value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from flow_windowing.columnar.state.spans import Bounds
from flow_windowing.windowers.sessions import SessionState, SessionWindower


class SessionRef(NamedTuple):
    """A reference to a session, by slot and id."""

    slot: int
    id: int


class SessionOperation(NamedTuple):
    """The addition of a value to a session, or the merge of one session into another.

    Attributes:
        target: the session that gets the value or the other session.
        original: the session to merge into the target; ``None`` to add the value.
        value: the entering row that is added, or that caused the merge.
    """

    target: SessionRef
    original: SessionRef | None
    value: int


class IncomingValue(NamedTuple):
    """A value that enters sessions.

    Attributes:
        value: the index of its entering row.
        time_us: the timestamp.
        watermark_us: the watermark at which the value enters.
    """

    value: int
    time_us: int
    watermark_us: int


class Merge(NamedTuple):
    """The merge of a session into another.

    Attributes:
        target: the session after the merge.
        value: the entering row that caused the merge.
    """

    target: SessionRef
    value: int


@dataclass
class SessionHistory:
    """Operations that values cause, and the resulting sessions.

    Attributes:
        operations: the operations, those of each key in order.
        sessions: the bounds of the resulting sessions, including sessions that have closed.
        merges: the merge of each session that is merged into another.
        late: the entering rows that are late.
    """

    operations: list[SessionOperation] = field(default_factory=list)
    sessions: dict[SessionRef, Bounds] = field(default_factory=dict)
    merges: dict[SessionRef, Merge] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)

    def add_values(
        self, windower: SessionWindower, slot: int, state: SessionState, values: list[IncomingValue]
    ) -> None:
        """Add values of a key to its open sessions, one after the other."""
        logic = windower.build(state)
        for value, time_us, watermark_us in values:
            if logic.next_close_us() <= watermark_us:
                before = logic.snapshot() or []
                logic.close_for(watermark_us)
                self._record_sessions(slot, before)
            opened = logic.open_for(time_us, watermark_us)
            for original_id, target_id in logic.merged():
                original, target = SessionRef(slot, original_id), SessionRef(slot, target_id)
                self.operations.append(SessionOperation(target, original, value))
                self.merges[original] = Merge(target, value)
                self.sessions.pop(original, None)
            for session_id in opened.ids:
                self.operations.append(SessionOperation(SessionRef(slot, session_id), None, value))
            if not opened.ids:
                self.late.append(value)
        self._record_sessions(slot, logic.snapshot() or [])

    def _record_sessions(self, slot: int, sessions: SessionState) -> None:
        for session_id, first_us, last_us, merged_ids in sessions:
            self.sessions[SessionRef(slot, session_id)] = Bounds(first_us, last_us, merged_ids)

    def final_session(self, session: SessionRef) -> SessionRef:
        """Return the session that contains a session after all merges."""
        while session in self.merges:
            session = self.merges[session].target
        return session

    def sessions_of_values(self) -> dict[int, SessionRef]:
        """Return the session that contains each value after all merges, by entering row."""
        entered = {value: target for target, original, value in self.operations if original is None}
        final = {session: self.final_session(session) for session in set(entered.values())}
        return {value: final[session] for value, session in entered.items()}
