"""Reading of text, JSON lines and CSV, and bad lines."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.files import (
    CsvSource,
    JsonLinesSource,
    TextSource,
    csv_source,
    line_ranges,
    line_sources,
)
from flow.connectors.files import file_planning as planning
from flow.connectors.formats.line_parsers import is_utf8
from flow.connectors.source import BadInput, Source
from flow.errors import SourceError
from tests.support.reading_files import (
    first_slice,
    items,
    only_bad,
    run,
    sampled_reads,
    split_sizes,
    write,
)

WIDE = pa.decimal128(38, 30)

# --- lines, whatever the cut ---------------------------------------------------------------------

AWKWARD = (
    b'\xef\xbb\xbf{"n": 1}\r\n\n{"n": 2}\n{"n": \n'
    b'{"n": 3, "x": "\xff"}\n  \n{"n": 4}{"n": 5}\n{"n": 6}'
)


@pytest.mark.parametrize(
    ("parallelism", "bytes_per_epoch"), [(1, 1000), (2, 17), (3, 5), (5, 2), (7, 1), (7, 1000)]
)
@pytest.mark.parametrize("schema", [None, {"n": pa.int64()}])
def test_objects_and_bad_lines_do_not_depend_on_splits(
    tmp_path: Path, parallelism: int, bytes_per_epoch: int, schema: Any
) -> None:
    path = write(tmp_path / "a.jsonl", AWKWARD)
    source = JsonLinesSource(path, schema=schema, bytes_per_epoch=bytes_per_epoch)
    done = run(source, parallelism)
    assert done.items == [{"n": 1}, {"n": 2}, {"n": 6}]
    assert done.bad_lines == [4, 5, 7]


@given(
    texts=st.lists(st.text(st.sampled_from('a\r\n",é{}\u2028'), max_size=12), max_size=4),
    bytes_per_epoch=st.integers(1, 40),
    parallelism=st.integers(1, 7),
    block=st.integers(3, 20),
    bom=st.booleans(),
)
@sampled_reads
def test_text_lines_do_not_depend_on_splits(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    bytes_per_epoch: int,
    parallelism: int,
    block: int,
    bom: bool,
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    expected = []
    for number, text in enumerate(texts):
        write(folder / f"{number}.txt", b"\xef\xbb\xbf" * bom + text.encode())
        found = text.split("\n")
        expected += [line.removesuffix("\r") for line in found[: -1 if found[-1] == "" else None]]
    write(folder / "last.txt", "end")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_ranges, "BLOCK", block)
        done = run(TextSource(folder, bytes_per_epoch=bytes_per_epoch), parallelism)
    assert done.items == [*expected, "end"]


CELLS = st.sampled_from(
    ["1", "-2", "", "x", '"a,b"', '"a""b"', 'a"b', '"open', "\r", "é", "1.5", "  "]
)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=3).map(",".join), max_size=12)


SPLITS: dict[str, Any] = {
    "bytes_per_epoch": st.integers(1, 60),
    "parallelism": st.integers(1, 7),
    "ending": st.sampled_from(["", "\n"]),
}


def assert_rows_do_not_depend_on_splits(
    make: Callable[..., Source[Any]],
    path: Path,
    rows: list[str],
    *,
    bytes_per_epoch: int,
    parallelism: int,
    ending: str,
    head: Sequence[str] = (),
) -> None:
    """Check that the rows of a file are read together as each is read alone."""
    good, bad = list[Any](), list[int]()
    for number, row in enumerate(rows, len(head) + 1):
        alone = run(make(write(path, "\n".join([*head, row, ""]))))
        good += alone.items
        bad += [number] * len(alone.bad)
    write(path, "\n".join([*head, *rows]) + ending)
    done = run(make(path, bytes_per_epoch=bytes_per_epoch), parallelism)
    assert (done.items, done.bad_lines) == (good, bad)


@given(
    rows=ROWS,
    schema=st.sampled_from([None, {"b": pa.int64()}, {"b": pa.string(), "a": pa.string()}]),
    multiline=st.booleans(),
    splits=st.fixed_dictionaries(SPLITS),
)
@sampled_reads
def test_csv_lines_do_not_depend_on_splits(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[str],
    schema: Any,
    multiline: bool,
    splits: dict[str, Any],
) -> None:
    if multiline:
        rows = [row for row in rows if '"open' not in row]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    make = partial(CsvSource, schema=schema, multiline=multiline)
    assert_rows_do_not_depend_on_splits(make, path, rows, head=["a,b"], **splits)


JSON_LINES = st.lists(
    st.sampled_from(
        [
            *('{"a": 1}', '{"a": null}', "{}", '{"a": "x"}', "null", "[1]", "5"),
            *('{"a": 1}{"a": 2}', '{"a": {}', '{"b": [{}', "{}]}", "}", "{", '{"a":', "1}"),
            '{"a": 1}{"b": [',
            *('{"a": 2, "b": {"c": [1]}}', " ", "", "\u00a0", '{"a": 1, "a": 2}'),
            *('{"b": "\x01"}', '{"b": "\\ud800"}', '  {"a": 3}\r'),
        ]
    ),
    max_size=12,
)


@given(
    rows=JSON_LINES,
    schema=st.sampled_from([None, {"a": pa.int64()}]),
    splits=st.fixed_dictionaries(SPLITS),
)
@sampled_reads
def test_json_lines_do_not_depend_on_splits(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], schema: Any, splits: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    assert_rows_do_not_depend_on_splits(
        partial(JsonLinesSource, schema=schema), path, rows, **splits
    )


def test_epochs_have_a_limit_of_bytes_and_even_splits(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "0123456789\n" * 100)
    done = run(TextSource(path, bytes_per_epoch=400), 4)
    assert split_sizes(done) == [[100] * 4, [100] * 4, [75] * 4]


def test_many_small_files_share_a_split(tmp_path: Path) -> None:
    for number in range(100):
        write(tmp_path / f"{number:03d}.txt", "0123456789\n")
    done = run(TextSource(tmp_path), 4)
    assert [[len(split.what) for split in splits] for splits in done.slices] == [[25] * 4]


def test_small_splits_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_ranges, "LEAST_SPLIT", 400)
    path = write(tmp_path / "a.txt", "0123456789\n" * 100)
    assert split_sizes(run(TextSource(path), 7)) == [[550, 550]]


def test_pieces_and_splits_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_PIECES", 10)
    monkeypatch.setattr(planning, "MOST_SPLITS", 3)
    for number in range(25):
        write(tmp_path / f"{number:03d}.txt", "0123456789\n")
    done = run(TextSource(tmp_path), 50)
    assert [sum(len(split.what) for split in splits) for splits in done.slices] == [10, 10, 5]
    assert [len(splits) for splits in done.slices] == [3, 3, 3]


def test_batches_have_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_sources, "ROWS", 4)
    path = write(tmp_path / "a.jsonl", '{"n": 1}\n' * 10)
    for schema in (None, {"n": pa.int64()}):
        source = JsonLinesSource(path, schema=schema)
        planned = first_slice(source)
        assert [len(batch) for batch in source.read(planned.splits[0])] == [4, 4, 2]


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of more than a MiB are too long."""
    monkeypatch.setattr(line_ranges, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(line_ranges, "BLOCK", 1 << 18)


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize("splits", [1, 5])
@pytest.mark.parametrize("ending", [b"", b"\n", b'\n{"n": 4}', b'\n{"n": 4}\n'])
def test_a_line_that_is_too_long_is_a_bad_line(tmp_path: Path, splits: int, ending: bytes) -> None:
    some = b'{"n": 1}\n{"n": 2}\n'
    path = write(tmp_path / "a.jsonl", some + b"x" * (3 << 20) + b"\n" + b'{"n": 3}' + ending)
    source = JsonLinesSource(path, on_invalid="drop", bytes_per_epoch=(4 << 20) // splits)
    done = run(source, splits)
    assert [item["n"] for item in done.items] == [1, 2, 3, 4][: 4 if b"4" in ending else 3]
    (bad,) = done.bad
    assert (bad.where, bad.text[:3]) == (f"{path}, line 3", "xxx")
    assert bad.reason == "a line of more than 1 MiB: is it a file of lines?"


def test_half_of_a_surrogate_pair_in_json_is_refused(tmp_path: Path) -> None:
    whole = r'{"a": "\ud83d\ude00"}'
    path = write(tmp_path / "a.jsonl", f'{whole}\n{{"a": "\\uD83D"}}\n{{"\\udfff": 1}}\n')
    done = run(JsonLinesSource(path, on_invalid="drop"))
    assert done.items == [{"a": "\N{GRINNING FACE}"}]
    assert [bad.reason for bad in done.bad] == [
        "half of a surrogate pair, \\ud83d, which is no character",
        "half of a surrogate pair, \\udfff, which is no character",
    ]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_compressed_file_is_a_split_of_an_epoch(tmp_path: Path, suffix: str, pack: Any) -> None:
    path = write(tmp_path / f"a.jsonl{suffix}", pack(AWKWARD + b"\n") + pack(b'{"n": 7}\n'))
    done = run(JsonLinesSource(path, bytes_per_epoch=10), 5)
    assert done.items == [{"n": 1}, {"n": 2}, {"n": 6}, {"n": 7}]
    assert done.bad_lines == [4, 5, 7]
    assert len(done.slices) == 1


def test_a_zstandard_file_is_read(tmp_path: Path) -> None:
    packed = pa.Codec("zstd").compress(b"a\nb\n", asbytes=True)
    assert items(TextSource(write(tmp_path / "a.txt.zst", packed))) == ["a", "b"]


def test_a_truncated_gzip_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt.gz", gzip.compress(os.urandom(1000))[:-20])
    with pytest.raises(SourceError, match=r"a\.txt\.gz cannot be read: Compressed file ended"):
        run(TextSource(path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.gz", gzip.compress(b"a\n", mtime=0) + bytes(600)),
        ("a.gz", gzip.compress(b"a\n", mtime=0) + bytes(9) + gzip.compress(b"", mtime=0)),
        ("a.bz2", bz2.compress(b"") * 2 + bz2.compress(b"a\n")),
        ("a.bz2", bz2.compress(b"a\n") + bz2.compress(b"") * 3),
    ],
)
def test_a_compressed_file_is_read_as_its_tool_does(
    tmp_path: Path, name: str, content: bytes
) -> None:
    assert items(TextSource(write(tmp_path / name, content))) == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.gz", gzip.compress(b"a\n", mtime=0) + b"more", "cannot be read: Not a gzipped file"),
        ("a.gz", gzip.compress(b"a\n", mtime=0)[:10] + bytes(9), "cannot be read: "),
        ("a.bz2", bz2.compress(b"a\n") + bytes(60_000), "has changed .*, or is damaged"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    with pytest.raises(SourceError, match=f"{name} {problem}"):
        items(TextSource(write(tmp_path / name, content)))


# --- text ----------------------------------------------------------------------------------------


def test_text_items_are_lines_without_their_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\ufeffone\r\n\ntwo\rtwo\x0btwo\nlast\r")
    assert items(TextSource(path)) == ["one", "", "two\rtwo\x0btwo", "last"]


def test_text_that_is_not_utf8_is_a_bad_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntw\xff\nthree\n")
    done = run(TextSource(path))
    assert done.items == ["one", "three"]
    assert done.bad == [
        BadInput(f"{path}, line 2", "tw\ufffd", "not UTF-8 text, at byte 3 of the line")
    ]


# Pieces of text, and of what looks like it: cut short, too long, a surrogate, beyond the last.
PIECES = ["a\n", "\0", "é", "€", "😀"]
BROKEN = [b"\x80", b"\xc3", b"\xc0\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]


@given(st.lists(st.sampled_from([one.encode() for one in PIECES] + BROKEN)) | st.binary())
def test_text_agrees_with_pythons_decoding(pieces: list[bytes] | bytes) -> None:
    data = pieces if isinstance(pieces, bytes) else b"".join(pieces)
    try:
        data.decode()
    except UnicodeDecodeError:
        assert not is_utf8(data)
    else:
        assert is_utf8(data)


# --- JSON lines ----------------------------------------------------------------------------------


def test_json_items_agree_with_pythons_json(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": [1, {"b": null}]}\n 5 \n"x"\r\n[]\ntrue')
    assert items(JsonLinesSource(path)) == [{"a": [1, {"b": None}]}, 5, "x", [], True]


def test_json_with_a_schema_has_exactly_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"b": "x", "extra": [1], "a": 1}\n{"a": null}\n{}\n')
    source = JsonLinesSource(path, schema={"a": pa.int64(), "b": pa.string()})
    assert items(source) == [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": None, "b": None}]
    planned = first_slice(source)
    (batch,) = source.read(planned.splits[0])
    assert batch.schema == pa.schema({"a": pa.int64(), "b": pa.string()})


def test_json_text_becomes_times_of_the_schema(tmp_path: Path) -> None:
    at = "2013-01-01T05:00:00"
    path = write(
        tmp_path / "a.jsonl", f'{{"at": "{at}+01:00", "local": "{at}", "days": ["2013-01-02"]}}'
    )
    types = {"at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us")}
    (found,) = items(JsonLinesSource(path, schema={**types, "days": pa.list_(pa.date32())}))
    assert found == {
        "at": datetime(2013, 1, 1, 4, tzinfo=UTC),
        "local": datetime(2013, 1, 1, 5),  # noqa: DTZ001
        "days": [date(2013, 1, 2)],
    }


@pytest.mark.parametrize(
    ("line", "kind", "reason"),
    [
        ('{"a": 1.5}', pa.int64(), "field 'a' does not fit int64: 1.5"),
        ('{"a": "1"}', pa.int64(), "field 'a' does not fit int64: '1'"),
        ('{"a": 1}', pa.string(), "field 'a' does not fit string: 1"),
        ('{"a": 300}', pa.int8(), "field 'a' does not fit int8: 300"),
        (
            '{"a": "2013-01-01T00:00:00"}',
            pa.timestamp("us", "UTC"),
            "field 'a' does not fit timestamp[us, tz=UTC]: '2013-01-01T00:00:00'",
        ),
        ('{"a": 1704067200}', WIDE, "field 'a' does not fit decimal128(38, 30): 1704067200"),
        ('{"a": "1704067200"}', WIDE, "field 'a' does not fit decimal128(38, 30): '1704067200'"),
        # 100 times the number has more than 256 bits.
        (
            '{"a": 119' + "0" * 73 + "}",
            pa.decimal256(76, 2),
            "field 'a' does not fit decimal256(76, 2): 119000000000000000...0000000000000000000",
        ),
        (
            f'{{"a": [{{"b": "1.5"}}, {{"b": "-{2**256 // 10**40 + 7}"}}]}}',
            pa.list_(pa.struct([("b", pa.decimal256(76, 40))])),
            "field 'a' does not fit list<item: struct<b: decimal256(76, 40)>>: "
            f"[{{'b': '1.5'}}, {{'b': '-{2**256 // 10**40 + 7}'}}]",
        ),
        ('{"a": 12}', pa.decimal256(76, 76), "field 'a' does not fit decimal256(76, 76): 12"),
        ('{"a": 1, "b": 2, "a": 1}', pa.int64(), "the object has field 'a' 2 times"),
        ('{"a": 3.5e38}', pa.float32(), "field 'a' does not fit float: 3.5e+38"),
        (
            '{"a": [{"b": 0.5}, {"b": 3.5e38}]}',
            pa.list_(pa.struct([("b", pa.float32())])),
            "field 'a' does not fit list<item: struct<b: float>>: [{'b': 0.5}, {'b': 3.5e+38}]",
        ),
        ('{"a": 1}{"b": [', pa.int64(), "not JSON: Extra data at column 9"),
        ('{"a": 1', pa.int64(), "not JSON: Expecting ',' delimiter at column 8"),
        ('{"a": "1', pa.int64(), "not JSON: Unterminated string starting at column 7"),
        ("null", pa.int64(), "a JSON object is needed, got NoneType"),
        ("\u00a0", pa.int64(), "not JSON: Expecting value at column 1"),
        ("[1]", pa.int64(), "a JSON object is needed, got list"),
        ('{"b": "\udcff"}', pa.int64(), "not UTF-8 text, at byte 8 of the line"),
        ('{"b": ' + "[" * 100_000, pa.int64(), "not JSON: nested too deeply"),
    ],
)
def test_json_not_of_the_schema_is_bad(tmp_path: Path, line: str, kind: Any, reason: str) -> None:
    path = write(tmp_path / "a.jsonl", line.encode(errors="surrogateescape"))
    bad = only_bad(JsonLinesSource(path, schema={"a": kind}))
    assert (bad.where, bad.reason) == (f"{path}, line 1", reason)


def test_json_decimals_with_many_digits_are_exact(tmp_path: Path) -> None:
    numbers = ["9" * 74, "-" + "9" * 74 + ".99", "1e73", "12.5E-1", "0"]
    lines = "".join(f'{{"a": {number}, "b": "{"8" * 90}"}}\n' for number in numbers)
    path = write(tmp_path / "a.jsonl", lines.encode())
    found = run(JsonLinesSource(path, schema={"a": pa.decimal256(76, 2)})).items
    assert [record["a"] for record in found] == [Decimal(number) for number in numbers]


def test_a_json_object_without_a_schema_has_the_last_of_fields_of_one_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"a": 1, "b": 2, "a": 3}\n')
    assert run(JsonLinesSource(path)).items == [{"a": 3, "b": 2}]


def test_json_numbers_and_infinities_fit_narrow_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"f": Infinity, "d": "1.5"}\n{"f": 0.5, "d": -7}\n')
    done = run(JsonLinesSource(path, schema={"f": pa.float32(), "d": WIDE}))
    rows = [{"f": float("inf"), "d": Decimal("1.5")}, {"f": 0.5, "d": Decimal(-7)}]
    assert (done.items, done.bad) == (rows, [])


def test_json_without_a_value_that_may_not_be_null_is_a_bad_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 1}\n{}\n')
    done = run(JsonLinesSource(path, schema=pa.schema([pa.field("a", pa.int64(), False)])))
    assert (done.items, done.bad_lines) == ([{"a": 1}], [2])
    assert done.bad[0].reason == "field 'a' does not fit int64: missing"


def test_a_bad_line_is_shown_shortened(tmp_path: Path) -> None:
    bad = only_bad(JsonLinesSource(write(tmp_path / "a.jsonl", "{" + "x" * 1000)))
    assert bad.text == "{" + "x" * 198 + "…"


def test_bad_lines_are_found_among_many_and_the_good_ones_kept_in_order(tmp_path: Path) -> None:
    rows = [json.dumps({"n": n}) if n % 700 else "bad" for n in range(1, 5001)]
    path = write(tmp_path / "a.jsonl", "\n".join(rows))
    done = run(JsonLinesSource(path, schema={"n": pa.int64()}, bytes_per_epoch=20_000), 3)
    assert done.bad_lines == [700, 1400, 2100, 2800, 3500, 4200, 4900]
    assert [row["n"] for row in done.items] == [n for n in range(1, 5001) if n % 700]


# --- CSV -----------------------------------------------------------------------------------------


def csv(folder: Path, text: str, **options: Any) -> tuple[list[Any], list[int]]:
    """Return the items and the numbers of the bad lines of a CSV file."""
    done = run(CsvSource(write(folder / "a.csv", text), **options))
    return done.items, done.bad_lines


def test_csv_without_a_schema_is_all_text(tmp_path: Path) -> None:
    text = '\ufefforigin,delay\r\nJFK,5\r\n\r\n"L,A",\r\n'
    rows = [{"origin": "JFK", "delay": "5"}, {"origin": "L,A", "delay": ""}]
    assert csv(tmp_path, text) == (rows, [])


def test_csv_with_a_schema_has_its_columns_with_their_types(tmp_path: Path) -> None:
    text = "extra,delay,at,origin,extra\nx,5,2013-01-01T00:00:00Z,,y\n,,,NA,\n,NA,NA,b,\n"
    schema = {"origin": pa.string(), "delay": pa.int64(), "at": pa.timestamp("us", "UTC")}
    rows = [
        {"origin": "", "delay": 5, "at": datetime(2013, 1, 1, tzinfo=UTC)},
        {"origin": "NA", "delay": None, "at": None},
        {"origin": "b", "delay": None, "at": None},
    ]
    assert csv(tmp_path, text, schema=schema, null_values=["NA"]) == (rows, [])


def test_csv_header_may_be_given_or_be_the_schema(tmp_path: Path) -> None:
    options: dict[str, Any] = {"header": ["a", "b"], "schema": {"b": pa.int64()}}
    assert csv(tmp_path, "1;2\n3;4\n", delimiter=";", **options) == ([{"b": 2}, {"b": 4}], [])
    options = {"header": False, "schema": {"x": pa.int64(), "y": pa.string()}}
    rows = [{"x": 1, "y": "2"}, {"x": 3, "y": "4"}]
    assert csv(tmp_path, "1;2\n3;4\n", delimiter=";", **options) == (rows, [])


def test_csv_rows_that_are_not_lines_are_bad(tmp_path: Path) -> None:
    text = 'a,b\n1,"x\ny"\n3,4\r5,6\n7,8\n'
    assert csv(tmp_path, text) == ([{"a": "7", "b": "8"}], [2, 3, 4])
    unclosed = 'a\n1\n"2\n3\n'
    assert csv(tmp_path, unclosed, multiline=True) == ([{"a": "1"}], [3])


def test_a_compressed_csv_file_is_read_after_its_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", gzip.compress(b"\xef\xbb\xbf\na,b\n1,2\nbad\n3,4\n"))
    done = run(CsvSource(path, bytes_per_epoch=3), 3)
    assert done.items == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert done.bad_lines == [4]


@pytest.mark.parametrize("bytes_per_epoch", [1, 3, 7, 1000])
def test_each_csv_file_has_a_header_of_its_own(tmp_path: Path, bytes_per_epoch: int) -> None:
    write(tmp_path / "a.csv", "\n\na,b\n1,2\n")
    write(tmp_path / "b.csv", "b,a\n3,4")
    write(tmp_path / "c.csv", "a,b")
    write(tmp_path / "d.csv", "\n\n")
    done = run(CsvSource(tmp_path / "*.csv", bytes_per_epoch=bytes_per_epoch), 3)
    assert done.items == [{"a": "1", "b": "2"}, {"b": "3", "a": "4"}]
    assert done.bad == []
    typed = CsvSource(tmp_path / "*.csv", schema={"a": pa.int64()})
    assert items(typed) == [{"a": 1}, {"a": 4}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1", "1 cells where there are 2 columns"),
        ("1,2,3", "3 cells where there are 2 columns"),
        ("x,2", "column 'a' does not fit int64: 'x'"),
        ('1,"open', "a quote that is not closed, or a line end in a quoted cell"),
        ("1,\udcff", "not UTF-8 text, at byte 3 of the line"),
        ("0x10,a", "column 'a' does not fit int64: '0x10'"),
        ("-0X1,0x10", "column 'a' does not fit int64: '-0X1'"),
    ],
)
def test_a_csv_row_that_does_not_fit_is_a_bad_line(tmp_path: Path, line: str, reason: str) -> None:
    text = f"a,b\n1,2\n{line}\n3,4\n".encode(errors="surrogateescape")
    path = write(tmp_path / "a.csv", text)
    done = run(CsvSource(path, schema={"a": pa.int64(), "b": pa.string()}))
    assert done.items == [{"a": 1, "b": "2"}, {"a": 3, "b": "4"}]
    assert [(one.where, one.reason) for one in done.bad] == [(f"{path}, line 3", reason)]


@pytest.mark.parametrize(
    ("kind", "cell", "good", "value"),
    [
        (WIDE, "1704067200", " 17040672", Decimal(17040672)),
        (WIDE, "NA", "NA", None),
        (pa.decimal128(10, 2), "3402823669209384634633746074317682114.56", "+1e3", Decimal(1000)),
        (pa.float64(), "-1e400", "-inf", float("-inf")),
        (pa.float32(), "3.5e38", "3e38", float(np.float32(3e38))),
        (pa.duration("s"), "0x10", "16", timedelta(seconds=16)),
    ],
)
def test_a_csv_number_that_its_type_cannot_hold_is_a_bad_line(
    tmp_path: Path, kind: Any, cell: str, good: str, value: Any
) -> None:
    path = write(tmp_path / "a.csv", f"a,b\n{good},1\n{cell},2\n,3\n")
    done = run(CsvSource(path, schema={"a": kind, "b": pa.int64()}, null_values=["NA"]))
    found = [{"a": value, "b": 1}, {"a": None, "b": 3}]
    assert [row for row in done.items if row["b"] != 2] == found
    assert done.bad_lines == ([] if cell == "NA" else [3])


def test_multiline_csv_cells_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_ranges, "BLOCK", 8)
    monkeypatch.setattr(csv_source, "BLOCK", 8)
    path = write(tmp_path / "a.csv", 'a,b\n1,"x\r\n\ny"\n2,z,bad\n3,"q""\n"\n')
    done = run(CsvSource(path, multiline=True, bytes_per_epoch=5), 4)
    assert done.items == [{"a": "1", "b": "x\r\n\ny"}, {"a": "3", "b": 'q"\n'}]
    assert done.bad_lines == [5]
    assert len(done.slices) == 1


def test_a_csv_file_without_a_column_of_the_schema_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,a,c\n1,2,3\n")
    with pytest.raises(SourceError, match=r"header of .*a\.csv does not name column 'b'"):
        run(CsvSource(path, schema={"b": pa.int64()}))
    with pytest.raises(SourceError, match=r"header of .*a\.csv names more than once column 'a'"):
        run(CsvSource(path))
