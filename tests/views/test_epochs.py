"""Epochs of a view: replays, rewinds, other runs, and the windows that it keeps."""

from __future__ import annotations

import logging
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.errors import FlowBuildError, SinkError, StepError
from flow.views import ViewSink, open
from flow.views.views_file import asking
from flow_windowing import Retracted
from tests.support.sampling import sampled
from tests.support.views import ViewRuns, hour


@pytest.fixture
def runs(tmp_path: Path) -> ViewRuns:
    return ViewRuns(tmp_path)


def test_the_last_value_of_a_key_stays(runs: ViewRuns) -> None:
    runs.epoch([("ann", 1), ("bob", 1), ("ann", 2)])
    runs.epoch([("ann", 3)], [("cid", 1)])
    assert runs.content() == {"ann": 3, "bob": 1, "cid": 1}
    assert {e.key: e.epoch for e in runs.view.range().entries} == {"ann": 1, "bob": 0, "cid": 1}


def test_an_epoch_without_items_counts(runs: ViewRuns) -> None:
    runs.epoch([("ann", 1)])
    runs.epoch()
    assert runs.view.get("ann").epoch == 1
    assert runs.view.get("nobody").epoch == 1


def test_none_removes_a_key(runs: ViewRuns) -> None:
    runs.epoch([("ann", 1), ("bob", 1)])
    runs.epoch([("ann", None), ("nobody", None)])
    assert runs.content() == {"bob": 1}
    runs.epoch([("ann", None), ("ann", 2)])
    assert runs.content() == {"ann": 2, "bob": 1}


def test_an_epoch_not_logged_is_replayed_without_a_trace_of_the_first(runs: ViewRuns) -> None:
    runs.epoch([("ann", 1)])
    runs.epoch([("ann", 2), ("bob", 2)], is_logged=False)
    runs.start()
    # The view has committed the epoch, and shows no earlier one while it is replayed.
    assert runs.content() == {"ann": 2, "bob": 2}
    runs.epoch([("ann", 7)])
    assert runs.content() == {"ann": 7}
    assert runs.view.get("ann").epoch == 1


def test_a_rewind_sets_the_view_back_when_the_next_run_starts(runs: ViewRuns) -> None:
    for number in range(5):
        runs.epoch([("ann", number), (f"key {number}", number)])
    runs.rewind(1)
    assert runs.view.get("ann").epoch == 4
    runs.start()
    assert runs.content() == {"ann": 1, "key 0": 0, "key 1": 1}
    assert runs.view.get("ann").epoch == 1
    runs.epoch([("bob", 2)])
    assert runs.content() == {"ann": 1, "bob": 2, "key 0": 0, "key 1": 1}


def test_a_rewind_beyond_the_kept_epochs_is_refused(runs: ViewRuns) -> None:
    runs.keep_epochs = 3
    for number in range(6):
        runs.epoch([("ann", number)])
    runs.rewind(1)
    with pytest.raises(SinkError, match=r"can be set back to epoch 2, but .* back to epoch 1"):
        runs.start()
    runs.rewind(2)
    runs.start()
    assert runs.content() == {"ann": 2}


def test_the_undo_log_has_kept_epochs_only(runs: ViewRuns) -> None:
    runs.keep_epochs = 3
    for number in range(9):
        runs.epoch([("ann", number)])
    with asking(open(runs.directory).path) as ask:
        assert ask("SELECT at_epoch FROM undo_1") == [(6,), (7,), (8,)]


def test_another_run_replaces_the_view_as_it_commits_its_first_epoch(runs: ViewRuns) -> None:
    runs.epoch([("ann", 1), ("bob", 1)])
    runs.stop()
    runs.run_id, runs.last_epoch = "another", -1
    runs.start()
    assert runs.content() == {"ann": 1, "bob": 1}
    assert runs.view.get("ann").run_id == "run"
    runs.epoch([("ann", 2)])
    assert runs.content() == {"ann": 2}
    assert runs.view.get("ann").run_id == "another"
    runs.epoch([("ann", 3)], is_logged=False)
    runs.epoch([("ann", 3)])
    assert runs.content() == {"ann": 3}


def test_a_process_that_lost_its_view_to_another_cannot_commit(runs: ViewRuns) -> None:
    runs.epoch([("ann", 1)])
    other = ViewRuns(runs.directory, last_epoch=0)
    other.start()
    with pytest.raises(SinkError, match="was opened by another process"):
        runs.epoch([("ann", 2)])
    assert runs.content() == {"ann": 1}
    other.stop()


def test_a_late_view_of_a_flow_is_logged(runs: ViewRuns, caplog: pytest.LogCaptureFixture) -> None:
    runs.last_epoch = 6
    with caplog.at_level(logging.WARNING, "flow"):
        runs.epoch([("ann", 1)])
    assert "it has the keys of epochs from 7 on only" in caplog.text
    caplog.clear()
    runs.stop()
    runs.last_epoch = 9
    with caplog.at_level(logging.WARNING, "flow"):
        runs.epoch([("bob", 1)])
    assert "it lacks the epochs from 8 to 9" in caplog.text
    assert runs.content() == {"ann": 1, "bob": 1}


def test_a_retraction_removes_the_window(runs: ViewRuns) -> None:
    runs.options = {"by": "window"}
    runs.epoch([("a", (hour(1), 10)), ("a", (hour(3), 30))])
    runs.epoch([("a", (hour(3), Retracted(30))), ("a", (hour(1), 40))])
    assert runs.windows() == {("a", 1): 40}


def test_a_retraction_removes_the_value_of_a_key_only_of_that_window(runs: ViewRuns) -> None:
    runs.epoch([("a", (hour(1), 10)), ("b", (hour(2), 20))])
    runs.epoch([("a", (hour(1), Retracted(10))), ("b", (hour(1), Retracted(10)))])
    assert runs.content() == {"b": 20}
    runs.epoch([("b", (hour(4), 40)), ("b", (hour(2), Retracted(20)))])
    assert runs.content() == {"b": 40}


def test_retractions_of_one_epoch_do_as_in_epochs_of_their_own(runs: ViewRuns) -> None:
    runs.epoch([("a", (hour(2), 20)), ("b", (hour(1), 10))])
    retracted = [("a", (hour(n), Retracted(n))) for n in (1, 2)]
    runs.epoch([*retracted, ("b", (hour(2), 20)), ("b", (hour(2), Retracted(20)))], is_logged=False)
    assert runs.content() == {}
    runs.start()
    runs.epoch([])
    assert runs.content() == {"a": 20, "b": 10}


def test_windows_are_kept_by_count_for_each_key(runs: ViewRuns) -> None:
    runs.options = {"by": "window", "keep": 2}
    runs.epoch([("a", (hour(n), n)) for n in range(5)] + [("b", (hour(0), 0))])
    assert runs.windows() == {("a", 3): 3, ("a", 4): 4, ("b", 0): 0}
    # An update of a window that is no longer kept does not bring it back.
    runs.epoch([("a", (hour(1), 9))])
    assert runs.windows() == {("a", 3): 3, ("a", 4): 4, ("b", 0): 0}


def test_windows_are_kept_for_a_time_after_their_close(runs: ViewRuns) -> None:
    runs.options = {"by": "window", "keep": "2h"}
    runs.epoch([("a", (hour(n), n)) for n in range(3)] + [("b", (hour(0), 0))])
    assert runs.windows() == {("a", 0): 0, ("a", 1): 1, ("a", 2): 2, ("b", 0): 0}
    # Hour 0 closes at 1:00, more than two hours before hour 4 opens.
    runs.epoch([("c", (hour(4), 4))])
    assert runs.windows() == {("a", 1): 1, ("a", 2): 2, ("c", 4): 4}


def test_a_session_that_grows_stays_one_entry(runs: ViewRuns) -> None:
    runs.options = {"by": "window"}
    first, later = hour(5), hour(9)
    grown = type(first)(first.window_id, hour(4).open_time, later.close_time)
    runs.epoch([("a", (first, 1))])
    runs.epoch([("a", (grown, 2))])
    (entry,) = runs.view.windows("a").entries
    assert entry.window is not None
    assert (entry.window.open_time, entry.window.close_time) == (grown.open_time, grown.close_time)


def test_a_key_is_read_from_a_field_or_by_a_function(tmp_path: Path) -> None:
    by_field = ViewRuns(tmp_path / "1", {"key": "user.name"})
    by_call = ViewRuns(tmp_path / "2", {"key": lambda item: item["user"]["name"]})
    for runs in (by_field, by_call):
        runs.directory.mkdir()
        runs.epoch([{"user": {"name": "ann"}, "n": 1}, {"user": {"name": "ann"}, "n": 2}])
        assert runs.content() == {"ann": {"user": {"name": "ann"}, "n": 2}}


def test_a_number_or_a_day_is_a_key_by_the_rule_of_key_on(runs: ViewRuns) -> None:
    runs.options = {"key": "n"}
    runs.epoch([{"n": 7}, {"n": True}, {"n": date(2024, 1, 31)}])
    assert set(runs.content()) == {"7", "true", "2024-01-31"}


@pytest.mark.parametrize(
    ("options", "item", "problem"),
    [
        ({}, {"n": 1}, "items of a view must be .key, value. pairs, but this item is a dict"),
        ({}, (1, 2), "a key of a view must be text, got int 1"),
        ({}, ("\ud800", 2), "a key of a view must be text that UTF-8 can encode, got '.ud800'"),
        ({}, ("ann", b"x"), "the view cannot hold a value of type bytes: bytes b'x' has no form"),
        ({"key": "user"}, {"n": 1}, "reading the key of the view raised KeyError: .*no field 'us"),
        (
            {"key": "n"},
            {"n": 1.5},
            "reading the key of the view raised NoTextKey: .*'n' is float 1.5",
        ),
        ({"by": "window"}, ("ann", 3), "by='window' needs results of windows"),
    ],
)
def test_an_item_that_does_not_fit_is_an_error_with_its_step(
    runs: ViewRuns, options: dict[str, Any], item: Any, problem: str
) -> None:
    runs.options = options
    with pytest.raises(StepError, match=rf"step 'totals': {problem}"):
        runs.epoch([item])


def test_a_value_that_does_not_fit_is_an_error_with_its_key(runs: ViewRuns) -> None:
    with pytest.raises(StepError) as caught:
        runs.epoch([("ann", {"photo": b"x"})])
    assert caught.value.key == "ann"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"by": "keys"}, "by must be 'key' or 'window', got 'keys'"),
        ({"key": ""}, "key must be a field's path such as 'user.id', got ''"),
        ({"key": 3}, "key must be a function or a field's path such as 'user.id', got int 3"),
        ({"keep": 3}, "keep=3 limits windows, which by='key' has not"),
        ({"by": "window", "keep": 0}, "keep must be a whole number of at least 1, got 0"),
        ({"by": "window", "keep": True}, "keep must be a whole number of at least 1, got True"),
        ({"by": "window", "keep": "soon"}, "keep 'soon' is not a duration"),
        ({"by": "window", "keep": "0s"}, "keep must be positive, got '0s'"),
        ({"path": "s3a://bucket/views"}, "path must be a path on a local disk"),
        ({"path": 3}, "path must be text or a pathlib.Path, got 3"),
    ],
)
def test_a_wrong_argument_is_an_error(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(FlowBuildError, match=f"ViewSink: {problem}"):
        ViewSink(**options)


def test_a_sink_is_shown_as_it_is_written() -> None:
    assert repr(ViewSink()) == "ViewSink()"
    assert repr(ViewSink(by="window", keep=3)) == "ViewSink(by='window', keep=3)"


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["commit", "lost", "replayed"]),
            st.lists(
                st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.none() | st.integers(0, 9))
            ),
        ),
        st.tuples(st.just("rewind"), st.integers(1, 4)),
        st.just(("restart", 0)),
    ),
    max_size=12,
)


@sampled(100, by_default=25)
@given(steps=STEPS, keep=st.sampled_from([None, 2, "1h"]))
def test_a_view_by_window_is_the_dict_that_the_epochs_make(
    steps: list[tuple[str, Any]], keep: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runs = ViewRuns(tmp_path_factory.mktemp("view"), {"by": "window", "keep": keep})
    model: list[dict[tuple[str, int], Any]] = [{}]
    for action, content in steps:
        if action == "restart":
            runs.start()
        elif action == "rewind":
            if len(model) > content + 1:
                del model[-content:]
                runs.rewind(runs.last_epoch - content)
                runs.start()
        else:
            items = [(key, (hour(number), value)) for key, number, value in content]
            if action == "lost":
                runs.epoch([("lost", (hour(0), 1))], is_logged=False)
                runs.start()
            if action == "replayed":
                runs.epoch(items, is_logged=False)
                runs.start()
            runs.epoch(items)
            model.append(after(model[-1], content, keep))
        if runs.last_epoch >= 0:
            assert runs.windows() == model[-1]
    runs.stop()


def after(
    before: dict[tuple[str, int], Any], content: list[tuple[str, int, Any]], keep: Any
) -> dict[tuple[str, int], Any]:
    """Return the windows after an epoch: the newest values, and only the kept windows."""
    last = {(key, number): value for key, number, value in content}
    now = {place: value for place, value in {**before, **last}.items() if value is not None}
    if keep == 2:
        newest = {key: sorted(n for k, n in now if k == key)[-2:] for key, _ in now}
        return {(key, n): value for (key, n), value in now.items() if n in newest[key]}
    if keep == "1h" and now:
        first = max(n for _, n in now) - 2
        return {(key, n): value for (key, n), value in now.items() if n >= first}
    return now
