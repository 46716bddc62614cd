"""Planning over files in sequence or in parallel, without a disk: splits, offsets, times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.files import TextSource
from flow.connectors.files import file_planning as planning
from flow.connectors.files.file_list import FileList
from flow.connectors.files.file_planning import (
    PLANNERS,
    Cuts,
    FileOrder,
    FilePlanner,
    ParallelPlanner,
)
from flow.connectors.files.filesystems import File
from flow.connectors.source import Json, MemoryLog, Slice
from flow.errors import SourceError
from flow.instants import Moment
from tests.support.clock import Clock
from tests.support.reading_files import JsonLog, write
from tests.support.sampling import sampled


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

    def next(self, start: Json = None) -> Slice:
        """Plan a slice that there must be."""
        planned = self.planner.next(start)
        assert planned is not None
        return planned

    def new_planner(self) -> FilePlanner:
        def find(**_: Any) -> list[File]:
            return [File("", f"{n:06}", 1, 0) for n in range(self.appeared)]

        files = FileList(self.log, find, follow=self.options["follow"], clock=self.clock)
        return PLANNERS[self.order](files, self.cuts, name="the files", **self.options)


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


# --- every unit once, in order, from any offset on ---


lengths = st.lists(st.integers(0, 40), min_size=1, max_size=9)
paces = st.lists(st.integers(0, 50), min_size=9, max_size=9)


@given(lengths, st.integers(1, 60), st.integers(1, 6), st.sets(st.integers(0, 8)), st.data())
def test_files_in_sequence_are_read_one_after_the_other(
    of: list[int], per_epoch: int, parallelism: int, whole: set[int], data: st.DataObject
) -> None:
    case = Case("sequence", Lengths(of, frozenset(whole)), per_epoch, parallelism=parallelism)
    done = list(slices(case.planner))
    everything = [(n, at) for n, length in enumerate(of) for at in range(length)]
    read, ends = [], []
    for _, planned in done:
        (pieces,) = units(planned).values()
        read += [(n, at) for n, start, end in pieces for at in range(start, end)]
        ends.append(len(read))
        assert planned.behind == ({0} if len(read) < len(everything) else ())
    assert read == everything
    if done:
        number = data.draw(st.integers(0, len(done) - 1))
        rest = list(slices(case.new_planner(), done[number][0]))
        assert rest == done[number:]


@given(
    lengths,
    st.integers(1, 60),
    st.integers(1, 6),
    st.sets(st.integers(0, 8)),
    st.integers(1, 20),
    st.integers(1, 9),
    paces,
    st.data(),
)
@sampled(300, by_default=50)
def test_files_in_parallel_are_each_read_once_in_order(
    of: list[int],
    per_epoch: int,
    parallelism: int,
    whole: set[int],
    least_piece: int,
    most_open: int,
    paces: list[int],
    data: st.DataObject,
) -> None:
    cuts = Lengths(of, frozenset(whole), least_piece=least_piece)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "MOST_OPEN", most_open)
        case = Case("parallel", cuts, per_epoch, parallelism=parallelism)
        at, starts = dict.fromkeys(range(len(of)), 0), []
        for start, planned in slices(case.planner):
            starts.append((start, dict(at)))
            read_in_parallel(planned, at)
            sizes = units_by_file(planned)
            assert len(sizes) <= max(parallelism, per_epoch // least_piece)
            assert sum(sizes.values()) <= per_epoch or whole & sizes.keys()
            assert len(planned.end["open"]) <= most_open
            left = {n for n, length in enumerate(of) if at[n] < length}
            # A file without units is known to be one once it has been looked at.
            assert left <= set(planned.behind) <= left | {n for n in at if not of[n]}
            assert left or not planned.behind
            # A file of pace 0 brings nothing to any window, so nothing is known of it.
            case.planner.report_progress({n: at[n] * paces[n] for n in at if at[n] and paces[n]})
        assert at == dict(enumerate(of))
        if starts:
            start, at = data.draw(st.sampled_from(starts))
            for _, planned in slices(case.new_planner(), start):
                read_in_parallel(planned, at)
            assert at == dict(enumerate(of))


def read_in_parallel(planned: Slice, at: dict[int, int]) -> None:
    """Read a slice: each piece begins where the one before it in its file has ended."""
    for partition, pieces in units(planned).items():
        for number, start, end in pieces:
            assert (number, start) == (partition, at[number])
            assert start < end
            at[number] = end


# --- in parallel: what an epoch reads ---


def test_files_side_by_side_share_an_epoch() -> None:
    case = Case("parallel", [100, 300], 40)
    case.cuts.least_piece = 10
    planned = case.next()
    assert units_by_file(planned) == {0: 10, 1: 30}
    assert planned.end == {"started": 2, "open": [[0, 10], [1, 30]]}
    assert list(planned.behind) == [0, 1]


def test_a_file_is_cut_for_the_tasks_that_have_no_file_of_their_own() -> None:
    planned = Case("parallel", [40, 40], 80, parallelism=4).next()
    assert [(one.partition, one.order) for one in planned.splits] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


#  event time      0         50       100
#  dense file 0    ▓▓▓▓▓░░░░░░░░░░░░░░░░░   a unit is 1 of time
#  sparse file 1   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓   a unit is 100 of time: waits for the dense one
def test_the_file_furthest_behind_in_event_time_is_read_first() -> None:
    case = Case("parallel", [1_000, 1_000], 20)
    start = None
    for _ in range(2):
        planned = case.next(start)
        assert units_by_file(planned) == {0: 10, 1: 10}
        start = planned.end
        at = dict(start["open"])
        case.planner.report_progress({0: at[0], 1: at[1] * 100})
    assert units_by_file(case.next(start)) == {0: 20}


def test_files_take_turns_if_an_epoch_cannot_hold_all() -> None:
    case = Case("parallel", Lengths([30] * 4, least_piece=10), 20)
    read = [sorted(units_by_file(planned)) for _, planned in slices(case.planner)]
    assert read == [[0, 1], [2, 3]] * 3


def test_a_file_without_items_is_read_first() -> None:
    case = Case("parallel", Lengths([100] * 4, least_piece=10), 20)
    case.planner.report_progress({0: -3, 1: -5, 3: 9})
    start = {"started": 4, "open": [[0, 10], [1, 10], [2, 10], [3, 10]]}
    planned = case.next(start)
    # File 2 is at the beginning of time, and file 1 before the others.
    assert sorted(units_by_file(planned)) == [1, 2]


def test_files_that_cannot_be_cut_are_read_whole_and_no_more_of_them_than_fill_an_epoch() -> None:
    case = Case("parallel", Lengths([30] * 10, whole=frozenset(range(10))), 50)
    assert [units_by_file(planned) for _, planned in slices(case.planner)] == [
        {n: 30, n + 1: 30} for n in range(0, 10, 2)
    ]


def test_a_file_that_cannot_be_cut_leaves_less_of_an_epoch_for_the_others() -> None:
    planned = Case("parallel", Lengths([30, 100], whole=frozenset([0])), 40).next()
    assert units_by_file(planned) == {0: 30, 1: 10}


def test_an_epoch_reads_no_more_files_than_it_may_have_splits() -> None:
    case = Case("parallel", [1] * 2_500, 9_999)
    assert [len(planned.splits) for _, planned in slices(case.planner)] == [1_000, 1_000, 500]


def test_few_files_are_open_and_the_others_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_OPEN", 2)
    planned = Case("parallel", [10] * 5, 8).next()
    assert units_by_file(planned) == {0: 4, 1: 4}
    assert list(planned.behind) == [0, 1, 2, 3, 4]


def test_files_without_units_do_not_hide_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_OPEN", 2)
    case = Case("parallel", [0, 0, 0, 0, 7, 0, 0, 0], 10)
    ((_, planned),) = slices(case.planner)
    assert units_by_file(planned) == {4: 7}
    assert (planned.end, planned.behind) == ({"started": 8, "open": []}, ())


def test_offset_and_planning_depend_on_open_files_only() -> None:
    count = 200
    case = Case("parallel", [100_000, *[1] * count], 10, appeared=1, follow=True)
    start = None
    for number in range(count):
        case.appeared = number + 2
        case.clock.now += 1
        planned = case.next(start)
        start = planned.end
    assert start["started"] == count + 1
    assert [number for number, _ in start["open"]] == [0]
    case.cuts.lookups.clear()
    planned = case.new_planner().next(start)
    assert planned is not None
    assert set(case.cuts.lookups) == {0}
    assert list(planned.behind) == [0]


def test_finished_files_are_removed_from_memory() -> None:
    case = Case("parallel", [9] * 50, 8)
    planner = case.planner
    assert isinstance(planner, ParallelPlanner)
    most = 0
    for _, planned in slices(planner):
        planner.report_progress({n: 100 - n for n in range(planned.end["started"])})
        sizes = [len(known) for known in vars(planner._leveling).values()]
        most = max(most, *sizes)
    assert (most > 2, sizes) == (True, [0, 0, 0])


# --- names, and another order on a checkpoint ---


def test_a_partition_has_the_name_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a\n")
    write(tmp_path / "b.txt", "b\n")
    in_sequence = TextSource(tmp_path).planner(MemoryLog(), 1)
    assert in_sequence.name_of(0) == str(tmp_path)
    side_by_side = TextSource(tmp_path, order="parallel").planner(MemoryLog(), 1)
    assert side_by_side.name_of(1) == f"{tmp_path}/b.txt"
    assert side_by_side.name_of(2) == "partition 2"


def test_partition_names_hide_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [File("s3://bucket", "bucket/a.txt", 1, 0)]
    monkeypatch.setattr(
        "flow.connectors.files.file_source.find_files", lambda paths, required: found
    )
    path = ["s3://me:secret@bucket/*.txt", "old/"]
    assert TextSource(path).planner(MemoryLog(), 1).name_of(0) == "s3://bucket/*.txt, old/"
    side_by_side = TextSource(path, order="parallel").planner(MemoryLog(), 1)
    assert side_by_side.name_of(0) == "s3://bucket/a.txt"


@pytest.mark.parametrize(("before", "now"), [("sequence", "parallel"), ("parallel", "sequence")])
@pytest.mark.parametrize("question", ["next", "finished", "lag"])
def test_another_order_names_the_ways_out(before: FileOrder, now: FileOrder, question: str) -> None:
    planned = Case(before, [10, 10], 5).next()
    message = (
        rf"read with order='{before}', but the source has order='{now}': .* Set order='{before}' "
        r"again, or .* RecoveryConfig\(path, reset_steps=\[\.\.\.\]\), or use a recovery path"
    )
    with pytest.raises(SourceError, match=message):
        getattr(Case(now, [10, 10], 5).planner, question)(planned.end)


def test_an_offset_in_parallel_beyond_the_list_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"continues at file number 4, but its list .* holds 2"):
        Case("parallel", [1, 1], 5).planner.next({"started": 3, "open": []})


def test_the_format_of_the_offset_in_sequence_is_unchanged() -> None:
    ends = [planned.end for _, planned in slices(Case("sequence", [10, 10], 15).planner)]
    assert ends == [{"file": 1, "at": 5}, {"file": 2, "at": 0}]


def test_lag_in_parallel_counts_finished_files() -> None:
    planner = Case("parallel", [9] * 4, 5).planner
    assert planner.lag(None) == "0 of 4 files"
    assert planner.lag({"started": 3, "open": [[1, 5]]}) == "2 of 4 files"


S = 1_000_000


@pytest.mark.parametrize("order", get_args(FileOrder))
def test_a_finished_bounded_source_is_read_until_now(order: FileOrder) -> None:
    case = Case(order, [10, 10], 15, parallelism=2)
    answers = [
        case.planner.read_until_us(Moment(now * S), bool(planned.behind))
        for now, (_, planned) in enumerate(slices(case.planner), 1)
    ]
    assert answers == [None, 2 * S]


#  seconds          0.5   1     1.5   2     2.5   3     3.5
#  files there      -     0-1   0-2   0-2   0-2   0-2   0-3
#  listed           no    yes   no    yes   no    yes   no
#  reads            -     0-1   -     2     -     -     -
#  all read up to   -     1     1     2     2     3     3
@pytest.mark.parametrize("order", get_args(FileOrder))
def test_read_until_is_the_time_of_the_last_listing(order: FileOrder) -> None:
    case = Case(order, [5] * 9, 100, appeared=0, follow=True)
    listings = Listings(case)
    # The listing of the planner's start belongs to no time that the planner knows.
    assert listings.at(0.5, appeared=0) == (None, None)
    assert listings.at(1.0, appeared=2) == ([0, 1], 1.0)
    assert listings.at(1.5, appeared=3) == (None, 1.0)
    assert listings.at(2.0, appeared=3) == ([2], 2.0)
    assert listings.at(2.5, appeared=3) == (None, 2.0)
    assert listings.at(3.0, appeared=3) == (None, 3.0)
    assert listings.at(3.5, appeared=4) == (None, 3.0)


#  seconds                1      2      3      4      5      6
#  files known            0      0-1    0-2    0-2    0-2    0-2
#  sequence reads half    0      0      1      1      2      2
#  all read up to         -      1      1      2      2      6
#  parallel reads half    0      1      2      0      1      2
#  all read up to         -      -      -      1      2      6
@pytest.mark.parametrize("order", get_args(FileOrder))
def test_read_until_with_a_backlog_is_the_newest_listing_that_is_read(order: FileOrder) -> None:
    case = Case(order, Lengths([10] * 3, least_piece=5), 5, appeared=0, follow=True)
    listings = Listings(case)
    if order == "sequence":
        expected = [([0], None), ([0], 1), ([1], 1), ([1], 2), ([2], 2), ([2], 6)]
    else:
        # A file that has just appeared goes before those of which something is read.
        expected = [([0], None), ([1], None), ([2], None), ([0], 1), ([1], 2), ([2], 6)]
    assert [listings.at(now, min(now, 3)) for now in range(1, 7)] == expected


class Listings:
    """Engine's calls of a planner for slices and read-until times."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._start: Json = None

    def at(self, seconds: float, appeared: int) -> tuple[list[int] | None, float | None]:
        """Return the files that are read next, and the time up to which all is read then."""
        case = self._case
        case.appeared = appeared
        case.clock.now = 100 + seconds
        planned = case.planner.next(self._start)
        if planned is not None:
            self._start = planned.end
        behind = planned is not None and bool(planned.behind)
        until_us = case.planner.read_until_us(Moment(round(seconds * S)), behind)
        read = (
            None
            if planned is None
            else sorted({number for pieces in units(planned).values() for number, *_ in pieces})
        )
        return read, None if until_us is None else until_us / S
