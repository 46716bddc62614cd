"""Tables: `table` and `lookup_table`, and the steps that read them, in the driver of tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
from flow import Dataflow, FlowBuildError, StepError, Stream
from flow.connectors.files import CsvSource, JsonLinesSource, TextSource
from flow.errors import FlowTypeError
from flow.testing import TestDriver, TestingSink, TestingSource
from tests.support.one_stream import a_flow, driver


def with_table(build: Callable[[Stream[Any], Any], Stream[Any]], **options: Any) -> Dataflow:
    """A flow whose output is built of names, and of a table of changes with their prices."""
    return a_flow(
        lambda changes, names: build(names, op.table("prices", changes, **options)),
        *("changes", "names"),
    )


def priced(**options: Any) -> Dataflow:
    """A flow that looks up the price of each name in a table of changes."""
    return with_table(lambda s, t: op.map_with("price", s, t, priced_name), **options)


def priced_name(name: str, prices: Mapping[str, Any]) -> tuple[str, Any]:
    return name, prices.get(name)


def looking_up(source: Any, **options: Any) -> Dataflow:
    def build(names: Stream[Any]) -> Stream[Any]:
        prices = op.lookup_table("prices", names.flow, source, "name", "price", **options)
        return op.map_with("price", names, prices, priced_name)

    return a_flow(build, "names")


def test_key_and_value_are_read_from_a_change_as_paths_or_functions() -> None:
    for key, value in (
        ("product.name", "product.price"),
        (lambda change: change["product"]["name"], lambda change: change["product"]["price"]),
    ):
        with TestDriver(priced(key=key, value=value)) as t:
            t.send("changes", [{"product": {"name": "tea", "price": 3}}])
            t.send("changes", [{"product": {"name": "rum", "price": None}}])
            t.send("names", ["tea", "rum"])
            assert t.received("out") == [("tea", 3), ("rum", None)]


def test_stateless_steps_make_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """An inspector of changes prints in the process of the flow."""

    def build(changes: Stream[Any], names: Stream[Any]) -> Stream[Any]:
        wanted = op.filter("wanted", op.inspect("see", changes), lambda text: "=" in text)
        pairs = op.map("split", wanted, lambda text: tuple(text.split("=")))
        prices = op.table("prices", op.map_value("number", pairs, int))
        return op.map_with("price", names, prices, priced_name)

    with driver(build, "changes", "names") as t:
        t.send("changes", ["# prices", "tea=3"])
        assert capsys.readouterr().out == "see: '# prices'\nsee: 'tea=3'\n"
        t.send("names", ["tea"])
        assert t.received("out") == [("tea", 3)]
        assert t.stats.counts["changes", "out"] == 2
        assert t.stats.counts["wanted", "filtered"] == 1
        assert t.stats.gauges["prices", "keys"] == 1


def test_steps_before_and_after_a_keyed_step_see_the_same_version() -> None:
    def build(names: Stream[Any], prices: Any) -> Stream[Any]:
        before = op.map_with("before", names, prices, priced_name)
        seen = op.stateful_map("seen", before, lambda state, value: (value, (state, value)))
        return op.map_with("after", seen, prices, lambda pair, table: (*pair, table.get(pair[0])))

    with TestDriver(with_table(build)) as t:
        t.send_all({"changes": [("tea", 3)], "names": ["tea"]})
        t.send_all({"changes": [("tea", 4)], "names": ["tea"]})
        assert t.received("out") == [("tea", (None, 3), 3), ("tea", (3, 4), 4)]


def with_value(item: tuple[Any, ...], table: Mapping[str, Any]) -> tuple[Any, ...]:
    return *item, table.get(item[0])


def test_two_tables_and_two_readers_of_one_table() -> None:
    def build(changes: Stream[Any], goods: Stream[Any], names: Stream[Any]) -> Stream[Any]:
        doubled = op.table("doubled", op.map_value("double", changes, lambda price: 2 * price))
        found = op.map("start", names, lambda name: (name,))
        for name, changes_of in (("prices", changes), ("stock", goods)):
            found = op.map_with(name, found, op.table(f"{name} table", changes_of), with_value)
        return op.map_with("double price", found, doubled, with_value)

    with driver(build, "changes", "goods", "names") as t:
        t.send_all({"changes": [("tea", 3)], "goods": [("tea", 100)], "names": ["tea"]})
        assert t.received("out") == [("tea", 3, 100, 6)]


def test_a_mapping_cannot_be_changed() -> None:
    flow = with_table(
        lambda s, t: op.map_with("m", s, t, lambda name, rows: rows.update({name: 1}))
    )
    with TestDriver(flow) as t, pytest.raises(StepError, match="the mapper raised Attribute"):
        t.send("names", ["tea"])


@dataclass
class Price:
    """A value of a table that is an object."""

    paid: list[int]


@pytest.mark.parametrize("as_of", [None, lambda _: 1])
@pytest.mark.parametrize(
    ("value", "use"),
    [
        ([3], lambda value: value.append(1) or value),
        ({"paid": 3}, lambda value: value.update(paid=value["paid"] + 1) or value),
        ({3}, lambda value: value.add(len(value)) or value),
        ({"paid": [3]}, lambda value: value["paid"].append(1) or value),
        (([3],), lambda value: value[0].append(1) or value),
        (Price([3]), lambda value: value.paid.append(1) or value),
    ],
)
def test_what_a_mapper_does_to_a_value_no_other_item_sees(value: Any, use: Any, as_of: Any) -> None:
    def build(names: Stream[Any], table: Any) -> Stream[Any]:
        return op.map_with("use", names, table, lambda name, t: use(t[name]), as_of=as_of)

    with TestDriver(with_table(build, as_of=as_of)) as t:
        t.send("changes", [("tea", value)])
        t.send("names", ["tea", "tea"])
        t.send("names", ["tea"])
        first, *others = t.received("out")
        assert others == [first, first]
        assert first != value


def test_an_epoch_that_fails_leaves_the_table_as_it_was() -> None:
    with TestDriver(priced()) as t:
        t.send("changes", [("tea", 3)])
        with pytest.raises(StepError, match="step 'prices'"):
            t.send("changes", [("tea", 4), "no pair"])
        t.send("names", ["tea"])
        assert t.received("out") == [("tea", 3)]


def test_a_table_that_grows_too_large_is_an_error_that_says_what_to_do() -> None:
    with TestDriver(priced(max_bytes=1_000)) as t:
        t.send("changes", [("tea", "x" * 400), ("rum", "x" * 400)])
        t.send("changes", [("rum", None), ("gin", "x" * 400)])  # Removed values do not count.
        with pytest.raises(StepError, match=r"step 'prices': the table has grown to 1,2\d\d bytes"):
            t.send("changes", [("ale", "x" * 400)])


def test_a_value_that_cannot_be_pickled_is_an_error_that_names_the_key() -> None:
    with TestDriver(priced()) as t:
        with pytest.raises(StepError, match="cannot be pickled") as caught:
            t.send("changes", [("tea", lambda: 3)])
        assert caught.value.key == "tea"
        assert caught.value.step_id == "prices"


@pytest.mark.parametrize("change", ["tea", (1, 2)], ids=["no pair", "no text as key"])
def test_a_change_must_be_a_pair_with_a_text_as_key(change: Any) -> None:
    with TestDriver(priced()) as t, pytest.raises(StepError, match="step 'prices'"):
        t.send("changes", [change])


def test_a_lookup_table_is_read_again_as_a_whole_after_the_refresh(tmp_path: Path) -> None:
    file = tmp_path / "prices.jsonl"
    write_prices(file, tea=3, rum=9)
    with file.open("a") as again:
        again.write('{"name": "rum", "price": 8}\n')
    with TestDriver(looking_up(JsonLinesSource(str(file)), refresh="10m")) as t:
        t.send("names", ["tea", "rum"])
        write_prices(file, tea=4)
        t.send("names", ["tea"], after="599s")
        assert t.take("out") == [("tea", 3), ("rum", 8), ("tea", 3)]
        t.send("names", ["tea", "rum"], after="1s")
        assert t.take("out") == [("tea", 4), ("rum", None)]
        assert t.stats.gauges["prices", "version"] == 2


def test_a_table_keeps_its_version_while_its_source_is_unchanged() -> None:
    rows = [{"name": "tea", "price": 3}]
    with TestDriver(looking_up(lambda: rows, refresh="1m")) as t:
        for _ in range(3):
            t.advance("1m")
        assert t.stats.gauges["prices", "version"] == 1


def test_a_failed_refresh_keeps_the_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "prices.jsonl"
    write_prices(file, tea=3)
    with TestDriver(looking_up(JsonLinesSource(str(file)), refresh="1m")) as t:
        t.send("names", ["tea"])
        file.write_text("{")
        t.send("names", ["tea"], after="1m")
        assert t.take("out") == [("tea", 3), ("tea", 3)]
        assert "step 'prices'" in caplog.text
        assert "keeps the rows that it has" in caplog.text
        write_prices(file, tea=4)
        t.send("names", ["tea"], after="1m")
        assert t.take("out") == [("tea", 4)]


def test_a_first_reading_that_fails_stops_the_flow() -> None:
    def rows() -> list[Any]:
        raise OSError("no such table")

    with TestDriver(looking_up(rows)) as t, pytest.raises(StepError, match="no such table"):
        t.send("names", ["tea"])


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"name": ["tea"], "price": [3]}),
        pa.record_batch({"name": ["tea"], "price": [3]}),
        pa.table({"name": ["tea"], "price": [3]}).to_pandas(),
        ({"name": "tea", "price": 3} for _ in range(1)),
    ],
    ids=["table", "batch", "pandas", "generator"],
)
def test_a_function_returns_rows_of_several_kinds(rows: Any) -> None:
    with TestDriver(looking_up(lambda: rows)) as t:
        t.send("names", ["tea"])
        assert t.received("out") == [("tea", 3)]


@pytest.mark.parametrize("rows", [{"a": 1}, "a", None])
def test_a_result_that_is_no_list_of_rows_is_refused(rows: Any) -> None:
    problem = f"step 'prices': the result of its source must be a list of items, .*{rows!r}"
    with TestDriver(looking_up(lambda: rows)) as t, pytest.raises(FlowTypeError, match=problem):
        t.send("names", ["tea"])


def test_a_test_may_send_the_rows_of_a_lookup_table() -> None:
    def fail() -> list[Any]:
        raise AssertionError("the source must not be read")

    with TestDriver(looking_up(fail)) as t:
        t.send("prices", [{"name": "tea", "price": 3}, {"name": "rum", "price": 9}])
        t.send("prices", [{"name": "tea", "price": 4}])
        t.send("names", ["tea", "rum"])
        assert t.received("out") == [("tea", 4), ("rum", None)]


def write_prices(file: Path, **prices: int) -> None:
    rows = ({"name": name, "price": price} for name, price in prices.items())
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def inputs(flow: Dataflow) -> tuple[Any, Any]:
    return (op.input(name, flow, TestingSource([])) for name in ("changes", "items"))  # type: ignore[return-value]


def test_an_input_of_a_table_may_feed_nothing_else() -> None:
    flow = priced()
    op.output("log", Stream(flow, flow.step("changes").downs[0]), TestingSink([]))
    with pytest.raises(FlowBuildError, match="step 'log' reads items of input 'changes'"):
        TestDriver(flow)


def test_state_or_a_shuffle_before_a_table_is_an_error() -> None:
    for add in (
        lambda s: op.stateful_map("made", s, lambda state, value: (state, value)),
        lambda s: op.redistribute("made", s),
        lambda s: op.map_with("made", s, op.table("other", s), lambda item, _: item),
    ):
        changes, _ = inputs(Dataflow("wrong"))
        with pytest.raises(FlowBuildError, match="step 'rules': step 'made' comes before"):
            op.table("rules", op.map("later", add(changes), str))


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda f, s: op.table("t", s, key=3), "key must be a function"),
        (lambda f, s: op.table("t", s, key="a..b"), "key must be a field's path"),
        (lambda f, s: op.table("t", s, max_bytes=0), "max_bytes must be a whole number"),
        (lambda f, s: op.table("t", s, keep="1h"), "keep='1h' needs as_of="),
        (lambda f, s: op.table("t", s, as_of="at", keep="0s"), "keep must be positive"),
        (lambda f, s: op.map_with("m", s, s, str), "table must be a table of op.table"),
        (lambda f, s: op.map_with("m", s, op.table("t", s), 3), "mapper must be a function"),
        (
            lambda f, s: op.map_with("m", s, op.table("t", s), max, as_of="at"),
            "as_of= needs a table that keeps earlier values",
        ),
        (lambda f, s: op.lookup_table("t", s, list, "id"), "is added to a Dataflow"),
        (lambda f, s: op.lookup_table("t", f, 3, "id"), "source must be a Source, or a function"),
        (lambda f, s: op.lookup_table("t", f, list, None), "key must be a function or"),
        (lambda f, s: op.lookup_table("t", f, list, "id", refresh="0s"), "refresh must be"),
        (lambda f, s: op.lookup_table("t", f, TextSource("a", follow=True), "id"), "has no end"),
        (
            lambda f, s: op.lookup_table("t", f, CsvSource("a", on_invalid="errors"), "id"),
            "on_invalid='errors' makes a stream of errors",
        ),
    ],
)
def test_wrong_arguments_name_the_step(build: Callable[[Dataflow, Any], Any], text: str) -> None:
    flow = Dataflow("wrong")
    with pytest.raises(FlowBuildError, match=f"step '[tm]': .*{text}"):
        build(flow, op.input("in", flow, TestingSource([])))
