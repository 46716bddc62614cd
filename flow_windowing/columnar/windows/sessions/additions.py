"""The addition of values to sessions, and the merge of sessions."""

from __future__ import annotations

import numpy as np

from flow.columns.arrays import Ints, Mask, ranges, run_starts
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.aggregates.accumulators import FailedRow, RowOperation
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.windows.row_batch import RowBatch, WindowGroups, group_by_window
from flow_windowing.columnar.windows.sessions.assignment import SessionAssignment, refs_of
from flow_windowing.columnar.windows.sessions.history import SessionOperation, SessionRef


class SessionAdder:
    """Addition of entering rows to open sessions, with the merge of sessions.

    For an order-free aggregate, sessions are merged first, and then get all their values together.
    For other aggregates, a session gets its direct values together; the operations of all other
    values are applied in order.
    """

    def __init__(
        self, windows: OpenWindows, batch: RowBatch, assignment: SessionAssignment
    ) -> None:
        self._windows = windows
        self._batch = batch
        self._assignment = assignment
        history = assignment.history
        self._originals = list(history.merges)
        self._targets = [history.final_session(one) for one in history.merges]
        self._causes = [merge.value for merge in history.merges.values()]

    def add(self) -> None:
        """Add the values to their sessions and merge sessions."""
        windows, assignment = self._windows, self._assignment
        originals = windows.rows_of(refs_of(self._originals))
        targets = windows.rows_of(refs_of(self._targets))
        np.maximum.at(windows.latest_us, targets, windows.latest_us[originals])
        accepted = self._group(assignment.is_accepted)
        rows = windows.rows_of(accepted.windows)
        direct, direct_rows = accepted, rows
        if not assignment.is_direct.all():
            direct = self._group(assignment.is_direct)
            direct_rows = windows.rows_of(direct.windows)
        self._batch.record_changes(windows, rows, accepted, self._first_changes(accepted, rows))
        of_accepted = of_direct = self._batch.groups(accepted.entries, accepted.starts)
        if direct is not accepted:
            of_direct = self._batch.groups(direct.entries, direct.starts)
        for column in windows.accumulators:
            if column.is_order_free:
                self._merge(column, targets, originals)
                if len(rows):
                    column.add(rows, of_accepted)
            elif len(direct_rows):
                column.add(direct_rows, of_direct)
        self._apply([one for one in windows.accumulators if not one.is_order_free])

    def _group(self, chosen: Mask) -> WindowGroups:
        entries = np.flatnonzero(chosen)
        return group_by_window(self._batch.entering, entries, self._assignment.ids[entries])

    def _first_changes(self, accepted: WindowGroups, rows: Ints) -> Ints:
        """Return the entering row that changed each session first.

        Values that entered another session, before its merge into the session, do not count.
        """
        changes = accepted.entries[accepted.starts]
        history = self._assignment.history
        first: dict[SessionRef, int] = {}
        for target, _, value in history.operations:
            if target not in history.merges:
                first[target] = min(first.get(target, value), value)
        changed = np.searchsorted(rows, self._windows.rows_of(refs_of(list(first))))
        changes[changed] = list(first.values())
        return changes

    def _merge(self, column: AccumulatorColumn, targets: Ints, originals: Ints) -> None:
        """Merge sessions in rounds; a target occurs at most once in a round."""
        order = np.argsort(targets, kind="stable")
        begins = run_starts(targets[order])
        counts = np.diff(begins, append=len(order))
        round_of_pair = ranges(np.zeros(len(counts), np.int64), counts)
        for number in range(int(counts.max(initial=0))):
            pairs = order[round_of_pair == number]
            try:
                column.merge(targets[pairs], originals[pairs])
            except FailedRow as error:
                cause = self._causes[int(pairs[error.row])]
                raise FailedRow(self._row_of(cause)) from error.__cause__

    def _apply(self, columns: list[AccumulatorColumn]) -> None:
        """Apply the history's operations to the accumulators of some aggregates."""
        operations = self._assignment.history.operations
        if not columns or not operations:
            return
        entries = np.flatnonzero(~self._assignment.is_direct)
        by_row = row_operations(self._windows, operations, entries)
        values, arrivals = self._batch.objects(entries)
        for column in columns:
            try:
                column.apply(by_row, values, arrivals)
            except FailedRow as error:
                raise FailedRow(self._row_of(int(entries[error.row]))) from error.__cause__

    def _row_of(self, entry: int) -> int:
        return int(self._batch.entering.rows[entry])


def row_operations(
    windows: OpenWindows, operations: list[SessionOperation], entries: Ints
) -> list[RowOperation]:
    """Return operations on sessions as operations on rows.

    Args:
        windows: the open sessions.
        operations: the operations, with values by entering row.
        entries: the entering rows; the values of the returned operations are indices in it.
    """
    targets = windows.rows_of(refs_of([one.target for one in operations])).tolist()
    others = [one.original or one.target for one in operations]
    originals = windows.rows_of(refs_of(others)).tolist()
    index_of = dict(zip(entries.tolist(), range(len(entries)), strict=True))
    return [
        RowOperation(target, None if one.original is None else original, index_of[one.value])
        for one, target, original in zip(operations, targets, originals, strict=True)
    ]
