"""Reading of text, JSON lines and CSV, and bad lines."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.files import CsvSource, JsonLinesSource, TextSource
from flow.connectors.files.reading import csv_lines, line_ranges, line_source, planning
from flow.connectors.formats.line_parser import is_utf8
from flow.connectors.source import BadInput
from flow.errors import SourceError
from tests.support.reading_files import WORKED, JsonLog, items, only_bad, run, split_sizes, write

# --- lines, whatever the cut ---------------------------------------------------------------------

AWKWARD = (
    b'\xef\xbb\xbf{"n": 1}\r\n\n{"n": 2}\n{"n": \n'
    b'{"n": 3, "x": "\xff"}\n  \n{"n": 4}{"n": 5}\n{"n": 6}'
)


@pytest.mark.parametrize("parallelism", range(1, 8))
@pytest.mark.parametrize("bytes_per_epoch", [1, 2, 5, 17, 1000])
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
@WORKED
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


@given(
    rows=ROWS,
    schema=st.sampled_from([None, {"b": pa.int64()}, {"b": pa.string(), "a": pa.string()}]),
    bytes_per_epoch=st.integers(1, 60),
    parallelism=st.integers(1, 7),
    multiline=st.booleans(),
)
@WORKED
def test_csv_lines_do_not_depend_on_splits(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[str],
    schema: Any,
    bytes_per_epoch: int,
    parallelism: int,
    multiline: bool,
) -> None:
    if multiline:
        rows = [row for row in rows if '"open' not in row]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    options = {"schema": schema, "multiline": multiline}
    good, bad = [], []
    for number, row in enumerate(rows):
        alone = run(CsvSource(write(path, f"a,b\n{row}\n"), **options))
        good += alone.items
        bad += [number + 2] * len(alone.bad)
    write(path, "\n".join(["a,b", *rows]))
    done = run(CsvSource(path, bytes_per_epoch=bytes_per_epoch, **options), parallelism)
    assert (done.items, done.bad_lines) == (good, bad)


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
    bytes_per_epoch=st.integers(1, 60),
    parallelism=st.integers(1, 7),
)
@WORKED
def test_json_lines_do_not_depend_on_splits(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[str],
    schema: Any,
    bytes_per_epoch: int,
    parallelism: int,
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    good, bad = [], []
    for number, row in enumerate(rows):
        alone = run(JsonLinesSource(write(path, row + "\n"), schema=schema))
        good += alone.items
        bad += [number + 1] * len(alone.bad)
    write(path, "\n".join([*rows, ""]))
    source = JsonLinesSource(path, schema=schema, bytes_per_epoch=bytes_per_epoch)
    done = run(source, parallelism)
    assert (done.items, done.bad_lines) == (good, bad)


def test_a_run_resumes_from_any_offset_with_a_new_planner(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.txt", "".join(f"{name}{n}\n" for n in range(5)))
    log = JsonLog()
    source = TextSource(tmp_path, bytes_per_epoch=4)
    whole = run(source, 2, log)
    assert len(whole.items) == 15
    for end, count in zip(whole.ends, whole.items_at_end, strict=True):
        assert run(source, 3, log, start=end).items == whole.items[count:]


def test_epochs_have_a_limit_of_bytes_and_even_splits(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "0123456789\n" * 100)
    done = run(TextSource(path, bytes_per_epoch=400), 4)
    assert split_sizes(done) == [[100] * 4, [100] * 4, [75] * 4]


def test_many_small_files_share_a_split(tmp_path: Path) -> None:
    for number in range(100):
        write(tmp_path / f"{number:03d}.txt", "0123456789\n")
    done = run(TextSource(tmp_path), 4)
    assert [[len(split.what) for split in splits] for splits in done.slices] == [[25] * 4]


def test_a_split_too_small_for_a_task_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_ranges, "LEAST_SPLIT", 400)
    path = write(tmp_path / "a.txt", "0123456789\n" * 100)
    assert split_sizes(run(TextSource(path), 7)) == [[550, 550]]


def test_a_slice_has_a_limited_number_of_pieces_and_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MOST_PIECES", 10)
    monkeypatch.setattr(planning, "MOST_SPLITS", 3)
    for number in range(25):
        write(tmp_path / f"{number:03d}.txt", "0123456789\n")
    done = run(TextSource(tmp_path), 50)
    assert [sum(len(split.what) for split in splits) for splits in done.slices] == [10, 10, 5]
    assert [len(splits) for splits in done.slices] == [3, 3, 3]


def test_long_blocks_come_as_batches_of_a_limited_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_source, "ROWS", 4)
    path = write(tmp_path / "a.jsonl", '{"n": 1}\n' * 10)
    for schema in (None, {"n": pa.int64()}):
        source = JsonLinesSource(path, schema=schema)
        planned = source.planner(JsonLog(), 1).next(None)
        assert planned is not None
        assert [len(batch) for batch in source.read(planned.splits[0])] == [4, 4, 2]


def test_a_line_longer_than_a_block_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_ranges, "BLOCK", 8)
    path = write(tmp_path / "a.txt", "x" * 1000 + "\nend")
    assert run(TextSource(path, bytes_per_epoch=100), 3).items == ["x" * 1000, "end"]


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of more than a MiB are too long."""
    monkeypatch.setattr(line_ranges, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(line_ranges, "BLOCK", 1 << 18)


@pytest.mark.usefixtures("short_lines")
def test_a_file_without_line_ends_is_not_loaded_into_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b"[" + b"1," * (1 << 20))
    done = run(JsonLinesSource(path, on_invalid="drop"))
    (bad,) = done.bad
    assert (done.items, bad.where) == ([], f"{path}, line 1")
    assert bad.reason == "a line of more than 1 MiB: is it a file of lines?"
    assert bad.text.startswith("[1,1,1")


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize("splits", [1, 5])
@pytest.mark.parametrize("ending", [b"", b"\n", b'\n{"n": 4}', b'\n{"n": 4}\n'])
def test_a_line_that_is_too_long_is_a_bad_line_among_others(
    tmp_path: Path, splits: int, ending: bytes
) -> None:
    some = b'{"n": 1}\n{"n": 2}\n'
    path = write(tmp_path / "a.jsonl", some + b"x" * (3 << 20) + b"\n" + b'{"n": 3}' + ending)
    source = JsonLinesSource(path, on_invalid="drop", bytes_per_epoch=(4 << 20) // splits)
    done = run(source, splits)
    assert [item["n"] for item in done.items] == [1, 2, 3, 4][: 4 if b"4" in ending else 3]
    assert [bad.where for bad in done.bad] == [f"{path}, line 3"]


def test_half_of_a_surrogate_pair_in_json_is_refused(tmp_path: Path) -> None:
    whole = r'{"a": "\ud83d\ude00"}'
    path = write(tmp_path / "a.jsonl", f'{whole}\n{{"a": "\\uD83D"}}\n{{"\\udfff": 1}}\n')
    done = run(JsonLinesSource(path, on_invalid="drop"))
    assert done.items == [{"a": "\N{GRINNING FACE}"}]
    assert [bad.reason for bad in done.bad] == [
        "half of a surrogate pair, \\ud83d, which is no character",
        "half of a surrogate pair, \\udfff, which is no character",
    ]


def test_csv_integers_are_decimal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "n,text\n16,0x10\n0x10,a\n-0X1,b\n7,c\n")
    schema = {"n": pa.int64(), "text": pa.string()}
    done = run(CsvSource(path, schema=schema, on_invalid="drop"))
    assert done.items == [{"n": 16, "text": "0x10"}, {"n": 7, "text": "c"}]
    assert [bad.reason for bad in done.bad] == [
        "column 'n' does not fit int64: '0x10'",
        "column 'n' does not fit int64: '-0X1'",
    ]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_compressed_file_is_one_split_of_one_epoch(
    tmp_path: Path, suffix: str, pack: Any
) -> None:
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
    with pytest.raises(SourceError, match=r"a\.txt\.gz cannot be read: Truncated"):
        run(TextSource(path))


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
    planned = source.planner(JsonLog(), 1).next(None)
    assert planned is not None
    (batch,) = source.read(planned.splits[0])
    assert batch.schema == pa.schema({"a": pa.int64(), "b": pa.string()})


def test_json_text_becomes_times_of_the_schema(tmp_path: Path) -> None:
    line = {
        "at": "2013-01-01T05:00:00+01:00",
        "local": "2013-01-01T05:00:00",
        "day": "2013-01-01",
        "days": ["2013-01-02"],
    }
    path = write(tmp_path / "a.jsonl", json.dumps(line))
    schema = {
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "day": pa.date32(),
        "days": pa.list_(pa.date32()),
    }
    assert items(JsonLinesSource(path, schema=schema)) == [
        {
            "at": datetime(2013, 1, 1, 4, tzinfo=UTC),
            "local": datetime(2013, 1, 1, 5),  # noqa: DTZ001
            "day": date(2013, 1, 1),
            "days": [date(2013, 1, 2)],
        }
    ]


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
        ('{"a": 1', pa.int64(), "not JSON: Expecting ',' delimiter at column 8"),
        ('{"a": "1', pa.int64(), "not JSON: Unterminated string starting at column 7"),
        ("null", pa.int64(), "a JSON object is needed, got NoneType"),
        ("\u00a0", pa.int64(), "not JSON: Expecting value at column 1"),
        ("[1]", pa.int64(), "a JSON object is needed, got list"),
        ('{"b": "\udcff"}', pa.int64(), "not UTF-8 text, at byte 8 of the line"),
        ('{"b": ' + "[" * 100_000, pa.int64(), "not JSON: nested too deeply"),
    ],
)
def test_json_that_does_not_fit_the_schema_is_a_bad_line(
    tmp_path: Path, line: str, kind: Any, reason: str
) -> None:
    path = write(tmp_path / "a.jsonl", line.encode(errors="surrogateescape"))
    bad = only_bad(JsonLinesSource(path, schema={"a": kind}))
    assert (bad.where, bad.reason) == (f"{path}, line 1", reason)


@pytest.mark.parametrize("schema", [None, {"a": pa.int64()}])
@pytest.mark.parametrize(
    "rows",
    [
        ['{"a": 1}{"b": [', "{}]}"],
        ['{"a": 1}{"b": {}', "}"],
        ['{"a": 1}{"a": 2}', '{"a":', "3}"],
        ['{"a": 1,', '"b": 2}', '{"a": 1}{"a": 2}'],
        ["\u00a0", " null ", "}{"],
    ],
)
def test_lines_without_exactly_one_value_are_bad(
    tmp_path: Path, rows: list[str], schema: Any
) -> None:
    rows = [row for row in rows if schema or row != " null "]
    path = write(tmp_path / "a.jsonl", "\n".join([*rows, ""]))
    done = run(JsonLinesSource(path, schema=schema))
    assert (done.items, done.bad_lines) == ([], list(range(1, len(rows) + 1)))


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


def test_csv_without_a_schema_is_all_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '\ufefforigin,delay\r\nJFK,5\r\n\r\n"L,A",\r\n')
    assert items(CsvSource(path)) == [
        {"origin": "JFK", "delay": "5"},
        {"origin": "L,A", "delay": ""},
    ]


def test_csv_with_a_schema_has_its_columns_with_their_types(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", "extra,delay,at,origin,extra\nx,5,2013-01-01T00:00:00Z,,y\n,,,NA,\n"
    )
    schema = {"origin": pa.string(), "delay": pa.int64(), "at": pa.timestamp("us", "UTC")}
    assert items(CsvSource(path, schema=schema, null_values=["NA"])) == [
        {"origin": "", "delay": 5, "at": datetime(2013, 1, 1, tzinfo=UTC)},
        {"origin": "NA", "delay": None, "at": None},
    ]


def test_a_compressed_csv_file_is_read_after_its_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", gzip.compress(b"\xef\xbb\xbf\na,b\n1,2\nbad\n3,4\n"))
    done = run(CsvSource(path, bytes_per_epoch=3), 3)
    assert done.items == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert done.bad_lines == [4]


def test_csv_null_values_are_null_in_typed_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a\nNA\n1\n")
    assert items(CsvSource(path, schema={"a": pa.int64()}, null_values=["NA"])) == [
        {"a": None},
        {"a": 1},
    ]


def test_csv_header_may_be_given_or_be_the_schema(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "1;2\n3;4\n")
    typed = {"b": pa.int64()}
    assert items(CsvSource(path, delimiter=";", header=["a", "b"], schema=typed)) == [
        {"b": 2},
        {"b": 4},
    ]
    typed = {"x": pa.int64(), "y": pa.string()}
    assert items(CsvSource(path, delimiter=";", header=False, schema=typed)) == [
        {"x": 1, "y": "2"},
        {"x": 3, "y": "4"},
    ]


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
    ],
)
def test_a_csv_row_that_does_not_fit_the_schema_is_a_bad_line(
    tmp_path: Path, line: str, reason: str
) -> None:
    text = f"a,b\n1,2\n{line}\n3,4\n".encode(errors="surrogateescape")
    path = write(tmp_path / "a.csv", text)
    done = run(CsvSource(path, schema={"a": pa.int64(), "b": pa.string()}))
    assert done.items == [{"a": 1, "b": "2"}, {"a": 3, "b": "4"}]
    assert [(one.where, one.reason) for one in done.bad] == [(f"{path}, line 3", reason)]


def test_a_line_end_in_a_csv_cell_makes_bad_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'a,b\n1,"x\ny"\n2,z\n')
    done = run(CsvSource(path))
    assert (done.items, done.bad_lines) == ([{"a": "2", "b": "z"}], [2, 3])


def test_csv_rows_that_are_not_lines_are_bad(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'a,b\n1,"x\ny"\n3,4\r5,6\n7,8\n')
    done = run(CsvSource(path))
    assert (done.items, done.bad_lines) == ([{"a": "7", "b": "8"}], [2, 3, 4])


def test_a_line_end_in_a_csv_cell_is_read_when_multiline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_ranges, "BLOCK", 8)
    monkeypatch.setattr(csv_lines, "BLOCK", 8)
    path = write(tmp_path / "a.csv", 'a,b\n1,"x\r\n\ny"\n2,z,bad\n3,"q""\n"\n')
    done = run(CsvSource(path, multiline=True, bytes_per_epoch=5), 4)
    assert done.items == [{"a": "1", "b": "x\r\n\ny"}, {"a": "3", "b": 'q"\n'}]
    assert done.bad_lines == [5]
    assert len(done.slices) == 1


def test_an_unclosed_quote_ends_with_the_file_when_multiline(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'a\n1\n"2\n3\n')
    done = run(CsvSource(path, multiline=True))
    assert (done.items, done.bad_lines) == ([{"a": "1"}], [3])


def test_a_csv_file_without_a_column_of_the_schema_is_an_error_that_names_both(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.csv", "a,a,c\n1,2,3\n")
    with pytest.raises(SourceError, match=r"header of .*a\.csv does not name column 'b'"):
        run(CsvSource(path, schema={"b": pa.int64()}))
    with pytest.raises(SourceError, match=r"header of .*a\.csv names more than once column 'a'"):
        run(CsvSource(path))
