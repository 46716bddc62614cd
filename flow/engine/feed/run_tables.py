"""Tables of a run, which the process that plans epochs reads and changes."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from flow.checks import check_items
from flow.columns.arrow_types import entering
from flow.columns.chunks import Chunk, Items, Records, positions
from flow.connectors.source import MemoryLog, Slice, Source
from flow.dataflow import Step
from flow.engine.epoch.context import Control, TaskContext
from flow.engine.epoch.failures import user_code
from flow.engine.epoch.statistics import Stats
from flow.engine.feed.slices import ask, plan_everything, planners_of
from flow.engine.plan.plan import Plan
from flow.engine.steps.kernels import changes_in
from flow.engine.steps.reading import Reading, read_changes, read_chunks
from flow.engine.tables.contents import Change, Contents
from flow.engine.tables.table_files import (
    FileTables,
    MemoryTables,
    TableLog,
    TableVersion,
    empty_contents,
)
from flow.errors import FlowError
from flow.instants import NEVER
from flow.operators.edges import Input
from flow.operators.keyed_tables import LookupTable
from flow.process import print_text

if TYPE_CHECKING:
    from flow.engine.checkpoint.storage import Storage


def lookup_changes(step: Step, control: Control) -> Iterator[Change]:
    """Yield the rows of a lookup table as changes.

    Raises:
        FlowError: when the source or a function fails.
    """
    operator = step.operator
    if not isinstance(operator, LookupTable) or operator.source is None:
        return
    if isinstance(operator.source, Source):
        chunks = _rows_of_source(step.step_id, operator.source, control)
    else:
        chunks = iter(_rows_of_function(step.step_id, operator.source))
    for chunk in chunks:
        yield from changes_in(operator, step.step_id, chunk)


def _rows_of_source(step_id: str, source: Source[Any], control: Control) -> Iterator[Chunk]:
    with contextlib.closing(ask(step_id, source.planner, MemoryLog(), 1)) as planner:
        slices = plan_everything({step_id: planner})[step_id]
    step = Step(step_id, Input(source), ())
    context = TaskContext(control.moment)
    for each in slices:
        for split in each.splits:
            for _, chunk in read_chunks(step, Reading(step_id, split, 0), context):
                yield chunk


def _rows_of_function(step_id: str, source: Callable[[], Any]) -> list[Chunk]:
    """Return the rows that a function returns.

    Raises:
        FlowError: when the function fails.
    """
    with user_code(step_id, "reading its source"):
        rows: Any = source()
        if hasattr(rows, "toArrow"):
            rows = rows.toArrow()
        elif type(rows).__module__.partition(".")[0] == "pandas":
            rows = pa.Table.from_pandas(rows, preserve_index=False)
        if isinstance(rows, (pa.Table, pa.RecordBatch)):
            rows = entering(rows, step_id)
            batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
            return [Records(batch, positions(0, 0, 0, batch.num_rows)) for batch in batches]
        check_items(f"step {step_id!r}: the result of its source", rows)
        items = list(rows)
    return [Items(items, positions(0, 0, 0, len(items)))]


LookUp: TypeAlias = Callable[[Step, Control], Iterable[Change]]
"""A function that reads the rows of a lookup table as changes."""

logger = logging.getLogger("flow")


@dataclass
class Tables:
    """Tables of a run.

    Attributes:
        plan: the compiled flow.
        logs: the tables by step.
    """

    plan: Plan
    logs: Mapping[str, TableLog]
    _stats: Stats = field(default_factory=Stats, init=False)
    _looked_up: set[str] = field(default_factory=set, init=False)

    @classmethod
    def of(
        cls,
        plan: Plan,
        files: Storage | None = None,
        oldest: Callable[[str], TableVersion | None] = lambda _: None,
    ) -> Tables:
        """Return the tables of a plan.

        Args:
            plan: the compiled flow.
            files: the checkpoint's files; ``None`` to keep tables in memory alone.
            oldest: returns the oldest version of a table from which a run can continue.
        """
        logs = {
            name: TableLog(plan.steps[name], plan.state_name(name), files, oldest)
            for name in plan.tables
        }
        return cls(plan, logs)

    def copy(self) -> Tables:
        """Return a copy, which changes on its own."""
        copied = Tables(self.plan, {name: log.copy() for name, log in self.logs.items()})
        copied._looked_up |= self._looked_up
        return copied

    def look_up_again(self, names: Iterable[str]) -> None:
        """Read the sources of lookup tables in the next epoch."""
        self._looked_up.difference_update(names)

    @property
    def contents(self) -> dict[str, Contents]:
        """The newest contents of each table, with pickled values."""
        return {name: log.contents for name, log in self.logs.items()}

    def without(self, versions: Mapping[str, TableVersion]) -> Tables:
        """Return the tables that have no version yet, by the tables' names in the checkpoint."""
        logs = {name: log for name, log in self.logs.items() if log.name not in versions}
        return Tables(self.plan, logs)

    def after(
        self,
        before: Mapping[str, TableVersion],
        read: Iterable[TaskContext],
        control: Control,
        look_up: LookUp = lookup_changes,
    ) -> dict[str, TableVersion]:
        """Change the tables as an epoch is planned, and return the versions that it sees.

        Args:
            before: the versions of the epoch before, by the tables' names in the checkpoint.
            read: the contexts of the readings of control inputs, in order.
            control: the epoch's control.
            look_up: reads the rows of a lookup table; by default its source.

        Raises:
            FlowError: when a source or a step fails, or a table grows too large.
        """
        changes: dict[str, list[Change]] = defaultdict(list)
        for context in read:
            for name, found in context.changes.items():
                changes[name] += [change for _, change in sorted(found, key=itemgetter(0))]
            self._stats.add(context.stats)
            for line in context.printed:
                print_text(line)
        versions = {}
        for name, log in self.logs.items():
            log.restore(before.get(log.name, TableVersion()))
            operator = log.operator
            if isinstance(operator, LookupTable):
                self._refresh(log, operator, control, look_up)
            else:
                log.change(changes[name])
            versions[log.name] = log.version
        return versions

    def report(self, stats: Stats) -> None:
        """Add the statistics of control inputs and tables to those of an epoch."""
        stats.add(self._stats)
        self._stats = Stats()
        for name, log in self.logs.items():
            stats.gauges[name, "keys"] = len(log.contents)
            stats.gauges[name, "bytes"] = log.size
            stats.gauges[name, "version"] = log.version.number

    def _refresh(
        self,
        log: TableLog,
        operator: LookupTable,
        control: Control,
        look_up: LookUp,
    ) -> None:
        """Read a lookup table's source if that is due, at the start of a run too."""
        name, now_us = log.step.step_id, control.moment.steady_us
        read_at_us, refresh_us = log.version.read_at_us, operator.refresh_us
        due_us = NEVER if refresh_us is None else (read_at_us or 0) + refresh_us
        if read_at_us is not None and name in self._looked_up and now_us < due_us:
            return
        try:
            rows: dict[str, bytes] = {}
            for change in look_up(log.step, control):
                rows.pop(change.key, None)
                if change.value is not None:
                    rows[change.key] = change.value
        except FlowError as error:
            if read_at_us is None:
                raise
            logger.warning("%s; the table keeps the rows that it has", error)
            log.change((), now_us)
        else:
            log.change(log.replacing(rows), now_us)
        self._looked_up.add(name)


def table_files(plan: Plan, root: str) -> FileTables | None:
    """Return the tables in a checkpoint, for tasks; ``None`` for a plan without tables."""
    if not plan.tables:
        return None
    names = {name: plan.state_name(name) for name in plan.tables}
    return FileTables(root, names, {name: empty_contents(plan.table(name)) for name in plan.tables})


def read_all(plan: Plan, control: Control, parallelism: int) -> tuple[Plan, Control]:
    """Read all changes of tables before a batch.

    Returns:
        The plan with its tables, and the control with their versions.

    Raises:
        FlowError: when a source or a step fails, or a table grows too large.
    """
    tables = Tables.of(plan)
    with planners_of(plan, plan.controls, parallelism) as planners:
        read = list(read_slices(plan, plan_everything(planners), control))
    control = replace(control, tables=tables.after({}, read, control))
    return replace(plan, table_store=MemoryTables(tables.contents)), control


def read_slices(
    plan: Plan, slices: Mapping[str, list[Slice]], control: Control
) -> Iterator[TaskContext]:
    """Read slices of control inputs, one after the other.

    The partitions of a slice interleave by position, as they do for keyed steps.
    """
    for name, planned in slices.items():
        for each in planned:
            whole: TaskContext | None = None
            for origin, split in enumerate(each.splits):
                context = read_changes(plan, Reading(name, split, origin), control)
                whole = context if whole is None else _together(whole, context)
            if whole is not None:
                yield whole


def _together(whole: TaskContext, other: TaskContext) -> TaskContext:
    """Add the changes, statistics and printed lines of a context to another one."""
    for name, changes in other.changes.items():
        whole.changes.setdefault(name, []).extend(changes)
    whole.stats.add(other.stats)
    whole.printed += other.printed
    return whole
