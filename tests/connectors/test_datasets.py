"""Names of the data sets that sources read and sinks write, which programs for lineage compare."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flow.connectors.files import CsvSource, ParquetSource, TextSink
from flow.connectors.items import from_items
from flow.connectors.kafka import KafkaSink, KafkaSource
from flow.connectors.sink import Sink
from flow.connectors.source import Dataset, Source
from flow.connectors.sql import PostgresSink, SqliteSink
from flow.connectors.stdio import StdOutSink
from flow.connectors.then import Then
from flow.views import ViewSink

HERE = os.getcwd()


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        ("/data/visits", "file", "/data/visits"),
        ("/data/day=*/part-?.csv", "file", "/data"),
        ("visits.csv", "file", f"{HERE}/visits.csv"),
        ("*.csv", "file", HERE),
        ("file:/data/a%20b/", "file", "/data/a b"),
        ("file:///data/visits", "file", "/data/visits"),
        ("s3://bucket/visits/*.csv", "s3://bucket", "visits"),
        ("s3a://me:secret@bucket", "s3://bucket", "/"),
        ("s3://bucket/visits?access_key=secret", "s3://bucket", "visits"),
        ("gcs://bucket/visits", "gs://bucket", "visits"),
        ("hdfs://me:secret@node:8020/visits", "hdfs://node:8020", "/visits"),
        ("abfss://box@a.dfs.core.windows.net/v", "abfss://box@a.dfs.core.windows.net", "v"),
    ],
)
def test_files_are_named_by_system_and_path(path: str, namespace: str, name: str) -> None:
    assert CsvSource(path).datasets() == (Dataset(namespace, name),)


@pytest.mark.parametrize("path", ["hdfs:///visits", "s3://me:sec/ret@bucket/visits"])
def test_files_of_an_unknown_system_have_no_name(path: str) -> None:
    assert CsvSource(path).datasets() == ()


def test_a_directory_that_is_written_is_a_data_set(tmp_path: Path) -> None:
    assert TextSink(tmp_path / "out").datasets() == (Dataset("file", f"{tmp_path}/out"),)


def test_topics_have_the_name_of_the_first_server() -> None:
    a, b = (Dataset("kafka://one:9093", name) for name in "ab")
    assert KafkaSource("one:9093,two", ["a", "b"]).datasets() == (a, b)
    bare = KafkaSource("SASL_SSL://[::1]", "a").datasets()
    assert bare == (Dataset("kafka://[::1]:9092", "a"),)
    assert KafkaSink("one:9093", "a", properties={"sasl.password": "secret"}).datasets() == (a,)


@pytest.mark.parametrize(
    ("dsn", "table", "dataset"),
    [
        ("postgresql://me:secret@db/sales", "hours", ("postgres://db:5432", "sales.public.hours")),
        ("host=db,db2 port=5433,5434 user=me", "a.b", ("postgres://db:5433", "me.a.b")),
    ],
)
def test_tables_of_postgresql_have_full_names(
    dsn: str, table: str, dataset: tuple[str, str]
) -> None:
    assert PostgresSink(dsn, table).datasets() == (Dataset(*dataset),)


@pytest.mark.parametrize("dsn", ["dbname=sales", "host=/run/postgresql dbname=sales", "host=db"])
def test_a_database_that_the_environment_names_has_no_data_set(dsn: str) -> None:
    assert PostgresSink(dsn, "hours").datasets() == ()


def test_a_file_of_sqlite_is_a_file(tmp_path: Path) -> None:
    file = f"{tmp_path}/out.db"
    assert SqliteSink(file, "hours").datasets() == (Dataset("file", file),)
    assert ViewSink(path=file).datasets() == (Dataset("file", file),)


def test_a_history_and_live_data_are_both_read() -> None:
    source: Source[object] = Then(ParquetSource("/old"), ParquetSource("/new", follow=True))
    assert source.datasets() == (Dataset("file", "/old"), Dataset("file", "/new"))


@pytest.mark.parametrize("end", [from_items([1]), StdOutSink(), ViewSink()])
def test_other_sources_and_sinks_have_no_data_set(end: Source[object] | Sink[object]) -> None:
    assert end.datasets() == ()
