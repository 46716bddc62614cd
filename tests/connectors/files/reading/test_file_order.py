"""Order of files, in sequence or in parallel: splits, files behind, and offsets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.files import TextSource
from flow.connectors.files.reading import parallel_planning
from flow.connectors.files.reading.globs import ListedFile
from flow.connectors.files.reading.parallel_planning import ParallelPlanner
from flow.connectors.files.reading.planning import FileOrder
from flow.connectors.leveling import Leveling
from flow.connectors.source import MemoryLog, Slice
from flow.errors import SourceError
from tests.support.file_planning import Case, Lengths, slices, units, units_by_file
from tests.support.reading_files import write
from tests.support.sampling import sampled

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
@sampled(300, by_default=75)
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
        patch.setattr(parallel_planning, "MOST_OPEN", most_open)
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
            case.planner.hear({n: at[n] * paces[n] for n in at if at[n] and paces[n]})
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
    planned = case.planner.next(None)
    assert planned is not None
    assert units_by_file(planned) == {0: 10, 1: 30}
    assert planned.end == {"started": 2, "open": [[0, 10], [1, 30]]}
    assert list(planned.behind) == [0, 1]


def test_a_file_is_cut_for_the_tasks_that_have_no_file_of_their_own() -> None:
    planned = Case("parallel", [40, 40], 80, parallelism=4).planner.next(None)
    assert planned is not None
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
    planner, start, planned = case.planner, None, None
    for _ in range(2):
        planned = planner.next(start)
        assert planned is not None
        assert units_by_file(planned) == {0: 10, 1: 10}
        start = planned.end
        at = dict(start["open"])
        planner.hear({0: at[0], 1: at[1] * 100})
    planned = planner.next(start)
    assert planned is not None
    assert units_by_file(planned) == {0: 20}


def test_files_take_turns_if_an_epoch_cannot_hold_all() -> None:
    case = Case("parallel", Lengths([30] * 4, least_piece=10), 20)
    read = [sorted(units_by_file(planned)) for _, planned in slices(case.planner)]
    assert read == [[0, 1], [2, 3]] * 3


def test_a_file_without_items_is_read_first() -> None:
    case = Case("parallel", Lengths([100] * 4, least_piece=10), 20)
    case.planner.hear({0: -3, 1: -5, 3: 9})
    start = {"started": 4, "open": [[0, 10], [1, 10], [2, 10], [3, 10]]}
    planned = case.planner.next(start)
    assert planned is not None
    # File 2 is at the beginning of time, and file 1 before the others.
    assert sorted(units_by_file(planned)) == [1, 2]


def test_files_that_cannot_be_cut_are_read_whole_and_no_more_of_them_than_fill_an_epoch() -> None:
    case = Case("parallel", Lengths([30] * 10, whole=frozenset(range(10))), 50)
    assert [units_by_file(planned) for _, planned in slices(case.planner)] == [
        {n: 30, n + 1: 30} for n in range(0, 10, 2)
    ]


def test_a_file_that_cannot_be_cut_leaves_less_of_an_epoch_for_the_others() -> None:
    planned = Case("parallel", Lengths([30, 100], whole=frozenset([0])), 40).planner.next(None)
    assert planned is not None
    assert units_by_file(planned) == {0: 30, 1: 10}


def test_an_epoch_reads_no_more_files_than_it_may_have_splits() -> None:
    case = Case("parallel", [1] * 2_500, 9_999)
    assert [len(planned.splits) for _, planned in slices(case.planner)] == [1_000, 1_000, 500]


def test_a_limited_number_of_files_is_open_and_the_others_are_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel_planning, "MOST_OPEN", 2)
    planned = Case("parallel", [10] * 5, 8).planner.next(None)
    assert planned is not None
    assert units_by_file(planned) == {0: 4, 1: 4}
    assert list(planned.behind) == [0, 1, 2, 3, 4]


def test_many_files_without_units_do_not_hide_those_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel_planning, "MOST_OPEN", 2)
    case = Case("parallel", [0, 0, 0, 0, 7, 0, 0, 0], 10)
    ((_, planned),) = slices(case.planner)
    assert units_by_file(planned) == {4: 7}
    assert (planned.end, planned.behind) == ({"started": 8, "open": []}, ())


def test_offset_and_planning_depend_on_open_files_only() -> None:
    count = 2_000
    case = Case("parallel", [100_000, *[1] * count], 10, appeared=1, follow=True)
    start = None
    for number in range(count):
        case.appeared = number + 2
        case.clock.now += 1
        planned = case.planner.next(start)
        assert planned is not None
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
    most = 0
    for _, planned in slices(case.planner):
        case.planner.hear({n: 100 - n for n in range(planned.end["started"])})
        most = max(most, *(len(known) for known in vars(leveling_of(case)).values()))
    assert most > 2
    assert [len(known) for known in vars(leveling_of(case)).values()] == [0, 0, 0]


def leveling_of(case: Case) -> Leveling[int]:
    assert isinstance(case.planner, ParallelPlanner)
    return case.planner._leveling


# --- names, and another order on a checkpoint ---


def test_a_partition_has_the_name_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a\n")
    write(tmp_path / "b.txt", "b\n")
    in_sequence = TextSource(tmp_path).planner(MemoryLog(), 1)
    assert in_sequence.name_of(0) == str(tmp_path)
    side_by_side = TextSource(tmp_path, order="parallel").planner(MemoryLog(), 1)
    assert side_by_side.name_of(1) == f"{tmp_path}/b.txt"
    assert side_by_side.name_of(2) == "partition 2"


def test_the_name_of_a_partition_does_not_hold_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [ListedFile("s3://bucket", "bucket/a.txt", 1, 0)]
    monkeypatch.setattr(
        "flow.connectors.files.reading.file_source.find_files", lambda paths, required: found
    )
    path = ["s3://me:secret@bucket/*.txt", "old/"]
    assert TextSource(path).planner(MemoryLog(), 1).name_of(0) == "s3://bucket/*.txt, old/"
    side_by_side = TextSource(path, order="parallel").planner(MemoryLog(), 1)
    assert side_by_side.name_of(0) == "s3://bucket/a.txt"


@pytest.mark.parametrize(("before", "now"), [("sequence", "parallel"), ("parallel", "sequence")])
@pytest.mark.parametrize("question", ["next", "finished", "lag"])
def test_another_order_on_a_checkpoint_is_refused_with_the_ways_out(
    before: FileOrder, now: FileOrder, question: str
) -> None:
    planned = Case(before, [10, 10], 5).planner.next(None)
    assert planned is not None
    message = (
        rf"read with order='{before}', but the source has order='{now}': .* Set order='{before}' "
        r"again, or .* RecoveryConfig\(path, reset_steps=\[\.\.\.\]\), or use a recovery path"
    )
    with pytest.raises(SourceError, match=message):
        getattr(Case(now, [10, 10], 5).planner, question)(planned.end)


def test_an_offset_in_parallel_beyond_the_list_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"go on at file number 4, but its list .* holds 2"):
        Case("parallel", [1, 1], 5).planner.next({"started": 3, "open": []})


def test_the_format_of_the_offset_in_sequence_is_unchanged() -> None:
    ends = [planned.end for _, planned in slices(Case("sequence", [10, 10], 15).planner)]
    assert ends == [{"file": 1, "at": 5}, {"file": 2, "at": 0}]


def test_lag_in_parallel_counts_finished_files() -> None:
    planner = Case("parallel", [9] * 4, 5).planner
    assert planner.lag(None) == "0 of 4 files"
    assert planner.lag({"started": 3, "open": [[1, 5]]}) == "2 of 4 files"
