"""Versions of tables: their contents by definition, and the files that hold them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flow import CheckpointError
from flow.dataflow import Step
from flow.engine.tables.contents import Change, Contents, History, Newest
from flow.engine.tables.table_files import (
    MAX_CHANGES_FILES,
    REMOVAL_VERSIONS,
    FileTables,
    TableLog,
    TableVersion,
)
from flow.operators.keyed_tables import Table
from tests.support.sampling import sampled

STEP = Step("rules", Table(), ())


class Folder:
    """Files of a checkpoint, in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.read: list[str] = []

    def names(self, name: str) -> list[str]:
        return sorted(path.name for path in (self.root / name).glob("*"))

    def read_bytes(self, name: str) -> bytes:
        self.read.append(Path(name).name)
        return (self.root / name).read_bytes()

    def write_bytes(self, name: str, data: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(data)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()


def change(key: str, value: object) -> Change:
    return Change(key, None if value is None else pickle.dumps(value))


def reader(root: Path) -> FileTables:
    return FileTables(str(root), {"rules": "rules"}, {"rules": Newest()})


def read(tables: FileTables, version: TableVersion) -> dict[str, object]:
    return dict(tables.contents("rules", {"rules": version}).view())


def test_a_small_change_of_a_large_table_is_written_by_itself(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    log = TableLog(STEP, "rules", folder)
    assert log.change([change(f"k{n}", "x" * 100) for n in range(50)]) == (1, 1, None)
    assert log.change([change("k1", "y")]) == (2, 1, None)
    assert log.change([]) == (2, 1, None)
    assert folder.names("tables/rules") == ["000000001.whole", "000000002.changes"]
    assert (tmp_path / "tables/rules/000000002.changes").stat().st_size < 200


def test_changes_that_outgrow_the_table_are_written_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    log = TableLog(STEP, "rules", folder)
    log.change([change(f"k{n}", "x" * 100) for n in range(50)])
    for _ in range(10):
        log.change([change(f"k{n}", "y" * 100) for n in range(10)])
    wholes = [name for name in folder.names("tables/rules") if name.endswith(".whole")]
    assert len(wholes) in (2, 3)


def test_a_task_reads_few_files(tmp_path: Path) -> None:
    log = TableLog(STEP, "rules", Folder(tmp_path))
    log.change([change(f"k{n}", "x" * 100) for n in range(500)])
    versions = [log.change([change("k1", n)]) for n in range(100)]
    assert max(one.number - one.base for one in versions) == MAX_CHANGES_FILES


def test_a_process_reads_only_the_changes_since_its_version(tmp_path: Path) -> None:
    log = TableLog(STEP, "rules", Folder(tmp_path))
    first = log.change([change(f"k{n}", "x" * 100) for n in range(50)])
    second = log.change([change("k1", "y")])
    third = log.change([change("k2", None)])
    tables = reader(tmp_path)
    assert read(tables, first)["k1"] == "x" * 100
    (tmp_path / "tables/rules/000000001.whole").unlink()
    assert read(tables, second)["k1"] == "y"
    assert "k2" not in read(tables, third)
    assert tables.contents("rules", {"rules": third}) is tables.contents("rules", {"rules": third})
    with pytest.raises(CheckpointError, match=r"000000001\.whole"):
        read(reader(tmp_path), third)


SETS = st.lists(
    st.builds(change, st.sampled_from("abcdef"), st.one_of(st.none(), st.text(max_size=9))),
    min_size=1,
    max_size=4,
)


@sampled(100, by_default=25)
@given(st.lists(SETS, max_size=20), st.data())
def test_every_version_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, sets: list[list[Change]], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("tables")
    log, known = TableLog(STEP, "rules", Folder(root)), [(TableVersion(), dict[str, object]())]
    for changes in sets:
        if data.draw(st.booleans()):  # The run ends here, and another one continues.
            log = TableLog(STEP, "rules", Folder(root))
            log.restore(known[-1][0])
        version = log.change(changes)
        values = {one.key: pickle.loads(one.value) for one in log.contents.changes()}
        known.append((version, values))
    tables = reader(root)
    for version, values in known + data.draw(st.permutations(known)):
        assert read(tables, version) == values
    by_hand: dict[str, object] = {}
    for one in (one for changes in sets for one in changes):
        by_hand[one.key] = None if one.value is None else pickle.loads(one.value)
    assert known[-1][1] == {key: value for key, value in by_hand.items() if value is not None}


def test_a_run_that_goes_on_from_an_earlier_version_replaces_later_ones(tmp_path: Path) -> None:
    log = TableLog(STEP, "rules", Folder(tmp_path))
    first = log.change([change("a", 1)])
    log.change([change("a", 2)])
    again = TableLog(STEP, "rules", Folder(tmp_path))
    again.restore(first)
    second = again.change([change("b", 3)])
    assert read(reader(tmp_path), second) == {"a": 1, "b": 3}


def test_a_table_that_is_added_again_leaves_the_versions_of_before_its_removal(
    tmp_path: Path,
) -> None:
    before = TableLog(STEP, "rules", Folder(tmp_path)).change([change("a", "old")])
    again = TableLog(STEP, "rules", Folder(tmp_path)).change([change("a", "new")])
    assert [read(reader(tmp_path), one) for one in (before, again)] == [{"a": "old"}, {"a": "new"}]


def test_files_that_no_retained_epoch_needs_are_removed(tmp_path: Path) -> None:
    folder, versions = Folder(tmp_path), [TableVersion()]
    log = TableLog(STEP, "rules", folder, lambda _: versions[max(0, len(versions) - 10)])
    for number in range(3 * REMOVAL_VERSIONS):
        versions.append(log.change([change("a", number)]))
    assert len(folder.names("tables/rules")) < REMOVAL_VERSIONS + 12
    oldest = versions[-10]
    assert read(reader(tmp_path), oldest) == {"a": oldest.number - 1}


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"x" + data[1:]])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, damage: object) -> None:
    log = TableLog(STEP, "rules", Folder(tmp_path))
    version = log.change([change("a", 1)])
    file = tmp_path / "tables/rules/000000001.whole"
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    for restore in (
        lambda: read(reader(tmp_path), version),
        lambda: TableLog(STEP, "rules", Folder(tmp_path)).restore(version),
    ):
        with pytest.raises(CheckpointError, match=r"tables/rules/000000001.whole is "):
            restore()


# --- contents ---

KEYS = st.sampled_from("abc")
VALUES = st.one_of(st.none(), st.integers(0, 9))
TIMES = st.integers(0, 20)
CHANGES = st.lists(st.builds(Change, KEYS, VALUES, TIMES), max_size=30)


def newest_by_definition(changes: list[Change], key: str) -> Any:
    return next((one.value for one in reversed(changes) if one.key == key), None)


def as_of_by_definition(changes: list[Change], key: str, at_us: int) -> Any:
    """The value of the greatest time up to `at_us`; of equal times the later arrival."""
    known = [(one.at_us, n, one.value) for n, one in enumerate(changes) if one.key == key]
    return max((one for one in known if one[0] <= at_us), default=(0, 0, None))[2]


@given(CHANGES)
def test_the_newest_value_of_a_key_is_that_of_its_last_change(changes: list[Change]) -> None:
    contents = Newest()
    contents.apply(changes)
    for key in "abc":
        assert contents.view().get(key) == newest_by_definition(changes, key)


@given(CHANGES)
def test_a_history_has_the_value_of_each_time(changes: list[Change]) -> None:
    contents = History()
    contents.apply(changes)
    for at_us in range(-1, 22):
        view = contents.view(at_us)
        expected = {key: as_of_by_definition(changes, key, at_us) for key in "abc"}
        assert {key: view.get(key) for key in "abc"} == expected
        assert dict(view) == {key: one for key, one in expected.items() if one is not None}
        assert len(view) == len(dict(view))
        assert all((key in view) == (expected[key] is not None) for key in "abc")
    newest = {key: as_of_by_definition(changes, key, 20) for key in "abc"}
    assert dict(contents.view()) == {key: one for key, one in newest.items() if one is not None}


@given(CHANGES, st.integers(1, 10))
@example([Change("a", 1, 0), Change("a", 2, 4), Change("a", 3, 9)], 5)
def test_a_bounded_history_starts_at_its_bound(changes: list[Change], keep_us: int) -> None:
    ordered = sorted(changes, key=lambda one: one.at_us)
    contents = History(keep_us)
    contents.apply(ordered)
    for key in "abc":
        last_us = max((one.at_us for one in ordered if one.key == key), default=0)
        for at_us in range(last_us - keep_us - 1, 22):
            assert contents.view(at_us).get(key) == as_of_by_definition(ordered, key, at_us)
        earlier = [at_us for at_us in contents.times.get(key, ()) if at_us < last_us - keep_us]
        assert len(earlier) <= 1, "the value that is replaced at the bound, or holds there"


def test_changes_that_are_read_again_add_nothing_to_a_history() -> None:
    changes = [Change("a", b"1", 1), Change("a", None, 2), Change("a", b"2", 3)]
    contents = History()
    contents.apply(changes)
    before = contents.copy()
    assert (contents.apply(changes), contents) == (0, before)


@given(st.lists(CHANGES, max_size=5), st.sampled_from([Newest(), History(), History(5)]))
def test_sets_of_changes_are_as_all_at_once(sets: list[list[Change]], empty: Contents) -> None:
    whole, in_parts = empty.copy(), empty.copy()
    whole.apply([change for changes in sets for change in changes])
    for changes in sets:
        in_parts.apply(changes)
    assert whole == in_parts
    rebuilt = empty.copy()
    rebuilt.apply(whole.changes())
    assert rebuilt == whole
    assert list(rebuilt.changes()) == list(whole.changes())


@given(
    st.lists(st.builds(Change, KEYS, st.one_of(st.none(), st.binary()), TIMES), max_size=30),
    st.sampled_from([Newest(), History(), History(5)]),
)
def test_the_growth_adds_up_to_the_kept_size(changes: list[Change], empty: Contents) -> None:
    contents = empty.copy()
    grown = sum(contents.apply([change]) for change in changes)
    assert grown == sum(len(key) + len(value or b"") for key, value, _ in contents.changes())


def test_a_copy_changes_on_its_own() -> None:
    for contents in (Newest(), History()):
        contents.apply([Change("a", 1)])
        contents.copy().apply([Change("a", 2), Change("b", 3)])
        assert dict(contents.view()) == {"a": 1}
