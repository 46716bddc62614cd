"""The contract of logics with state by key: their calls and their kept state."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

import flow.operators as op
from flow import Dataflow, Stream
from flow.dataflow import add_step
from flow.engine.epoch.context import Control
from flow.engine.local import LocalEngine, Part
from flow.errors import StepError
from flow.instants import Moment, datetime_us
from flow.keyed.step import Stateful
from flow.operators import StatefulLogic
from flow.testing import TestDriver, TestingSink, TestingSource
from tests.support.logics import BatchTotal, Diary
from tests.support.one_stream import TEN, Build, a_flow, driver

FIVE_PAST = TEN + timedelta(minutes=5)
TEN_PAST = TEN + timedelta(minutes=10)


def diary(logic: Any = Diary) -> TestDriver:
    return driver(lambda s: op.stateful("diary", s, logic))


def lines(t: TestDriver) -> list[str]:
    """Return the lines that the only key of the flow has emitted."""
    return [line for _, line in t.received("out")]


# --- the order of calls -----------------------------------------------------------------------


#  now     10:00       10:05   10:10
#  epoch   set, a      tick    tick
#  due        └──────→ x
def test_a_logic_is_called_at_the_time_it_asked_for_and_once() -> None:
    with diary() as t:
        t.send("in", [("k", FIVE_PAST), ("k", "a")])
        t.advance("4m59s")
        assert lines(t) == ["set", "item a"]
        t.advance("1s")
        t.advance("5m")
        assert lines(t) == ["set", "item a", "notify 10:05"]


#  now     10:00   10:10
#  epoch   set     set (10:10, due at once), a, the end
#  due      └────→ x
def test_an_epoch_calls_what_was_due_the_values_what_is_due_then_and_the_end() -> None:
    engine = LocalEngine(a_flow(lambda s: op.stateful("diary", s, Diary)))
    engine.epoch({"in": [Part([("k", FIVE_PAST)])]}, Control(Moment(datetime_us(TEN))))
    result = engine.epoch(
        {"in": [Part([("k", TEN_PAST), ("k", "a")])]},
        Control(Moment(datetime_us(TEN_PAST)), end_of_input=True),
    )
    assert [line for _, line in result.outputs["out"]] == [
        "notify 10:10",
        "set",
        "item a",
        "notify 10:10",
        "end after 5",
    ]


def test_a_logic_that_always_asks_for_the_past_is_called_twice_an_epoch() -> None:
    class Impatient(Diary):
        def notify_at(self) -> datetime | None:
            return TEN

    with diary(Impatient) as t:
        t.send("in", [("k", "a")])
        assert lines(t) == ["item a", "notify 10:00"]
        t.advance("1m")
        assert lines(t) == ["item a", "notify 10:00", "notify 10:01", "notify 10:01"]


def test_a_logic_may_give_its_time_in_microseconds_instead() -> None:
    class InMicros(Diary):
        def notify_at_us(self) -> int:
            return datetime_us(FIVE_PAST)

    with diary(InMicros) as t:
        t.send("in", [("k", "a")])
        t.advance("5m")
        assert lines(t)[:2] == ["item a", "notify 10:05"]


def test_values_come_in_source_order_with_the_epoch_s_time() -> None:
    class Clocked(Diary):
        def on_item(self, value: Any, moment: Moment) -> Any:
            return [f"{value} at {moment.now:%H:%M}"], op.KEEP

    with diary(Clocked) as t:
        t.send("in", [("k", 3), ("k", 1), ("k", 2)])
        t.advance("1h")
        t.send("in", [("k", 4)])
        assert lines(t) == ["3 at 10:00", "1 at 10:00", "2 at 10:00", "4 at 11:00"]


class EndingEpochs(Diary):
    """Says too when an epoch is over."""

    def on_epoch_end(self, moment: Moment) -> list[str]:
        return self._note(f"epoch of {moment.now:%H:%M}")


class Rescheduling(EndingEpochs):
    """Asks for its time at the end of an epoch."""

    def on_epoch_end(self, moment: Moment) -> list[str]:
        self._at = FIVE_PAST if moment.now < FIVE_PAST else None
        return super().on_epoch_end(moment)


#  now     10:00               10:05       10:06
#  epoch   set, a              tick        tick, not called
#  due      └────────────────→ x
def test_an_epoch_in_which_a_logic_was_called_is_ended_last() -> None:
    with diary(EndingEpochs) as t:
        t.send("in", [("k", FIVE_PAST), ("k", "a")])
        t.advance("5m")
        t.advance("1m")
        assert lines(t) == ["set", "item a", "epoch of 10:00", "notify 10:05", "epoch of 10:05"]


def test_an_epoch_ends_after_a_notification_that_became_due_meanwhile() -> None:
    with diary(EndingEpochs) as t:
        t.send("in", [("k", TEN)])
        assert lines(t) == ["set", "notify 10:00", "epoch of 10:00"]


def test_what_an_epoch_s_end_changes_is_in_the_snapshot() -> None:
    with diary(Rescheduling) as t:
        t.send("in", [("k", "a")])
        assert t.stats.due_us == datetime_us(FIVE_PAST)
        t.advance("5m")
        t.end()
        assert lines(t)[2:] == ["notify 10:05", "epoch of 10:05", "end after 4"]


def test_the_last_epoch_ends_before_the_end_of_input_for_keys_that_it_touched() -> None:
    engine = LocalEngine(a_flow(lambda s: op.stateful("diary", s, EndingEpochs)))
    engine.epoch({"in": [Part([("old", "a")])]}, Control(Moment(datetime_us(TEN))))
    last = Control(Moment(datetime_us(TEN)), end_of_input=True)
    emitted = engine.epoch({"in": [Part([("new", "b")])]}, last).outputs["out"]
    of_keys = {of: [line for key, line in emitted if key == of] for of in ("old", "new")}
    assert of_keys == {"old": ["end after 2"], "new": ["item b", "epoch of 10:00", "end after 2"]}


@pytest.mark.parametrize("how", ["by a value", "by a notification"])
def test_a_discarded_logic_s_epoch_is_not_ended(how: str) -> None:
    class Leaving(EndingEpochs):
        def on_notify(self, moment: Moment) -> Any:
            return ["bye"], op.DISCARD

    with diary(Leaving) as t:
        t.send("in", [("k", "go" if how == "by a value" else TEN)])
        assert lines(t) == (["item go"] if how == "by a value" else ["set", "bye"])


@pytest.mark.parametrize("logic", [BatchTotal, Diary])
def test_a_logic_that_does_not_end_epochs_is_asked_for_its_time_once(logic: Any) -> None:
    asked = []

    class Asked(logic):  # type: ignore[misc]
        def notify_at_us(self) -> int:
            asked.append(self)
            return int(super().notify_at_us())

    step = op.stateful if logic is Diary else op.stateful_batch
    with driver(lambda s: step("diary", s, Asked)) as t:
        t.send("in", [("k", 1)])
    assert len(asked) == 1


# --- keeping and discarding -------------------------------------------------------------------


def test_a_discarded_logic_is_not_called_again_and_the_next_value_makes_a_new_one() -> None:
    with diary() as t:
        t.send("in", [("k", FIVE_PAST), ("k", "go")])
        t.advance("5m")
        assert lines(t) == ["set", "item go"]
        t.send("in", [("k", "a"), ("k", "go"), ("k", "b")])
        t.end()
        assert lines(t)[2:] == ["item a", "item go", "item b", "end after 1"]


def test_the_keys_that_are_kept_are_counted() -> None:
    with diary() as t:
        t.send("in", [("a", 1), ("b", 1), ("c", "go")])
        assert t.stats.gauges["diary", "keys"] == 2
        t.send("in", [("a", "go")])
        assert t.stats.gauges["diary", "keys"] == 1


def test_a_logic_kept_at_the_end_is_there_when_the_flow_goes_on() -> None:
    with diary() as t:
        t.send("in", [("k", "a")])
        t.end()
        t.send("in", [("k", "b")])
        t.end()
        assert lines(t) == ["item a", "end after 1", "item b", "end after 3"]


@pytest.mark.parametrize("where", ["on_notify", "on_end"])
def test_a_logic_may_be_discarded_by_any_call(where: str) -> None:
    class Leaving(Diary):
        def on_notify(self, moment: Moment) -> Any:
            return ["bye"], op.DISCARD if where == "on_notify" else op.KEEP

        def on_end(self, moment: Moment) -> Any:
            return ["bye"], op.DISCARD if where == "on_end" else op.KEEP

    with diary(Leaving) as t:
        t.send("in", [("k", FIVE_PAST)])
        t.advance("5m") if where == "on_notify" else t.end()
        assert lines(t) == ["set", "bye"]
        assert t.stats.gauges["diary", "keys"] == 0


# --- state ------------------------------------------------------------------------------------


def test_the_time_that_a_flow_was_down_counts_as_system_time_but_not_as_running() -> None:
    class Hours(Diary):
        def on_item(self, value: Any, moment: Moment) -> Any:
            running = timedelta(microseconds=moment.running_us - datetime_us(TEN))
            return [f"{moment.now:%H:%M}, running for {running}"], op.KEEP

    with diary(Hours) as t:
        t.advance("10m")
        t.restart(after="1h")
        t.advance("5m")
        t.send("in", [("k", None)])
        assert lines(t) == ["11:15, running for 0:15:00"]


def test_state_belongs_to_a_step_and_a_key() -> None:
    def build(s: Stream[Any]) -> Stream[Any]:
        total = op.stateful_map("total", s, lambda n, x: ((n or 0) + x,) * 2)
        count = op.stateful_map("count", s, lambda n, x: ((n or 0) + 1,) * 2)
        return op.merge("both", total, count)

    with driver(build) as t:
        t.send("in", [("a", 10), ("b", 5), ("a", 7)])
        assert [v for k, v in t.received("out") if k == "a"] == [10, 1, 17, 2]
        assert [v for k, v in t.received("out") if k == "b"] == [5, 1]


def test_a_state_that_is_changed_in_place_is_as_it_was_when_the_epoch_fails() -> None:
    def append(kept: list[int] | None, value: int) -> tuple[list[int], list[int]]:
        kept = kept or []
        kept.append(value)
        return kept, [sum(kept) // (value != 13)]

    with driver(lambda s: op.stateful_flat_map("sum", s, append)) as t:
        t.send("in", [("k", 1)])
        with pytest.raises(StepError, match="ZeroDivisionError"):
            t.send("in", [("k", 2), ("k", 13)])
        t.send("in", [("k", 4)])
        assert t.received("out") == [("k", 1), ("k", 5)]


@pytest.mark.parametrize(
    "build",
    [
        lambda s: op.collect("step", s, "1h", 10),
        lambda s: op.join("step", s, s, insert_mode="product", emit_mode="final"),
    ],
)
def test_a_snapshot_is_a_copy_that_later_values_do_not_change(build: Build) -> None:
    operator: Any = a_flow(build).step("step").operator
    logic = operator.builder(None)
    logic.on_item((0, "first"), Moment(0))
    snapshot, again = logic.snapshot(), logic.snapshot()
    logic.on_item((0, "second"), Moment(0))
    assert snapshot == again
    assert logic.snapshot() != snapshot


# --- logics by the epoch ----------------------------------------------------------------------


# --- several streams, and what goes to none ---------------------------------------------------


class Sorting(StatefulLogic[int, Any, None]):
    """Sends even numbers one way and odd ones another; counts what is negative, and zeros."""

    def __init__(self, state: None) -> None:
        pass

    def on_item(self, value: int, moment: Moment) -> tuple[list[Any], op.Keep]:
        if value < 0:
            return [(op.COUNTED, op.Counted("negative", -value, f"met {value}"))], op.KEEP
        made: list[Any] = [(value % 2, value)]
        return made if value else [*made, (op.COUNTED, op.Counted("zero"))], op.KEEP

    def snapshot(self) -> None:
        pass


def test_a_step_with_several_ports_emits_to_each_and_counts_what_goes_to_none() -> None:
    flow = Dataflow("example")
    stream = op.input("in", flow, TestingSource([]))
    even, odd = add_step("sort", Stateful(Sorting, emits=("even", "odd")), stream)
    op.output("to even", even, TestingSink([]))
    op.output("to odd", odd, TestingSink([]))
    items = [("k", -3), ("k", 0), ("l", -4), ("l", 0), ("l", 5)]
    result = LocalEngine(flow).epoch({"in": [Part(items)]}, Control(Moment(0)))
    assert result.outputs == {"to even": [("k", 0), ("l", 0)], "to odd": [("l", 5)]}
    counted = {what: n for (step, what), n in result.stats.counts.items() if step == "sort"}
    assert counted == {"in": 5, "out": 2, "odd": 1, "negative": 7, "zero": 2}
    assert sorted(result.stats.notes) == ["step 'sort' met -3", "step 'sort' met -4"]


# --- a step that is set otherwise -------------------------------------------------------------


class Punctual(Diary):
    """Asks to be called every so many minutes after ten; its builder says how many."""

    minutes = 60

    def notify_at(self) -> datetime | None:
        asked = TEN + timedelta(minutes=self.minutes)
        return asked if "notify" not in str(self._lines) else None

    def on_changed(self, before: str, moment: Moment) -> list[str]:
        return self._note(f"changed from {before} at {moment.now:%H:%M}")


class Punctually(op.LogicBuilder):
    """Builds them; it is made anew with other minutes, as a flow is that continues changed."""

    @property
    def capabilities(self) -> op.Capabilities:
        return op.Capabilities(settings=f"{Punctual.minutes} minutes")

    def __call__(self, state: Any) -> Punctual:
        return Punctual(state)


#  now      10:00   10:10                       10:20
#  minutes  60      5: it should have been then
def test_a_logic_is_asked_again_once_its_settings_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with diary(Punctually()) as t:
        t.send("in", [("k", "a")])
        t.restart(after="0s")
        t.advance("10m")
        assert lines(t) == ["item a"]
        monkeypatch.setattr(Punctual, "minutes", 5)
        t.restart(after="0s")
        t.advance("0s")
        t.advance("10m")
        assert lines(t) == ["item a", "changed from 60 minutes at 10:10", "notify 10:10"]


def test_a_change_that_fails_names_the_step_and_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Any, before: str, moment: Moment) -> Any:
        raise KeyError("gone")

    with diary(Punctually()) as t:
        t.send("in", [("k", "a")])
        monkeypatch.setattr(Punctual, "minutes", 5)
        monkeypatch.setattr(Punctual, "on_changed", failing)
        with pytest.raises(StepError) as caught:
            t.advance("1m")
    assert str(caught.value) == ("step 'diary': on_changed raised KeyError: 'gone'\n  key:  'k'")
