"""Examples of windows beyond what they print: order, time, and runs that go on later."""

from __future__ import annotations

from datetime import datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import flow_windowing as win
from examples import (
    batches_for_an_api,
    clicks_once,
    dead_letters,
    last_three_purchases,
    local_days,
    sensor_temperature,
    traffic_lights,
    views_and_clicks,
    visits,
)
from examples.local_days import PARIS
from flow import Dataflow
from flow.operators.edges import Input, Output
from flow.testing import TestDriver, run_source
from tests.support.examples import docstring_output


def lines_of(flow: Dataflow, driver: TestDriver) -> list[str]:
    """Return the lines that the outputs to the screen have received, in no particular order."""
    sinks = {
        step.step_id: step.operator.sink for step in flow.steps if isinstance(step.operator, Output)
    }
    return [
        str(sink.format(item) if sink.format else item)
        for name, sink in sinks.items()
        for item in driver.received(name)
    ]


def lines_in_process(flow: Dataflow) -> list[str]:
    """The lines that a flow gives of its own sources, in this process, in one epoch."""
    sources = {
        step.step_id: step.operator.source
        for step in flow.steps
        if isinstance(step.operator, Input)
    }
    with TestDriver(flow) as driver:
        driver.send_all({name: run_source(source) for name, source in sources.items()})
        driver.end()
        return lines_of(flow, driver)


@pytest.mark.parametrize(
    "example",
    [
        traffic_lights,
        sensor_temperature,
        last_three_purchases,
        visits,
        clicks_once,
        views_and_clicks,
        local_days,
    ],
)
def test_an_example_in_process_prints_what_its_docstring_shows(example: Any) -> None:
    name = example.__name__.rpartition(".")[2]
    assert sorted(lines_in_process(example.graph)) == sorted(docstring_output(name))


def crossing(at: str, plate: str) -> dict[str, Any]:
    return {"at": f"2024-05-01T{at}Z", "light": "bridge", "plate": plate, "passengers": 1}


def test_an_hour_stays_open_until_ten_past() -> None:
    """
    8:00          9:00       9:10
     |·············|··········|
          a: 8:59:59.999999
                   b: 9:00 sharp, c: 9:09:59 → the hour until 9 is still open
         d: 8:00, in time
                              e: 9:10 → it is not any more
                 f: 8:59, too late
    """
    driver = TestDriver(traffic_lights.graph)
    for at, plate in [("08:59:59.999999", "a"), ("09:00:00", "b"), ("09:09:59", "c")]:
        driver.send("crossings", [crossing(at, plate)])
    driver.send("crossings", [crossing("08:00:00", "d")])
    assert driver.received("figures") == []
    driver.send("crossings", [crossing("09:10:00", "e"), crossing("08:59:00", "f")])
    assert lines_of(traffic_lights.graph, driver) == [
        '{"light": "bridge", "until": "2024-05-01T09:00:00Z", "cars": 2, "passengers": 2}',
        "f at bridge came 11 minutes late for the hour until 2024-05-01T09:00:00Z",
    ]
    driver.end()
    assert lines_of(traffic_lights.graph, driver)[1] == (
        '{"light": "bridge", "until": "2024-05-01T10:00:00Z", "cars": 3, "passengers": 3}'
    )


def test_the_tumbling_mean_is_emitted_at_once_and_others_at_their_close() -> None:
    """
    12:00       12:05       12:10       12:15       12:20
      |···········|···········|···········|···········|
       1: 20 degrees                                  20: watermark 12:10
    """
    flow = sensor_temperature.graph
    driver = TestDriver(flow)
    reading = {"at": "2024-05-01T12:01:00Z", "sensor": "attic", "celsius": 20.0}
    driver.send("readings", [reading])
    assert lines_of(flow, driver) == ["tumbling attic 12:00-12:10 20.0 so far"]
    driver.send("readings", [{**reading, "at": "2024-05-01T12:20:00Z", "celsius": 30.0}])
    assert sorted(lines_of(flow, driver)) == [
        "hopping attic 11:55-12:05 20.0",
        "hopping attic 12:00-12:10 20.0",
        "sliding attic 11:51-12:01 20.0",
        "tumbling attic 12:00-12:10 20.0 so far",
        "tumbling attic 12:20-12:30 30.0 so far",
    ]


def test_a_customer_is_reported_with_the_third_purchase() -> None:
    flow = last_three_purchases.graph
    driver = TestDriver(flow)
    driver.send("purchases", [{"customer": "bob", "item": x, "price": 9} for x in ("desk", "bin")])
    driver.end()
    assert lines_of(flow, driver) == []
    driver.restart(after="30d")
    driver.send("purchases", [{"customer": "bob", "item": "mat", "price": 3}])
    assert lines_of(flow, driver) == ["bob: desk, bin, mat at 7.0 on average"]


@pytest.mark.parametrize("order", list(permutations(["09:00", "09:25", "09:50"])))
def test_clicks_in_any_order_make_the_same_visit(order: tuple[str, ...]) -> None:
    driver = TestDriver(visits.graph)
    for at in order:
        driver.send("clicks", [{"at": f"2024-05-01T{at}:00Z", "user": "ann", "page": at}])
    results: dict[int, Any] = {}
    for _, (visit, news) in driver.received("updates"):
        if isinstance(news, win.Retracted):
            assert results.pop(visit.window_id) == news.value
        else:
            results[visit.window_id] = news
    assert list(results.values()) == [{"clicks": 3, "page": "09:50"}]
    driver.end()
    ((_, visit),) = driver.received("over")
    assert visits.span_of(visit) == "09:00-09:50"
    assert visit.window_id in results


def view(at: str) -> dict[str, str]:
    return {"at": f"2024-05-01T{at}:00Z", "view": "v", "page": "lamps"}


def click(at: str, button: str) -> dict[str, str]:
    return {"at": f"2024-05-01T{at}:00Z", "view": "v", "button": button}


def test_a_view_finds_its_first_click_in_any_order_of_arrival() -> None:
    flow = views_and_clicks.graph
    driver = TestDriver(flow)
    driver.send("clicks", [click("09:12", "share"), click("09:05", "buy")])
    driver.send("views", [view("09:00")])
    driver.end()
    assert lines_of(flow, driver) == ["v: lamps, 'buy' after 300 seconds"]


def test_a_view_without_a_click_is_reported_and_discarded() -> None:
    """
    now        9:00    9:15    9:25    9:26    10:14    10:15
    watermark  8:45    9:00    9:10    9:11
                       └ silent from here on     not yet  forgotten
                                       told
    """
    flow = views_and_clicks.graph
    driver = TestDriver(flow, now="2024-05-01T09:00:00Z")
    driver.send("views", [view("09:00")])
    driver.advance("25m")
    assert lines_of(flow, driver) == []
    driver.advance("1m")
    assert lines_of(flow, driver) == ["v: lamps, no click"]
    assert driver.stats.gauges["match", "keys"] == 1
    driver.advance("48m")
    assert driver.stats.gauges["match", "keys"] == 1
    driver.advance("1m")
    assert driver.stats.gauges["match", "keys"] == 0


def test_both_hours_from_two_to_three_belong_to_the_long_day() -> None:
    """
    Paris   Sun 27 October      2:30   2:30            23:59:59  Mon 28 October
            |·····················A······B·················C·····|D
    UTC   22:00                 0:30   1:30            22:59:59 23:00
    """
    at = datetime.fromisoformat("2024-10-27T02:30").replace(tzinfo=PARIS)
    instants = [
        at.timestamp(),
        at.replace(fold=1).timestamp(),
        "2024-10-27T22:59:59Z",
        "2024-10-27T23:00:00Z",
    ]
    driver = TestDriver(local_days.graph)
    driver.send("readings", [{"at": one, "meter": "paris", "kwh": 1} for one in instants])
    driver.end()
    assert instants[1] - instants[0] == 3600
    assert lines_of(local_days.graph, driver) == [
        "Sun 27 October has 25 hours: 3 kWh",
        "Mon 28 October has 24 hours: 1 kWh",
    ]


def test_a_batch_is_posted_when_full_and_the_rest_at_the_end() -> None:
    with batches_for_an_api.serving() as (url, posts):
        driver = TestDriver(batches_for_an_api.make_flow(url))
        driver.send("events", [{"customer": "ann", "event": str(n)} for n in range(4)])
        driver.advance("365d")
        assert posts == {"ann-0": ["0", "1", "2"]}
        driver.end()
        assert posts == {"ann-0": ["0", "1", "2"], "ann-1": ["3"]}


def test_a_refused_batch_is_kept_and_posted_again() -> None:
    with batches_for_an_api.serving() as (url, posts):
        driver = TestDriver(batches_for_an_api.make_flow(url))
        driver.send("events", [{"customer": "bob", "event": str(n)} for n in range(3)])
        (refused,) = driver.received("refused")
        assert posts == {}
    customer, (_, events) = refused.item
    assert (customer, [event["event"] for event in events]) == ("bob", ["0", "1", "2"])
    assert "404" in str(refused.exception)


def sale(at: str, amount: int) -> dict[str, Any]:
    return {"at": f"{at}:00Z", "shop": "north", "amount": amount}


def test_a_till_with_a_wrong_clock_does_not_make_other_sales_late(tmp_path: Path) -> None:
    driver = TestDriver(dead_letters.make_flow(tmp_path), now="2024-05-01T09:10:00Z")
    driver.send("sales", [sale("2024-05-01T10:11", 1), sale("2024-05-01T09:10", 2)])
    driver.end()
    assert [(key, figures) for key, (_, figures) in driver.received("sums_out")] == [
        ("north", {"sum": 2})
    ]
    assert driver.received("late_out") == [
        {
            **sale("2024-05-01T10:11", 1),
            "reason": "too_far_ahead",
            "late_by_seconds": 0.0,
            "missed_from": None,
            "missed_until": None,
        }
    ]


def test_clicks_once_keeps_no_state_of_ten_minutes_ago() -> None:
    click = {"at": "2024-05-01T09:00Z", "user": "ann", "id": "c1", "page": "home"}
    with TestDriver(clicks_once.graph, now="2024-05-01T09:00Z") as t:
        t.send("clicks", [click, click])
        assert t.stats.counts["once", "duplicates"] == 1
        t.advance("15m")
        assert t.stats.gauges["once", "keys"] == 0
