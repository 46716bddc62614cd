"""Planners over files without a disk, and the pieces of files that a slice reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from flow.connectors.files.reading.file import File
from flow.connectors.files.reading.file_list import FileList
from flow.connectors.files.reading.globs import ListedFile
from flow.connectors.files.reading.parallel_planning import file_planner
from flow.connectors.files.reading.pieces import Cuts
from flow.connectors.files.reading.planning import FileOrder, FilePlanner
from flow.connectors.source import Json, Slice
from tests.support.clock import Clock
from tests.support.reading_files import JsonLog


@dataclass
class Lengths(Cuts):
    """Files whose paths are numbers: of these lengths, in units."""

    of: Sequence[int]
    whole: frozenset[int] = frozenset()
    least_split: int = 1
    least_piece: int = 1
    lookups: list[int] = field(default_factory=list)

    def length(self, file: File) -> int:
        self.lookups.append(int(file.path))
        return self.of[int(file.path)]

    def near(self, file: File, ideal: int, least: int, most: int) -> int:
        return self.length(file) if int(file.path) in self.whole else ideal


class Case:
    """Planners over files without a disk, of which the first ones of `lengths` have appeared."""

    def __init__(
        self,
        order: FileOrder,
        lengths: Sequence[int] | Lengths,
        per_epoch: int,
        appeared: int | None = None,
        **options: Any,
    ) -> None:
        self.cuts = lengths if isinstance(lengths, Lengths) else Lengths(lengths)
        self.appeared = len(self.cuts.of) if appeared is None else appeared
        self.order = order
        self.log = JsonLog()
        self.clock = Clock(now=100.0)
        self.options = {"parallelism": 1, "follow": False, "per_epoch": per_epoch, **options}
        self.planner = self.new_planner()

    def new_planner(self) -> FilePlanner:
        def find(**_: Any) -> list[ListedFile]:
            return [ListedFile("", f"{n:06}", 1, 0) for n in range(self.appeared)]

        files = FileList(self.log, find, follow=self.options["follow"], clock=self.clock)
        return file_planner(self.order, files, self.cuts, name="the files", **self.options)


def slices(planner: FilePlanner, start: Json = None) -> Iterator[tuple[Json, Slice]]:
    """The slices from an offset on, each with the offset before it, as JSON."""
    while (planned := planner.next(start)) is not None:
        assert not planner.finished(start)
        yield start, planned
        start = json.loads(json.dumps(planned.end))
    assert planner.finished(start)


def units(planned: Slice) -> dict[int, list[tuple[int, int, int]]]:
    """Pieces of a slice as (file, start, end), by source partition, in order of the splits."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for split in sorted(planned.splits, key=lambda one: (one.partition, one.order)):
        pieces = [(int(one["file"][1]), one["start"], one["end"]) for one in split.what]
        found.setdefault(split.partition, []).extend(pieces)
    for partition in found:
        orders = [one.order for one in planned.splits if one.partition == partition]
        assert orders == list(range(len(orders)))
    return found


def units_by_file(planned: Slice) -> dict[int, int]:
    """Units that a slice reads, by file."""
    return {part: sum(end - at for _, at, end in read) for part, read in units(planned).items()}
