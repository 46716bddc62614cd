"""What a sink is: the contract between the engines and everything that can be written to.

A sink is configuration. In the workers, `Sink.write` is called once for each (epoch, partition)
that has items, and returns a small message; where the flow was started, `Sink.commit` is then
called once with the messages of the epoch. An epoch that failed is run again, with the same number
and the same items.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

X = TypeVar("X")


class Guarantee(Enum):
    """What a sink promises when an epoch is run again."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True)
class WriteContext:
    """Which piece of the output a call of `Sink.write` is about.

    Attributes:
        step_id: the output's step.
        epoch: the epoch's number; the same when it is run again.
        partition: the number of the Spark partition.
        run_id: what the checkpoint is known by; differs between flows and between fresh starts.
        rewinds: how often the checkpoint has been set back (``python -m recovery rewind``). An
            epoch of the same number that was written after fewer is another one: it was undone.
    """

    step_id: str
    epoch: int
    partition: int
    run_id: str
    rewinds: int = 0


Written: TypeAlias = "list[Any] | pa.RecordBatch"
"""What a sink is given: a list of objects, or a record batch."""


class Sink(ABC, Generic[X]):
    """Something to write to, as configuration.

    Attributes:
        guarantee: what it promises when an epoch is run again.
        lays_out: whether it writes items as rows of a table, laid out as `to_record` does. It may
            then be given record batches that are laid out so already, instead of the items.
    """

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    lays_out: bool = False

    @property
    def only_output(self) -> str | None:
        """What no second output of a flow may write to, such as a directory; `None` if any may."""
        return None

    def open(self, run_id: str, resuming: bool) -> None:
        """Called where the flow was started, once before the first epoch of a run.

        Args:
            run_id: what the checkpoint is known by.
            resuming: whether the flow goes on from an earlier run.
        """

    @abstractmethod
    def write(self, context: WriteContext, batches: Iterator[Written]) -> Any:
        """Write one partition's items of an epoch, in a worker.

        Returns:
            A message for `commit`; it is pickled.
        """

    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        """Called where the flow was started, once all partitions of an epoch are written.

        Args:
            epoch: the epoch's number.
            messages: what `write` returned, in order of partition; empty when nothing was written.
        """

    def close(self) -> None:
        """Called where the flow was started, once when the run ends, however it ends."""


def to_record(item: Any) -> dict[str, Any]:
    """Lay an item out as named columns, for sinks that write tables.

    A mapping is its own row. A ``(key, value)`` pair becomes ``key`` and the value's columns; a
    dataclass becomes what its method ``as_record`` returns, or its fields; a pair of a dataclass
    and a value, such as window metadata and result, both; anything else is a column called
    ``value``.

    >>> to_record(("LHR", {"flights": 3}))
    {'key': 'LHR', 'flights': 3}
    >>> to_record(("LHR", 3))
    {'key': 'LHR', 'value': 3}
    """
    if isinstance(item, Mapping):
        return dict(item)
    if _is_dataclass(item):
        if hasattr(item, "as_record"):
            return dict(item.as_record())
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    if isinstance(item, tuple) and hasattr(item, "_asdict"):
        return dict(item._asdict())
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        return {"key": item[0], **to_record(item[1])}
    if isinstance(item, tuple) and len(item) == 2 and _is_dataclass(item[0]):
        return {**to_record(item[0]), **to_record(item[1])}
    return {"value": item}


def _is_dataclass(item: Any) -> bool:
    return dataclasses.is_dataclass(item) and not isinstance(item, type)
