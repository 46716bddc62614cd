"""Files in an object store, against a server with the protocol of S3 on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from flow.connectors.files import (
    CsvSink,
    CsvSource,
    JsonLinesSink,
    JsonLinesSource,
    ParquetSink,
    ParquetSource,
    file_list,
)
from flow.connectors.files.filesystems import find_files
from flow.connectors.source import MemoryLog
from flow.errors import SourceError
from flow.testing.connectors import check_sink, check_source
from tests.support.stores import SECRET, WEED, s3_server

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(WEED is None, reason="needs SeaweedFS"),
]

CSV = pa.schema([("key", pa.string()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fs.FileSystem]:
    """The store, found as users' programs find it, by the environment's variables."""
    with (
        s3_server(tmp_path_factory.mktemp("s3")) as variables,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in variables.items():
            environment.setenv(name, value)
        filesystem, _ = fs.FileSystem.from_uri("s3://bucket/made")
        yield filesystem


def uri(place: Path) -> str:
    return f"s3://bucket/{place.name}"


def content(filesystem: fs.FileSystem, place: Path) -> list[bytes]:
    """Return the files below a place that readers do not skip."""
    selector = fs.FileSelector(uri(place)[5:], recursive=True, allow_not_found=True)
    found = [one for one in filesystem.get_file_info(selector) if one.type == fs.FileType.File]
    shown = [one.path for one in found if "/_" not in one.path and "/." not in one.path]
    return [filesystem.open_input_file(path).read() for path in shown]


def test_sinks_keep_the_laws(store: fs.FileSystem) -> None:
    def parquet_rows(place: Path) -> list[tuple[str, int]]:
        files = content(store, place)
        rows = [row for one in files for row in pq.read_table(pa.BufferReader(one)).to_pylist()]
        return [(row["key"], row["n"]) for row in rows]

    def json_rows(place: Path) -> list[tuple[str, int]]:
        rows = [json.loads(line) for one in content(store, place) for line in one.splitlines()]
        return [(row["key"], row["n"]) for row in rows]

    def csv_rows(place: Path) -> list[tuple[str, int]]:
        import pyarrow.csv as csv

        read = [csv.read_csv(pa.BufferReader(one)) for one in content(store, place)]
        return [(str(row["key"]), row["n"]) for one in read for row in one.to_pylist()]

    check_sink(lambda place: ParquetSink(uri(place)), parquet_rows, secrets=[SECRET])
    check_sink(lambda place: JsonLinesSink(uri(place)), json_rows, secrets=[SECRET])
    check_sink(lambda place: CsvSink(uri(place)), csv_rows, secrets=[SECRET])


def test_sources_keep_the_laws(store: fs.FileSystem) -> None:
    def records(part: int) -> list[Any]:
        return [{"key": f"é {part}", "n": n} for n in range(9)]

    def write(place: Path, name: str, data: Any) -> None:
        with store.open_output_stream(f"{uri(place)[5:]}/{name}") as stream:
            stream.write(data)

    def fill_parquet(place: Path, part: int) -> list[Any]:
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(records(part)), buffer)
        write(place, f"dt={part}/a.parquet", buffer.getvalue())
        return [{**one, "dt": str(part)} for one in records(part)]

    def fill_json(place: Path, part: int) -> list[Any]:
        lines = "".join(json.dumps(one) + "\n" for one in records(part))
        write(place, f"{part}.jsonl", lines.encode())
        return records(part)

    def fill_csv(place: Path, part: int) -> list[Any]:
        lines = "".join(f"{one['key']},{one['n']}\n" for one in records(part))
        write(place, f"{part}.csv", f"key,n\n{lines}".encode())
        return records(part)

    def parquet(place: Path) -> ParquetSource:
        return ParquetSource(uri(place), partition_columns="dt", rows_per_epoch=4)

    check_source(parquet, fill_parquet, per_epoch=4, secrets=[SECRET])
    check_source(lambda place: JsonLinesSource(f"{uri(place)}/*.jsonl"), fill_json)
    check_source(lambda place: CsvSource(f"{uri(place)}/*.csv", schema=CSV), fill_csv)


def test_a_glob_lists_only_directories_that_match(store: fs.FileSystem) -> None:
    for name in ("dt=1/a", "dt=1/_b", "dt=2/a", "dt=2/x/a", "year/dt=1/a"):
        with store.open_output_stream(f"bucket/globs/{name}") as stream:
            stream.write(b"text")

    def paths(pattern: str) -> list[str]:
        found = find_files([f"s3://bucket/globs/{pattern}"], required=False)
        return sorted(one.path.removeprefix("bucket/globs/") for one in found)

    assert paths("dt=1") == ["dt=1/a"]
    assert paths("dt=[12]/a") == ["dt=1/a", "dt=2/a"]
    assert paths("dt=*") == ["dt=1/a", "dt=2/a", "dt=2/x/a"]
    assert paths("**/dt=1/*") == ["dt=1/a", "year/dt=1/a"]


def test_a_followed_directory_may_end_with_its_last_file(
    store: fs.FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_list, "LEAST_WAIT", 0)
    monkeypatch.setattr(file_list, "BUSY_SHARE", 1)

    def write(name: str) -> None:
        with store.open_output_stream(f"bucket/followed/{name}") as stream:
            stream.write(b'"text"\n')

    source, log = JsonLinesSource("s3://bucket/followed/", follow=True), MemoryLog()
    with pytest.raises(SourceError, match="which does not exist"):
        source.planner(log, 1)
    write("a")
    planner = source.planner(log, 1)
    first = planner.next(None)
    assert first is not None
    store.delete_dir("bucket/followed")
    for one in (planner, source.planner(log, 1)):
        assert one.next(first.end) is None
    write("b")
    assert planner.next(first.end) is not None
