"""The laws of connectors, each broken on purpose by a connector with one defect."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from flow.connectors.sink import Guarantee, OutputContext, Sink, SinkBatch, WriteContext
from flow.connectors.source import Batch, Planner, Slice, Source, SourceLog, Split
from flow.errors import SinkError
from flow.testing.connectors import LawBroken, check_sink, check_source
from flow.testing.lists import items_of

PASSWORD = "s3cr3t"


class JsonSink(Sink[Any]):
    """A sink that keeps its rows, and the last epoch of each run, in a file of JSON."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, place: Path, defect: str = "") -> None:
        self.file, self.defect = place / "rows.json", defect
        self.run_id, self.rewinds = "", 0

    def __repr__(self) -> str:
        return f"JsonSink({PASSWORD if self.defect == 'shows its password' else ''})"

    @override
    def attach(self, output: OutputContext) -> None:
        if output.checkpoint is not None and self.defect != "takes a rewind for a replay":
            self.rewinds = output.checkpoint.rewinds

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        self.run_id = "any" if self.defect == "numbers all flows alike" else run_id

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> Any:
        found = [one for one in batches if self.defect != "skips batches" or isinstance(one, list)]
        rows = [[row["key"], row["n"]] for batch in found for row in items_of(batch)]
        if self.defect == "strips text":
            rows = [[key.strip(), n] for key, n in rows]
        if self.defect == "writes in the workers":
            self.save(self.load()[0] + rows, self.load()[1])
            return []
        if self.defect in ("adds to the files of dead tasks", "adds to the files of lost attempts"):
            name = f"{context.epoch}-{context.partition}-{self.start()}.jsonl"
            with (self.file.parent / name).open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            return name
        return rows

    def start(self) -> int:
        """Return a number that differs between runs, unless dead tasks' files are used again."""
        return 0 if self.defect == "adds to the files of dead tasks" else self.number

    number = 0

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        if self.defect == "needs items":
            messages[0]
        rows, done = self.load()
        last, rewinds = done.get(self.run_id, [-1, 0])
        if epoch <= last and self.defect != "has no numbers":
            if self.rewinds == rewinds:
                return
            raise SinkError("rows of undone epochs are there: write to another file, or remove it")
        for message in messages:
            if isinstance(message, str):
                lines = (self.file.parent / message).read_text().splitlines()
                message = [json.loads(line) for line in lines]
            rows += message
        self.save(rows, {**done, self.run_id: [epoch, self.rewinds]})

    def load(self) -> tuple[list[Any], dict[str, list[int]]]:
        return tuple(json.loads(self.file.read_text())) if self.file.exists() else ([], {})  # type: ignore[return-value]

    def save(self, rows: list[Any], done: dict[str, list[int]]) -> None:
        self.file.write_text(json.dumps([rows, done]))


def read(place: Path) -> list[tuple[str, int]]:
    return [(key, n) for key, n in JsonSink(place).load()[0]]


def test_a_sink_without_a_defect_keeps_the_laws() -> None:
    check_sink(JsonSink, read, secrets=[PASSWORD])


@pytest.mark.parametrize(
    ("defect", "law"),
    [
        ("writes in the workers", "Rows are visible once their epoch is committed"),
        ("has no numbers", "An epoch that is committed twice"),
        ("adds to the files of dead tasks", "After a kill before, during or after the writing"),
        ("adds to the files of lost attempts", "A task that Spark attempts twice"),
        ("needs items", "Epochs without items, and numbers that are left out, change nothing"),
        ("strips text", "Text comes back as it was written"),
        ("skips batches", "Record batches are written as their rows are"),
        ("numbers all flows alike", "Epochs of two flows are not mistaken for each other"),
        ("takes a rewind for a replay", "Epochs made again after a rewind replace"),
        ("shows its password", "No text about a sink, and no message of a task, has a secret"),
    ],
)
def test_a_sink_with_a_defect_breaks_the_law_about_it(defect: str, law: str) -> None:
    numbers = itertools.count()

    def make(place: Path) -> JsonSink:
        sink = JsonSink(place, defect)
        sink.number = next(numbers)
        return sink

    with pytest.raises(LawBroken) as caught:
        check_sink(make, read, secrets=[PASSWORD])
    assert caught.value.law.startswith(law)
    assert f"breaks the law:\n  {law}" in str(caught.value)


def test_a_broken_law_shows_what_was_expected_and_what_was_found() -> None:
    with pytest.raises(LawBroken) as caught:
        check_sink(lambda place: JsonSink(place, "has no numbers"), read)
    assert str(caught.value) == (
        "JsonSink() breaks the law:\n"
        "  An epoch that is committed twice, or written and committed again, is in the output "
        "once.\n"
        "expected the rows [('a', 0), ('b', 0), ('c', 1), ('d', 1)]\n"
        "found    the rows [('a', 0), ('b', 0), ('c', 1), ('c', 1), ('c', 1), ('d', 1), ('d', 1), "
        "('d', 1)]"
    )


def test_an_exception_of_a_connector_names_the_law() -> None:
    with pytest.raises(LawBroken, match=r"change nothing\.\nit raised IndexError: list index"):
        check_sink(lambda place: JsonSink(place, "needs items"), read)


class AtLeastOnce(JsonSink):
    guarantee = Guarantee.AT_LEAST_ONCE


def test_a_sink_that_is_at_least_once_may_write_again_and_not_leave_out() -> None:
    check_sink(lambda place: AtLeastOnce(place, "has no numbers"), read)
    with pytest.raises(LawBroken, match="Rows are visible once"):
        check_sink(lambda place: AtLeastOnce(place, "needs items"), lambda place: [])


class JsonSource(Source[Any]):
    """A source of the records in files of JSON, by position in the list of all records."""

    def __init__(self, place: Path, defect: str = "") -> None:
        self.place, self.defect, self.counts = place, defect, itertools.count()

    def items(self) -> list[Any]:
        return [
            one
            for path in sorted(self.place.glob("*.json"))
            for one in json.loads(path.read_text())
        ]

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return JsonPlanner(self, parallelism)

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        start, end = split.what[:2]
        items = self.items()[start:end]
        yield items[::-1] if self.defect == "changes" and next(COUNTS) // 2 % 2 else items

    @override
    def read_fields(self, split: Split, fields: frozenset[str]) -> Iterator[Batch]:
        for batch in self.read(split):
            keeps = self.defect != "leaves out all fields"
            yield [{name: one[name] for name in one if keeps and name in fields} for one in batch]  # type: ignore[union-attr]

    @override
    def identity(self) -> Any:
        return next(COUNTS) if self.defect == "has many names" else str(self.place)


COUNTS = itertools.count()


class JsonPlanner(Planner):
    def __init__(self, source: JsonSource, parallelism: int) -> None:
        self.source, self.defect, self.parallelism = source, source.defect, parallelism
        self.at = 0

    @override
    def next(self, start: Any) -> Slice | None:
        first = self.at if self.defect == "remembers" else (start or 0)
        most = 100 if self.defect == "has no limit" else 4
        count = len(self.source.items()) - (self.defect == "loses the last")
        end = self.at = min(first + most, count)
        if start is not None and self.defect == "reads once":
            return None
        if end <= first and self.defect != "never ends":
            return None
        middle = (first + end) // 2
        orders = (1, 0) if self.defect == "mixes tasks" and self.parallelism > 2 else (0, 1)
        extra = [PASSWORD] if self.defect == "logs its password" else []
        return Slice(
            end, [Split([first, middle, *extra], 0, orders[0]), Split([middle, end], 0, orders[1])]
        )

    @override
    def finished(self, start: Any) -> bool:
        return True


def fill(place: Path, part: int) -> list[Any]:
    items = [{"key": f"é{part}", "n": n} for n in range(10 if part == 0 else 3)]
    (place / f"{part}.json").write_text(json.dumps(items))
    return items


def test_a_source_without_a_defect_keeps_the_laws() -> None:
    check_source(JsonSource, fill, per_epoch=4, secrets=[PASSWORD])


@pytest.mark.parametrize(
    ("defect", "law"),
    [
        ("loses the last", "A run reads each item once, and ends"),
        ("never ends", "A run reads each item once, and ends"),
        ("changes", "A split gives the same items, in the same order, each time"),
        ("remembers", "A run continues at any offset"),
        ("mixes tasks", "The number of tasks changes neither the items"),
        ("has no limit", "An epoch has at most as many items as the source says"),
        ("leaves out all fields", "Fields that no step reads may be left out"),
        ("has many names", "The identity of a source is JSON, and the same in the next run"),
        ("logs its password", "No text about a source, and nothing that a checkpoint keeps"),
        ("reads once", "A run reads each item once"),
    ],
)
def test_a_source_with_a_defect_breaks_the_law_about_it(defect: str, law: str) -> None:
    with pytest.raises(LawBroken) as caught:
        check_source(lambda place: JsonSource(place, defect), fill, per_epoch=4, secrets=[PASSWORD])
    assert caught.value.law.startswith(law)


class Forgetful(JsonSource):
    @override
    def items(self) -> list[Any]:
        return super().items()[:10]


def test_data_that_come_later_are_read_by_the_next_run() -> None:
    with pytest.raises(LawBroken, match="Data that come after a run are read by the next run"):
        check_source(Forgetful, fill)
    check_source(Forgetful, fill, grows=False)
