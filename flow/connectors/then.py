"""Source of a history, and of live data after it.

An epoch reads one of the two. The offset says which, and has the position that the history has led
to, so that a run continues with the same start of the live source wherever it stops.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import pyarrow as pa
from typing_extensions import override

from flow.checks import wrong_type
from flow.columns.arrow_types import is_instant
from flow.connectors.source import (
    Batch,
    Dataset,
    Invalid,
    Json,
    OnInvalid,
    Planner,
    Slice,
    Source,
    SourceLog,
    Split,
    TaskServers,
)
from flow.connectors.start_rules import AfterOffsets, FromTime, StartRule
from flow.errors import FlowBuildError, FlowTypeError, SourceError, shorten
from flow.instants import Moment

__all__ = ["AfterOffsets", "FromTime", "StartRule", "Then"]

X = TypeVar("X")


@dataclass(frozen=True)
class Then(Source[X]):
    """Source that reads a history to its end, and then continues with a live source.

    One checkpoint holds the offsets of both, so a run that stops or is killed at any moment, also
    at the switch, reads each item of the two exactly once. Watermarks follow the history as a
    backlog, and the live source from there on. After the switch the history is not read again: its
    files may be deleted, and files that are added to it later are not read.

    Both sources must have items of the same type. Records may have different columns; columns of
    the same name must have types of the same kind. Input that cannot be read is handled by the
    `on_invalid` of its own source; ``"drop"`` and ``"errors"`` cannot be mixed.

    A batch run reads both if the live source is bounded. Otherwise the source needs a streaming
    run, which with ``trigger="available"`` ends after the live data that are there at the switch.

    Args:
        history: the source to read first, which must be bounded.
        live: the source to read afterwards.
        start: rule that takes the start of `live` from the items of the history, in place of the
            start that `live` has: `AfterOffsets` or `FromTime`. The driver reads the fields of the
            rule as it plans each epoch of the history. By default, `live` starts as it is.

    Raises:
        FlowTypeError, FlowBuildError: an argument is not valid, or the sources do not fit together.
        SourceError: when the flow runs: a column has different types in the two sources, or the
            history lacks a field of the rule.

    >>> from flow.connectors.files import ParquetSource
    >>> from flow.connectors.then import AfterOffsets, Then
    >>> from flow.connectors.kafka import KafkaSource
    >>> import pyarrow as pa
    >>> live = KafkaSource("localhost:9092", "orders", value="json", schema={"id": pa.int64()})
    >>> Then(ParquetSource("history/"), live, start=AfterOffsets()).bounded
    False
    """

    history: Source[X]
    live: Source[X]
    _: KW_ONLY
    start: StartRule | None = None

    def __post_init__(self) -> None:
        for name, source in self._sources.items():
            _check_source(name, source)
        if not self.history.bounded:
            raise FlowBuildError(
                "Then: history must end by itself, so that live data can follow, got the unbounded "
                f"{type(self.history).__name__}"
            )
        self._check_items()
        self._check_start()
        object.__setattr__(self, "bounded", self.live.bounded)
        object.__setattr__(self, "on_invalid", self._common_on_invalid())

    @property
    @override
    def needs_streaming(self) -> bool:
        return self.history.needs_streaming or self.live.needs_streaming

    @override
    def check(self) -> None:
        self.history.check()

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return ThenPlanner(self, log, parallelism)

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        source, inner = self._source_and_split(split)
        return self._checked(source, source.read(inner))

    @override
    def read_fields(self, split: Split, fields: frozenset[str]) -> Iterator[Batch]:
        source, inner = self._source_and_split(split)
        return self._checked(source, source.read_fields(inner, fields))

    @override
    def identity(self) -> Json:
        parts = {
            name: [type(source).__qualname__, source.identity()]
            for name, source in self._sources.items()
        }
        return {**parts, "start": None if self.start is None else repr(self.start)}

    @property
    @override
    def task_servers(self) -> Sequence[TaskServers]:
        return [servers for each in self._sources.values() for servers in each.task_servers]

    @override
    def datasets(self) -> Sequence[Dataset]:
        return tuple({name: None for each in self._sources.values() for name in each.datasets()})

    @override
    def continues(self, before: Json) -> str | None:
        now, clauses = self.identity(), []
        if before["start"] != now["start"]:
            return None
        for name, source in self._sources.items():
            (old_type, old), (new_type, new) = before[name], now[name]
            if old_type != new_type:
                return None
            if None in (old, new) or old == new:
                continue
            clause = source.continues(old)
            if clause is None:
                return None
            clauses.append(f"{name}: {clause}")
        return "; ".join(clauses)

    @override
    def record_columns(self) -> Any:
        before, after = self.history.record_columns(), self.live.record_columns()
        is_known = before is not None and after is not None
        return before if is_known and before.equals(after) else None

    @override
    def item_type(self) -> type | None:
        return self.live.item_type() or self.history.item_type()

    @property
    def _sources(self) -> dict[Part, Source[X]]:
        return {"history": self.history, "live": self.live}

    def _source_and_split(self, split: Split) -> tuple[Source[X], Split]:
        part, number, what = split.what
        return self._sources[part], Split(what, number, split.order)

    def _checked(self, source: Source[X], batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches; a bad input fails if its source says so, and the other source does not."""
        for batch in batches:
            if isinstance(batch, Invalid) and source.on_invalid == "fail" and batch.inputs:
                raise batch.error()
            yield batch

    def _check_items(self) -> None:
        types = [source.item_type() for source in self._sources.values()]
        if None not in types and types[0] != types[1]:
            shown = ["records" if kind is dict else getattr(kind, "__name__", "") for kind in types]
            raise FlowBuildError(
                f"Then: the items of history are {shown[0]} and those of live are {shown[1]}: "
                "give both sources the same kind of items, such as records by a schema="
            )

    def _check_start(self) -> None:
        if self.start is None:
            return
        if not isinstance(self.start, StartRule):
            raise FlowTypeError(
                "Then: start must be a rule such as AfterOffsets() or FromTime('timestamp'), "
                f"got {shorten(self.start)}; a start that is known is an argument of live"
            )
        if type(self.live).starting_at is Source.starting_at:
            raise FlowBuildError(
                f"Then: start={self.start!r} needs a live source that can start at a position, "
                f"and {type(self.live).__name__} does not: leave out start="
            )

    def _common_on_invalid(self) -> OnInvalid:
        found = {source.on_invalid for source in self._sources.values()} - {"fail"}
        if len(found) > 1:
            raise FlowBuildError(
                "Then: history and live must not mix on_invalid='drop' and 'errors', got "
                f"history={self.history.on_invalid!r} and live={self.live.on_invalid!r}"
            )
        return next(iter(found), "fail")


def _check_source(name: str, source: object) -> None:
    """Raise unless `source` is a `Source` that Spark does not read itself."""
    if not isinstance(source, Source):
        raise wrong_type(f"Then: {name} must be a Source", source)
    if source.is_frame:
        raise FlowBuildError(
            f"Then: {name} must not be a data frame, which Spark itself reads: write it as "
            "Parquet, and read that with ParquetSource"
        )


@dataclass(frozen=True)
class PartLog(SourceLog):
    """Log of one part of a source, kept in the log of the whole.

    An entry of the whole log is ``[part, entry]``. Its summary is JSON: for each part, the part's
    summary in base64 and the part's entries at the time of the summary.

    Attributes:
        whole: the log of the source.
        part: name of the part.
    """

    whole: SourceLog
    part: str

    def summary(self) -> bytes | None:
        """Return the summary of the part's last `compact`; ``None`` if there was none."""
        text = self._summaries().get(self.part, {}).get("summary")
        return None if text is None else base64.b64decode(text)

    def entries(self) -> list[Json]:
        """Return the part's entries since its last `compact`, in order."""
        before = self._summaries().get(self.part, {}).get("entries", [])
        return [*before, *(entry for part, entry in self.whole.entries() if part == self.part)]

    def append(self, entry: Json) -> None:
        """Add an entry of the part."""
        self.whole.append([self.part, entry])

    def compact(self, summary: bytes) -> None:
        """Replace the part's entries by a summary; the other parts keep theirs."""
        parts = self._summaries()
        for part, entry in self.whole.entries():
            parts.setdefault(part, {"summary": None, "entries": []})["entries"].append(entry)
        parts[self.part] = {"summary": base64.b64encode(summary).decode(), "entries": []}
        self.whole.compact(json.dumps(parts).encode())

    def _summaries(self) -> dict[str, dict[str, Json]]:
        content = self.whole.summary()
        return {} if content is None else dict(json.loads(content))


_KINDS = (
    ("whole numbers", pa.types.is_integer),
    ("floats", pa.types.is_floating),
    ("text", lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind)),
    ("bytes", lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind)),
    ("instants", is_instant),
    ("datetimes without a zone", pa.types.is_timestamp),
    ("nested values", pa.types.is_nested),
)
"""Kinds of types, whose values look the same to a function, each with its test."""


def check_columns(history: Source[Any], live: Source[Any]) -> None:
    """Check that columns of the same name have types of the same kind, where they are known.

    Raises:
        SourceError: a column has types of different kinds, or the history cannot be read.
    """
    new, old = live.record_columns(), history.record_columns()
    if new is None or old is None:
        return
    for name in old.names:
        if name in new.names and kind_of(old.field(name).type) != kind_of(new.field(name).type):
            raise SourceError(
                f"the column {name!r} is {old.field(name).type} in the history and "
                f"{new.field(name).type} in the live source: read both with types of the same kind"
            )


def kind_of(column: pa.DataType) -> str:
    """Return the kind of values of a column.

    >>> kind_of(pa.int32()) == kind_of(pa.int64()), kind_of(pa.float32())
    (True, 'floats')
    """
    values = column.value_type if pa.types.is_dictionary(column) else column
    return next((kind for kind, fits in _KINDS if fits(values)), str(values))


Part: TypeAlias = Literal["history", "live"]
"""Part of the source."""


@dataclass(frozen=True)
class Stage:
    """Offset of the source.

    Attributes:
        part: the part that is being read.
        at: offset of the part; ``None`` before its first slice.
        partitions: number of source partitions of the history so far. The partitions of the live
            source are numbered from there on.
        position: position that the history has led to; ``None`` without a rule or a position.
    """

    part: Part = "history"
    at: Json | None = None
    partitions: int = 0
    position: Json | None = None

    def to_json(self) -> Json:
        """Return the offset as JSON that `from_json` reads."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, offset: Json | None) -> Stage:
        """Return the offset that `to_json` encoded; the first stage for ``None``."""
        return cls() if offset is None else cls(**offset)


class ThenPlanner(Planner):
    """Planner that reads a history to its end, and then the live source.

    The planner of each part is made when the run reaches the part, so the history may be deleted
    once the live source is being read.

    Event time continues without a gap. The partitions of the history's last slice stay behind until
    the first slice of the live source, and the inputs' clock stands still, so that time that passes
    at the switch moves no watermark.

    Args:
        source: the two sources.
        log: the log of the whole.
        parallelism: number of tasks that can read at the same time.
    """

    def __init__(self, source: Then[Any], log: SourceLog, parallelism: int) -> None:
        self._source, self._log, self._parallelism = source, log, parallelism
        self._history: Planner | None = None
        self._live: Planner | None = None
        self._first_live: int | None = None
        self._is_at_switch = False
        self._only_present = False
        self._reached_us: Mapping[int, int] = {}

    @override
    def next(self, start: Json | None) -> Slice | None:
        stage = Stage.from_json(start)
        self._is_at_switch = False
        planner = self._planner_of(stage)
        planned = planner.next(stage.at)
        if stage.part == "live":
            return None if planned is None else _live_slice(stage, planned)
        if planned is not None:
            return self._history_slice(planner, stage, planned)
        return self._switch(stage) if planner.finished(stage.at) else None

    @override
    def finished(self, start: Json | None) -> bool:
        stage = Stage.from_json(start)
        if not self._planner_of(stage).finished(stage.at):
            return False
        return stage.part == "live" or self._live_planner(stage).finished(None)

    @override
    def stop_at_present(self) -> None:
        self._only_present = True

    @override
    def release(self, oldest: Json, now_us: int) -> None:
        stage = Stage.from_json(oldest)
        planner = self._live if stage.part == "live" else self._history
        # The other part's log is not written. One that is not open in this run does not grow.
        if planner is not None and stage.at is not None:
            planner.release(stage.at, now_us)

    @override
    def read_until_us(self, now: Moment, behind: bool) -> int | None:
        planner = self._latest
        if planner is None or self._is_at_switch:
            return None
        return planner.read_until_us(now, behind)

    @override
    def report_progress(self, reached_us: Mapping[int, int]) -> None:
        self._reached_us = dict(reached_us)

    @override
    def name_of(self, partition: int) -> str:
        first = self._first_live
        if first is not None and partition >= first and self._live is not None:
            return self._live.name_of(partition - first)
        return (
            super().name_of(partition)
            if self._history is None
            else self._history.name_of(partition)
        )

    @override
    def in_doubt(self) -> bool:
        return self._latest is not None and self._latest.in_doubt()

    @override
    def behind(self, start: Json | None) -> Mapping[str, int]:
        stage = Stage.from_json(start)
        return self._planner_of(stage).behind(stage.at)

    @override
    def lag(self, start: Json | None) -> str:
        stage = Stage.from_json(start)
        text = self._planner_of(stage).lag(stage.at)
        return f"history: {text}" if text and stage.part == "history" else text

    @override
    def close(self) -> None:
        for planner in (self._history, self._live):
            if planner is not None:
                planner.close()

    @property
    def _latest(self) -> Planner | None:
        """The planner that was last asked for a slice."""
        return self._history if self._live is None or self._first_live is None else self._live

    def _planner_of(self, stage: Stage) -> Planner:
        """Return the planner of a stage's part, and pass it the progress of its partitions."""
        is_live = stage.part == "live"
        planner = self._live_planner(stage) if is_live else self._history_planner()
        self._first_live = stage.partitions if is_live else None
        first = stage.partitions if is_live else 0
        reached_us, self._reached_us = self._reached_us, {}
        of_part = {number - first: us for number, us in reached_us.items() if number >= first}
        if of_part:
            planner.report_progress(of_part)
        return planner

    def _history_planner(self) -> Planner:
        if self._history is None:
            check_columns(self._source.history, self._source.live)
            self._history = self._opened("history", self._source.history)
        return self._history

    def _live_planner(self, stage: Stage) -> Planner:
        if self._live is None:
            live, rule = self._source.live, self._source.start
            if rule is not None and stage.position is not None:
                live = live.starting_at(rule.start(stage.position))
            self._live = self._opened("live", live)
        return self._live

    def _opened(self, part: Part, source: Source[Any]) -> Planner:
        planner = source.planner(PartLog(self._log, part), self._parallelism)
        if self._only_present:
            planner.stop_at_present()
        return planner

    def _history_slice(self, planner: Planner, stage: Stage, planned: Slice) -> Slice:
        behind = set(planned.behind)
        read = {split.partition for split in planned.splits}
        self._is_at_switch = planner.finished(planned.end)
        if self._is_at_switch and not behind:
            behind = read
        partitions = max([stage.partitions, *(number + 1 for number in behind | read)])
        position = self._position_after(stage.position, planned.splits)
        end = replace(stage, at=planned.end, partitions=partitions, position=position)
        splits = [_split("history", split, 0) for split in planned.splits]
        return replace(
            planned, end=end.to_json(), splits=splits, behind=sorted(behind), reached=partitions
        )

    def _position_after(self, position: Json | None, splits: Iterable[Split]) -> Json | None:
        """Return the position of the rule after splits of the history, which the driver reads."""
        source = self._source
        if source.start is None:
            return None
        for split in splits:
            for batch in source.history.read_fields(split, source.start.fields):
                if not isinstance(batch, Invalid):
                    position = source.start.after(position, batch)
        return position

    def _switch(self, stage: Stage) -> Slice | None:
        """Return the first slice of the live source.

        The slice is empty if the source has no data, so that the switch is logged all the same.
        """
        live = replace(stage, part="live", at=None)
        planner = self._planner_of(live)
        planned = planner.next(None)
        if planned is None and planner.in_doubt():
            return None
        return _live_slice(live, planned or Slice(None))


def _live_slice(stage: Stage, planned: Slice) -> Slice:
    first = stage.partitions
    return replace(
        planned,
        end=replace(stage, at=planned.end).to_json(),
        splits=[_split("live", split, first) for split in planned.splits],
        behind=[first + number for number in planned.behind],
        first=first + planned.first,
        reached=None if planned.reached is None else first + planned.reached,
    )


def _split(part: Part, split: Split, first: int) -> Split:
    return Split([part, split.partition, split.what], first + split.partition, split.order)
