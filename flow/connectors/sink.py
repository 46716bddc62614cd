"""Contract between the engines and the systems that a flow writes to.

A sink is configuration. In the workers, `Sink.write` is called once for each (epoch, partition)
that has items, and returns a small message. On the driver, `Sink.commit` is then called once with
the messages of the epoch. An epoch that failed is replayed with the same number and the same items.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from flow.columns.arrow_types import RecordBatch
from flow.columns.record_batches import is_pair, is_retraction, is_window
from flow.connectors.source import Dataset, TaskServers
from flow.errors import shorten

X = TypeVar("X")


class Guarantee(Enum):
    """Number of times that an item is written when its epoch is replayed."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True)
class WriteContext:
    """Position in the output of one call of `Sink.write`.

    Attributes:
        step_id: id of the output's step.
        epoch: number of the epoch, the same in a replay.
        partition: number of the Spark partition.
        run_id: id of the checkpoint; each flow and each fresh start has its own.
        rewinds: the number of times that the checkpoint was set back (``python -m recovery
            rewind``). An epoch that was written with fewer rewinds was undone, and may differ from
            the present epoch of the same number.
    """

    step_id: str
    epoch: int
    partition: int
    run_id: str
    rewinds: int = 0


@dataclass(frozen=True)
class CheckpointContext:
    """The checkpoint of a run, for a sink that keeps data beside it.

    Attributes:
        root: the directory, a path or a URI.
        directory: the path of the directory on this machine; ``None`` if it is on another file
            system.
        last_epoch: the last epoch that the checkpoint has as done; -1 if there is none.
        rewinds: the number of times that the checkpoint was set back.
        keep_epochs: the number of epochs by which it can be set back.
    """

    root: str
    directory: str | None
    last_epoch: int = -1
    rewinds: int = 0
    keep_epochs: int = 1


@dataclass(frozen=True)
class OutputContext:
    """Place of an output in a run.

    Attributes:
        flow_id: the flow's name.
        step_id: id of the output's step.
        checkpoint: the checkpoint; ``None`` for a batch, and for a run without `recovery`.
    """

    flow_id: str
    step_id: str
    checkpoint: CheckpointContext | None = None


SinkBatch: TypeAlias = "list[Any] | RecordBatch"
"""Batch of items for a sink: a list of objects, or a record batch."""


class Sink(ABC, Generic[X]):
    """Configuration of an output of a flow.

    Attributes:
        guarantee: the number of times that an item is written when its epoch is replayed.
        lays_out: True if the sink writes items as rows of a table, laid out by `to_record`. The
            engine may then pass record batches with that layout instead of the items.
        commits_in_program: True if `commit` needs the memory or the terminal of the program that
            runs the flow. Over Spark Connect the other sinks commit in a process of the server, and
            those of this kind in the program, while it follows the run.
    """

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    lays_out: bool = False
    commits_in_program: bool = False

    @property
    def only_output(self) -> str | None:
        """Target that no second output of the flow may write to, such as a directory, or `None`."""
        return None

    @property
    def task_servers(self) -> Sequence[TaskServers]:
        """Servers that tasks write to; on a cluster, a run checks first that tasks reach them."""
        return ()

    def datasets(self) -> Sequence[Dataset]:
        """Return the names of the data that the sink writes, for lineage; none by default."""
        return ()

    def check(self, resuming: bool) -> None:
        """Check that the run can write; called once on the driver, before Spark starts.

        The check must be quick, and must not change anything that another run or program has made.

        Args:
            resuming: True if the flow continues from an earlier run.

        Raises:
            SinkError: the output cannot be written.
        """

    def attach(self, output: OutputContext) -> None:
        """Record the output's step and checkpoint; called once on the driver before `open`."""

    def open(self, run_id: str, resuming: bool) -> None:
        """Prepare the output; called once on the driver before the first epoch of a run.

        Args:
            run_id: id of the checkpoint.
            resuming: True if the flow continues from an earlier run.
        """

    @abstractmethod
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> Any:
        """Write the items of one partition and epoch, in a worker.

        Returns:
            A message for `commit`, pickled on its way.
        """

    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        """Complete an epoch; called on the driver once all its partitions are written.

        Args:
            epoch: number of the epoch.
            messages: results of `write`, in order of partition; empty if there were no items.
        """

    def close(self) -> None:
        """Release resources; called once on the driver when the run ends, also if it fails."""


def to_record(item: Any) -> dict[str, Any]:
    """Return an item as a dict of named columns, for sinks that write tables.

    A mapping gives its own columns. A dataclass gives the result of its method ``as_record``, or
    else its fields, as a named tuple does. A ``(key, value)`` pair gives ``key`` and the columns of
    the value. A pair of a dataclass and a value gives the columns of both. Anything else gives one
    column, ``value``.

    For the result of a window, ``(metadata, value)``, the column ``is_retraction`` stands between
    the columns of the two. It is True for a retraction, which has the columns of its result.

    Raises:
        ValueError: when a result has a field with the name of such a column and another value, such
            as ``key``.

    >>> to_record(("LHR", {"flights": 3}))
    {'key': 'LHR', 'flights': 3}
    >>> to_record(("LHR", 3))
    {'key': 'LHR', 'value': 3}
    """
    has_key = is_pair(item) and isinstance(item[0], str)
    columns, rest = ({"key": item[0]}, item[1]) if has_key else ({}, item)
    if not (is_pair(rest) and _is_dataclass(rest[0])):
        return {**columns, **_fields_of(rest)}
    first, value = rest
    columns |= _fields_of(first)
    if not is_window(first):
        return {**columns, **_fields_of(value)}
    columns["is_retraction"] = is_retraction(value)
    fields = _fields_of(value.value if columns["is_retraction"] else value)
    for name in columns.keys() & fields.keys():
        if str(columns[name]) != str(fields[name]):  # The text of a whole number is its key.
            raise ValueError(
                f"the result of a window has the field {name!r}, {shorten(fields[name])}, which is "
                f"a column of every result, {shorten(columns[name])}: give the field another name"
            )
    return {**columns, **fields}


def _fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a value; the value of a pair is no item, and so not taken apart."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_retraction(value):
        return {"is_retraction": True, **_fields_of(value.value)}
    if _is_dataclass(value):
        if hasattr(value, "as_record"):
            return dict(value.as_record())
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return {"value": value}


def _is_dataclass(item: Any) -> bool:
    return dataclasses.is_dataclass(item) and not isinstance(item, type)
