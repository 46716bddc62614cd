"""Refused arguments of windowing steps, named by parameter, value, rule and step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, KeyedStream
from flow.connectors.sink import to_record
from flow.errors import DurationError, FlowBuildError, FlowTypeError
from flow.instants import EPOCH
from flow.testing import TestingSource
from flow_windowing.rules.metadata import RESULT_COLUMNS

DURATION = 'write it as a timedelta, "30s", "5m", "1h30m", "100ms" or ISO 8601 "PT5M"'
NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001

CLOCKS = [
    (
        (5, "5s"),
        {},
        FlowTypeError,
        "ts_getter must be a function or a field's path such as 'details.at'",
    ),
    (("", "5s"), {}, FlowBuildError, "ts_getter must be a field's path such as 'details.at'"),
    (("at", "soon"), {}, DurationError, "wait_for_system_duration 'soon' is not a duration"),
    (("at", None), {}, DurationError, f"must be a duration, got NoneType None: {DURATION}"),
    (("at", "-5s"), {}, FlowBuildError, "wait_for_system_duration must not be negative"),
    (("at", "5s"), {"on_idle": "stop"}, FlowBuildError, "on_idle must be 'advance' or 'hold'"),
    (("at", "5s"), {"on_idle": []}, FlowBuildError, "on_idle must be 'advance' or 'hold', got []"),
    (("at", "5s"), {"max_ahead": 5}, DurationError, "max_ahead must be a duration, got int 5"),
    (("at", "5s"), {"max_ahead": "-1s"}, FlowBuildError, "max_ahead must not be negative"),
    (("at", "5s"), {"on_invalid": True}, FlowBuildError, "on_invalid must be 'fail' or 'drop'"),
    (("at", "5s"), {"scope": "step"}, FlowBuildError, "scope must be 'key' or 'stream'"),
    (("at", "5s"), {"forget_after": 1}, DurationError, "forget_after must be a duration, got int"),
    (("at", "5s"), {"forget_after": "-1s"}, FlowBuildError, "forget_after must be positive"),
    (("at", "5s"), {"forget_after": "0s"}, FlowBuildError, "must be positive, got '0s'"),
    (
        ("at", "5s"),
        {"forget_after": "1d", "scope": "stream"},
        FlowBuildError,
        "forget_after is for keys with a watermark of their own",
    ),
]


@pytest.mark.parametrize(("given", "options", "kind", "message"), CLOCKS)
def test_of_an_event_clock(given: Any, options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        win.EventClock(*given, **options)
    assert str(caught.value).startswith("EventClock: ")
    assert message in str(caught.value)


FIT: dict[type, dict[str, Any]] = {
    win.TumblingWindower: {"length": "1h"},
    win.SlidingWindower: {"length": "1h", "offset": "1m"},
    win.SessionWindower: {"gap": "1m"},
    win.EventSlidingWindower: {"length": "1m"},
    win.CountWindower: {"count": 2},
    win.CalendarWindower: {"unit": "day", "tz": "UTC"},
}
ALIGNED = (win.TumblingWindower, win.SlidingWindower)
GRACED = (*ALIGNED, win.SessionWindower, win.EventSlidingWindower, win.CalendarWindower)
FLAGS = [
    (win.SessionWindower, "inclusive"),
    (win.EventSlidingWindower, "emit_right"),
    (win.CountWindower, "partial"),
]
POSITIVE = [
    (win.TumblingWindower, "length"),
    (win.SlidingWindower, "length"),
    (win.SlidingWindower, "offset"),
    (win.EventSlidingWindower, "length"),
    (win.EventSlidingWindower, "resolution"),
]
DURATIONS = [*POSITIVE, (win.SessionWindower, "gap"), *((one, "grace") for one in GRACED)]

WINDOWERS: list[tuple[type, str, Any, type[Exception], str]] = [
    *((one, name, 3, DurationError, "must be a duration, got int 3") for one, name in DURATIONS),
    *((one, name, "x", DurationError, "'x' is not a duration") for one, name in DURATIONS),
    *(
        (one, name, value, FlowBuildError, f"must be positive, got '{value}'")
        for one, name in POSITIVE
        for value in ("0s", "-1h")
    ),
    (win.SessionWindower, "gap", "-1s", FlowBuildError, "must not be negative, got '-1s'"),
    *((one, "grace", "-1s", FlowBuildError, "must not be negative, got '-1s'") for one in GRACED),
    *(
        (one, "align_to", "now", FlowTypeError, "must be an aware datetime, got 'now'")
        for one in ALIGNED
    ),
    *((one, "align_to", NAIVE, FlowBuildError, "is a naive datetime") for one in ALIGNED),
    *((one, "closed", "both", FlowBuildError, "must be 'left' or 'right'") for one in ALIGNED),
    *(
        (one, name, "no", FlowTypeError, "must be True or False, got str 'no'")
        for one, name in FLAGS
    ),
    *(
        (win.CountWindower, name, value, FlowBuildError, "must be a whole number of at least 1")
        for name in ("count", "step")
        for value in (0, -1, 2.0, "2", True)
    ),
]


@pytest.mark.parametrize(("windower", "name", "value", "kind", "message"), WINDOWERS)
def test_of_a_windower(
    windower: type, name: str, value: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        windower(**{**FIT[windower], name: value})
    assert str(caught.value).startswith(f"{windower.__name__}: {name}")
    assert message in str(caught.value)


def test_no_two_values_could_be_in_a_session_without_a_gap_that_leaves_it_out() -> None:
    with pytest.raises(FlowBuildError, match="gap must be positive when inclusive=False"):
        win.SessionWindower("0s", inclusive=False)


Operator = Callable[..., Any]
EVERY: dict[str, Operator] = {
    "window": lambda s, **o: win.window("w", s, **{"builder": int, **o}),
    "fold": lambda s, **o: win.fold_window("w", s, **{"builder": int, "folder": max, **o}),
    "reduce": lambda s, **o: win.reduce_window("w", s, **{"reducer": max, **o}),
    "collect": lambda s, **o: win.collect_window("w", s, **o),
    "count": lambda s, **o: win.count_window("w", s, **{"key": str, **o}),
    "max": lambda s, **o: win.max_window("w", s, **o),
    "min": lambda s, **o: win.min_window("w", s, **o),
    "sum": lambda s, **o: win.sum_window("w", s, **o),
    "mean": lambda s, **o: win.mean_window("w", s, **o),
    "aggregate": lambda s, **o: win.aggregate_window("w", s, **{"n": win.Count(), **o}),
    "join": lambda s, **o: win.join_window("w", s, s, **o),
}
ORDERED = ("window", "fold", "reduce", "collect", "aggregate", "join")

OPERATORS: list[tuple[str, str, Any, type[Exception], str]] = [
    *(
        (one, "clock", "now", FlowTypeError, "clock must be a Clock such as EventClock(...)")
        for one in EVERY
    ),
    *((one, "windower", "1h", FlowTypeError, "windower must be a Windower such") for one in EVERY),
    *(
        (one, "timestamp", "now", FlowBuildError, "timestamp must be 'open', 'close'")
        for one in EVERY
    ),
    *(
        (one, "emit", "often", FlowBuildError, "emit must be 'close', 'epoch' or 'update'")
        for one in EVERY
        if one not in ("window", "join")
    ),
    *(
        (one, "emit", often, FlowBuildError, "or a trigger such as Early(every='10s')")
        for one in EVERY
        if one not in ("window", "join")
        for often in (5, win.Early, "early")
    ),
    *(
        (one, "emit", trigger, FlowBuildError, "give the windower a grace, got TumblingWindower")
        for one in ("sum", "aggregate")
        for trigger in (win.Late(count=1), win.AfterWatermark(late=win.Late(count=1)))
    ),
    *(
        (one, "ordered", value, FlowTypeError, "ordered must be True or False, got")
        for one in ORDERED
        for value in ("no", 0, 1)
    ),
    ("window", "builder", 5, FlowTypeError, "builder must be a function, got int 5"),
    ("fold", "builder", 5, FlowTypeError, "builder must be a function, got int 5"),
    ("fold", "folder", 5, FlowTypeError, "folder must be a function, got int 5"),
    ("fold", "merger", 5, FlowTypeError, "merger must be a function, got int 5"),
    ("fold", "windower", win.SessionWindower("1s"), FlowBuildError, "merger is needed"),
    ("reduce", "reducer", 5, FlowTypeError, "reducer must be a function, got int 5"),
    ("collect", "into", tuple, FlowBuildError, "into must be list, set or dict, got <class"),
    ("collect", "into", [], FlowBuildError, "into must be list, set or dict, got []"),
    ("max", "by", "a", FlowTypeError, "by must be a function, got str 'a'"),
    ("min", "by", "a", FlowTypeError, "by must be a function, got str 'a'"),
    ("sum", "by", 5, FlowTypeError, "by: Sum: field must be a function or a field's path"),
    ("mean", "by", "a..b", FlowBuildError, "by: Mean: field must be a field's path such as"),
    ("sum", "of", "a", FlowTypeError, "sum_window has no argument 'of': use by=, a function"),
    ("mean", "of", "a", FlowTypeError, "mean_window has no argument 'of': use by=, a function"),
    ("aggregate", "n", 5, FlowTypeError, "n must be an Aggregator such as Sum('amount')"),
    ("aggregate", "n", win.Count, FlowTypeError, "write Count()"),
    ("join", "insert_mode", "all", FlowBuildError, "insert_mode must be 'first', 'last'"),
    ("join", "emit_mode", "late", FlowBuildError, "emit_mode must be 'complete', 'final'"),
]


RULES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, FlowBuildError, "every or count is needed, got neither"),
    ({"count": 0}, FlowBuildError, "count must be a whole number of at least 1, got 0"),
    ({"count": "2"}, FlowTypeError, "count must be a whole number of at least 1, got '2'"),
    ({"count": True}, FlowTypeError, "count must be a whole number of at least 1, got True"),
    ({"every": "0s"}, FlowBuildError, "every must be positive, got '0s'"),
    ({"every": "-1s"}, FlowBuildError, "every must be positive, got '-1s'"),
    ({"every": 10}, DurationError, "every must be a duration, got int 10"),
    ({"every": "soon"}, DurationError, "every 'soon' is not a duration"),
]


@pytest.mark.parametrize("rule", [win.Early, win.Late])
@pytest.mark.parametrize(("given", "kind", "message"), RULES)
def test_of_a_rule_of_a_trigger(
    rule: Any, given: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        rule(**given)
    assert str(caught.value).startswith(f"{rule.__name__}: {message}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"early": 5}, "early must be Early(every='10s'), Early(count=100) or None, got 5"),
        ({"early": win.Late(count=1)}, "early must be Early(every='10s')"),
        ({"late": win.Early(count=1)}, "late must be Late(every='10s')"),
        ({"accumulate": "no"}, "accumulate must be True or False, got str 'no'"),
    ],
)
def test_of_a_trigger(given: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowTypeError) as caught:
        win.AfterWatermark(**given)
    assert str(caught.value).startswith(f"AfterWatermark: {message}")


@pytest.mark.parametrize(("operator", "name", "value", "kind", "message"), OPERATORS)
def test_of_an_operator(
    operator: str, name: str, value: Any, kind: type[Exception], message: str
) -> None:
    fit = {"clock": win.SystemClock(), "windower": win.TumblingWindower("1h")}
    with pytest.raises(kind) as caught:
        EVERY[operator](a_stream(), **{**fit, name: value})
    assert str(caught.value).startswith("step 'w': ")
    assert message in str(caught.value)


@pytest.mark.parametrize("operator", EVERY)
def test_the_arguments_that_the_others_are_compared_with_are_fit(operator: str) -> None:
    EVERY[operator](a_stream(), clock=win.SystemClock(), windower=win.TumblingWindower("1h"))


@pytest.mark.parametrize("operator", [one for one in EVERY if one != "count"])
def test_what_is_not_a_stream_is_refused(operator: str) -> None:
    with pytest.raises(FlowTypeError, match="step 'w' must read a Stream, got str 'here'"):
        EVERY[operator]("here", clock=win.SystemClock(), windower=win.TumblingWindower("1h"))


def test_a_key_that_is_no_function_is_refused_by_the_step_that_keys() -> None:
    clock, hours = win.SystemClock(), win.TumblingWindower("1h")
    with pytest.raises(FlowTypeError, match=r"step 'w\.key': key must be a function or"):
        win.count_window("w", a_stream(), clock, hours, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["key", "open_time", "merged_ids", "is_retraction", "pane_index"])
def test_an_aggregate_has_no_name_of_a_column_of_every_result(name: str) -> None:
    problem = f"step 'w': '{name}' is a column of every result .*: give Count.. another name"
    clock, two = win.SystemClock(), win.CountWindower(2)
    named: dict[str, Any] = {name: win.Count()}
    with pytest.raises(FlowBuildError, match=problem):
        win.aggregate_window("w", a_stream(), clock, two, **named)


def test_the_names_of_result_columns_are_those_of_a_pane() -> None:
    pane = win.Pane(0, win.PaneTiming.ON_TIME)
    window = win.WindowMetadata(0, EPOCH, EPOCH, frozenset(), None, pane)
    assert set(to_record(("a", (window, 1)))) - {"value"} == RESULT_COLUMNS


def test_nothing_to_aggregate_is_refused() -> None:
    clock, hours = win.SystemClock(), win.TumblingWindower("1h")
    with pytest.raises(
        FlowBuildError, match="step 'w': aggregate_window needs at least one aggregate"
    ):
        win.aggregate_window("w", a_stream(), clock, hours)


def test_a_join_of_one_stream_is_refused() -> None:
    clock, hours = win.SystemClock(), win.TumblingWindower("1h")
    with pytest.raises(FlowBuildError, match="step 'w': a join needs two or more streams, got 1"):
        win.join_window("w", a_stream(), clock=clock, windower=hours)


def test_the_whole_output_in_place_of_one_of_its_streams_is_refused() -> None:
    out = win.collect_window("w", a_stream(), win.SystemClock(), win.TumblingWindower("1h"))
    with pytest.raises(FlowTypeError, match="holds several streams"):
        op.key_rm("values", out)  # type: ignore[arg-type]


def a_stream() -> KeyedStream[Any]:
    return op.input("in", Dataflow("unfit"), TestingSource([]))
