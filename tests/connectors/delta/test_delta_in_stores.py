"""Delta tables whose files deltalake's own storage reaches, as those of object stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flow.connectors.delta import DeltaSink, DeltaSource, table
from flow.testing.connectors import check_sink, check_source
from tests.support.delta import append, rows_of
from tests.support.stores import SECRET, WEED, s3_server

deltalake = pytest.importorskip("deltalake")


def records(part: int) -> list[dict[str, Any]]:
    return [{"key": f"é {part}", "n": n} for n in range(9)]


def test_connectors_keep_the_laws_through_the_storage_of_deltalake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "is_local", lambda _: False)

    def sink(place: Path) -> DeltaSink:
        (place / "t").mkdir(exist_ok=True)
        return DeltaSink(place / "t")

    def fill(place: Path, part: int) -> list[Any]:
        append(place / "t", records(part))
        return records(part)

    check_sink(sink, lambda place: [(row["key"], row["n"]) for row in rows_of(place / "t")])
    check_source(lambda place: DeltaSource(place / "t", rows_per_epoch=4), fill, per_epoch=4)


@pytest.mark.extended
@pytest.mark.skipif(WEED is None, reason="needs SeaweedFS")
def test_connectors_keep_the_laws_in_an_object_store(tmp_path: Path) -> None:
    with s3_server(tmp_path) as options:

        def uri(place: Path) -> str:
            return f"s3://bucket/{place.name}"

        def read(place: Path) -> list[tuple[str, int]]:
            if not deltalake.DeltaTable.is_deltatable(uri(place), options):
                return []
            found = deltalake.DeltaTable(uri(place), storage_options=options)
            return [(row["key"], row["n"]) for row in found.to_pyarrow_table().to_pylist()]

        def fill(place: Path, part: int) -> list[Any]:
            append(uri(place), records(part), storage_options=options)  # type: ignore[arg-type]
            return records(part)

        def source(place: Path) -> DeltaSource:
            return DeltaSource(uri(place), rows_per_epoch=4, storage_options=options)

        check_sink(
            lambda place: DeltaSink(uri(place), storage_options=options), read, secrets=[SECRET]
        )
        check_source(source, fill, per_epoch=4, secrets=[SECRET])
