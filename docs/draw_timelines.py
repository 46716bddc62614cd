"""Draws the timelines of the docs: ``python docs/draw_timelines.py`` writes them all anew.

Every picture is worked out by the library: the values are sent through a windowing step, and what
comes out is drawn. So a picture changes when the library does, and the tests say so.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from timelines.all_keys import draw_ranking, run_ranking
from timelines.calls import Call, draw_calls, run_calls
from timelines.chart import Axis, Panel, Shown, contents, draw
from timelines.joins import draw_join, run_join
from timelines.levels import draw_levels, run_levels
from timelines.panes import panes_beside
from timelines.plane import Line, Span, draw_clocks
from timelines.runs import Arrival, Value, Window, run, run_clock, run_dedup, run_slow_epoch
from timelines.tables import draw_table, run_table

import flow.operators as op
import flow_windowing as win

PLACE = Path(__file__).parent / "timelines"
HOUR = 3600


def watermark() -> str:
    """The table of the event clock, with a wait of five minutes."""
    values = [("10:32", "10:35"), ("10:34", "10:38"), ("10:36", "10:39"), ("10:38", "10:36")]
    arrivals = [
        Arrival(minutes(now), Value(name, minutes(at)))
        for name, (now, at) in zip("abcd", values, strict=True)
    ]
    clock = win.EventClock[Value](lambda value: value.at, "5m")
    return draw_clocks(
        "The watermark of an event clock that waits for five minutes",
        "Values a to d arrive at 10:32, 10:34, 10:36 and 10:38. The watermark starts at 10:30 with "
        "a, advances with system time, jumps to 10:33 with b and is not moved by c. Value d, of "
        "10:36, arrives when it is at 10:37: d is late.",
        (Span(631, 640), Span(629, 640)),
        [Line(run_clock(clock, arrivals, minutes("10:39")), "watermark")],
        lambda minute: f"{minute // 60}:{minute % 60:02}",
    )


def idle() -> str:
    """Silence and downtime, for both values of `on_idle`."""
    arrivals = [
        Arrival(60 * now, Value(name, 60 * at)) for name, now, at in (("a", 2, 2), ("b", 9, 6))
    ]
    down = (300.0, 480.0)
    lines = []
    for clock, kind in (
        (win.EventClock[Value](lambda value: value.at, "2m"), "watermark"),
        (win.EventClock[Value](lambda value: value.at, "2m", on_idle="hold"), "watermark held"),
    ):
        name = f'on_idle="{clock.on_idle}"'
        lines.append(Line(run_clock(clock, arrivals, 720, down), name, kind))
    return draw_clocks(
        "Watermarks in silence and while the flow is down",
        "Value a moves the watermark to minute 0. With on_idle advance, system time moves it up to "
        "minute 3; it stands still while the flow is down, and advances again. With on_idle hold "
        "it stays at 0 until value b, which was written during the downtime. Value b is not late.",
        (Span(1, 12), Span(-1, 8)),
        lines,
        str,
        down,
    )


def slow_epoch() -> str:
    """An epoch that runs for six minutes, and the values that arrive meanwhile."""
    arrivals = [
        Arrival(60 * at, Value(name, 60 * at))
        for name, at in zip("abcdef", (1, 3, 4, 5, 6, 7), strict=True)
    ]
    clock, epoch = win.EventClock[Value](lambda value: value.at, "2m"), (2.0 * 60, 8.0 * 60)
    known, unknown = (
        run_slow_epoch(clock, arrivals, epoch, 600, waited=waited) for waited in (True, False)
    )
    cut = replace(unknown, watermark=tuple(one for one in unknown.watermark if one[0] <= epoch[1]))
    lines = [Line(known, "watermark"), Line(cut, "", "watermark held")]
    late = [arrival.value.label for arrival in unknown.arrivals if arrival.late]
    return draw_clocks(
        "Values that wait while an epoch runs for six minutes",
        "Value a is read at minute 1. From minute 2 to 8 an epoch runs, and values b to f arrive "
        "and wait. The watermark stands still, and no value is late. Had it gone on with system "
        f"time, values {', '.join(late)} would be late.",
        (Span(1, 10), Span(-1, 9)),
        lines,
        str,
        epoch,
        "an epoch runs",
    )


def levels() -> str:
    """Sessions of two keys, and the hours that read them."""
    ann, bob = (50, 60, 70, 80, 90, 100), (20, 25, 30, 70, 75, 105)
    return draw_levels(
        "A step of sessions holds the watermark of the step that counts them by the hour",
        "Two sessions of bob, which opened at 0:20 and 1:10, have closed and are in the open "
        "windows of both hours. A session of ann, which opened at 0:50, is still open. It holds "
        "the watermark of the hours at 0:50. Without the hold the watermark would be at 1:10, and "
        "ann's session would be late.",
        Axis(0, 120 * 60, 15 * 60, lambda at: f"{at // 3600:.0f}:{at % 3600 // 60:02.0f}", ""),
        run_levels({"ann": [60 * at for at in ann], "bob": [60 * at for at in bob]}, "15m", "1h"),
    )


def grace() -> str:
    """The same values, three graces."""
    values = lettered(3, 12, 8, 16, 14, 9)
    without, nothing, five = (
        run(values, win.TumblingWindower("10s", grace=given)) for given in (None, "0s", "5s")
    )
    return draw(
        "What is late with three graces, in windows of ten seconds",
        "Six values out of order. Without a grace each of the three behind the watermark is late. "
        "With a grace of nothing e counts, as its window is open. With five seconds c counts too.",
        Axis(0, 20, 5),
        [
            Panel(without, shown=Shown.INPUT),
            Panel(without, "grace=None", Shown.OUTPUT),
            Panel(nothing, 'grace="0s"', Shown.OUTPUT),
            Panel(five, 'grace="5s"', Shown.OUTPUT),
        ],
    )


def tumbling() -> str:
    """Windows of ten seconds."""
    return draw(
        "Tumbling windows of ten seconds",
        "Five values fall into three windows, one after the other. A value exactly where one "
        "window ends and the next begins is in the next.",
        Axis(0, 30, 5),
        [Panel(run(lettered(3, 6, 14, 20, 27), win.TumblingWindower("10s")))],
    )


def closed() -> str:
    """The same values, for both values of `closed`."""
    values = lettered(0, 4, 10, 15, 20)
    left = run(values, win.TumblingWindower("10s", closed="left"))
    right = run(values, win.TumblingWindower("10s", closed="right"))
    return draw(
        "Which end of a window belongs to it",
        "Values at 0, 10 and 20 seconds begin a window with closed left, and end one with closed "
        "right.",
        Axis(-10, 30, 5),
        [Panel(left, 'closed="left"'), Panel(right, 'closed="right"', Shown.OUTPUT)],
    )


def sliding() -> str:
    """Windows that overlap."""
    windower = win.SlidingWindower(length="10s", offset="5s")
    return draw(
        "Sliding windows of ten seconds, one every five",
        "Each of the four values is in two windows.",
        Axis(-5, 25, 5),
        [Panel(run(lettered(2, 6, 11, 18), windower))],
    )


def gaps() -> str:
    """Windows with gaps between them."""
    windower = win.SlidingWindower(length="5s", offset="10s")
    return draw(
        "Sliding windows of five seconds, one every ten",
        "Values a and c are in windows; b and d fall into the gaps, and go to the late stream.",
        Axis(0, 25, 5),
        [Panel(run(lettered(2, 7, 13, 18), windower))],
    )


def late_for_one() -> str:
    """A value that is late for one window and on time for another."""
    windower = win.SlidingWindower(length="10s", offset="5s", grace="0s")
    return draw(
        "A value that is late for one window and on time for another",
        "Value b, of 106 seconds, closes the window from 95 to 105. Value c, of 103, is late for "
        "that window, and enters the one from 100 to 110.",
        Axis(95, 115, 5),
        [Panel(run(lettered(100, 106, 103), windower), shown=Shown.ARRIVALS)],
    )


def session() -> str:
    """Two sessions, and the value that makes them one."""
    values = lettered(10, 12, 20, 16)
    windower = win.SessionWindower(gap="5s")
    before = run(values[:3], windower, "10s")
    after = run(values, windower, "10s")
    return draw(
        "Sessions with a gap of five seconds",
        "Values at 10, 12 and 20 seconds make two sessions. A fourth one at 16 is near enough to "
        "both, and makes them one.",
        Axis(5, 25, 5),
        [Panel(before, "a, b and c"), Panel(after, "and then d")],
    )


def event_sliding() -> str:
    """The windows of KIP-450, without and with the right ones."""
    values = lettered(8, 9.2, 12.4)
    left, both = (
        run(values, win.EventSlidingWindower("5s", emit_right=right, resolution="1ms"))
        for right in (False, True)
    )
    return draw(
        "Event-sliding windows of five seconds",
        "Each of three values has a window that ends with it and holds what came in the five "
        "seconds before. With right windows, two more begin just after a and just after b.",
        Axis(2, 16, 2),
        [Panel(left, "emit_right=False"), Panel(both, "emit_right=True", Shown.OUTPUT)],
    )


def count() -> str:
    """Windows of four values, one every two."""
    windower = win.CountWindower(count=4, step=2, partial=True)
    return draw(
        "Windows of four values, one every two",
        "Six values: the first four, the last four, and at the end of the input the last two, as "
        "partial windows were asked for.",
        Axis(0, 24, 4),
        [Panel(run(lettered(1, 5, 7, 14, 18, 21), windower))],
    )


def calendar() -> str:
    """Local days over a change of clocks."""
    noon = datetime(2024, 3, 29, 12, tzinfo=UTC).timestamp()
    values = lettered(*(noon + HOUR * at for at in (20, 32, 41, 61, 71)))
    windower = win.CalendarWindower("day", tz="Europe/Paris")
    return draw(
        "Local days in Paris when summer time begins",
        "Three local days, drawn on an axis of UTC. The second, of 31 March 2024, has 23 hours.",
        Axis(noon, noon + 84 * HOUR, 12 * HOUR, utc, "UTC"),
        [Panel(run(values, windower), note=hours)],
    )


def trigger() -> str:
    """The panes of a window with early and late values."""
    values = lettered(3, 5, 8, 9, 11, 6, 15)
    windower = win.TumblingWindower("10s", grace="5s")
    panes = win.AfterWatermark(early=win.Early(count=3), late=win.Late(count=1))
    return draw(
        "The panes of a window of ten seconds: early after three values, on time, and late",
        "Values a, b and c fire an early pane. Value e moves the watermark past the end of the "
        "window, which fires the on-time pane with d. Value f, behind the watermark and in the "
        "grace, fires a late pane. With g the window closes, and has nothing new to emit.",
        Axis(0, 30, 5),
        [
            Panel(
                run(values, windower),
                shown=Shown.ARRIVALS,
                beside=panes_beside(values, windower, panes),
            )
        ],
    )


def interval_join() -> str:
    """An interval join with five seconds before and two after."""
    join = partial(win.join_interval, "join", before="5s", after="2s", how="left")
    left = lettered(6, 11, 22)
    right = [Value(name, at) for name, at in zip("xyz", (1, 8, 16), strict=True)]
    return draw_join(
        "An interval join, five seconds before a left value to two after it",
        "Left values a, b and c at 6, 11 and 22 seconds, right values x, y and z at 1, 8 and 16. "
        "Value a matches x and y, which are at the ends of its interval, b matches y, and c leaves "
        "without a partner.",
        Axis(0, 25, 5),
        run_join(left, right, join),
    )


def asof_join() -> str:
    """An as-of join with a tolerance of five seconds."""
    left = lettered(6, 11, 13, 21)
    right = [Value(name, at) for name, at in zip("xyz", (3, 8, 13), strict=True)]
    return draw_join(
        "An as-of join with a tolerance of five seconds",
        "Left values a, b, c and d at 6, 11, 13 and 21 seconds, right values x, y and z at 3, 8 "
        "and 13. Value a finds x, b finds y, c finds z at the same time, and d has no partner, as "
        "z is eight seconds before it.",
        Axis(0, 25, 5),
        run_join(left, right, partial(win.join_asof, "join", tolerance="5s")),
    )


def all_keys() -> str:
    """The two most frequent keys of each window of ten seconds."""
    times = {"cart": (1, 6, 17), "help": (4, 12, 14, 19), "start": (2, 3, 8, 15)}
    letters = iter("abcdefghijk")
    values = {key: [Value(next(letters), at) for at in some] for key, some in times.items()}
    return draw_ranking(
        "The two keys with most values in windows of ten seconds",
        "Values of the keys cart, help and start. From 0 to 10 seconds start has three values, "
        "cart two and help one; from 10 to 20 help has three, and cart and start have one each. "
        "Each window has one ranking over all keys, and cart is before start by its name.",
        Axis(0, 30, 5),
        run_ranking(values, win.TumblingWindower("10s"), 2),
    )


def table() -> str:
    """A table of changes, and the version that each item sees."""
    changes = [(1.0, "a"), (6.0, "b"), (8.5, "c"), (13.0, None)]
    return draw_table(
        "A table of changes with one key, and the versions that items see",
        "Epochs are planned at 5, 10, 15 and 20 seconds, and read what has arrived since the one "
        "before. Changes a, b, c and a removal arrive at 1, 6, 8.5 and 13. The item at 3 sees a. "
        "The item at 7 sees c, which arrived after it and before its epoch was planned. The items "
        "at 11.5 and 16 see no value.",
        Axis(0, 20, 5),
        run_table(changes, [3.0, 7.0, 11.5, 16.0], [5.0, 10.0, 15.0, 20.0]),
    )


def dedup() -> str:
    """Values with one id, and the times in which repeats are dropped."""
    values = lettered(5, 9, 15, 12, 21, 26)
    return draw(
        "Values of one id, deduplicated with a time to live of ten seconds and a wait of five",
        "Value a passes, and b, four seconds later, is dropped. Value c, exactly ten seconds after "
        "a, passes. Value d is dropped: it is on time, and near a and c. Value e is dropped, and "
        "does not extend the time, so f, eleven seconds after c, passes.",
        Axis(0, 40, 5),
        [Panel(run_dedup(values, "10s", "5s"), shown=Shown.ARRIVALS)],
    )


def calls() -> str:
    """Six calls at a capacity of three, for two orders."""
    made = [
        Call("a", "x", 3),
        Call("b", "x", 2),
        Call("c", "y", 1, failures=1),
        Call("d", "z", 2),
        Call("e", "y", 1),
        Call("f", "z", 1),
    ]
    retry = op.Retry(3, "1s")
    return draw_calls(
        "Six calls with a capacity of three",
        "With order input, a call begins as soon as fewer than three others are in flight. Call c "
        "fails, waits, and succeeds in its second attempt; meanwhile it keeps its place. With "
        "order key, b waits for a, e for c and f for d, which have the same keys. The results "
        "leave in the order a to f when the last call has ended.",
        Axis(0, 6, 1),
        [
            ('order="input"', run_calls(made, 3, "input", retry)),
            ('order="key"', run_calls(made, 3, "key", retry)),
        ],
    )


def lettered(*times: float) -> list[Value]:
    """Values named a, b, c, ... in order of arrival, with these timestamps in seconds."""
    return [Value(chr(ord("a") + index), at) for index, at in enumerate(times)]


def minutes(clock_time: str) -> float:
    """A time of day as seconds since midnight."""
    hour, minute = clock_time.split(":")
    return 60.0 * (60 * int(hour) + int(minute))


def utc(at: float) -> str:
    """A mark of the calendar's axis: the day at midnight, else the hour."""
    moment = datetime.fromtimestamp(at, UTC)
    month = {3: "March", 4: "April"}[moment.month]
    return f"{moment.hour}:00" if moment.hour else f"{moment.day} {month}"


def hours(window: Window) -> str:
    """Return the length of a window in hours, and its values."""
    return f"{contents(window)}  {(window.close - window.open) / HOUR:g} h"


PICTURES = (
    dedup,
    table,
    watermark,
    idle,
    slow_epoch,
    levels,
    grace,
    late_for_one,
    tumbling,
    closed,
    sliding,
    gaps,
    session,
    event_sliding,
    count,
    calendar,
    trigger,
    interval_join,
    asof_join,
    all_keys,
    calls,
)


def pictures() -> dict[str, str]:
    """The content of every picture, by its file's name."""
    return {f"{make.__name__}.svg": make() for make in PICTURES}


if __name__ == "__main__":
    for name, content in pictures().items():
        (PLACE / name).write_text(content, encoding="utf-8")
